"""The log marginal likelihood and its gradient from the statistics alone, at O(m³)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from softki.solvers import Solution, solve_qr, solve_whitened
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

    With μ, P the posterior of u and a = (V − Gμ)/β² (summed over targets where t > 1),

        ∂/∂K  = ½ [ (G − GPG/β²)/β² − a aᵀ ]
        ∂/∂β² = ½ [ n/β² − tr(GP)/β⁴ − ‖y − Sμ‖²/β⁴ ]

    (G − GPG/β²)/β² is Sᵀ(SKSᵀ + β²I)⁻¹S by Woodbury. It needs no inverse of K: the textbook
    ½[K⁻¹ − K⁻¹(P + μμᵀ)K⁻¹] loses as many digits as K's condition number has.
    """
    solution = _solve(K, statistics, noise_variance)
    assert solution.log_likelihood is not None
    mean, root, t = solution.mean, solution.root, statistics.targets
    G, V = statistics.gram, statistics.cross
    root_G = root @ G  # (r, m)
    G_mean = G @ mean  # (m, t)
    a = (V - G_mean) / noise_variance
    kernel = t * (G - root_G.T @ root_G / noise_variance) / noise_variance - a @ a.T
    residual = statistics.target_square.sum() - (mean * (2 * V - G_mean)).sum()
    trace = (root_G * root).sum()  # tr(GP)
    noise = t * statistics.count - (t * trace + residual) / noise_variance
    return LikelihoodGradient(
        solution.log_likelihood, solution, kernel / 2, noise / (2 * noise_variance)
    )


def _solve(K: Tensor, statistics: Statistics, noise_variance: Tensor) -> Solution:
    if isinstance(statistics, SquareRootStatistics):
        return solve_qr(K, statistics, noise_variance)
    return solve_whitened(K, statistics, noise_variance)
