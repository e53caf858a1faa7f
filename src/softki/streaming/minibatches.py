"""Random minibatches of rows that are read a block at a time.

In every epoch the parts of a source come in another order, a few of them at the same time, and
their rows go through a buffer: it is shuffled whenever it is full, and half of it is given out.
Where several processes share the rows, each gives its share of every batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import count

import numpy as np

from softki.batches import Batch, Data
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import RawRows
from softki.streaming.shards import TrainingShard, shares
from softki.streaming.source import OPEN_PARTS

# Rows and numbers of the buffer, at most.
_BUFFER_ROWS, _BUFFER_NUMBERS = 1 << 18, 1 << 24
# Rows that are standardised, or sent to a GPU, at once, where these are several batches.
_TOGETHER = 1 << 15


class ShuffledRows:
    """The training rows of this process in random order, a function of (seed, epoch) alone.

    They are meant for batches without replacement: the rest of an epoch that does not fill a batch
    is left out. All processes give as many batches, and together the rows of a batch; a process
    that has few rows gives few, or none, to each of them.

    Args:
        shard: training rows of this process.
        size: rows of a batch, of all processes.
        seed: seed of the order.
    """

    def __init__(self, shard: TrainingShard, size: int, seed: int) -> None:
        self._shard, self._size, self._seed = shard, size, seed
        total = int(shard.counts.sum())
        self.batches_per_epoch = total // size
        if not self.batches_per_epoch:
            raise InvalidInputError(
                f"a batch of {size} rows is more than the {total} training rows: use smaller "
                "batches"
            )
        width = len(shard.source.columns) + len(shard.source.targets) + 1
        self._capacity = max(min(_BUFFER_ROWS, _BUFFER_NUMBERS // width), 2 * size)

    def sizes(self, steps: Iterable[int]) -> Iterator[int]:
        """The rows of this process in the batches of an epoch."""
        for step in steps:
            yield self._end(step + 1) - self._end(step)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[RawRows]:
        """The rows of an epoch from a batch on, those of some whole batches at a time."""
        random = np.random.default_rng([self._seed, epoch, self._shard.rank])
        together, first = max(1, _TOGETHER // self._size), 0
        for rows, last in self._drawn(random):
            for batch in range(max(start, first), last, together):
                ends = batch, min(batch + together, last)
                some = slice(*(self._end(k) - self._end(first) for k in ends))
                if some.start < some.stop:
                    yield rows.take(some)
            first = last
            del rows  # the next are drawn without these in memory

    def _end(self, batches: int) -> int:
        """The rows of this process in the first batches of an epoch."""
        return int(shares(self._shard.counts, batches * self._size)[self._shard.rank])

    def _whole(self, rows: int) -> int:
        """The batches of an epoch that this number of rows of this process is enough for."""
        return bisect_right(range(self.batches_per_epoch + 1), rows, key=self._end) - 1

    def _drawn(self, random: np.random.Generator) -> Iterator[tuple[RawRows, int]]:
        """Rows drawn from the buffer whenever it is full, and the batch that they reach up to."""
        layout, buffer, given = self._shard.source.layout, None, 0
        for rows in self._shard.read(self._order(random).tolist()):
            if buffer is None:
                buffer = _Buffer(rows, self._capacity + int(layout.rows.max()))
            buffer.add(rows)
            if len(buffer) >= self._capacity:
                batches = self._whole(given + len(buffer) - self._capacity // 2)
                before, given = given, self._end(batches)
                yield buffer.draw(given - before, random), batches
        rest = self._end(self.batches_per_epoch) - given
        if buffer is not None and rest:
            yield buffer.draw(rest, random), self.batches_per_epoch

    def _order(self, random: np.random.Generator) -> np.ndarray:
        """The blocks of this process: parts at random, and some of them at the same time."""
        blocks = self._shard.blocks
        if not len(blocks):
            return blocks
        part = self._shard.source.layout.part[blocks]
        own, number = np.unique(part, return_inverse=True)  # of this process
        turn = random.permutation(len(own))[number] // OPEN_PARTS
        mixed = part[np.argsort(turn + random.random(len(blocks)))]
        # Whenever it is a part's turn, its next block is read.
        order = np.empty_like(blocks)
        order[np.argsort(mixed, kind="stable")] = blocks
        return order


class _Buffer:
    """Rows in arrays of a fixed size, of which some are drawn at random.

    Only what is drawn is allocated anew: arrays of other sizes would leave gaps in the heap.
    """

    def __init__(self, like: RawRows, capacity: int) -> None:
        self._arrays = [
            np.zeros((capacity, *values.shape[1:]), values.dtype) for values in like.arrays
        ]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: RawRows) -> None:
        """Put rows in, of any precision."""
        stop = self._count + len(rows)
        for k, more in enumerate(rows.arrays):
            wide = np.result_type(self._arrays[k], more)
            self._arrays[k] = self._arrays[k].astype(wide, copy=False)
            self._arrays[k][self._count : stop] = more
        self._count = stop

    def draw(self, count: int, random: np.random.Generator) -> RawRows:
        """Take this number of rows out, at random."""
        order = random.permutation(self._count)
        drawn, left = order[:count], order[count:]
        self._count -= count
        rows = RawRows(*(values.take(drawn, axis=0) for values in self._arrays))
        # The rows that are left move to the places at the start that are free.
        free, moved = drawn[drawn < self._count], left[left >= self._count]
        for values in self._arrays:
            values[free] = values[moved]
        return rows


Standardize = Callable[[Iterable[Sequence[RawRows]]], Generator[Batch, None, None]]


class StreamedMinibatches:
    """Random minibatches, a function of (seed, step) alone, as `softki.batches.Minibatches`.

    Steps in increasing order are read ahead in the background; any other step begins its epoch
    again.

    Args:
        shuffled: rows of every epoch.
        standardized: function that gives the rows as batches, in the background.
        nothing: a batch of no rows.
    """

    def __init__(self, shuffled: ShuffledRows, standardized: Standardize, nothing: Batch) -> None:
        self._shuffled, self._standardized, self._nothing = shuffled, standardized, nothing
        self._ahead: Generator[Batch, None, None] | None = None
        self._next = 0

    def batch(self, step: int) -> Batch:
        """The batch of that step, counted from 0."""
        if self._ahead is None or step != self._next:
            self.close()
            drawn = self._standardized(_drawn_from(self._shuffled, step))
            self._ahead = _cut(drawn, self._shuffled, step, self._nothing)
        try:
            batch = next(self._ahead)
        except BaseException:
            self.close()
            raise
        self._next = step + 1
        return batch

    def close(self) -> None:
        """End the reading in the background."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


# These are functions, as a method that runs in the background would keep its object in use.


def _cut(
    drawn: Generator[Batch, None, None], shuffled: ShuffledRows, step: int, nothing: Batch
) -> Generator[Batch, None, None]:
    """The batches from a step on, cut from the rows of many; one of no rows waits for none."""
    steps = (k % shuffled.batches_per_epoch for k in count(step))
    rows, start = Data(*nothing), 0
    with closing(drawn):
        for size in shuffled.sizes(steps):
            if size and start == len(rows):
                rows, start = Data(*next(drawn)), 0
            yield rows.take(slice(start, start + size))
            start += size


def _drawn_from(shuffled: ShuffledRows, step: int) -> Iterator[list[RawRows]]:
    epoch, start = divmod(step, shuffled.batches_per_epoch)
    while True:
        for rows in shuffled.epoch(epoch, start):
            yield [rows]
        epoch, start = epoch + 1, 0
