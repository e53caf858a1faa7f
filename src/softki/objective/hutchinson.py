"""Hutchinson's pseudoloss: the gradient of the likelihood by conjugate gradients and probes.

With D = S K Sᵀ + β² diag(σ²), D u₀ = y and D uⱼ = wⱼ for l probes with E[w wᵀ] = I,

    pseudoloss = ½ u₀ᵀD u₀ − (1/2l) Σⱼ uⱼᵀD wⱼ      (every u held constant)

has the gradient ½ u₀ᵀ∂D u₀ − (1/2l) Σⱼ uⱼᵀ∂D wⱼ, whose expectation is that of log p. Its value
means nothing and is not reported. It takes products with D only: neither D nor K need be
positive definite to the last digit, as a Cholesky factorisation would want. Vectors are in
float64: in float32 a small β² leaves no digit of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from softki.batches import Batch
from softki.exceptions import NumericalError
from softki.features import WeightedBatches
from softki.interpolation.weights import Interpolated, WeightGradient
from softki.linalg.conjugate_gradients import Map, conjugate_gradients
from softki.objective.exact_likelihood import Adjoint
from softki.solvers import factorise
from softki.validation.parameters import check_integer


@dataclass
class Hutchinson:
    """Hutchinson's pseudoloss with block conjugate gradients.

    Args:
        probes: l, the number of probes.
        tolerance: relative residual at which conjugate gradients stop.
        max_iterations: steps of conjugate gradients at most.
        preconditioner_rank: rank of the approximation of K in the preconditioner; 0 for none.
        generator: random numbers of probes and preconditioner; None for torch's own.

    Attributes:
        unconverged: number of times that conjugate gradients stopped short of the tolerance.
    """

    probes: int = 16
    tolerance: float = 1e-3
    max_iterations: int = 200
    preconditioner_rank: int = 64
    generator: torch.Generator | None = None
    unconverged: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_integer("probes", self.probes, 1)
        check_integer("max_iterations", self.max_iterations, 1)
        check_integer("preconditioner_rank", self.preconditioner_rank, 0)

    def __call__(self, rows: WeightedBatches, K: Tensor, noise_variance: Tensor) -> Adjoint:
        """The pseudoloss's gradient with fresh Gaussian probes."""
        y = rows.targets
        probes = torch.randn(
            (len(y), self.probes), generator=self.generator, dtype=y.dtype, device=y.device
        )
        return self.with_probes(rows, K, noise_variance, probes)

    def with_probes(
        self, rows: WeightedBatches, K: Tensor, noise_variance: Tensor, probes: Tensor
    ) -> Adjoint:
        """The pseudoloss's gradient with the given probes w, (n, l).

        With gᵤ = Sᵀu, for −pseudoloss (u₀ summed over targets, probes weighted t/l):

            ∂/∂K = −½ g₀g₀ᵀ + (1/4l) Σⱼ (gᵤg_wᵀ + g_wgᵤᵀ)
            ∂/∂S = −u₀(K g₀)ᵀ + (1/2l) Σⱼ [ uⱼ(K g_w)ᵀ + wⱼ(K gᵤ)ᵀ ]
            ∂/∂β² = −½ Σᵢ σᵢ² u₀ᵢ² + (1/2l) Σⱼ Σᵢ σᵢ² uⱼᵢwⱼᵢ
        """
        y, sigma_square = rows.targets, rows.noise_square
        t, l, size = y.shape[1], probes.shape[1], y.numel()  # noqa: E741
        solved = self._solve(rows, K, noise_variance * sigma_square, torch.cat([y, probes], 1))
        u0, u = solved.split([t, l], dim=1)
        g = rows.transposed_matmul(torch.cat([u0, u, probes], 1))
        g0, gu, gw = g.split([t, l, l], dim=1)
        K_g0, K_gu, K_gw = ((K @ g) / size).split([t, l, l], dim=1)
        share = t / (2 * l)
        cross = gu @ gw.T
        kernel = (share * (cross + cross.T) - g0 @ g0.T) / 2
        noise = share * (sigma_square * u * probes).sum() - (sigma_square * u0 * u0).sum() / 2
        left = torch.cat([share * u, share * probes, -u0], 1)
        right = torch.cat([K_gw, K_gu, K_g0], 1)

        def weights(block: Interpolated, batch: Batch, part: slice) -> WeightGradient:
            dtype = batch.x.dtype
            return WeightGradient(None, left[part].to(dtype), right.to(dtype))

        by_kernel, by_noise = kernel / size, noise / size
        return Adjoint("hutchinson", lambda: None, lambda: by_kernel, lambda: by_noise, weights)

    def _solve(self, rows: WeightedBatches, K: Tensor, noise: Tensor, right: Tensor) -> Tensor:
        """D⁻¹ right, with D = S K Sᵀ + diag(noise)."""
        preconditioner = None
        if self.preconditioner_rank:
            directions = torch.randn(
                (len(K), min(self.preconditioner_rank, len(K))),
                generator=self.generator,
                dtype=K.dtype,
                device=K.device,
            )
            preconditioner = woodbury_preconditioner(rows, K, noise, directions)
        solved, converged = conjugate_gradients(
            covariance_of(rows, K, noise),
            right,
            self.tolerance,
            self.max_iterations,
            preconditioner,
        )
        self.unconverged += not converged
        return solved


def covariance_of(rows: WeightedBatches, K: Tensor, noise: Tensor) -> Map:
    """v ↦ D v; for up to 2m rows D is formed, as one product with it takes no longer."""
    if len(noise) <= 2 * len(K):
        D = rows.matmul(rows.matmul(K).T)
        D.diagonal().add_(noise[:, 0])
        return D.matmul
    return lambda v: rows.matmul(K @ rows.transposed_matmul(v)) + noise * v


def woodbury_preconditioner(
    rows: WeightedBatches, K: Tensor, noise: Tensor, directions: Tensor
) -> Map | None:
    """v ↦ (F Fᵀ + N)⁻¹ v with N = diag(noise) and F Fᵀ ≈ S K Sᵀ by Nyström's approximation.

    With random directions Ω (m, k) and a shift ν at the level of rounding,

        K ≈ Y (ΩᵀY)⁻¹ Yᵀ,   Y = KΩ + νΩ,   F = S Y C⁻ᵀ,   C Cᵀ = ΩᵀY
        (F Fᵀ + N)⁻¹ = N⁻¹ − WᵀW,   W = E⁻¹FᵀN⁻¹,   E Eᵀ = I + FᵀN⁻¹F

    It costs one product with K and one pass over the rows. It is None where a factorisation fails,
    so that conjugate gradients run without it.
    """
    Y = K @ directions
    Y.add_(directions * (torch.finfo(K.dtype).eps * torch.linalg.matrix_norm(Y)))
    try:
        C = factorise(directions.T @ Y, "the preconditioner")
        F = rows.matmul(torch.linalg.solve_triangular(C, Y.T, upper=False).T)  # (n, k)
        inner = F.T @ (F / noise)
        inner.diagonal().add_(1)
        E = factorise(inner, "the preconditioner")
    except NumericalError:
        return None
    W = torch.linalg.solve_triangular(E, (F / noise).T, upper=False)  # (k, n)
    return lambda v: torch.addmm(v / noise, W.T, W @ v, alpha=-1)
