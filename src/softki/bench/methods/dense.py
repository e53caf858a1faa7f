"""The exact GP by one Cholesky factorisation a step, with its gradient written out.

Rows with the same inputs are taken as one: c targets of one value of f with noise β² tell of f
what their mean ȳ with noise β²/c does, and of β² what their scatter s = Σ (y − ȳ)² does.
So, for u distinct rows among n, with K = σ² (1 + √3 r) exp(−√3 r) + β² diag(1/c), α = K⁻¹ȳ and
G = ½ (ααᵀ − K⁻¹), all exactly:

    log p(y)    = −½ ȳᵀα − ½ log det K − ½ s/β² − ½ (n − u) log β² − ½ Σ log c − ½ n log 2π
    ∂/∂log ℓₖ  = Σᵢⱼ Wᵢⱼ (xᵢₖ − xⱼₖ)²/ℓₖ²,   W = 3σ² G ∘ exp(−√3 r)
    ∂/∂log σ²  = ½ (ȳᵀα − u) − β² Σ Gᵢᵢ/cᵢ
    ∂/∂β²      = Σ Gᵢᵢ/cᵢ + ½ s/β⁴ − ½ (n − u)/β²

A step costs O(u³) and the memory of four u×u matrices, where automatic differentiation
through distances, kernel and factorisation keeps about a dozen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from softki.bench.methods.gp import MIN_NOISE_VARIANCE, START_NOISE_VARIANCE, start_lengthscale

_SQRT3 = math.sqrt(3)


@dataclass(frozen=True, eq=False)
class Parameters:
    """ℓ (d,), σ² and β², as logarithms in one vector; β² above its least value."""

    vector: Tensor  # (d + 2,)

    @classmethod
    def start(cls, x: Tensor) -> Parameters:
        """Where every GP of the comparison starts."""
        d = x.shape[1]
        vector = x.new_zeros(d + 2)
        vector[:d] = math.log(start_lengthscale(d))
        vector[-1] = math.log(START_NOISE_VARIANCE - MIN_NOISE_VARIANCE)
        return cls(vector)

    @property
    def lengthscale(self) -> Tensor:
        """ℓ, (d,)."""
        return self.vector[:-2].exp()

    @property
    def outputscale(self) -> Tensor:
        """σ²."""
        return self.vector[-2].exp()

    @property
    def noise_variance(self) -> Tensor:
        """β²."""
        return MIN_NOISE_VARIANCE + self.vector[-1].exp()

    def distance(self, x: Tensor, other: Tensor) -> Tensor:
        """√3 r between the rows of x (n, d) and other (m, d): (n, m)."""
        x, other = x / self.lengthscale, other / self.lengthscale
        squared = (x @ other.T).mul_(-2)
        squared.add_(x.square().sum(1)[:, None]).add_(other.square().sum(1))
        return squared.clamp_min_(0).sqrt_().mul_(_SQRT3)


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Rows, those with the same inputs taken as one."""

    x: Tensor  # (u, d)
    y: Tensor  # ȳ, (u,)
    counts: Tensor  # c, (u,)
    scatter: Tensor  # s, ()

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> DistinctRows:
        """The distinct rows among x (n, d), with the targets y (n,).

        Example:
            >>> DistinctRows.of(torch.tensor([[1.0], [2.0], [1.0]]), torch.tensor([3.0, 4.0, 5.0]))
            DistinctRows(x=tensor([[1.],
                    [2.]]), y=tensor([4., 4.]), counts=tensor([2., 1.]), scatter=tensor(2.))
        """
        distinct, place, counts = torch.unique(x, dim=0, return_inverse=True, return_counts=True)
        counts = counts.to(y)
        mean = torch.zeros_like(counts).index_add_(0, place, y) / counts
        return cls(distinct, mean, counts, (y - mean[place]).square().sum())


@torch.no_grad()
def log_likelihood(rows: DistinctRows, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """log p(y) and its gradient in the vector of parameters (d + 2,)."""
    x, y, counts = rows.x, rows.y, rows.counts
    u, n = len(x), counts.sum()
    lengthscale, outputscale = parameters.lengthscale, parameters.outputscale
    noise_variance = parameters.noise_variance
    K = parameters.distance(x, x).fill_diagonal_(0)
    decay = torch.exp(-K)  # (u, u)
    K.add_(1).mul_(decay).mul_(outputscale).diagonal().add_(noise_variance / counts)
    L = psd_safe_cholesky(K)
    del K
    alpha = torch.cholesky_solve(y[:, None], L)[:, 0]
    log_determinant = 2 * L.diagonal().log().sum()
    G = torch.cholesky_inverse(L)
    del L
    G.neg_().addr_(alpha, alpha).mul_(0.5)
    quadratic, trace = y @ alpha, (G.diagonal() / counts).sum()
    W = G.mul_(decay).mul_(3 * outputscale)
    v = x / lengthscale
    gradient = torch.empty_like(parameters.vector)
    # Σᵢⱼ Wᵢⱼ (vᵢ − vⱼ)² = 2 Σᵢ vᵢ² (W1)ᵢ − 2 vᵀWv, as W is symmetric
    gradient[:-2] = 2 * (W.sum(1) @ v.square() - (v * (W @ v)).sum(0))
    gradient[-2] = (quadratic - u) / 2 - noise_variance * trace
    misfit = rows.scatter / noise_variance
    by_noise = trace + (misfit - (n - u)) / (2 * noise_variance)
    gradient[-1] = by_noise * (noise_variance - MIN_NOISE_VARIANCE)
    within = misfit + (n - u) * noise_variance.log() + counts.log().sum()
    return -(quadratic + log_determinant + within + n * math.log(2 * math.pi)) / 2, gradient


@dataclass(frozen=True, eq=False)
class DensePosterior:
    """Mean k(x, X) α and variance σ² − ‖L⁻¹ k(X, x)‖² of f, with L Lᵀ = K."""

    parameters: Parameters
    x: Tensor  # (u, d)
    L: Tensor  # (u, u)
    alpha: Tensor  # (u,)

    @classmethod
    def of(cls, rows: DistinctRows, parameters: Parameters) -> DensePosterior:
        """The posterior given all rows."""
        K = parameters.distance(rows.x, rows.x).fill_diagonal_(0)
        K = _covariance(K, parameters)
        K.diagonal().add_(parameters.noise_variance / rows.counts)
        L = psd_safe_cholesky(K)
        return cls(parameters, rows.x, L, torch.cholesky_solve(rows.y[:, None], L)[:, 0])

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at the rows of x."""
        cross = _covariance(self.parameters.distance(self.x, x), self.parameters)  # (u, rows)
        explained = torch.linalg.solve_triangular(self.L, cross, upper=False)
        return cross.T @ self.alpha, self.parameters.outputscale - explained.square().sum(0)


def _covariance(distance: Tensor, parameters: Parameters) -> Tensor:
    return torch.exp(-distance).mul_(distance.add_(1)).mul_(parameters.outputscale)
