"""Rows as they were read, standardised, and as batches of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from softki.batches import Batch
from softki.streaming.blocks import RawRows
from softki.training.standardize import Standardizer

SomeRows = TypeVar("SomeRows", Batch, RawRows)
# One thread does not copy as fast as a GPU reads.
_COPIERS = ThreadPoolExecutor(4, "softki-copy")
# So many parts are too small to be copied one by one.
_MANY_PARTS = 64


@dataclass(frozen=True, eq=False)
class Preparation:
    """Standardises rows, computed in float64, as `Standardizer.transform` does.

    On a CPU this is done to the rows as they are read: NumPy takes one thread for it, and so
    leaves the others to training. Passes over all rows send them to a GPU as they are, where they
    are standardised.
    """

    x: Standardizer
    y: Standardizer
    noise_unit: float | None  # mean of the known noise variance
    dtype: torch.dtype

    def __call__(self, rows: RawRows) -> RawRows:
        """Standardised rows, with the noise scale σᵢ = √(vᵢ / v̄) where the noise was."""
        scale = None
        if rows.noise is not None and self.noise_unit is not None:
            scale = np.sqrt(rows.noise / self.noise_unit).astype(self._numpy_dtype)
        return RawRows(self._transformed(rows.x, self.x), self._transformed(rows.y, self.y), scale)

    def _transformed(self, values: np.ndarray, standardizer: Standardizer) -> np.ndarray:
        result = np.subtract(values, standardizer.mean.numpy(), dtype=np.float64)
        result /= standardizer.scale.numpy()
        return result.astype(self._numpy_dtype, copy=False)

    def to(self, device: torch.device) -> Preparation:
        """The same, for batches on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def standardized(self, batch: Batch) -> Batch:
        """The same of rows that were sent to a device as they were read."""
        scale = None
        if batch.noise_std is not None and self.noise_unit is not None:
            variance = batch.noise_std.double()
            scale = (variance / self.noise_unit).sqrt().to(self.dtype)
        x, y = self.x.transform(batch.x, self.dtype), self.y.transform(batch.y, self.dtype)
        return Batch(x, y, scale)

    @property
    def _numpy_dtype(self) -> type[np.floating]:
        return np.float64 if self.dtype == torch.float64 else np.float32


def as_batch(rows: RawRows) -> Batch:
    """Prepared rows as tensors on the CPU, which share their memory."""
    scale = None if rows.noise is None else torch.from_numpy(rows.noise)
    return Batch(torch.from_numpy(rows.x), torch.from_numpy(rows.y), scale)


def pinned(parts: Sequence[RawRows]) -> Batch:
    """The rows of all parts, in order, in memory that a GPU reads by itself."""

    def joined(arrays: Sequence[np.ndarray]) -> Tensor:
        kind = torch.from_numpy(np.empty(0, np.result_type(*arrays))).dtype
        ends = np.cumsum([len(array) for array in arrays])
        tensor = torch.empty((ends[-1], *arrays[0].shape[1:]), dtype=kind, pin_memory=True)
        if len(arrays) > _MANY_PARTS:
            np.concatenate(arrays, out=tensor.numpy())
            return tensor
        places = np.split(tensor.numpy(), ends[:-1])
        copies.extend(
            _COPIERS.submit(np.copyto, *pair) for pair in zip(places, arrays, strict=True)
        )
        return tensor

    copies: list[Future[None]] = []
    noise = [part.noise for part in parts if part.noise is not None]
    x, y = joined([part.x for part in parts]), joined([part.y for part in parts])
    batch = Batch(x, y, joined(noise) if noise else None)
    for copy in copies:
        copy.result()
    return batch


def each(batch: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with the function of each of its tensors."""
    scale = batch.noise_std
    return Batch(function(batch.x), function(batch.y), None if scale is None else function(scale))


def slices(batch: Batch, size: int) -> Iterator[Batch]:
    """The batch in parts of the given size, but for the last.

    Example:
        >>> [len(part.x) for part in slices(Batch(torch.zeros(5, 2), torch.zeros(5, 1)), 2)]
        [2, 2, 1]
    """
    for start in range(0, len(batch.x), size):
        yield part_of(batch, slice(start, start + size))


def part_of(batch: Batch, part: slice) -> Batch:
    """Some rows of a batch."""
    return each(batch, itemgetter(part))


def cut(
    parts: Iterator[SomeRows],
    sizes: Iterable[int],
    nothing: SomeRows,
    take: Callable[[SomeRows, slice], SomeRows],
) -> Iterator[SomeRows]:
    """The rows of the parts in batches of the given sizes, of which each part has whole ones.

    A batch of no rows waits for no part.
    """
    part, start = nothing, 0
    for size in sizes:
        if size and start == len(part.x):
            part, start = next(parts), 0
        yield take(part, slice(start, start + size))
        start += size
