"""The rows of a fit, in memory or read from files again and again, some of them held out.

Every random choice of rows is by one order, that of their hashes, which is a function of the seed
and of the position of a row: the first rows are held out, and those that come next are the sample
that interpolation points, noise and evaluations are found by. So the same rows give the same model
whether they come as a table, as a file, or in the shards of several processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from softki.batches import Batch, Data, Minibatches
from softki.exceptions import InvalidInputError
from softki.files.digest import digest_of

if TYPE_CHECKING:
    from softki.parallel.processes import Processes


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

    `InMemoryRows` and `softki.streaming.StreamedRows` are training data. Where several processes
    share the rows, chunks and minibatches are those of this process; everything else is the same
    in all of them.
    """

    @property
    def device(self) -> torch.device:
        """Device of the batches."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the batches."""
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
        """True if batches have a `noise_std`."""
        ...

    @property
    def is_streamed(self) -> bool:
        """True if the rows are read again in every pass."""
        ...

    @property
    def processes(self) -> Processes | None:
        """The processes that share the rows; None where this one has all of them."""
        ...

    @property
    def held_out(self) -> Batch | None:
        """The rows that training does not see."""
        ...

    @property
    def held_out_index(self) -> Tensor:
        """Positions of the held-out rows among all rows."""
        ...

    @property
    def seed(self) -> int | None:
        """Seed of the order by which rows are held out; None where it is another order."""
        ...

    @property
    def inputs(self) -> Tensor:
        """x of all rows, or of a random sample of rows that are not in memory: (s, d)."""
        ...

    def __len__(self) -> int:
        """n, with the rows that are held out."""
        ...

    def digest(self) -> str:
        """A fingerprint of the rows."""
        ...

    def sample(self, count: int) -> Batch:
        """Training rows at random: the first of them in the order of their hashes."""
        ...

    def chunks(self, points: int) -> Iterable[Batch]:
        """All training rows, anew at each iteration."""
        ...

    def minibatches(self, size: int, seed: int) -> MinibatchesByStep:
        """Random minibatches of the training rows; each of several processes has a part of them."""
        ...


# Fewer held-out rows say nothing, more say nothing new.
LEAST_HELD_OUT, MOST_HELD_OUT = 5, 10_000
# Rows and numbers of a sample, at most: 20 rows for each of 4,096 points.
_SAMPLE_ROWS, _SAMPLE_NUMBERS = 81_920, 1 << 25
# Constants of SplitMix64.
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL_BITS = (1 << 64) - 1


def row_hash(positions: np.ndarray, seed: int) -> np.ndarray:
    """64 random bits for each row, a function of (seed, position) alone: SplitMix64.

    For one seed, no two rows have the same.

    Example:
        >>> row_hash(np.array([0, 1]), seed=0) < 2**63
        array([False,  True])
    """
    start = _mixed(np.array([seed & _ALL_BITS], dtype=np.uint64))
    return _mixed((positions.astype(np.uint64) + np.uint64(1)) * np.uint64(_STEP) + start)


def _mixed(state: np.ndarray) -> np.ndarray:
    state = state ^ (state >> np.uint64(30))
    state *= np.uint64(_FIRST)
    state ^= state >> np.uint64(27)
    state *= np.uint64(_SECOND)
    state ^= state >> np.uint64(31)
    return state


def hash_order(count: int, seed: int) -> Tensor:
    """The positions of rows in the order of their hashes, (count,): a random permutation."""
    return torch.from_numpy(np.argsort(row_hash(np.arange(count), seed)))


def sample_rows(width: int) -> int:
    """The most rows of a sample, where a row has `width` numbers.

    Example:
        >>> sample_rows(10), sample_rows(10_000)
        (81920, 3355)
    """
    return max(1, min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // width))


def held_out_count(total: int, share: float) -> int:
    """The number of rows that are held out: at most 10,000, and none if that is fewer than 5.

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


@dataclass(frozen=True)
class Split:
    """Training rows and held-out rows, as indices into the data."""

    training: Tensor
    held_out: Tensor


class InMemoryRows:
    """`Data` with a `Split`, as training data.

    Example:
        >>> data = Data(torch.randn(100, 3), torch.randn(100, 1))
        >>> rows = InMemoryRows.holding_out(data, share=0.1, seed=0)
        >>> rows.training_count, len(rows.held_out.x), len(rows.sample(20).x)
        (90, 10, 20)
    """

    is_streamed = False
    processes = None

    def __init__(self, data: Data, split: Split, seed: int | None = None) -> None:
        self.data, self.seed = data, seed
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

    @classmethod
    def holding_out(cls, data: Data, share: float, seed: int) -> Self:
        """The rows in the order of their hashes, of which the first are held out."""
        order, count = hash_order(len(data), seed), held_out_count(len(data), share)
        return cls(data, Split(order[count:], order[:count]), seed)

    @cached_property
    def held_out(self) -> Batch | None:
        """The rows that training does not see."""
        index = self.held_out_index
        return self.data.take(index.to(self.device)) if len(index) else None

    def __len__(self) -> int:
        """n, with the rows that are held out."""
        return len(self.data)

    def digest(self) -> str:
        """A fingerprint of the rows."""
        return digest_of([self.data.x, self.data.y, self.data.noise_std])

    def sample(self, count: int) -> Batch:
        """The first training rows, whose order is random."""
        return self.data.take(self.training[: min(count, sample_rows(self._width))])

    def chunks(self, points: int) -> Sequence[Batch]:
        """All training rows."""
        return self.data.chunks(points, self.training)

    def minibatches(self, size: int, seed: int) -> Minibatches:
        """Random minibatches of the training rows."""
        return Minibatches(self.data, self.training, size, seed)

    @property
    def _width(self) -> int:
        return self.dimension + self.targets
