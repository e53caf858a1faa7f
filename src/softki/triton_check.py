"""Whether Triton's kernels can be used here."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch


@cache
def triton_trouble() -> str | None:
    """Why Triton's kernels cannot be used on a CUDA device of this process; None if they can.

    Triton may be installed and yet fail to compile: without a C compiler, or on a chip that it
    does not know. So the smallest of the kernels is tried, once.
    """
    if find_spec("triton") is None:
        return "Triton is not installed"
    try:
        from softki.triton_triangular import inverted_blocks

        inverted_blocks(torch.eye(16, dtype=torch.float64, device="cuda"), 16)
        torch.cuda.synchronize()
    except Exception as error:  # whatever it is, there is another way
        return f"Triton does not work here ({(str(error).splitlines() or [''])[0]})"
    return None
