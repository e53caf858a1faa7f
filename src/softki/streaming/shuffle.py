"""Random minibatches of rows that are read a group at a time.

In every epoch the parts of a source come in another order, a few of them at the same time, and
their rows go through a buffer: it is shuffled whenever it is full, and half of it is given out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from softki.exceptions import InvalidInputError
from softki.streaming.held_out import HeldOutRows
from softki.streaming.layout import ONE_PROCESS, Shard, stretch_of
from softki.streaming.rows import Rows
from softki.streaming.source import OPEN_PARTS, Source

# Rows and bytes of the buffer, at most.
_BUFFER_ROWS = 1 << 18
_BUFFER_BYTES = 1 << 26


class ShuffledBatches:
    """Minibatches without replacement, a function of (seed, epoch) alone.

    The rest of an epoch that does not fill a batch is left out. All processes give as many.

    Args:
        source: of the rows.
        size: rows of a batch.
        seed: of the order.
        held_out: rows that are in no batch.
        prepared: what is done to rows when they are read, such as to standardise them.
        shard: this process and their number; each reads a stretch of the rows.
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
        held_out: HeldOutRows | None = None,
        prepared: Callable[[Rows], Rows] = lambda rows: rows,
        shard: Shard = ONE_PROCESS,
        buffer_rows: int | None = None,
    ) -> None:
        self.source, self.size, self.seed, self.shard = source, size, seed, shard
        self._held_out, self._prepared = held_out or HeldOutRows(), prepared
        stretches = [stretch_of(len(source), (rank, shard[1])) for rank in range(shard[1])]
        self._stretch = stretch_of(len(source), shard)
        least = min(len(stretch) - self._held_out.count(stretch) for stretch in stretches)
        self.batches_per_epoch = least // size
        if not self.batches_per_epoch:
            raise InvalidInputError(
                f"a batch of {size} rows is more than the {least} training rows"
                + (" of a process" if shard[1] > 1 else "")
                + ": use smaller batches"
            )
        width = 4 * (len(source.columns) + len(source.targets) + 1)
        rows = min(_BUFFER_ROWS, _BUFFER_BYTES // width) if buffer_rows is None else buffer_rows
        self._capacity = max(rows, 2 * size)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Rows]:
        """The batches of an epoch, from the given one on."""
        for stretch in self.stretches(epoch, start_step):
            for start in range(0, len(stretch), self.size):
                yield stretch.take(slice(start, start + self.size))

    def stretches(self, epoch: int, start_step: int = 0) -> Iterator[Rows]:
        """The same, many batches at a time."""
        given = 0
        for rows in self._drawn(np.random.default_rng([self.seed, epoch, self.shard[0]])):
            first, given = given, given + len(rows) // self.size
            start, stop = max(start_step, first), min(given, self.batches_per_epoch)
            if start < stop:
                yield rows.take(slice((start - first) * self.size, (stop - first) * self.size))
            if stop < given:
                return

    def _drawn(self, random: np.random.Generator) -> Iterator[Rows]:
        """What is drawn from the buffer whenever it is full: a number of whole batches."""
        buffer: list[Rows] = []
        for block in self.source.blocks(self._order(random).tolist()):
            rows = self._held_out.training(block.within(self._stretch))
            if len(rows):
                buffer.append(self._prepared(rows))
            count = sum(map(len, buffer))
            if count >= self._capacity:
                batches = (count - self._capacity // 2) // self.size
                drawn, rest = _draw(buffer, batches * self.size, random)
                buffer.append(rest)
                yield drawn
        count = sum(map(len, buffer)) // self.size * self.size
        if count:
            yield _draw(buffer, count, random)[0]

    def _order(self, random: np.random.Generator) -> np.ndarray:
        """The groups of this process: parts at random, and some of them at the same time."""
        layout = self.source.layout
        groups = layout.groups_of(self._stretch)
        part = layout.part[groups]
        turn = random.permutation(int(part.max()) + 1)[part] // OPEN_PARTS
        mixed = part[np.argsort(turn + random.random(len(groups)))]
        # Whenever it is a part's turn, its next group is read.
        order = np.empty_like(groups)
        order[np.argsort(mixed, kind="stable")] = groups
        return order


def _draw(buffer: list[Rows], count: int, random: np.random.Generator) -> tuple[Rows, Rows]:
    """So many rows at random, and the others; the buffer is empty then."""
    rows = Rows.join(buffer)
    buffer.clear()  # what was joined need not be in memory twice
    order = random.permutation(len(rows))
    return rows.take(order[:count]), rows.take(order[count:])
