"""Which rows of a source are read together, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softki.exceptions import InvalidInputError

# This process and the number of processes that share the rows.
Shard = tuple[int, int]
ONE_PROCESS: Shard = (0, 1)


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
        index = np.concatenate([np.arange(len(groups)) for groups in sizes])
        rows = np.concatenate([np.asarray(groups, dtype=np.int64) for groups in sizes])
        return cls(part, index.astype(np.int64), np.cumsum(rows) - rows, rows)

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


def stretch_of(total: int, shard: Shard) -> range:
    """The positions of the rows that a process reads: as many in each, but for one row.

    Example:
        >>> [stretch_of(10, (rank, 3)) for rank in range(3)]
        [range(0, 3), range(3, 6), range(6, 10)]
    """
    rank, world = shard
    if not 0 <= rank < world:
        raise InvalidInputError(f"shard must be (rank, world) with 0 ≤ rank < world, got {shard}")
    return range(total * rank // world, total * (rank + 1) // world)
