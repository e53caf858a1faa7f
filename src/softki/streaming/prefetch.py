"""An iterator that runs ahead in the background, and batches that are sent to a GPU meanwhile."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from softki.batches import Batch
from softki.streaming.preparation import each

T = TypeVar("T")
# Seconds between looks at whether anybody still waits for what is produced.
_LOOK = 0.1
# Seconds to wait for the thread to end; it may be in the middle of reading.
_PATIENCE = 10.0


@dataclass(frozen=True)
class _End:
    error: BaseException | None


class Prefetch(Iterator[T], Generic[T]):
    """The same items, made in a background thread: one in hand, and as many as the depth.

    An error is raised where the item would have come. The thread ends with the items, or when
    this object is closed or no longer used.

    Example:
        >>> list(Prefetch(k * k for k in range(4)))
        [0, 1, 4, 9]
    """

    def __init__(self, items: Iterable[T], depth: int = 1) -> None:
        self._queue: Queue[Any] = Queue(depth)
        stop = threading.Event()
        # The thread must not hold this object, or it would always be used.
        thread = threading.Thread(
            target=_produce, args=(items, self._queue, stop), name="softki-prefetch", daemon=True
        )
        self._finish = weakref.finalize(self, _finish, self._queue, stop, thread)
        thread.start()

    def __next__(self) -> T:
        if not self._finish.alive:
            raise StopIteration
        item = self._queue.get()
        if not isinstance(item, _End):
            return item
        self.close()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        """End the thread."""
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prefetched(
    batches: Iterable[Batch],
    device: torch.device,
    prepared: Callable[[Batch], Batch] = lambda batch: batch,
) -> Generator[Batch, None, None]:
    """The batches on the device, read and sent in the background.

    What is left to prepare of batches that were sent to a GPU is done there.
    """
    if device.type != "cuda":
        with Prefetch(batches) as ahead:
            yield from ahead
        return
    with Prefetch(_sent(batches, device, prepared)) as sent:
        for batch, arrival in sent:
            current = torch.cuda.current_stream(device)
            current.wait_event(arrival)
            for tensor in batch:
                if tensor is not None:
                    # Its memory came from the side stream, and must not be taken by it too early.
                    tensor.record_stream(current)
            yield batch


def _sent(
    batches: Iterable[Batch], device: torch.device, prepared: Callable[[Batch], Batch]
) -> Iterator[tuple[Batch, torch.cuda.Event]]:
    """Batches on their way to the GPU, and the event that says that they are there."""
    stream = torch.cuda.Stream(device)

    def send(tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(device, non_blocking=True)

    for batch in batches:
        with torch.cuda.stream(stream):
            there = prepared(each(batch, send))
            arrival = torch.cuda.Event()
            arrival.record(stream)
        yield there, arrival


def _produce(items: Iterable[Any], queue: Queue[Any], stop: threading.Event) -> None:
    try:
        iterator = iter(items)
        try:
            for item in iterator:
                if not _put(queue, item, stop):
                    return
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
    except BaseException as error:  # whatever it is, the consumer raises it
        _put(queue, _End(error), stop)
    else:
        _put(queue, _End(None), stop)


def _put(queue: Queue[Any], item: Any, stop: threading.Event) -> bool:
    """Wait for room; false if the items are no longer wanted."""
    while not stop.is_set():
        with suppress(Full):
            queue.put(item, timeout=_LOOK)
            return True
    return False


def _finish(queue: Queue[Any], stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    with suppress(Empty):
        while True:  # make room, so that the thread looks at once
            queue.get_nowait()
    if thread is not threading.current_thread():
        thread.join(_PATIENCE)
