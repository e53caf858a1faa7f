"""The diagonal blocks of a triangular matrix inverted in one kernel, for CUDA devices."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _invert(L, inverse, along_rows, along_columns, m, B: tl.constexpr):
    """A block on the diagonal by forward substitution, zeros elsewhere."""
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    r = tl.arange(0, B)
    X = tl.zeros((B, B), dtype=tl.float64)
    if row == column:
        corner = L + row * (along_rows + along_columns)
        pivots = tl.load(corner + r * (along_rows + along_columns))
        for i in tl.static_range(B):  # unrolled, so that no load waits for the last row
            known = tl.load(corner + i * along_rows + r * along_columns, mask=r < i, other=0.0)
            rest = tl.where(r == i, 1.0, 0.0) - tl.sum(known[:, None] * X, 0)
            pivot = tl.sum(tl.where(r == i, pivots, 0.0), 0)
            X = tl.where(r[:, None] == i, (rest / pivot)[None, :], X)
    tl.store(inverse + (row + r)[:, None] * m + (column + r)[None, :], X)


def inverted_blocks(L: Tensor, size: int) -> Tensor:
    """The inverses of the diagonal blocks of L (m, m), with zeros elsewhere.

    Args:
        L: lower triangular matrix in float64.
        size: size of a block, a power of two of which m is a multiple.
    """
    m = len(L)
    inverse = torch.empty(m, m, dtype=torch.float64, device=L.device)
    grid = (m // size, m // size)
    _invert[grid](L, inverse, *L.stride(), m, B=size, num_warps=1)
    return inverse
