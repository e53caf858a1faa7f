"""The processes that a fit runs in, and what they tell each other.

A fit inside an initialised group of `torch.distributed` (as `torchrun` and
`torch.distributed.init_process_group` make one) shares its rows among the processes of the group.
Statistics of rows add, so that little is sent; with m points, d columns and t targets,

    the statistics of a step    m² + mt + t + 2 numbers, added over the processes
    its gradients               md + d + 1 numbers, added (of points and temperature; those of
                                kernel and noise follow from the statistics in every process)
    an evaluation               statistics, added; parameters and scores, from process 0
    a posterior                 statistics, added, or a tree of QR factors, (m + t)² numbers
                                in log₂ P rounds, whose root is sent from process 0
    before training             moments and the sample of rows, in such a tree; the parameters

Each of these is one message, in float64. Every sum carries one number more, which says whether a
process was interrupted, so that all stop after the same step.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from softki.exceptions import InvalidInputError, SoftKIError
from softki.parallel.lost import naming_who_is_missing

# Seconds within which a second interrupt is the same as the first: torchrun sends it on again.
_SAME_INTERRUPT = 1.0

T = TypeVar("T")


def process_rank() -> int:
    """The number of this process in its group, whether a fit is shared or not; 0 without one.

    Example:
        >>> process_rank()
        0
    """
    return dist.get_rank() if _is_initialised() else 0


def process_count() -> int:
    """The number of processes in the group; 1 without one."""
    return dist.get_world_size() if _is_initialised() else 1


class Processes:
    """The processes of a fit.

    Args:
        rank: number of this process.
        size: number of processes.
        tensors: group that tensors are sent in.
        objects: gloo group that Python objects are sent in.
        liveness: gloo group in which rank 0 finds out who is missing.
        device: device of tensors that are sent.

    Attributes:
        rank, size: as given.
        is_stopping: whether any process was interrupted, as of the last sum; the same in all.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        tensors: Any = None,
        objects: Any = None,
        liveness: Any = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.rank, self.size = rank, size
        self._tensors, self._objects, self._liveness = tensors, objects, liveness
        self._device = torch.device(device)
        self._is_interrupted = self.is_stopping = False

    @property
    def is_rank_zero(self) -> bool:
        """True for process 0, which decides and writes."""
        return self.rank == 0

    def share_of(self, count: int) -> slice:
        """The part of the items, which all processes have, that this process works on.

        Example:
            >>> Processes(1, 3).share_of(10)
            slice(3, 6, None)
        """
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def check_same(self, facts: Mapping[str, Any]) -> None:
        """Raise where a process has other facts than the first, and name both."""
        first, *others = self.gather(dict(facts))
        for rank, facts in enumerate(others, 1):
            for name, value in facts.items():
                if value != first[name]:
                    raise InvalidInputError(
                        f"{name} is {value} in process {rank}, and {first[name]} in process 0: "
                        "all processes must have the same"
                    )

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of tensors over the processes, all in one message, in float64.

        Every process must have tensors of the same shapes.
        """
        flag = torch.tensor([float(self._is_interrupted)])
        flat = self._flat([*tensors, flag])
        with self._naming_who_is_missing():
            dist.all_reduce(flat, group=self._tensors)
        *sums, interrupted = self._unflat(flat, [*tensors, flag])
        self.is_stopping = float(interrupted) > 0
        return sums

    def broadcast(self, value: T) -> T:
        """The value that process 0 has; anything that can be pickled."""
        values = [value]
        with self._naming_who_is_missing():
            dist.broadcast_object_list(values, src=0, group=self._objects)
        return values[0]

    @torch.no_grad()
    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Give tensors the values that they have in process 0, in one message."""
        if not tensors:
            return
        flat = self._flat(tensors)
        with self._naming_who_is_missing():
            dist.broadcast(flat, src=0, group=self._tensors)
        if not self.is_rank_zero:
            for tensor, value in zip(tensors, self._unflat(flat, tensors), strict=True):
                tensor.copy_(value)

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in all of them; anything that can be pickled."""
        values: list[Any] = [None] * self.size
        with self._naming_who_is_missing():
            dist.all_gather_object(values, value, group=self._objects)
        return values

    def reduce(self, value: T, add: Callable[[T, T], T]) -> T:
        """The sum over the processes, by the given addition; of anything that can be pickled.

        Processes add in pairs, in log₂ P rounds, so that none holds more than two values.
        """
        step = 1
        while step < self.size and self.rank % step == 0:
            partner = self.rank ^ step
            if partner < self.rank:
                self._send(value, partner)
            elif partner < self.size:
                value = add(value, self._receive(partner))
            step *= 2
        return self.broadcast(value)

    def together(self, make: Callable[[], T]) -> T:
        """Call `make` in every process; raise in all if it raises in one."""
        error: SoftKIError | None = None
        result: Any = None
        try:
            result = make()
        except SoftKIError as own:
            error = own
        messages = self.gather(None if error is None else str(error))
        if error is not None:
            raise error
        for rank, message in enumerate(messages):
            if message is not None:
                raise InvalidInputError(f"process {rank}: {message}")
        return result

    def interrupt(self) -> None:
        """Ask all processes to stop after the next sum."""
        self._is_interrupted = True

    @contextmanager
    def deferring_interrupts(self) -> Iterator[None]:
        """Turn the first Ctrl-C into a flag that is shared at the next sum; raise on the second.

        A process that left at once would leave the others waiting for it.
        """
        self._is_interrupted = self.is_stopping = False
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        first = 0.0

        def wish(number: int, frame: Any) -> None:
            nonlocal first
            if self._is_interrupted and time.monotonic() > first + _SAME_INTERRUPT:
                raise KeyboardInterrupt
            first = first or time.monotonic()
            self.interrupt()

        before = signal.signal(signal.SIGINT, wish)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def leave(self) -> None:
        """Close the groups, so that others do not wait for this process."""
        groups = {id(g): g for g in (self._tensors, self._objects, self._liveness) if g is not None}
        self._tensors = self._objects = self._liveness = None
        for group in groups.values():
            with suppress(RuntimeError, ValueError, AssertionError):
                dist.destroy_process_group(group)

    def _send(self, value: Any, rank: int) -> None:
        with self._naming_who_is_missing():
            dist.send_object_list([value], rank, group=self._objects)

    def _receive(self, rank: int) -> Any:
        values: list[Any] = [None]
        with self._naming_who_is_missing():
            dist.recv_object_list(values, rank, group=self._objects)
        return values[0]

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        parts = [t.detach().reshape(-1).to(self._device, torch.float64) for t in tensors]
        return torch.cat(parts)

    def _unflat(self, flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
        parts = flat.split([tensor.numel() for tensor in like])
        return [part.reshape(t.shape).to(t) for part, t in zip(parts, like, strict=True)]

    def _naming_who_is_missing(self) -> AbstractContextManager[None]:
        return naming_who_is_missing(self.rank, self.size, self._liveness)


def _is_initialised() -> bool:
    return dist.is_available() and dist.is_initialized()
