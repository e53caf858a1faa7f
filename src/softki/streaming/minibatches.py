"""Random minibatches of rows that are read a group at a time.

In every epoch the parts of a source come in another order, a few of them at the same time, and
their rows go through a buffer: it is shuffled whenever it is full, and half of it is given out.
Where several processes share the rows, each gives its part of every batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import count

import numpy as np
import torch

from softki.batches import Batch
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import RawRows
from softki.streaming.layout import Shards, shares
from softki.streaming.prefetch import on_device
from softki.streaming.preparation import as_batch, cut, each, part_of
from softki.streaming.sampling import HeldOutPositions
from softki.streaming.source import OPEN_PARTS, Source

# Rows and bytes of the buffer, at most.
_BUFFER_ROWS = 1 << 18
_BUFFER_BYTES = 1 << 26


class ShuffledBatches:
    """Minibatches without replacement, a function of (seed, epoch) alone.

    The rest of an epoch that does not fill a batch is left out. All processes give as many, and
    together the rows of a batch; a process that has few gives few, or none, to each of them.

    Args:
        source: of the rows.
        size: rows of a batch, of all processes.
        seed: of the order.
        held_out: rows that are in no batch.
        prepared: what is done to rows when they are read, such as to standardise them.
        shards: the stretches of rows that processes read; by default this one reads all.
        buffer_rows: that are mixed at a time; by default 262,144, or 64 MB where these are more.

    Example:
        >>> from softki.streaming import open_source
        >>> source = open_source(np.arange(10.0)[:, None], y=np.zeros(10))
        >>> batches = ShuffledBatches(source, size=5, seed=0)
        >>> np.sort(np.concatenate([rows.x for rows in batches.epoch(0)]), axis=None)
        array([0., 1., 2., 3., 4., 5., 6., 7., 8., 9.])
    """

    def __init__(
        self,
        source: Source,
        size: int,
        seed: int,
        held_out: HeldOutPositions | None = None,
        prepared: Callable[[RawRows], RawRows] = lambda rows: rows,
        shards: Shards | None = None,
        buffer_rows: int | None = None,
    ) -> None:
        self.source, self.size, self.seed = source, size, seed
        self._held_out, self._prepared = held_out or HeldOutPositions(), prepared
        shards = Shards.even(len(source)) if shards is None else shards
        self._rank, self._stretch = shards.rank, shards.own
        self._counts = np.array(
            [len(stretch) - self._held_out.count(stretch) for stretch in shards.stretches]
        )
        total = int(self._counts.sum())
        self.batches_per_epoch = total // size
        if not self.batches_per_epoch:
            raise InvalidInputError(
                f"a batch of {size} rows is more than the {total} training rows: use smaller "
                "batches"
            )
        width = 4 * (len(source.columns) + len(source.targets) + 1)
        rows = min(_BUFFER_ROWS, _BUFFER_BYTES // width) if buffer_rows is None else buffer_rows
        self._capacity = max(rows, 2 * size)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[RawRows]:
        """The batches of an epoch, from the given one on."""
        steps = range(start_step, self.batches_per_epoch)
        return cut(self.stretches(epoch, start_step), self.sizes(steps), self.nothing, RawRows.take)

    def sizes(self, steps: Iterable[int]) -> Iterator[int]:
        """The rows of this process in the batches of an epoch."""
        for step in steps:
            yield self._end(step + 1) - self._end(step)

    @property
    def nothing(self) -> RawRows:
        """No rows."""
        none = np.empty((0, len(self.source.columns))), np.empty((0, len(self.source.targets)))
        return self._prepared(RawRows(*none, None if self.source.noise is None else np.empty(0)))

    def stretches(self, epoch: int, start_step: int = 0) -> Iterator[RawRows]:
        """The same, many batches at a time."""
        first = 0
        for rows, last in self._drawn(np.random.default_rng([self.seed, epoch, self._rank])):
            before = self._end(first)
            start, stop = self._end(max(start_step, first)), self._end(last)
            if start < stop:
                yield rows.take(slice(start - before, stop - before))
            first = last

    def _end(self, batches: int) -> int:
        """The rows of this process in so many batches."""
        return int(shares(self._counts, batches * self.size)[self._rank])

    def _whole(self, rows: int) -> int:
        """The batches of an epoch that so many rows of this process are enough for."""
        return bisect_right(range(self.batches_per_epoch + 1), rows, key=self._end) - 1

    def _drawn(self, random: np.random.Generator) -> Iterator[tuple[RawRows, int]]:
        """What is drawn from the buffer whenever it is full, to the end of so many batches."""
        buffer: list[RawRows] = []
        given = 0
        for block in self.source.blocks(self._order(random).tolist()):
            rows = self._held_out.training(block.within(self._stretch))
            if len(rows):
                buffer.append(self._prepared(rows))
            count = sum(map(len, buffer))
            if count >= self._capacity:
                batches = self._whole(given + count - self._capacity // 2)
                drawn, rest = _draw(buffer, self._end(batches) - given, random)
                buffer.append(rest)
                given = self._end(batches)
                yield drawn, batches
        count = self._end(self.batches_per_epoch) - given
        if count:
            yield _draw(buffer, count, random)[0], self.batches_per_epoch

    def _order(self, random: np.random.Generator) -> np.ndarray:
        """The groups of this process: parts at random, and some of them at the same time."""
        layout = self.source.layout
        groups = layout.groups_of(self._stretch)
        if not len(groups):
            return groups
        part = layout.part[groups]
        own, number = np.unique(part, return_inverse=True)  # of this process
        turn = random.permutation(len(own))[number] // OPEN_PARTS
        mixed = part[np.argsort(turn + random.random(len(groups)))]
        # Whenever it is a part's turn, its next group is read.
        order = np.empty_like(groups)
        order[np.argsort(mixed, kind="stable")] = groups
        return order


def _draw(
    buffer: list[RawRows], count: int, random: np.random.Generator
) -> tuple[RawRows, RawRows]:
    """So many rows at random, and the others; the buffer is empty then."""
    rows = RawRows.join(buffer)
    buffer.clear()  # what was joined need not be in memory twice
    order = random.permutation(len(rows))
    return rows.take(order[:count]), rows.take(order[count:])


class StreamedMinibatches:
    """Random minibatches, a function of (seed, step) alone, as `softki.batches.Minibatches`.

    Steps in increasing order are read ahead in the background; any other step begins its epoch
    again.
    """

    def __init__(self, shuffled: ShuffledBatches, device: torch.device) -> None:
        self._shuffled, self._device = shuffled, device
        self._ahead: Generator[Batch, None, None] | None = None
        self._next = 0

    def batch(self, step: int) -> Batch:
        """The batch of that step, counted from 0."""
        if self._ahead is None or step != self._next:
            self.close()
            self._ahead = _batches(self._shuffled, self._device, step)
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


def _batches(
    shuffled: ShuffledBatches, device: torch.device, step: int
) -> Generator[Batch, None, None]:
    """The batches from a step on; many are read and sent at once, and cut here."""
    steps = (k % shuffled.batches_per_epoch for k in count(step))
    nothing = each(as_batch(shuffled.nothing), lambda tensor: tensor.to(device))
    with closing(on_device(_stretches(shuffled, step), device)) as stretches:
        yield from cut(stretches, shuffled.sizes(steps), nothing, part_of)


def _stretches(shuffled: ShuffledBatches, step: int) -> Iterator[Batch]:
    epoch, start = divmod(step, shuffled.batches_per_epoch)
    while True:
        for rows in shuffled.stretches(epoch, start):
            yield as_batch(rows)
        shuffled.source.check_unchanged()
        epoch, start = epoch + 1, 0
