"""A uniform sample of rows in one pass, the same for every pass, grouping and process."""

from __future__ import annotations

from typing import Self

import numpy as np

from softki.streaming.blocks import Block, RawRows
from softki.training.data import row_hash

# The share of the capacity that may wait until the rows beyond it are dropped.
_SLACK = 0.25


class LowestRows:
    """The first rows in the random order of their hashes, at most as many as the capacity.

    Which they are, and their order, is a function of (seed, position) alone. Of each stretch of
    the rows these can be found apart, and added.

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
        self._kept: list[tuple[np.ndarray, np.ndarray, RawRows]] = []  # hashes, positions, rows
        self._count = 0

    def add(self, block: Block) -> None:
        """Look at more rows."""
        positions = block.positions
        hashes = row_hash(positions, self.seed)
        chosen = np.flatnonzero(hashes <= self._limit)
        if len(chosen):
            self._keep(hashes[chosen], positions[chosen], block.rows.take(chosen))

    def __add__(self, other: Self) -> Self:
        result = type(self)(self.capacity, self.seed)
        for kept in (*self._kept, *other._kept):
            result._keep(*kept)
        return result

    def ordered(self) -> tuple[np.ndarray, RawRows]:
        """Positions and rows, in the order of the hashes."""
        self._drop()
        hashes, positions, rows = self._kept[0]
        order = np.argsort(hashes)
        return positions[order], rows.take(order)

    def _keep(self, hashes: np.ndarray, positions: np.ndarray, rows: RawRows) -> None:
        self._kept.append((hashes, positions, rows))
        self._count += len(hashes)
        if self._count > (1 + _SLACK) * self.capacity:
            self._drop()

    def _drop(self) -> None:
        """Drop the rows beyond the capacity, and join the others."""
        hashes = np.concatenate([kept[0] for kept in self._kept])
        positions = np.concatenate([kept[1] for kept in self._kept])
        rows = RawRows.join([kept[2] for kept in self._kept])
        if len(hashes) > self.capacity:
            lowest = np.argpartition(hashes, self.capacity - 1)[: self.capacity]
            hashes, positions, rows = hashes[lowest], positions[lowest], rows.take(lowest)
            self._limit = hashes.max()
        self._kept, self._count = [(hashes, positions, rows)], len(hashes)


class HeldOutPositions:
    """The positions of held-out rows.

    Example:
        >>> held_out = HeldOutPositions(np.array([7, 2]))
        >>> block = Block(1, RawRows(np.arange(1.0, 5.0)[:, None], np.zeros((4, 1))))
        >>> held_out.training(block).x.ravel()
        array([1., 3., 4.])
        >>> held_out.count(range(0, 7))
        1
    """

    def __init__(self, positions: np.ndarray | None = None) -> None:
        self.positions = np.sort(np.empty(0, np.int64) if positions is None else positions)

    def count(self, stretch: range) -> int:
        """Held-out rows in a stretch of positions."""
        first, last = np.searchsorted(self.positions, [stretch.start, stretch.stop])
        return int(last - first)

    def training(self, block: Block) -> RawRows:
        """The rows of the block that are not held out."""
        ends = [block.position, block.position + len(block.rows)]
        first, last = np.searchsorted(self.positions, ends)
        if first == last:
            return block.rows
        mask = np.ones(len(block.rows), dtype=bool)
        mask[self.positions[first:last] - block.position] = False
        return block.rows.take(np.flatnonzero(mask))
