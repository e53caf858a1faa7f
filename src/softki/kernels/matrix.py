"""The covariance matrix of the points, by the fastest way that a kernel allows.

For a stationary kernel with u = z/ℓ, r = ‖uᵢ − uⱼ‖ and K = σ² ρ(r), the gradient from a symmetric
W = ∂/∂K takes few passes over memory. With H = 2σ² W∘ρ'(r)/r,

    ∂/∂u = u∘(H1) − Hu,   ∂/∂z = (∂/∂u)/ℓ,   ∂/∂ℓ = −(∂/∂u)∘u summed over points, /ℓ,
    ∂/∂σ² = Σ W∘ρ

where automatic differentiation through distance and correlation keeps and reads three times as
many matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import StationaryKernel, is_gpytorch
from softki.linalg.cuda import triton_trouble
from softki.linalg.distances import self_distance

Profile = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From r to ρ(r) and ρ'(r)/r."""


def kernel_matrix(kernel: nn.Module, z: Tensor, jitter: float = 0.0) -> Tensor:
    """The dense covariance (m, m) of the points z under a kernel of softki or of gpytorch.

    The jitter is added to the diagonal, relative to its mean. The gradient of the matrix must be
    symmetric.
    """
    if isinstance(kernel, StationaryKernel):
        if z.is_cuda and triton_trouble() is None:
            from softki.kernels import _triton as triton_covariance

            if triton_covariance.knows(kernel):
                return triton_covariance.covariance(kernel, z, jitter)
        profile = None if z.is_cuda else _profile_of(kernel)
        if profile is not None:
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


def check_columns(kernel: nn.Module, z: Tensor) -> None:
    """Raise unless the kernel takes points with as many columns as z (m, d)."""
    d = z.shape[1]
    if isinstance(kernel, StationaryKernel) and kernel.dimension != d:
        raise InvalidInputError(
            f"the kernel is for {kernel.dimension} columns, the points have {d}"
        )
    if not is_gpytorch(kernel):
        return
    name = type(kernel).__name__
    for part in kernel.modules():
        used = getattr(part, "active_dims", None)
        if used is not None and not 0 <= int(used.min()) <= int(used.max()) < d:
            raise InvalidInputError(
                f"the kernel {name} has active_dims={tuple(used.tolist())}, and the points have "
                f"{d} columns: active_dims must lie between 0 and {d - 1}"
            )
    device = next((p.device for p in kernel.parameters()), z.device)
    try:
        with torch.no_grad():
            kernel_matrix(kernel, z.detach()[:2].to(device))
    except (RuntimeError, IndexError) as error:
        raise InvalidInputError(
            f"the kernel {name} cannot be computed for points with {d} columns: give it "
            f"ard_num_dims={d}, or as many as its active_dims ({str(error).splitlines()[0]})"
        ) from error


def _profile_of(kernel: StationaryKernel) -> Profile | None:
    """The `profile` of the kernel, unless a subclass overrides what it was made for."""
    for kind in type(kernel).__mro__:
        if "profile" in vars(kind):
            return cast(Profile, kernel.profile)
        if "correlation" in vars(kind) or "forward" in vars(kind):
            return None
    return None


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
