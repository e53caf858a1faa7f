"""The covariance matrix of points with itself, and its gradient, in few passes over memory.

With u = z/ℓ, r = ‖uᵢ − uⱼ‖ and K = σ² ρ(r), for a symmetric W = ∂/∂K and H = 2σ² W∘ρ'(r)/r:

    ∂/∂u = u∘(H1) − Hu,   ∂/∂z = (∂/∂u)/ℓ,   ∂/∂ℓ = −(∂/∂u)∘u summed over points, /ℓ,
    ∂/∂σ² = Σ W∘ρ

where automatic differentiation through distance and correlation keeps and reads three times as
many matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softki.linalg.distances import self_distance

Profile = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From r to ρ(r) and ρ'(r)/r."""


def covariance(
    z: Tensor, lengthscale: Tensor, outputscale: Tensor, profile: Profile, jitter: float = 0.0
) -> Tensor:
    """K + σ²·jitter·I, (m, m), of the points z (m, d); its gradient must be symmetric."""
    K: Tensor = _Covariance.apply(z, lengthscale, outputscale, profile, jitter)
    return K


class _Covariance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        lengthscale: Tensor,
        outputscale: Tensor,
        profile: Profile,
        jitter: float,
    ) -> Tensor:
        u = z / lengthscale
        rho, slope = profile(self_distance(u))
        rho.diagonal().add_(jitter)
        ctx.save_for_backward(u, rho, slope, lengthscale, outputscale)
        return outputscale * rho

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, W: Tensor) -> tuple[Tensor | None, ...]:
        u, rho, slope, lengthscale, outputscale = ctx.saved_tensors
        H = (W * slope).mul_(2 * outputscale)
        by_u = u * H.sum(1, keepdim=True) - H @ u
        by_lengthscale = -(by_u * u).sum(0) / lengthscale
        by_outputscale = torch.tensordot(W, rho, 2)
        return by_u / lengthscale, by_lengthscale, by_outputscale, None, None
