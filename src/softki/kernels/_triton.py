"""K = σ²(ρ(r) + jitter·I) between points in one kernel, and its backward in another.

With r from the differences of z/ℓ, W = ∂/∂K, which must be symmetric, and
hᵢⱼ = σ² Wᵢⱼ ρ'(r)/r, the gradient in z̃ = z/ℓ is 2 Σⱼ hᵢⱼ (z̃ᵢ − z̃ⱼ).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from softki.kernels.stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    StationaryKernel,
)

_KINDS = {Matern12: 0, Matern32: 1, Matern52: 2, RBF: 3, RationalQuadratic: 4}
_TILE = 32
# Beyond so many columns, distances from one matrix product are faster.
_MAX_COLUMNS = 64


@triton.jit
def _squared(z, scale, rows, columns, m, d, B: tl.constexpr):
    """r² (B, B)."""
    total = tl.zeros((B, B), dtype=tl.float64)
    for k in range(d):
        left = tl.load(z + rows * d + k, mask=rows < m, other=0.0)
        right = tl.load(z + columns * d + k, mask=columns < m, other=0.0)
        # Scaled after the difference, which is zero where points meet.
        difference = (left[:, None] - right[None, :]) * (1.0 / tl.load(scale + k))
        total += difference * difference
    return total


@triton.jit
def _correlation(squared, alpha, KIND: tl.constexpr):
    """ρ, ρ'(r)/r, and ∂ρ/∂α."""
    r = tl.sqrt(squared)
    by_alpha = tl.zeros_like(squared)
    if KIND == 0:
        rho = tl.exp(-r)
        slope = tl.where(squared > 0, -rho / tl.where(squared > 0, r, 1.0), 0.0)
    elif KIND == 1:
        s = 1.7320508075688772 * r
        power = tl.exp(-s)
        rho = (1 + s) * power
        slope = -3 * power
    elif KIND == 2:
        s = 2.23606797749979 * r
        power = tl.exp(-s)
        rho = (1 + s + s * s / 3) * power
        slope = -5.0 / 3.0 * (1 + s) * power
    elif KIND == 3:
        rho = tl.exp(-squared / 2)
        slope = -rho
    else:
        q = squared / (2 * alpha)
        rho = tl.exp(-alpha * tl.log(1 + q))
        slope = -rho / (1 + q)
        by_alpha = rho * (q / (1 + q) - tl.log(1 + q))
    return rho, slope, by_alpha


@triton.jit
def _forward(z, scale, sigma, alpha, K, jitter, m, d, KIND: tl.constexpr, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    squared = _squared(z, scale, rows, columns, m, d, B)
    rho, _, _ = _correlation(squared, tl.load(alpha), KIND)
    rho = rho + tl.where(rows[:, None] == columns[None, :], tl.load(jitter), 0.0)
    mask = (rows[:, None] < m) & (columns[None, :] < m)
    tl.store(K + rows[:, None] * m + columns[None, :], tl.load(sigma) * rho, mask=mask)


@triton.jit
def _backward(
    z, scale, sigma, alpha, W, h, sums, jitter, m, d, KIND: tl.constexpr, B: tl.constexpr
):
    """h = 2σ²W∘ρ'(r)/r, and for every tile Σ W(ρ + jitter·I) and Σ W σ² ∂ρ/∂α."""
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    squared = _squared(z, scale, rows, columns, m, d, B)
    rho, slope, by_alpha = _correlation(squared, tl.load(alpha), KIND)
    rho = rho + tl.where(rows[:, None] == columns[None, :], tl.load(jitter), 0.0)
    mask = (rows[:, None] < m) & (columns[None, :] < m)
    place = rows[:, None] * m + columns[None, :]
    w = tl.load(W + place, mask=mask, other=0.0)
    scaled = tl.load(sigma) * w
    tl.store(h + place, 2 * scaled * slope, mask=mask)
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(sums + 2 * tile, tl.sum(tl.sum(w * rho, 1), 0))
    tl.store(sums + 2 * tile + 1, tl.sum(tl.sum(scaled * by_alpha, 1), 0))


def knows(kernel: StationaryKernel) -> bool:
    """True for a kernel whose formula is written here, with few enough columns for it to pay."""
    return type(kernel) in _KINDS and kernel.dimension <= _MAX_COLUMNS


def covariance(kernel: StationaryKernel, z: Tensor, jitter: float) -> Tensor:
    """K (m, m) of the points z (m, d), in float64; the gradient of K must be symmetric."""
    alpha = getattr(kernel, "log_alpha", kernel.log_outputscale).exp()
    kind = _KINDS[type(kernel)]
    K: Tensor = _Covariance.apply(z, kernel.lengthscale, kernel.outputscale, alpha, jitter, kind)
    return K


class _Covariance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, scale: Tensor, sigma: Tensor, alpha: Tensor, jitter: float, kind: int
    ) -> Tensor:
        m, d = z.shape
        K = z.new_empty(m, m)
        z, diagonal = z.contiguous(), z.new_full((), jitter)
        _forward[_grid(m)](z, scale, sigma, alpha, K, diagonal, m, d, KIND=kind, B=_TILE)
        ctx.save_for_backward(z, scale, sigma, alpha, diagonal)
        ctx.kind = kind
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, W: Tensor) -> tuple[Tensor | None, ...]:
        z, scale, sigma, alpha, jitter = ctx.saved_tensors
        m, d = z.shape
        h, grid = torch.empty_like(W, memory_format=torch.contiguous_format), _grid(m)
        sums = z.new_empty(grid[0] * grid[1], 2)
        _backward[grid](
            z, scale, sigma, alpha, W.contiguous(), h, sums, jitter, m, d,
            KIND=ctx.kind, B=_TILE,
        )  # fmt: skip
        scaled = z / scale
        products = h @ torch.cat([scaled, scaled.new_ones(m, 1)], 1)  # [h z/ℓ, h 1]
        push = torch.addcmul(products[:, :-1], products[:, -1:], scaled, value=-1)  # −∂/∂(z/ℓ)
        by_sigma, by_alpha = sums.sum(0)
        return push / -scale, (push * scaled).sum(0) / scale, by_sigma, by_alpha, None, None


def _grid(m: int) -> tuple[int, int]:
    return triton.cdiv(m, _TILE), triton.cdiv(m, _TILE)
