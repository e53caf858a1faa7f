"""Two pieces of work at the same time, in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch


@contextmanager
def beside(device: torch.device) -> Iterator[Callable[[], None]]:
    """Run the body beside what follows it, until the function it gives is called.

    That is so while a CUDA graph is captured; otherwise one comes after the other. What the body
    uses and makes must be kept until then: memory is taken again by the stream it came from.
    """
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        yield lambda: None
        return
    main, side = torch.cuda.current_stream(device), _side_stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield lambda: main.wait_stream(side)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
