"""What a fit takes of its rows, whether they are in memory or read from files again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from softki.batches import Batch
from softki.processes import Processes


class Chunked(Protocol):
    """Rows that come a chunk at a time."""

    def chunks(self, points: int) -> Iterable[Batch]:
        """The rows in chunks whose (rows, m) work stays small, anew at each iteration."""
        ...


class MinibatchesByStep(Protocol):
    """Random minibatches without replacement, a function of (seed, step) alone."""

    def batch(self, step: int) -> Batch:
        """The batch of that step, counted from 0."""
        ...

    def close(self) -> None:
        """No more are needed."""
        ...


class TrainingData(Chunked, Protocol):
    """Standardised rows, some of them held out.

    `softki.in_memory.InMemoryRows` and `softki.streaming.StreamedRows` are such. Where several
    processes share the rows, chunks and minibatches are of those of this process; everything else
    is the same in all of them.
    """

    @property
    def device(self) -> torch.device:
        """Of the batches."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the batches."""
        ...

    @property
    def dimension(self) -> int:
        """d, the number of inputs."""
        ...

    @property
    def targets(self) -> int:
        """t, the number of targets."""
        ...

    @property
    def training_count(self) -> int:
        """The number of rows that are not held out."""
        ...

    @property
    def knows_noise(self) -> bool:
        """Whether batches have a `noise_scale`."""
        ...

    @property
    def is_streamed(self) -> bool:
        """Whether the rows are read anew in every pass."""
        ...

    @property
    def processes(self) -> Processes:
        """Those that share the rows."""
        ...

    @property
    def held_out(self) -> Batch | None:
        """The rows that training does not see."""
        ...

    @property
    def held_out_index(self) -> Tensor:
        """Where those are among all rows."""
        ...

    @property
    def inputs(self) -> Tensor:
        """x of all rows, or, where these are not in memory, of as many at random: (s, d)."""
        ...

    def __len__(self) -> int:
        """n, with the rows that are held out."""
        ...

    def digest(self) -> str:
        """What the rows are, in a few characters, to know them again."""
        ...

    def sample(self, count: int) -> Batch:
        """Training rows at random: the first so many, or all that are in memory."""
        ...

    def chunks(self, points: int) -> Iterable[Batch]:
        """All training rows, anew at each iteration."""
        ...

    def minibatches(self, size: int, seed: int) -> MinibatchesByStep:
        """Random minibatches of the training rows; of several processes, each has its part."""
        ...
