"""A command in several processes, as `torchrun -m softki fit …` starts them.

`torchrun` tells each process its number (`RANK`) and how many there are (`WORLD_SIZE`). The first
shows and writes what there is to show and write; the others only compute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import ParamSpec, TypeVar

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from softki.exceptions import ProcessError
from softki.parallel.groups import TIME_LIMIT

P = ParamSpec("P")
R = TypeVar("R")


def launched_rank() -> int:
    """The number that `torchrun` gave to this process; 0 without it."""
    return int(os.environ.get("RANK", "0")) if _launched_count() > 1 else 0


def in_process_group(command: Callable[P, R]) -> Callable[P, R]:
    """The command in the group of the processes that `torchrun` has started, if it has."""

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        with process_group():
            return command(*arguments, **options)

    return run


@contextmanager
def process_group() -> Iterator[None]:
    """Make the group where there are several processes, and destroy it at the end.

    It is one of gloo, by which a fit finds out whether it may use NCCL
    (`softki.parallel.processes`).
    """
    if _launched_count() == 1 or not dist.is_available() or dist.is_initialized():
        yield
        return
    limit = timedelta(seconds=TIME_LIMIT)
    try:
        store, rank, size = next(rendezvous("env://", timeout=limit))
        # Processes that are started again find the store of those before them, and what these
        # have left in it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"softki-{attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise ProcessError(
            f"process {launched_rank()} of {_launched_count()} finds no group within "
            f"{TIME_LIMIT:g} s: {str(error).splitlines()[0]}"
        ) from error
    try:
        yield
    finally:
        dist.destroy_process_group()


def _launched_count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
