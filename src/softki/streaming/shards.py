"""The shards of a source: a range of positions for each process, whose rows it trains on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from softki.streaming.blocks import Block, RawRows
from softki.streaming.source import Source


def even_shards(total: int, processes: int) -> list[range]:
    """Shards of as many rows each, but for one.

    Example:
        >>> even_shards(10, processes=3)
        [range(0, 3), range(3, 6), range(6, 10)]
    """
    ends = [total * k // processes for k in range(processes + 1)]
    return [range(*pair) for pair in pairwise(ends)]


def consecutive_shards(counts: Iterable[int]) -> list[range]:
    """Shards of these numbers of rows, one after the other.

    Example:
        >>> consecutive_shards([4, 0, 2])
        [range(0, 4), range(4, 4), range(4, 6)]
    """
    return [range(*pair) for pair in pairwise(accumulate(counts, initial=0))]


class TrainingShard:
    """The training rows of one process: those of its shard that are not held out.

    Args:
        source: source of the rows.
        held_out: positions of the rows that are held out.
        shards: shards of all processes.
        rank: number of this process.

    Attributes:
        source, rank: as given.
        counts: number of training rows of each process, (p,).
        blocks: the blocks that have rows of this shard.

    Example:
        >>> from softki.streaming import open_source
        >>> source = open_source(np.arange(10.0)[:, None], np.zeros(10))
        >>> shard = TrainingShard(source, np.array([7, 2]), [range(0, 5), range(5, 10)], rank=1)
        >>> np.concatenate([rows.x for rows in shard.read()]).ravel(), shard.counts
        (array([5., 6., 8., 9.]), array([4, 4]))
    """

    def __init__(
        self, source: Source, held_out: np.ndarray, shards: Sequence[range], rank: int = 0
    ) -> None:
        self.source, self.rank = source, rank
        self._own, self._held_out = shards[rank], np.sort(held_out)
        self.counts = np.array([len(shard) - len(self._held_out_in(shard)) for shard in shards])
        self.blocks = source.layout.blocks_of(self._own)

    def read(self, blocks: Iterable[int] | None = None) -> Iterator[RawRows]:
        """The rows of its blocks, by default all in order."""
        for block in self.source.blocks(self.blocks if blocks is None else blocks):
            yield self._training(block.within(self._own))
        self.source.check_unchanged()

    def _training(self, block: Block) -> RawRows:
        held_out = self._held_out_in(range(block.position, block.position + len(block.rows)))
        if not len(held_out):
            return block.rows
        return block.rows.take(np.delete(np.arange(len(block.rows)), held_out - block.position))

    def _held_out_in(self, shard: range) -> np.ndarray:
        first, last = np.searchsorted(self._held_out, [shard.start, shard.stop])
        return self._held_out[first:last]


def shares(counts: np.ndarray, total: int) -> np.ndarray:
    """How many of the first `total` rows each process gives, where process k has counts[k].

    The i-th row of a process with n rows, counted from 0, has its turn at (i + ½)/n. So each gives
    in proportion to what it has, none gives back what it gave before, and all are done together.

    Example:
        >>> counts = np.array([600, 0, 300, 100])
        >>> shares(counts, 10), shares(counts, 20), shares(counts, 1000)
        (array([6, 0, 3, 1]), array([12,  0,  6,  2]), array([600,   0, 300, 100]))
    """
    if len(counts) == 1:
        return np.array([total])
    # At this time, at least as many are left to give as there are processes.
    time = max(0, total - len(counts)) / counts.sum()
    given = np.floor(time * counts).astype(np.int64)
    for _ in range(total - int(given.sum())):
        turn = np.full(len(counts), np.inf)
        np.divide(given + 0.5, counts, out=turn, where=given < counts)
        given[np.argmin(turn)] += 1
    return given
