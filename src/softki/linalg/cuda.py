"""Work on side CUDA streams, and a test of Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch


@contextmanager
def side_stream(device: torch.device, lane: int = 0) -> Iterator[Callable[[], None]]:
    """Run the body on a side CUDA stream; call the yielded function to wait for it.

    Bodies in different lanes run at the same time. Outside the capture of a CUDA graph, everything
    runs on the current stream instead. All tensors that the body uses and makes must be kept until
    the call: their memory would be reused by the stream that it came from.
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
    """The reason that rules out Triton on a CUDA device of this process; None if it works.

    Triton may be installed and yet fail to compile: without a C compiler, or on a chip that it
    does not know. The smallest of the kernels is therefore tried, once.
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
