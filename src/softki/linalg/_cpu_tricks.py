"""Detours by which torch is faster on a CPU: products as convolutions, Cholesky with a border.

Torch multiplies float32 matrices on a CPU by MKL and convolves by oneDNN, which on an AMD processor
with AVX-512 is twice as fast. There, large products are therefore written as convolutions with a
kernel of one pixel, which are the same sums of the same products.

LAPACK is faster at the upper Cholesky factor, and takes up to twice as long where columns lie a
multiple of 4 kB apart, which share their places in the cache. A matrix with such columns (m = 512,
1,024 and 1,536 in float64) gets a border of the identity.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_weight

# Multiplications, and rows, from which on a convolution pays: it first puts the kernel into another
# order. Images of fewer numbers torch does not give to oneDNN.
MANY_PRODUCTS = 1 << 23
_MANY_PIXELS, _LARGE_IMAGE = 256, 20_481
# With one thread torch gives a kernel of one pixel to oneDNN only where it is dilated, by which it
# does not change.
_DILATION = 2
# Bytes after which addresses share a place in the cache, the longest columns for which that
# decides, and rows that move them apart.
_PAGE, _LONGEST, _BORDER = 4096, 12_288, 8


def convolution_pays(image: Tensor, other: Tensor) -> bool:
    """True where oneDNN does a product of `MANY_PRODUCTS` or more sooner, in full float32."""
    if image.device.type != "cpu" or other.device.type != "cpu":
        return False
    if image.dtype != torch.float32 or other.dtype != torch.float32:
        return False
    if len(image) < _MANY_PIXELS or image.numel() < _LARGE_IMAGE:
        return False
    if torch.is_grad_enabled() and (image.requires_grad or other.requires_grad):
        return False
    backend, capability = torch.backends.mkldnn, torch.backends.cpu.get_cpu_capability()
    if not hasattr(backend, "conv"):  # before torch 2.9, which does not tell the precision
        return False
    is_there = backend.is_available() and bool(backend.enabled) and "AVX512" in capability
    return is_there and backend.conv.fp32_precision in ("none", "ieee")


def convolved(A: Tensor, B: Tensor, bias: Tensor | None) -> Tensor:
    """A Bᵀ + bias, (n, m), of A (n, k), B (m, k) and bias (m,)."""
    (n, k), m = A.shape, len(B)
    kernel = B.reshape(m, k, 1, 1)
    product = functional.conv2d(_pixels(A), kernel, bias, dilation=_DILATION)
    return product.permute(0, 2, 3, 1).reshape(n, m)


def convolved_cross(A: Tensor, B: Tensor) -> Tensor:
    """AᵀB, (k, m), of A (n, k) and B (n, m): the gradient of a kernel."""
    k, m = A.shape[1], B.shape[1]
    shape = (k, m, 1, 1)
    return conv2d_weight(_pixels(B), shape, _pixels(A), dilation=_DILATION).view(k, m)


def _pixels(A: Tensor) -> Tensor:
    """A (n, k) as an image of n pixels with k channels."""
    n, k = A.shape
    return A.contiguous().view(1, n, 1, k).permute(0, 3, 1, 2)


def cholesky(A: Tensor) -> tuple[Tensor, Tensor]:
    """The lower factor of A (m, m), and LAPACK's info, which is not 0 where there is none.

    Example:
        >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 2.0]]))[0]
        tensor([[2., 0.],
                [1., 1.]])
    """
    if A.is_cuda:
        L, info = torch.linalg.cholesky_ex(A)
        return L, info
    m = len(A)
    column = m * A.element_size()
    if column % _PAGE or column > _LONGEST:
        upper, info = torch.linalg.cholesky_ex(A, upper=True)
        return upper.T, info
    bordered = torch.eye(m + _BORDER, dtype=A.dtype, device=A.device)
    bordered[:m, :m] = A
    upper, info = torch.linalg.cholesky_ex(bordered, upper=True)
    return upper.T[:m, :m].contiguous(), info
