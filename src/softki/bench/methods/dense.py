"""The exact GP by one Cholesky factorisation a step, with its gradient written out.

With K = σ² (1 + √3 r) exp(−√3 r) + β² I, α = K⁻¹y and G = ½ (ααᵀ − K⁻¹):

    log p(y)    = −½ yᵀα − ½ log det K − ½ n log 2π
    ∂/∂log ℓₖ  = Σᵢⱼ Wᵢⱼ (xᵢₖ − xⱼₖ)²/ℓₖ²,   W = 3σ² G ∘ exp(−√3 r)
    ∂/∂log σ²  = ½ (yᵀα − n) − β² tr G
    ∂/∂β²      = tr G

A step costs O(n³) and the memory of four n×n matrices, where automatic differentiation
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


@torch.no_grad()
def log_likelihood(x: Tensor, y: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """log p(y) and its gradient in the vector of parameters (d + 2,)."""
    n = len(x)
    lengthscale, outputscale = parameters.lengthscale, parameters.outputscale
    noise_variance = parameters.noise_variance
    K = parameters.distance(x, x).fill_diagonal_(0)
    decay = torch.exp(-K)  # (n, n)
    K.add_(1).mul_(decay).mul_(outputscale).diagonal().add_(noise_variance)
    L = psd_safe_cholesky(K)
    del K
    alpha = torch.cholesky_solve(y[:, None], L)[:, 0]
    log_determinant = 2 * L.diagonal().log().sum()
    G = torch.cholesky_inverse(L)
    del L
    G.neg_().addr_(alpha, alpha).mul_(0.5)
    quadratic, trace = y @ alpha, G.trace()
    W = G.mul_(decay).mul_(3 * outputscale)
    u = x / lengthscale
    gradient = torch.empty_like(parameters.vector)
    # Σᵢⱼ Wᵢⱼ (uᵢ − uⱼ)² = 2 Σᵢ uᵢ² (W1)ᵢ − 2 uᵀWu, as W is symmetric
    gradient[:-2] = 2 * (W.sum(1) @ u.square() - (u * (W @ u)).sum(0))
    gradient[-2] = (quadratic - n) / 2 - noise_variance * trace
    gradient[-1] = trace * (noise_variance - MIN_NOISE_VARIANCE)
    return -(quadratic + log_determinant + n * math.log(2 * math.pi)) / 2, gradient


@dataclass(frozen=True, eq=False)
class DensePosterior:
    """Mean k(x, X) α and variance σ² − ‖L⁻¹ k(X, x)‖² of f."""

    parameters: Parameters
    x: Tensor  # (n, d)
    L: Tensor  # (n, n)
    alpha: Tensor  # (n,)

    @classmethod
    def of(cls, x: Tensor, y: Tensor, parameters: Parameters) -> DensePosterior:
        """The posterior given all rows."""
        K = parameters.distance(x, x).fill_diagonal_(0)
        K = _covariance(K, parameters)
        K.diagonal().add_(parameters.noise_variance)
        L = psd_safe_cholesky(K)
        return cls(parameters, x, L, torch.cholesky_solve(y[:, None], L)[:, 0])

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at the rows of x."""
        cross = _covariance(self.parameters.distance(self.x, x), self.parameters)  # (n, rows)
        explained = torch.linalg.solve_triangular(self.L, cross, upper=False)
        return cross.T @ self.alpha, self.parameters.outputscale - explained.square().sum(0)


def _covariance(distance: Tensor, parameters: Parameters) -> Tensor:
    return torch.exp(-distance).mul_(distance.add_(1)).mul_(parameters.outputscale)
