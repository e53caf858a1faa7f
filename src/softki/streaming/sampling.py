"""A uniform sample of rows in one pass, the same for any blocks and any number of processes."""

from __future__ import annotations

from typing import Self

import numpy as np

from softki.streaming.blocks import Block, RawRows
from softki.training.data import row_hash

# The share of the capacity that may wait until the rows beyond it are dropped.
_SLACK = 0.25


class LowestRows:
    """The first rows in the random order of their hashes, at most as many as the capacity.

    The choice and its order are functions of (seed, position) alone. Those of parts of the rows can
    be found apart, and added.

    Example:
        >>> rows = RawRows(np.arange(100.0)[:, None], np.zeros((100, 1)))
        >>> whole, first, second = (LowestRows(3, seed=0) for _ in range(3))
        >>> whole.add(Block(0, rows))
        >>> first.add(Block(0, rows.take(slice(40))))
        >>> second.add(Block(40, rows.take(slice(40, None))))
        >>> whole.ordered()[0].tolist() == (first + second).ordered()[0].tolist()
        True
    """

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity, self.seed = capacity, seed
        self._limit = np.uint64((1 << 64) - 1)
        self._kept: list[tuple[np.ndarray, RawRows]] = []  # positions and rows
        self._count = 0

    def add(self, block: Block) -> None:
        """Look at more rows."""
        chosen = np.flatnonzero(row_hash(block.positions, self.seed) <= self._limit)
        if len(chosen):
            self._keep(block.positions[chosen], block.rows.take(chosen))

    def __add__(self, other: Self) -> Self:
        result = type(self)(self.capacity, self.seed)
        for kept in (*self._kept, *other._kept):
            result._keep(*kept)
        return result

    def ordered(self) -> tuple[np.ndarray, RawRows]:
        """Positions and rows, in the order of the hashes."""
        self._drop()
        return self._kept[0]

    def _keep(self, positions: np.ndarray, rows: RawRows) -> None:
        self._kept.append((positions, rows))
        self._count += len(positions)
        if self._count > (1 + _SLACK) * self.capacity:
            self._drop()

    def _drop(self) -> None:
        """Join the rows in the order of their hashes, and drop those beyond the capacity."""
        positions = np.concatenate([kept[0] for kept in self._kept])
        hashes = row_hash(positions, self.seed)
        lowest = np.argsort(hashes)[: self.capacity]
        if len(lowest) < len(hashes):
            self._limit = hashes[lowest[-1]]
        rows = RawRows.join([kept[1] for kept in self._kept]).take(lowest)
        self._kept, self._count = [(positions[lowest], rows)], len(lowest)
