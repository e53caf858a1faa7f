"""Which processes are missing, where a message of torch.distributed did not arrive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from softki.exceptions import ProcessError

# Seconds in which the others must answer once something was lost.
_LIMIT = 10.0


@contextmanager
def naming_who_is_missing(rank: int, size: int, group: Any) -> Iterator[None]:
    """Errors of torch.distributed as one of softki that names the processes that are lost.

    Args:
        rank: of this process.
        size: the number of processes.
        group: of gloo, in which nothing else is sent: what failed in one group has broken it.
    """
    try:
        yield
    except RuntimeError as error:
        missing = missing_ranks(rank, size, group)
        raise ProcessError(
            f"{_listed(missing)} of {size} died, left the fit, or did not answer in time, which "
            f"ends the fit in process {rank}: {reason(error)}"
        ) from error


def missing_ranks(rank: int, size: int, group: Any) -> list[int]:
    """The processes that do not answer, as far as this one can see.

    All that still listen come here, as the same message failed in each of them. They leave only
    when they have been answered, so that none of them is taken for lost.
    """
    here, limit = torch.zeros(1), timedelta(seconds=_LIMIT)
    waiting: dict[int, tuple[Any, Any]] = {}
    missing = set()
    for other in range(size):
        if other != rank:
            try:
                sent = dist.isend(here, other, group=group)
                waiting[other] = sent, dist.irecv(torch.zeros(1), other, group=group)
            except (RuntimeError, ValueError):
                missing.add(other)
    for other, works in waiting.items():
        try:
            for work in works:
                work.wait(limit)
        except RuntimeError:
            missing.add(other)
    return sorted(missing)


def reason(error: Exception) -> str:
    """What torch.distributed says, without the place in its sources and its advice.

    Example:
        >>> reason(RuntimeError("[/src/gloo/pair.cc:553] Connection closed by peer. Check it."))
        'Connection closed by peer'
    """
    text = re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", str(error).splitlines()[0])
    return text.split(". ")[0]


def _listed(ranks: Sequence[int]) -> str:
    """In words.

    Example:
        >>> _listed([1]), _listed([0, 2, 3]), _listed([])
        ('process 1', 'processes 0, 2 and 3', 'another process')
    """
    if not ranks:
        return "another process"
    if len(ranks) == 1:
        return f"process {ranks[0]}"
    return f"processes {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
