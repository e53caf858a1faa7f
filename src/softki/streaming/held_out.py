"""Which rows are held out: the first ones in the random order of their hashes."""

from __future__ import annotations

import numpy as np

from softki.streaming.rows import Block, Rows


class HeldOutRows:
    """The positions of held-out rows.

    Example:
        >>> held_out = HeldOutRows(np.array([7, 2]))
        >>> block = Block(1, Rows(np.arange(1.0, 5.0)[:, None], np.zeros((4, 1))))
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

    def training(self, block: Block) -> Rows:
        """The rows of the block that are not held out."""
        ends = [block.position, block.position + len(block.rows)]
        first, last = np.searchsorted(self.positions, ends)
        if first == last:
            return block.rows
        mask = np.ones(len(block.rows), dtype=bool)
        mask[self.positions[first:last] - block.position] = False
        return block.rows.take(np.flatnonzero(mask))
