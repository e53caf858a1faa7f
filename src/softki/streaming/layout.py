"""Which rows of a source are read together, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Layout:
    """The groups of a source: stretches of rows that are read at once.

    A part, such as a file, has one or more groups, and is read from its start.
    """

    part: np.ndarray  # (g,), which part a group belongs to, ascending
    index: np.ndarray  # (g,), its number within the part
    position: np.ndarray  # (g,), of its first row among all rows
    rows: np.ndarray  # (g,)

    @classmethod
    def of(cls, sizes: Sequence[Sequence[int]]) -> Layout:
        """The layout where part k has groups of sizes[k] rows.

        Example:
            >>> layout = Layout.of([[3, 2], [4]])
            >>> len(layout), layout.total, layout.position.tolist()
            (3, 9, [0, 3, 5])
        """
        part = np.repeat(np.arange(len(sizes)), [len(groups) for groups in sizes])
        none = np.empty(0, dtype=np.int64)
        index = np.concatenate([none, *(np.arange(len(groups)) for groups in sizes)])
        rows = np.concatenate([none, *(np.asarray(groups, dtype=np.int64) for groups in sizes)])
        return cls(part, index, np.cumsum(rows) - rows, rows)

    def starting_at(self, position: int) -> Layout:
        """The same groups, where the first row has that position."""
        return replace(self, position=self.position + position)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def total(self) -> int:
        """All rows."""
        return int(self.rows.sum())

    def groups_of(self, stretch: range) -> np.ndarray:
        """The groups that have rows in a stretch of positions."""
        ends = self.position + self.rows
        return np.flatnonzero((ends > stretch.start) & (self.position < stretch.stop))
