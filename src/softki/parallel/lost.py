"""Errors of torch.distributed, with the processes that are lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from softki.exceptions import ProcessError

# Seconds in which the others must answer once something was lost.
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
            f"{_missing(rank, group)} of {size} died, left the fit, or did not answer in time, "
            f"which ends the fit in process {rank}: {reason(error)}"
        ) from error


def _missing(rank: int, group: Any) -> str:
    """The processes that do not come to a barrier of rank 0, to which all that listen come."""
    try:
        dist.monitored_barrier(group, _LIMIT, wait_all_ranks=True)
    except (RuntimeError, ValueError) as error:
        return named_ranks(str(error)) if rank == 0 else "another process"
    return "another process"


def named_ranks(message: str) -> str:
    """The ranks that a failed barrier names, in words.

    Example:
        >>> named_ranks("[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 10000 ms")
        'processes 1, 3'
        >>> named_ranks("Rank 2 failed to pass monitoredBarrier"), named_ranks("timed out")
        ('process 2', 'another process')
    """
    found = re.search(r"(?<!\[)Ranks? ([\d, ]+\d|\d+)", message)
    if found is None:
        return "another process"
    return f"{'processes' if ',' in found[1] else 'process'} {found[1]}"


def reason(error: Exception) -> str:
    """The message of torch.distributed, without the place in its sources and its advice.

    Example:
        >>> reason(RuntimeError("[/src/gloo/pair.cc:553] Connection closed by peer. Check it."))
        'Connection closed by peer'
    """
    text = re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", str(error).splitlines()[0])
    return text.split(". ")[0]
