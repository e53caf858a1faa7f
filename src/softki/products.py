"""Matrix products at the cost of what is not known beforehand, where that pays.

A symmetric product of many rows on a GPU is computed by its lower blocks, and on a CPU the zeros
of a triangular factor are left out. Elsewhere the whole product is faster.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

_BLOCKS = 4
# From these on, blocks pay.
_MANY_POINTS, _MANY_ROWS = 256, 1 << 14
# Blocks that an inverse begins with, and the largest matrix that is inverted by them.
_BASE, _MAX_INVERSE = 32, 2048


def gram(A: Tensor) -> Tensor:
    """AᵀA of A (n, m).

    Example:
        >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[10., 14.],
                [14., 20.]])
    """
    n, m = A.shape
    if not A.is_cuda or n < _MANY_ROWS:
        return A.T @ A
    result = A.new_empty(m, m)
    for part in _parts(m):
        below = slice(part.start, m)
        result[below, part] = A[:, below].T @ A[:, part]
        result[part, below] = result[below, part].T
    return result


def congruence(L: Tensor, G: Tensor) -> Tensor:
    """LᵀGL, for a lower triangular L and a symmetric G, both (m, m).

    Example:
        >>> L = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
        >>> congruence(L, torch.eye(2))
        tensor([[5., 1.],
                [1., 1.]])
    """
    m = len(L)
    if L.is_cuda or m < _MANY_POINTS:
        return L.T @ G @ L
    left, result = L.new_empty(m, m), L.new_empty(m, m)
    for part in _parts(m):  # LᵀG
        below = slice(part.start, m)
        left[part] = L[below, part].T @ G[below]
    for part in _parts(m):
        below = slice(part.start, m)
        result[below, part] = left[below, below] @ L[below, part]
        result[part, below] = result[below, part].T
    return result


def solve_lower(L: Tensor, right: Tensor) -> Tensor:
    """L⁻¹ right, for a lower triangular L (m, m).

    On a GPU a triangular solve is a long chain of small kernels. There, the inverse of L is put
    together from those of its diagonal blocks, doubling their size with two products a time,

        [A 0; C B]⁻¹ = [A⁻¹ 0; −B⁻¹CA⁻¹ B⁻¹].

    Example:
        >>> solve_lower(torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.eye(2))
        tensor([[ 0.5000,  0.0000],
                [-0.5000,  1.0000]])
    """
    m = len(L)
    blocks = m // _BASE
    if not L.is_cuda or m % _BASE or blocks & (blocks - 1) or m > _MAX_INVERSE:
        return torch.linalg.solve_triangular(L, right, upper=False)
    return _lower_inverse(L) @ right


def _lower_inverse(L: Tensor) -> Tensor:
    m, size = len(L), _BASE
    eye = torch.eye(size, dtype=L.dtype, device=L.device).expand(m // size, size, size)
    inverse = torch.linalg.solve_triangular(_diagonal_blocks(L, size), eye, upper=False)
    while size < m:
        low = _diagonal_blocks(L, 2 * size)[:, size:, :size]  # C
        a, b = inverse[0::2], inverse[1::2]
        doubled = L.new_zeros(len(a), 2 * size, 2 * size)
        doubled[:, :size, :size], doubled[:, size:, size:] = a, b
        doubled[:, size:, :size] = -(b @ (low @ a))
        inverse, size = doubled, 2 * size
    return inverse[0]


def _diagonal_blocks(L: Tensor, size: int) -> Tensor:
    """(m/size, size, size), a view."""
    count = len(L) // size
    return L.view(count, size, count, size).diagonal(dim1=0, dim2=2).permute(2, 0, 1)


def _parts(m: int) -> list[slice]:
    """m columns in blocks."""
    ends = [m * i // _BLOCKS for i in range(_BLOCKS + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]
