"""What a fit takes of its rows, whether they are in memory or read from files again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from softki.batches import Batch, Data, Minibatches
from softki.exceptions import InvalidInputError
from softki.files.digest import digest_of
from softki.parallel.processes import ALONE, Processes


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

    `softki.training.data.InMemoryRows` and `softki.streaming.StreamedRows` are such. Where several
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
        """Whether batches have a `noise_std`."""
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


# Fewer held-out rows say nothing, more say nothing new.
LEAST_HELD_OUT, MOST_HELD_OUT = 5, 10_000


@dataclass(frozen=True)
class Split:
    """Which rows train and which are held out, as indices into the data."""

    training: Tensor
    held_out: Tensor


def split_rows(count: int, share: float, generator: torch.Generator) -> Split:
    """Hold out a random share of the rows; see `held_out_count`."""
    order = torch.randperm(count, generator=generator, device="cpu")
    size = held_out_count(count, share)
    return Split(order[size:], order[:size])


def held_out_count(total: int, share: float) -> int:
    """How many rows are held out: at most 10,000, and none if that is fewer than 5.

    Example:
        >>> held_out_count(1000, 0.1), held_out_count(10**9, 0.1), held_out_count(20, 0.1)
        (100, 10000, 0)
    """
    count = min(round(share * total), MOST_HELD_OUT)
    if count < LEAST_HELD_OUT:
        return 0
    if count == total:
        raise InvalidInputError(
            f"held_out={share} of {total} rows leaves no rows to train on: use a smaller share"
        )
    return count


class InMemoryRows:
    """`Data` with a `Split`, as `softki.training.data.TrainingData`.

    Example:
        >>> data = Data(torch.randn(100, 3), torch.randn(100, 1))
        >>> rows = InMemoryRows(data, split_rows(100, 0.1, torch.Generator().manual_seed(0)))
        >>> rows.training_count, len(rows.held_out.x), len(rows.sample(20).x)
        (90, 10, 20)
    """

    is_streamed = False
    processes = ALONE

    def __init__(self, data: Data, split: Split) -> None:
        self.data = data
        self.training = split.training.to(data.x.device)
        self.held_out_index = split.held_out
        self.device, self.dtype = data.x.device, data.x.dtype
        self.dimension, self.targets = data.x.shape[1], data.y.shape[1]
        self.training_count = len(split.training)
        self.knows_noise = data.noise_std is not None
        self.inputs = data.x

    @classmethod
    def whole(cls, data: Data) -> Self:
        """All rows in order, with none held out."""
        index = torch.arange(len(data), device="cpu")
        return cls(data, Split(index, index[:0]))

    @cached_property
    def held_out(self) -> Batch | None:
        """The rows that training does not see."""
        index = self.held_out_index
        return self.data.take(index.to(self.device)) if len(index) else None

    def __len__(self) -> int:
        """n, with the rows that are held out."""
        return len(self.data)

    def digest(self) -> str:
        """What the rows are, in a few characters, to know them again."""
        return digest_of([self.data.x, self.data.y, self.data.noise_std])

    def sample(self, count: int) -> Batch:
        """The first training rows, whose order is random."""
        return self.data.take(self.training[:count])

    def chunks(self, points: int) -> Sequence[Batch]:
        """All training rows."""
        return self.data.chunks(points, self.training)

    def minibatches(self, size: int, seed: int) -> Minibatches:
        """Random minibatches of the training rows."""
        return Minibatches(self.data, self.training, size, seed)
