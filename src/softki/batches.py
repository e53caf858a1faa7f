"""The rows of a data set, and the batches of them that training and prediction work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from softki.exceptions import InvalidInputError


class Batch(NamedTuple):
    """Some standardised rows of the data."""

    x: Tensor  # (n, d)
    y: Tensor  # (n, t)
    noise_std: Tensor | None = None  # σ, (n,); None stands for 1


@dataclass(frozen=True, eq=False)
class Data:
    """All rows, on one device; a batch of them is gathered when it is asked for."""

    x: Tensor  # (n, d)
    y: Tensor  # (n, t)
    noise_std: Tensor | None = None  # σ, (n,)

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.y.ndim != 2 or len(self.x) != len(self.y):
            raise InvalidInputError(
                "Data needs x of shape (n, d) and y of shape (n, t), got "
                f"{tuple(self.x.shape)} and {tuple(self.y.shape)}"
            )
        if self.noise_std is not None and self.noise_std.shape != (len(self.x),):
            raise InvalidInputError(
                f"noise_std must have the shape ({len(self.x)},), one of each row, got "
                f"{tuple(self.noise_std.shape)}"
            )

    def __len__(self) -> int:
        """n."""
        return len(self.x)

    def take(self, index: Tensor | slice) -> Batch:
        """The rows at the index."""
        scale = None if self.noise_std is None else self.noise_std[index]
        return Batch(self.x[index], self.y[index], scale)

    def batch(self, index: Tensor) -> Sequence[Batch]:
        """The rows at the index as one batch, taken when it is asked for."""
        return _Chunks(self, index, max(1, len(index)))

    def chunks(self, points: int, index: Tensor | None = None) -> Sequence[Batch]:
        """All rows, or those at the index, in chunks whose (rows, m) work stays small.

        Example:
            >>> data = Data(torch.zeros(2500, 2), torch.zeros(2500, 1))
            >>> [len(batch.x) for batch in data.chunks(points=512)]
            [1024, 1024, 452]
        """
        return _Chunks(self, index, chunk_rows(max(points, self.x.shape[1]), self.x.device))


class _Chunks(Sequence[Batch]):
    def __init__(self, data: Data, index: Tensor | None, size: int) -> None:
        self._data, self._index = data, index
        count = len(data) if index is None else len(index)
        self._parts = [slice(i, min(i + size, count)) for i in range(0, count, size)]

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, i: int) -> Batch:  # type: ignore[override]
        part = self._parts[i]
        return self._data.take(part if self._index is None else self._index[part])


class Minibatches:
    """Random minibatches without replacement, a function of (seed, step) alone.

    Every epoch is a fresh permutation of the index; the rest of an epoch that does not fill a
    batch is left out.
    """

    def __init__(self, data: Data, index: Tensor, size: int, seed: int) -> None:
        self._data, self._index, self._size, self._seed = data, index, size, seed
        self._epoch, self._order = -1, index

    def batch(self, step: int) -> Batch:
        """The batch of that step, counted from 0."""
        return self._data.take(self.index(step))

    def index(self, step: int) -> Tensor:
        """The positions of the rows of that batch in the data."""
        epoch, position = divmod(step, len(self._index) // self._size)
        if epoch != self._epoch:
            order = np.random.default_rng([self._seed, epoch]).permutation(len(self._index))
            self._order = self._index[torch.from_numpy(order).to(self._index.device)]
            self._epoch = epoch
        return self._order[position * self._size : (position + 1) * self._size]

    def close(self) -> None:
        """Do nothing, as nothing is read in the background."""


def chunk_rows(width: int, device: torch.device) -> int:
    """The number of rows to hold at once, where the width is the larger of m and d.

    A few arrays of rows × width are alive at a time. On a GPU each has 512 MB in float64; on a CPU
    it has twice as many rows as the width, between 4 and 32 MB, to stay in the cache where it can.
    """
    if device.type == "cuda":
        return max(256, (1 << 26) // width)
    return max(256, min(max(2 * width, (1 << 19) // width), (1 << 22) // width))
