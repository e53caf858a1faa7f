"""The log marginal likelihood and its gradient from the statistics alone, at O(m³)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softki.solvers import Solution, factorise, solve_qr, solve_whitened
from softki.statistics import SquareRootStatistics, Statistics


class LikelihoodGradient(NamedTuple):
    """−log p, differentiated where the statistics meet the parameters."""

    log_likelihood: Tensor  # log p(y), summed over targets
    solution: Solution  # the posterior of u, which ∂/∂S needs
    kernel: Tensor  # −∂ log p/∂K, (m, m)
    noise: Tensor  # −∂ log p/∂β²


def log_marginal_likelihood(K: Tensor, statistics: Statistics, noise_variance: Tensor) -> Tensor:
    """log p(y) of all the rows behind the statistics, summed over targets."""
    log_likelihood = _solve(K, statistics, noise_variance).log_likelihood
    assert log_likelihood is not None
    return log_likelihood


def likelihood_gradient(
    K: Tensor, statistics: Statistics, noise_variance: Tensor
) -> LikelihoodGradient:
    """log p and the gradient of −log p with respect to K and β².

    With μ, P the posterior of u, summed over targets where there are several,

        ∂/∂K  = ½ [ A − a aᵀ ],   A = Sᵀ(SKSᵀ + β²I)⁻¹S,   a = Sᵀ(SKSᵀ + β²I)⁻¹y
        ∂/∂β² = ½ [ n/β² − tr(GP)/β⁴ − ‖y − Sμ‖²/β⁴ ]

    No inverse of K appears: the textbook ½[K⁻¹ − K⁻¹(P + μμᵀ)K⁻¹] loses as many digits as K's
    condition number has.
    """
    solution = _solve(K, statistics, noise_variance)
    assert solution.log_likelihood is not None
    mean, root, t = solution.mean, solution.root, statistics.targets
    if isinstance(statistics, SquareRootStatistics):
        A, a = _whitened_square_root(K, statistics, noise_variance)
    else:
        A, a = _whitened_gram(statistics, noise_variance, solution)
    G, V = statistics.gram, statistics.cross
    residual = statistics.target_square.sum() - (mean * (2 * V - G @ mean)).sum()
    trace = ((root @ G) * root).sum()  # tr(GP)
    noise = t * statistics.count - (t * trace + residual) / noise_variance
    return LikelihoodGradient(
        solution.log_likelihood, solution, (t * A - a @ a.T) / 2, noise / (2 * noise_variance)
    )


def _whitened_gram(
    statistics: Statistics, noise_variance: Tensor, solution: Solution
) -> tuple[Tensor, Tensor]:
    """A = (G − GPG/β²)/β² and a = (V − Gμ)/β², by Woodbury.

    The differences lose digits as the signal-to-noise ratio n/β² grows, about 6 of 16 at 1e11.
    """
    G = statistics.gram
    root_G = solution.root @ G  # (r, m)
    A = (G - root_G.T @ root_G / noise_variance) / noise_variance
    return A, (statistics.cross - G @ solution.mean) / noise_variance


def _whitened_square_root(
    K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """A = Rsᵀ M⁻¹ Rs and a = Rsᵀ M⁻¹ C with M = β²I + Rs K Rsᵀ, at any n/β²."""
    Rs, m = statistics.weights_factor, statistics.points
    M = Rs @ K @ Rs.T
    M.diagonal().add_(noise_variance)
    W = torch.linalg.solve_triangular(
        factorise(M, "β²I + Rs K Rsᵀ"), statistics.factor, upper=False
    )
    return W[:, :m].T @ W[:, :m], W[:, :m].T @ W[:, m:]


def _solve(K: Tensor, statistics: Statistics, noise_variance: Tensor) -> Solution:
    if isinstance(statistics, SquareRootStatistics):
        return solve_qr(K, statistics, noise_variance)
    return solve_whitened(K, statistics, noise_variance)
