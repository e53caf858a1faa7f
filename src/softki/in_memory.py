"""Rows in memory, some of them held out, as training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from softki.batches import Batch, Data, Minibatches
from softki.digest import digest_of
from softki.exceptions import InvalidInputError
from softki.processes import ALONE

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
    """`Data` with a `Split`, as `softki.training_data.TrainingData`.

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
        self.knows_noise = data.noise_scale is not None
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
        return digest_of([self.data.x, self.data.y, self.data.noise_scale])

    def sample(self, count: int) -> Batch:
        """The first training rows, whose order is random."""
        return self.data.take(self.training[:count])

    def chunks(self, points: int) -> Sequence[Batch]:
        """All training rows."""
        return self.data.chunks(points, self.training)

    def minibatches(self, size: int, seed: int) -> Minibatches:
        """Random minibatches of the training rows."""
        return Minibatches(self.data, self.training, size, seed)
