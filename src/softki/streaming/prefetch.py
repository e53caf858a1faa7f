"""An iterator that runs ahead in the background, and batches that are sent to a GPU meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any, TypeVar

import torch
from torch import Tensor

from softki.batches import Batch
from softki.streaming.preparation import each
from softki.training.standardize import RawBatch

T = TypeVar("T")
_END: Any = object()


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


def on_device(batches: Iterable[Batch], device: torch.device) -> Generator[Batch, None, None]:
    """The batches on the device, read and sent in the background."""
    if device.type == "cuda":
        return _arriving(batches, device, lambda batch: batch)
    return ahead(batches)


def standardized_on_device(
    batches: Iterable[RawBatch], device: torch.device, standardize: Callable[[RawBatch], Batch]
) -> Generator[Batch, None, None]:
    """The batches standardised on a GPU, read and sent in the background."""
    return _arriving(batches, device, standardize)


def _arriving(
    batches: Iterable[Any], device: torch.device, prepared: Callable[[Any], Batch]
) -> Generator[Batch, None, None]:
    with closing(ahead(_sent(batches, device, prepared))) as sent:
        for batch, arrival in sent:
            current = torch.cuda.current_stream(device)
            current.wait_event(arrival)
            for tensor in batch:
                if tensor is not None:
                    # Its memory came from the side stream, and must not be taken by it too early.
                    tensor.record_stream(current)
            yield batch


def _sent(
    batches: Iterable[Any], device: torch.device, prepared: Callable[[Any], Batch]
) -> Iterator[tuple[Batch, torch.cuda.Event]]:
    """Batches on their way to the GPU, and the event of their arrival."""
    stream = torch.cuda.Stream(device)

    def send(tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(device, non_blocking=True)

    for batch in batches:
        with torch.cuda.stream(stream):
            there = prepared(each(batch, send))
            arrival = torch.cuda.Event()
            arrival.record(stream)
        yield there, arrival
