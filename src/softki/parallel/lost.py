"""Errors of torch.distributed, with the processes that are lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from softki.exceptions import ProcessError

# Time in which a process must answer once something was lost.
_LIMIT = timedelta(seconds=10)


@contextmanager
def naming_who_is_missing(rank: int, size: int, group: Any) -> Iterator[None]:
    """Errors of torch.distributed as `ProcessError`; in rank 0 it names the lost processes.

    Args:
        rank: number of this process.
        size: number of processes.
        group: gloo group in which nothing else is sent: what failed in one group has broken it.
    """
    try:
        yield
    except RuntimeError as error:
        raise ProcessError(
            f"{_listed(_missing(rank, size, group))} of {size} died, left the fit, or did not "
            f"answer in time, which ends the fit in process {rank}: {reason(error)}"
        ) from error


def _missing(rank: int, size: int, group: Any) -> list[int]:
    """The processes that rank 0 does not hear of; to the others, at most rank 0 itself.

    `monitored_barrier` would not do: it names a process that is late, but not one that has ended.
    """
    missing, token = [], torch.zeros(1)
    waiting: dict[int, Any] = {}
    send_or_receive = dist.isend if rank else dist.irecv
    for other in [0] if rank else range(1, size):
        try:
            waiting[other] = send_or_receive(token, other, group=group)
        except (RuntimeError, ValueError):
            missing.append(other)
    for other, work in waiting.items():
        try:
            work.wait(_LIMIT)
        except RuntimeError:
            missing.append(other)
    return sorted(missing)


def _listed(ranks: Sequence[int]) -> str:
    """The ranks in words.

    Example:
        >>> _listed([2]), _listed([1, 3]), _listed([])
        ('process 2', 'processes 1, 3', 'another process')
    """
    if not ranks:
        return "another process"
    return f"{'processes' if len(ranks) > 1 else 'process'} {', '.join(map(str, ranks))}"


def reason(error: Exception) -> str:
    """The message of torch.distributed, without the place in its sources and its advice.

    Example:
        >>> reason(RuntimeError("[/src/gloo/pair.cc:553] Connection closed by peer. Check it."))
        'Connection closed by peer'
    """
    text = re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", str(error).splitlines()[0])
    return text.split(". ")[0]
