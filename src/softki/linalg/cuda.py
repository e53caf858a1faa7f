"""CUDA: work on side streams, and whether Triton works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch


@contextmanager
def side_stream(device: torch.device, lane: int = 0) -> Iterator[Callable[[], None]]:
    """Run the body beside what follows it, until the function it gives is called.

    Bodies in different lanes also run beside each other.

    That is so while a CUDA graph is captured; otherwise one comes after the other. What the body
    uses and makes must be kept until then: memory is taken again by the stream it came from.
    """
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        yield lambda: None
        return
    main, side = torch.cuda.current_stream(device), _side_stream(device, lane)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield lambda: main.wait_stream(side)


@cache
def _side_stream(device: torch.device, lane: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@cache
def triton_trouble() -> str | None:
    """Why Triton's kernels cannot be used on a CUDA device of this process; None if they can.

    Triton may be installed and yet fail to compile: without a C compiler, or on a chip that it
    does not know. So the smallest of the kernels is tried, once.
    """
    if find_spec("triton") is None:
        return "Triton is not installed"
    try:
        from softki.linalg._triton import inverted_blocks

        inverted_blocks(torch.eye(16, dtype=torch.float64, device="cuda"), 16)
        torch.cuda.synchronize()
    except Exception as error:  # whatever it is, there is another way
        return f"Triton does not work here ({(str(error).splitlines() or [''])[0]})"
    return None
