"""Sizes and places of the blocks of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Layout:
    """The blocks of a source, which are rows that are read at once.

    A part, such as a file, has one or more blocks, and is read from its start.
    """

    part: np.ndarray  # (b,), number of the part that a block belongs to, ascending
    index: np.ndarray  # (b,), number of the block within the part
    position: np.ndarray  # (b,), position of its first row among all rows
    rows: np.ndarray  # (b,)

    @classmethod
    def of(cls, sizes: Sequence[Sequence[int]]) -> Layout:
        """The layout where part k has blocks of sizes[k] rows.

        Example:
            >>> layout = Layout.of([[3, 2], [4]])
            >>> len(layout), layout.total, layout.position.tolist()
            (3, 9, [0, 3, 5])
        """
        places = [(k, i) for k, blocks in enumerate(sizes) for i in range(len(blocks))]
        part, index = np.array(places, dtype=np.int64).reshape(-1, 2).T
        rows = np.array([size for blocks in sizes for size in blocks], dtype=np.int64)
        return cls(part, index, np.cumsum(rows) - rows, rows)

    def starting_at(self, position: int) -> Layout:
        """The same blocks, where the first row has that position."""
        return replace(self, position=self.position + position)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def total(self) -> int:
        """Number of all rows."""
        return int(self.rows.sum())

    def blocks_of(self, shard: range) -> np.ndarray:
        """The blocks that have rows in a shard."""
        ends = self.position + self.rows
        return np.flatnonzero((ends > shard.start) & (self.position < shard.stop))
