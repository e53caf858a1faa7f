"""An iterator that runs ahead in the background, and rows that are standardised meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from softki.batches import Batch
from softki.streaming.blocks import RawRows
from softki.training.standardize import RawBatch, RowStandardizer

T = TypeVar("T")
_END: Any = object()
# So many pieces are too small to be copied one by one.
_MANY_PIECES = 64


def ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """The same items, each made in a background thread while the one before is in use.

    An error is raised where the item would have come. The thread ends, and the items are closed,
    with the last item, or when this generator is closed or no longer used.

    Example:
        >>> list(ahead(k * k for k in range(4)))
        [0, 1, 4, 9]
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, "softki-prefetch") as thread:
        following = thread.submit(next, iterator, _END)
        try:
            while (item := following.result()) is not _END:
                following = thread.submit(next, iterator, _END)
                yield item
                del item
        finally:
            wait([following])
            if isinstance(iterator, Generator):
                iterator.close()


def standardized_ahead(
    chunks: Iterable[Sequence[RawRows]], standardizer: RowStandardizer, device: torch.device
) -> Generator[Batch, None, None]:
    """Standardised rows on the device, read, sent and standardised in the background.

    Args:
        chunks: rows of each batch, as pieces to join.
        standardizer: standardizer of the rows.
        device: device of the batches, which standardises them.
    """
    if device.type != "cuda":
        yield from ahead(standardizer(RawRows.join(pieces).as_tensors()) for pieces in chunks)
        return
    with closing(ahead(_sent(chunks, standardizer.to(device), device))) as sent:
        for batch, arrival in sent:
            current = torch.cuda.current_stream(device)
            current.wait_event(arrival)
            for tensor in batch:
                if tensor is not None:
                    # Its memory came from the side stream, and must not be taken by it too early.
                    tensor.record_stream(current)
            yield batch


def _sent(
    chunks: Iterable[Sequence[RawRows]], standardizer: RowStandardizer, device: torch.device
) -> Iterator[tuple[Batch, torch.cuda.Event]]:
    """Batches on their way to the GPU, and the event of their arrival."""
    stream = torch.cuda.Stream(device)
    for pieces in chunks:
        here = [tensor for tensor in _pinned(pieces) if tensor is not None]
        with torch.cuda.stream(stream):
            there = RawBatch(*(tensor.to(device, non_blocking=True) for tensor in here))
            batch = standardizer(there)
            arrival = torch.cuda.Event()
            arrival.record(stream)
        yield batch, arrival


@cache
def _copiers() -> ThreadPoolExecutor:
    """Threads that copy: one does not copy as fast as a GPU reads."""
    return ThreadPoolExecutor(4, "softki-copy")


def _pinned(pieces: Sequence[RawRows]) -> RawBatch:
    """The rows of all pieces, in order, in memory that a GPU reads by itself."""

    def joined(arrays: Sequence[np.ndarray]) -> Tensor:
        kind = torch.from_numpy(np.empty(0, np.result_type(*arrays))).dtype
        ends = np.cumsum([len(array) for array in arrays])
        tensor = torch.empty((ends[-1], *arrays[0].shape[1:]), dtype=kind, pin_memory=True)
        if len(arrays) > _MANY_PIECES:
            np.concatenate(arrays, out=tensor.numpy())
            return tensor
        places = np.split(tensor.numpy(), ends[:-1])
        copies.extend(
            _copiers().submit(np.copyto, *pair) for pair in zip(places, arrays, strict=True)
        )
        return tensor

    copies: list[Future[None]] = []
    batch = RawBatch(*map(joined, zip(*(rows.arrays for rows in pieces), strict=True)))
    for copy in copies:
        copy.result()
    return batch
