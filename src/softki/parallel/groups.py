"""The processes of a group of torch.distributed, joined for one fit."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from softki.exceptions import ProcessError, SoftKIError
from softki.parallel.lost import reason
from softki.parallel.processes import Processes, process_count, process_rank

# Seconds after which a process that does not answer counts as lost: it may be reading its rows,
# which others have fewer of. One that ends is noticed at once, as its connections close.
TIME_LIMIT = 1800.0


@contextmanager
def joined_processes(
    device: torch.device | str = "cpu", time_limit: float | None = None
) -> Iterator[Processes | None]:
    """The processes of the group that is initialised, for one fit; None without a group.

    They talk in groups of their own: over NCCL where each has a GPU to itself, else over gloo.

    Args:
        device: device that this process computes on.
        time_limit: seconds after which a process that does not answer is given up; by default
            half an hour.
    """
    if process_count() == 1:
        yield None
        return
    processes = _joined(torch.device(device), time_limit or TIME_LIMIT)
    try:
        yield processes
    finally:
        processes.leave()


def _joined(device: torch.device, time_limit: float) -> Processes:
    limit = timedelta(seconds=time_limit)
    if str(device) == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    rank, size = process_rank(), process_count()
    try:
        objects, liveness = (dist.new_group(backend="gloo", timeout=limit) for _ in range(2))
        processes = Processes(rank, size, objects, objects, liveness)
        places = processes.gather((socket.gethostname(), device.type, device.index))
        if all(kind == "cuda" for _, kind, _ in places) and len(set(places)) == size:
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # errors, and no abort
            torch.cuda.set_device(device)
            tensors = dist.new_group(backend="nccl", timeout=limit)
            processes = Processes(rank, size, tensors, objects, liveness, device)
    except RuntimeError as error:
        if isinstance(error, SoftKIError):
            raise
        raise ProcessError(
            f"not all of {size} processes joined the fit within {time_limit:g} s: {reason(error)}"
        ) from error
    return processes
