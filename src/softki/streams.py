"""Pieces of work at the same time, in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch


@contextmanager
def beside(device: torch.device, lane: int = 0) -> Iterator[Callable[[], None]]:
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
