"""Matrix products that compute a symmetric result once and skip the zeros of a triangular factor.

A symmetric product is computed by the blocks on and above (or below) its diagonal, and the zeros
of a triangular factor are left out. On a CPU both operands are read along their rows, which BLAS
does fastest; on a GPU only products of many rows are worth several calls. Large float32 products
and Cholesky factors on a CPU are left to `softki.linalg._cpu_tricks`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from softki.linalg import _cpu_tricks
from softki.linalg._cpu_tricks import cholesky as cholesky
from softki.linalg.cuda import triton_trouble

_BLOCKS = 4
# Numbers of columns on a CPU and of rows on a GPU from which on blocks pay.
_MANY_POINTS, _MANY_ROWS = 256, 1 << 14
# The size of the blocks that an inverse begins with, and the largest matrix to invert by them.
_BASE, _MAX_INVERSE = 16, 2048


def linear(A: Tensor, B: Tensor, bias: Tensor | None = None) -> Tensor:
    """A Bᵀ + bias, (n, m), of A (n, k), B (m, k) and bias (m,), to the precision of A.

    Example:
        >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]]))
        tensor([[11., 17.]])
    """
    if A.numel() * len(B) >= _cpu_tricks.MANY_PRODUCTS and _cpu_tricks.convolution_pays(A, B):
        return _cpu_tricks.convolved(A, B, bias)
    return functional.linear(A, B, bias)


def cross(A: Tensor, B: Tensor) -> Tensor:
    """AᵀB, (k, m), of A (n, k) and B (n, m), to the precision of A: the gradient of a kernel.

    Example:
        >>> cross(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0], [1.0]])).T
        tensor([[4., 6.]])
    """
    if A.numel() * B.shape[1] >= _cpu_tricks.MANY_PRODUCTS and _cpu_tricks.convolution_pays(B, A):
        return _cpu_tricks.convolved_cross(A, B)
    return A.T @ B if A.is_cuda else (B.T @ A).T  # thrice as fast where m is small


def gram(A: Tensor) -> Tensor:
    """AᵀA of A (n, m).

    Example:
        >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[10., 14.],
                [14., 20.]])
    """
    n, m = A.shape
    few = n < _MANY_ROWS if A.is_cuda else m < _MANY_POINTS
    if few or _recorded(A):
        return A.T @ A
    return _gram_of_columns(A) if A.is_cuda else _gram_of_rows(A.T.contiguous())


def gram_and_cross(A: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """AᵀA and AᵀY of A (n, m) and Y (n, t), in the precision of Y.

    Example:
        >>> gram_and_cross(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]]).double())
        (tensor([[5.]], dtype=torch.float64), tensor([[3.]], dtype=torch.float64))
    """
    if A.is_cuda:
        A = A.to(Y.dtype)
        return gram(A), A.T @ Y
    rows = A.T.contiguous().to(Y.dtype)  # in this order, which is faster
    if len(rows) < _MANY_POINTS or _recorded(A):
        return rows @ rows.T, rows @ Y
    return _gram_of_rows(rows), rows @ Y


def _gram_of_columns(A: Tensor) -> Tensor:
    m = A.shape[1]
    result = A.new_empty(m, m)
    for i in range(_BLOCKS):
        start, end = m * i // _BLOCKS, m * (i + 1) // _BLOCKS
        result[start:, start:end] = A[:, start:].T @ A[:, start:end]
        result[start:end, start:] = result[start:, start:end].T
    return result


def _gram_of_rows(rows: Tensor) -> Tensor:
    m = len(rows)
    result = rows.new_empty(m, m)
    for i in range(_BLOCKS):
        start, end = m * i // _BLOCKS, m * (i + 1) // _BLOCKS
        torch.mm(rows[start:end], rows[:end].T, out=result[start:end, :end])
        result[:start, start:end] = result[start:end, :start].T
    return result


def congruence(L: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """LᵀG and LᵀGL, for a lower triangular L and a symmetric G, both (m, m).

    Example:
        >>> L = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
        >>> congruence(L, torch.eye(2))[1]
        tensor([[5., 1.],
                [1., 1.]])
    """
    m = len(L)
    if L.is_cuda or m < _MANY_POINTS or _recorded(L, G):
        left = L.T @ G
        return left, left @ L
    upper = L.T.contiguous()
    right, result = L.new_empty(m, m), L.new_empty(m, m)  # GL, LᵀGL
    ends = [m * i // _BLOCKS for i in range(_BLOCKS + 1)]
    for start, end in pairwise(ends):
        torch.mm(G[:, start:], upper[start:end, start:].T, out=right[:, start:end])
    for start, end in pairwise(ends):
        torch.mm(upper[start:end, start:], right[start:, :end], out=result[start:end, :end])
        result[:start, start:end] = result[start:end, :start].T
    return right.T, result


def lower_solver(L: Tensor) -> Callable[[Tensor], Tensor]:
    """The map from a matrix to L⁻¹ times it, for a lower triangular L (m, m).

    On a GPU a triangular solve is a long chain of small kernels. There, the inverse of L is
    assembled from the inverses of its diagonal blocks, whose size doubles by two products a time,

        [A 0; C B]⁻¹ = [A⁻¹ 0; −B⁻¹CA⁻¹ B⁻¹].

    Example:
        >>> lower_solver(torch.tensor([[2.0, 0.0], [1.0, 1.0]]))(torch.eye(2))
        tensor([[ 0.5000,  0.0000],
                [-0.5000,  1.0000]])
    """
    m = len(L)
    if not L.is_cuda or m > _MAX_INVERSE or _recorded(L):
        rows = L.contiguous()
        return lambda right: torch.linalg.solve_triangular(rows, right, upper=False)
    return _lower_inverse(_padded(L))[:m, :m].matmul


def _padded(L: Tensor) -> Tensor:
    """L with ones on a diagonal that is extended to the next size that doubling arrives at."""
    m, size = len(L), _BASE
    while size < m:
        size *= 2
    if size == m:
        return L
    padded = torch.eye(size, dtype=L.dtype, device=L.device)
    padded[:m, :m] = L
    return padded


def _lower_inverse(L: Tensor) -> Tensor:
    m, size = len(L), _BASE
    inverse = _inverted_blocks(L)
    while size < m:
        known, low = _diagonal_blocks(inverse, 2 * size), _diagonal_blocks(L, 2 * size)
        CA, corner = low[:, size:, :size] @ known[:, :size, :size], known[:, size:, :size]
        torch.baddbmm(corner, known[:, size:, size:], CA, beta=0, alpha=-1, out=corner)
        size *= 2
    return inverse


def _inverted_blocks(L: Tensor) -> Tensor:
    """The inverses of the smallest diagonal blocks with zeros elsewhere, (m, m)."""
    if L.is_cuda and L.dtype == torch.float64 and triton_trouble() is None:
        from softki.linalg._triton import inverted_blocks

        return inverted_blocks(L, _BASE)
    inverse = torch.zeros(L.shape, dtype=L.dtype, device=L.device)
    eye = torch.eye(_BASE, dtype=L.dtype, device=L.device)
    blocks = _diagonal_blocks(L, _BASE)
    solved = torch.linalg.solve_triangular(blocks, eye.expand_as(blocks), upper=False)
    _diagonal_blocks(inverse, _BASE).copy_(solved)
    return inverse


def _diagonal_blocks(L: Tensor, size: int) -> Tensor:
    """(m/size, size, size), a view."""
    count = len(L) // size
    return L.view(count, size, count, size).diagonal(dim1=0, dim2=2).permute(2, 0, 1)


def _recorded(A: Tensor, B: Tensor | None = None) -> bool:
    """True where autograd records, which products that are written into place do not allow."""
    requires = A.requires_grad or (B is not None and B.requires_grad)
    return torch.is_grad_enabled() and requires
