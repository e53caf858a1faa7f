"""Sparse GP regression (Titsias), with a posterior by Cholesky or by QR.

    q(x, x') = k(x, z) k(z, z)⁻¹ k(z, x')

stands for the kernel between training rows; the bound that is maximised is
log N(y; 0, Q + β²I) − ½ tr(K − Q)/β².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gpytorch.kernels import InducingPointKernel, Kernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import to_dense
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from softki.bench.methods.gp import FullBatchMethod, matern32

# Rows of the training data that are looked at together.
_BLOCK = 8192


class SGPR(FullBatchMethod):
    """Titsias' sparse GP on learned points, trained by GPyTorch on all rows in every step.

    In float64: in float32 the bound diverges on data with little noise. At half the learning
    rate of `exact`, where the bound would not come to rest. The posterior is that of the model
    which was trained; GPyTorch's own predictions add a correction to the training covariance,
    which makes it another model (FITC), or leave out k − q of the variance.

    Settings:
        points: m, from k-means; their positions are learned.
        epochs, learning_rate: of Adam; fewer steps if the bound rests.
    """

    name = "sgpr"
    dtype = torch.float64
    defaults: ClassVar[dict[str, Any]] = {"points": 512, "epochs": 300, "learning_rate": 0.05}

    def _learn(self, x: Tensor, y: Tensor) -> None:
        super()._learn(x, y)
        kernel = self.model.covar_module
        sparse = Sparse(kernel.base_kernel, kernel.inducing_points, self.model.likelihood.noise)
        self._note_points(sparse.points)
        with torch.no_grad():
            self._posterior = self._solve(sparse, x, y)

    def _latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._posterior(x)

    def _solve(self, sparse: Sparse, x: Tensor, y: Tensor) -> SparsePosterior:
        return by_cholesky(sparse, x, y)

    def _kernel(self, x: Tensor, likelihood: GaussianLikelihood) -> Kernel:
        return InducingPointKernel(matern32(x.shape[1]), self._start_points(x), likelihood)

    def _kernel_parameters(self) -> tuple[Tensor, Tensor]:
        kernel = self.model.covar_module.base_kernel
        return kernel.base_kernel.lengthscale, kernel.outputscale


class SGPRByQR(SGPR):
    """`sgpr`, trained alike, with its posterior by the paper's QR factorisation.

    Settings are those of `sgpr`.
    """

    name = "sgpr_qr"

    def _solve(self, sparse: Sparse, x: Tensor, y: Tensor) -> SparsePosterior:
        return by_qr(sparse, x, y)


class Sparse:
    """Kernel, points z (m, d) and noise variance β² of a trained model, and L Lᵀ = k(z, z)."""

    def __init__(self, kernel: Kernel, points: Tensor, noise_variance: Tensor) -> None:
        self.kernel, self.points = kernel, points.detach()
        self.noise = noise_variance.detach().sqrt()
        self.L = psd_safe_cholesky(to_dense(kernel(self.points)).detach())

    def features(self, x: Tensor) -> Tensor:
        """L⁻¹ k(z, x), (m, n)."""
        cross = to_dense(self.kernel(self.points, x))
        return torch.linalg.solve_triangular(self.L, cross, upper=False)

    def blocks(self, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """A = L⁻¹ k(z, x)/β, (m, rows), and y/β, (rows,), of blocks of rows."""
        for rows, targets in zip(x.split(_BLOCK), y.split(_BLOCK), strict=True):
            yield self.features(rows) / self.noise, targets / self.noise


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """The posterior of f from a triangle R with RᵀR = I + A Aᵀ, and c = R⁻ᵀ A y/β.

    For v = L⁻¹ k(z, x*):  mean = vᵀ R⁻¹ c,   variance = k(x*, x*) − ‖v‖² + ‖R⁻ᵀ v‖².
    """

    sparse: Sparse
    R: Tensor  # (m, m), upper
    c: Tensor  # (m,)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at the rows of x."""
        v = self.sparse.features(x)
        w = torch.linalg.solve_triangular(self.R.T, v, upper=False)  # R⁻ᵀ v
        prior = to_dense(self.sparse.kernel(x, diag=True))
        return self.c @ w, prior - v.square().sum(0) + w.square().sum(0)


def by_cholesky(sparse: Sparse, x: Tensor, y: Tensor) -> SparsePosterior:
    """R from the Cholesky factorisation of I + A Aᵀ."""
    B = torch.eye(len(sparse.L), dtype=x.dtype, device=x.device)
    right = x.new_zeros(len(sparse.L))
    for A, targets in sparse.blocks(x, y):
        B.addmm_(A, A.T)
        right.addmv_(A, targets)
    R = psd_safe_cholesky(B).T
    return SparsePosterior(sparse, R, _solve_lower(R.T, right))


def by_qr(sparse: Sparse, x: Tensor, y: Tensor) -> SparsePosterior:
    """R and c from the QR factorisation of [Aᵀ y/β; I 0], without forming A Aᵀ.

    Rows join in blocks, the triangle so far standing for those before.
    """
    m = len(sparse.L)
    triangle = torch.eye(m, m + 1, dtype=x.dtype, device=x.device)
    for A, targets in sparse.blocks(x, y):
        block = torch.cat([A.T, targets[:, None]], 1)
        triangle = torch.linalg.qr(torch.cat([triangle, block]), mode="r").R
    return SparsePosterior(sparse, triangle[:m, :m], triangle[:m, m])


def _solve_lower(L: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L, right[:, None], upper=False)[:, 0]
