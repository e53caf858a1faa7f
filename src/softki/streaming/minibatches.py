"""The minibatches of training from a source, by their step."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import count

import torch

from softki.batches import Batch
from softki.streaming.prefetch import prefetched
from softki.streaming.prepared import as_batch, cut, each, part_of
from softki.streaming.shuffle import ShuffledBatches


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
    with closing(prefetched(_stretches(shuffled, step), device)) as stretches:
        yield from cut(stretches, shuffled.sizes(steps), nothing, part_of)


def _stretches(shuffled: ShuffledBatches, step: int) -> Iterator[Batch]:
    epoch, start = divmod(step, shuffled.batches_per_epoch)
    while True:
        for rows in shuffled.stretches(epoch, start):
            yield as_batch(rows)
        shuffled.source.check_unchanged()
        epoch, start = epoch + 1, 0
