"""The choice between the ways to compute the weights of a block of rows and their gradient.

There are two with the same results: plain PyTorch, which runs everywhere, and Triton kernels
(`softki.interpolation._triton`), which never write the distances to memory. Training takes the
second for float32 rows on a CUDA device where Triton works. Of rows that are thousands of times
farther from the points than the points are from each other, it keeps fewer digits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softki.interpolation.weights import Backend, PlainBackend
from softki.linalg.cuda import triton_trouble

# The Triton kernels hold a row of distances in registers.
_MAX_POINTS = 16_384


def backend_for(x: Tensor, points: int) -> type[Backend]:
    """The backend that training takes for rows like x and this number of points."""
    if why_plain(x, points) is not None:
        return PlainBackend
    from softki.interpolation._triton import FusedBackend

    return FusedBackend


def why_plain(x: Tensor, points: int) -> str | None:
    """The reason for which training takes the plain backend; None if it takes the other one."""
    if not x.is_cuda:
        return "the rows are not on a CUDA device"
    if x.dtype != torch.float32:
        return "the rows are not in float32"
    if points > _MAX_POINTS:
        return f"there are more than {_MAX_POINTS:,} points"
    return triton_trouble()
