"""Rows as they were read, standardised, and as batches of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from operator import itemgetter
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from softki.batches import Batch
from softki.streaming.blocks import RawRows
from softki.training.standardize import RawBatch, RowStandardizer, Standardizer

AnyBatch = TypeVar("AnyBatch", Batch, RawBatch)
SomeRows = TypeVar("SomeRows", Batch, RawRows)
# So many parts are too small to be copied one by one.
_MANY_PARTS = 64


@cache
def _copiers() -> ThreadPoolExecutor:
    """Threads that copy: one does not copy as fast as a GPU reads."""
    return ThreadPoolExecutor(4, "softki-copy")


def standardized(rows: RawRows, by: RowStandardizer) -> RawRows:
    """Standardised rows with the relative noise variance vᵢ/v̄, computed in float64.

    On a CPU this is done to rows as they are read: NumPy takes one thread for it, and so leaves
    the others to training. A GPU standardises the rows that it was sent by `RowStandardizer`.
    """
    noise = None
    if rows.noise is not None and by.noise_unit is not None:
        noise = rows.noise / by.noise_unit
    return RawRows(
        _transformed(rows.x, by.x, by.dtype), _transformed(rows.y, by.y, by.dtype), noise
    )


def _transformed(values: np.ndarray, by: Standardizer, dtype: torch.dtype) -> np.ndarray:
    result = np.subtract(values, by.mean.numpy(), dtype=np.float64)
    result /= by.scale.numpy()
    return result.astype(np.float64 if dtype == torch.float64 else np.float32, copy=False)


def as_batch(rows: RawRows) -> Batch:
    """Standardised rows as tensors on the CPU; x and y share their memory."""
    std = None if rows.noise is None else np.sqrt(rows.noise).astype(rows.x.dtype)
    return Batch(
        torch.from_numpy(rows.x),
        torch.from_numpy(rows.y),
        None if std is None else torch.from_numpy(std),
    )


def pinned(parts: Sequence[RawRows]) -> RawBatch:
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
            _copiers().submit(np.copyto, *pair) for pair in zip(places, arrays, strict=True)
        )
        return tensor

    copies: list[Future[None]] = []
    noise = [part.noise for part in parts if part.noise is not None]
    x, y = joined([part.x for part in parts]), joined([part.y for part in parts])
    batch = RawBatch(x, y, joined(noise) if noise else None)
    for copy in copies:
        copy.result()
    return batch


def each(batch: AnyBatch, function: Callable[[Tensor], Tensor]) -> AnyBatch:
    """The batch with the function of each of its tensors."""
    x, y, noise = batch
    return type(batch)(function(x), function(y), None if noise is None else function(noise))


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
