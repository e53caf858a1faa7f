"""A command in several processes, as `torchrun -m softki fit …` starts them.

`torchrun` sets the rank of each process (`RANK`) and their number (`WORLD_SIZE`). The process of
rank 0 prints and writes the results; the others only compute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from softki.exceptions import ProcessError


def launched_rank() -> int:
    """Rank that `torchrun` gave to this process; 0 without it."""
    return int(os.environ.get("RANK", "0")) if _launched_count() > 1 else 0


@contextmanager
def process_group() -> Iterator[None]:
    """Join the launched processes into a group, which is destroyed at the end.

    The group is one of gloo, with which a fit finds out whether it may use NCCL
    (`softki.parallel.processes`). A single process needs neither the group nor torch here.
    """
    if _launched_count() == 1:
        yield
        return
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from softki.parallel.groups import TIME_LIMIT

    if not dist.is_available() or dist.is_initialized():
        yield
        return
    limit = timedelta(seconds=TIME_LIMIT)
    try:
        store, rank, size = next(rendezvous("env://", timeout=limit))
        # A restarted group meets the store of the attempt before it, with the keys left there.
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
