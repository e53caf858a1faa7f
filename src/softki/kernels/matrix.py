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
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import StationaryKernel
from softki.linalg.cuda import triton_trouble
from softki.linalg.distances import self_distance

Profile = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From r to ρ(r) and ρ'(r)/r."""


def kernel_matrix(kernel: nn.Module, z: Tensor, jitter: float = 0.0) -> Tensor:
    """The dense covariance (m, m) of the points z under one of ours or a gpytorch kernel.

    The jitter is added to the diagonal, relative to its mean. The gradient of the matrix must be
    symmetric.
    """
    if isinstance(kernel, StationaryKernel) and z.is_cuda and triton_trouble() is None:
        from softki.kernels import _triton as triton_covariance

        if triton_covariance.knows(kernel):
            return triton_covariance.covariance(kernel, z, jitter)
    profile = getattr(kernel, "profile", None)
    if isinstance(kernel, StationaryKernel) and profile is not None and not z.is_cuda:
        return covariance(z, kernel.lengthscale, kernel.outputscale, profile, jitter)
    matrix = kernel(z)
    dense: Tensor = matrix if isinstance(matrix, Tensor) else matrix.to_dense()
    m = len(z)
    if dense.shape != (m, m):
        raise InvalidInputError(
            f"the kernel gave a matrix of shape {tuple(dense.shape)} for {m} points, not "
            f"{(m, m)}: batched, multi-task and derivative kernels do not serve here"
        )
    if not jitter:
        return dense
    eye = torch.eye(m, dtype=dense.dtype, device=dense.device)
    return dense + jitter * dense.diagonal().mean() * eye


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
