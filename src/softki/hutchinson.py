"""Hutchinson's pseudoloss: the gradient of the likelihood by conjugate gradients and probes.

With D = S K Sᵀ + β² diag(σ²), D u₀ = y and D uⱼ = wⱼ for l probes with E[w wᵀ] = I,

    pseudoloss = ½ u₀ᵀD u₀ − (1/2l) Σⱼ uⱼᵀD wⱼ      (every u held constant)

has the gradient ½ u₀ᵀ∂D u₀ − (1/2l) Σⱼ uⱼᵀ∂D wⱼ, whose expectation is that of log p. Its value
means nothing and is not reported. It takes products with S and K only: neither D nor K need be
positive definite to the last digit, as a Cholesky factorisation would want. Vectors are in
float64: in float32 a small β² leaves no digit of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from linear_operator import pivoted_cholesky
from torch import Tensor

from softki.batches import Batch
from softki.checks import check_integer
from softki.conjugate_gradients import Map, conjugate_gradients
from softki.engine import Interpolated, WeightGradient
from softki.exceptions import NumericalError
from softki.objective import Adjoint
from softki.rows import Rows
from softki.solvers import factorise


@dataclass
class Hutchinson:
    """Hutchinson's pseudoloss with block conjugate gradients.

    Args:
        probes: l, the number of probes.
        tolerance: relative residual at which conjugate gradients stop.
        max_iterations: of conjugate gradients.
        preconditioner_rank: of the pivoted Cholesky factor of K; 0 for no preconditioner.
        generator: draws the probes; None for torch's own.

    Attributes:
        unconverged: how often conjugate gradients stopped short of the tolerance.
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

    def __call__(self, rows: Rows, K: Tensor, noise_variance: Tensor) -> Adjoint:
        """The pseudoloss's gradient with fresh Gaussian probes."""
        y = rows.targets
        probes = torch.randn(
            (len(y), self.probes), generator=self.generator, dtype=y.dtype, device=y.device
        )
        return self.with_probes(rows, K, noise_variance, probes)

    def with_probes(self, rows: Rows, K: Tensor, noise_variance: Tensor, probes: Tensor) -> Adjoint:
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

    def _solve(self, rows: Rows, K: Tensor, noise: Tensor, right: Tensor) -> Tensor:
        """D⁻¹ right, with D = S K Sᵀ + diag(noise)."""

        def matmul(v: Tensor) -> Tensor:
            return rows.matmul(K @ rows.transposed_matmul(v)) + noise * v

        preconditioner = None
        if self.preconditioner_rank:
            preconditioner = woodbury_preconditioner(rows, K, noise, self.preconditioner_rank)
        solved, converged = conjugate_gradients(
            matmul, right, self.tolerance, self.max_iterations, preconditioner
        )
        self.unconverged += not converged
        return solved


def woodbury_preconditioner(rows: Rows, K: Tensor, noise: Tensor, rank: int) -> Map | None:
    """v ↦ (F Fᵀ + N)⁻¹ v with F = S·(pivoted Cholesky factor of K), N = diag(noise).

        (F Fᵀ + N)⁻¹ = N⁻¹ − N⁻¹F (I + FᵀN⁻¹F)⁻¹ FᵀN⁻¹

    The factor is taken of the m×m matrix K, so that it costs no pass over the rows. None where
    I + FᵀN⁻¹F is not positive definite: conjugate gradients then go without.
    """
    F = rows.matmul(pivoted_cholesky(K, rank=min(rank, len(K))))  # (n, k)
    inner = F.T @ (F / noise)
    inner.diagonal().add_(1)
    try:
        L = factorise(inner, "the preconditioner")
    except NumericalError:
        return None

    def precondition(v: Tensor) -> Tensor:
        v = v / noise
        return v - (F @ torch.cholesky_solve(F.T @ v, L)) / noise

    return precondition
