"""The log marginal likelihood and its gradient from the statistics alone, at O(m³)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softki.products import gram
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
    if isinstance(statistics, SquareRootStatistics):
        kernel, noise = _square_root_gradient(K, statistics, noise_variance)
    else:
        kernel, noise = gram_gradient(statistics, noise_variance, solution.mean, solution.root)
    return LikelihoodGradient(solution.log_likelihood, solution, kernel, noise)


def gram_gradient(
    statistics: Statistics, noise_variance: Tensor, mean: Tensor, root: Tensor
) -> tuple[Tensor, Tensor]:
    """∂/∂K and ∂/∂β² by Woodbury, from the Gram form.

    A = (G − GPG/β²)/β²,   a = (V − Gμ)/β²,   ‖y − Sμ‖² = yy − μᵀ(2V − Gμ)

    The differences lose digits as n/β² grows: about 7 are left at 5·10¹⁰.
    """
    G, V, t = statistics.gram, statistics.cross, statistics.targets
    root_G, G_mean = root @ G, G @ mean  # (r, m), (m, t)
    A = (G - gram(root_G) / noise_variance) / noise_variance
    a = (V - G_mean) / noise_variance
    residual = statistics.target_square.sum() - (mean * (2 * V - G_mean)).sum()
    trace = (root_G * root).sum()  # tr(GP)
    noise = t * statistics.count - (t * trace + residual) / noise_variance
    return (t * A - a @ a.T) / 2, noise / (2 * noise_variance)


def _square_root_gradient(
    K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """With M = β²I + Rs K Rsᵀ of size r, and no difference of terms that nearly cancel.

    A = Rsᵀ M⁻¹ Rs,   a = Rsᵀ M⁻¹ C,   2 ∂/∂β² = t [ tr M⁻¹ + (n − r)/β² ] − ‖M⁻¹C‖²
    """
    Rs, m, t = statistics.weights_factor, statistics.points, statistics.targets
    M = Rs @ K @ Rs.T
    M.diagonal().add_(noise_variance)
    L = factorise(M, "β²I + Rs K Rsᵀ")
    W = torch.linalg.solve_triangular(L, statistics.factor, upper=False)  # LM⁻¹ [Rs C]
    A, a = W[:, :m].T @ W[:, :m], W[:, :m].T @ W[:, m:]
    M_inverse = torch.cholesky_inverse(L)
    rest = (statistics.count - len(M)) / noise_variance
    noise = t * (M_inverse.trace() + rest) - (M_inverse @ statistics.targets_factor).square().sum()
    return (t * A - a @ a.T) / 2, noise / 2


def _solve(K: Tensor, statistics: Statistics, noise_variance: Tensor) -> Solution:
    if isinstance(statistics, SquareRootStatistics):
        return solve_qr(K, statistics, noise_variance)
    return solve_whitened(K, statistics, noise_variance)
