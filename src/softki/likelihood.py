"""The log marginal likelihood and its gradient from the statistics alone, at O(m³)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softki.linalg.products import gram
from softki.solvers import (
    Solution,
    Solver,
    Whitened,
    factorise,
    noise_tensor,
    solve,
    solve_factorised,
    solve_qr,
    whitened_log_likelihood,
)
from softki.statistics import SquareRootStatistics, Statistics


class LikelihoodGradient(NamedTuple):
    """The gradient of −log p where the statistics meet the parameters."""

    log_likelihood: Tensor  # log p(y), summed over targets
    solution: Solution  # the posterior of u, which ∂/∂S needs
    kernel: Tensor  # −∂ log p/∂K, (m, m)
    noise: Tensor  # −∂ log p/∂β²


def log_marginal_likelihood(
    K: Tensor, statistics: Statistics, noise_variance: Tensor | float
) -> Tensor:
    """log p(y) of all the rows behind the statistics, summed over targets.

    Args:
        K: covariance of u, (m, m).
        statistics: statistics of the rows, in either form.
        noise_variance: β².
    """
    solver: Solver = "qr" if isinstance(statistics, SquareRootStatistics) else "whitened"
    log_likelihood = solve(K, statistics, noise_variance, solver).log_likelihood
    assert log_likelihood is not None
    return log_likelihood


def likelihood_gradient(
    K: Tensor, statistics: Statistics, noise_variance: Tensor | float
) -> LikelihoodGradient:
    """log p and the gradient of −log p with respect to K and β².

    With μ, P the posterior of u, summed over targets where there are several,

        ∂/∂K  = ½ [ A − a aᵀ ],   A = Sᵀ(SKSᵀ + β²I)⁻¹S,   a = Sᵀ(SKSᵀ + β²I)⁻¹y
        ∂/∂β² = ½ [ n/β² − tr(GP)/β⁴ − ‖y − Sμ‖²/β⁴ ]

    No inverse of K appears: the textbook ½[K⁻¹ − K⁻¹(P + μμᵀ)K⁻¹] loses as many digits as K's
    condition number has.
    """
    statistics.check_points(len(K))
    noise_variance = noise_tensor(noise_variance, K)
    if isinstance(statistics, SquareRootStatistics):
        solution = solve_qr(K, statistics, noise_variance)
        assert solution.log_likelihood is not None
        kernel, noise = _square_root_gradient(K, statistics, noise_variance)
        return LikelihoodGradient(solution.log_likelihood, solution, kernel, noise)
    whitened = solve_factorised(factorise(K, "the kernel matrix K"), statistics, noise_variance)
    log_likelihood = whitened_log_likelihood(whitened, statistics, noise_variance)
    gradient = GramGradient(whitened, statistics, noise_variance)
    solution = Solution(whitened.mean, whitened.root, log_likelihood)
    return LikelihoodGradient(log_likelihood, solution, gradient.kernel(), gradient.noise())


class GramGradient:
    """∂/∂K and ∂/∂β² by Woodbury, from the Gram form.

    With Z = root G/β², so that ZᵀZ = GPG/β⁴,

        A = G/β² − ZᵀZ,   a = (V − Gμ)/β²,   tr(GP)/β² = Σ Z∘root,   ‖y − Sμ‖² = yy − μᵀ(2V − Gμ)

    The differences lose digits as n/β² grows: about 7 are left at 5·10¹⁰.
    """

    def __init__(self, whitened: Whitened, statistics: Statistics, noise_variance: Tensor) -> None:
        self._whitened, self._statistics, self._noise = whitened, statistics, noise_variance
        self._Z = whitened.root_gram()
        self._rest = statistics.cross - statistics.gram @ whitened.mean  # V − Gμ, (m, t)

    def kernel(self, size: int = 1) -> Tensor:
        """−∂ log p/∂K = ½ [ t A − a aᵀ ], (m, m), divided by the size."""
        a, scale = self._rest / self._noise, 1 / (2 * size)
        A = self._whitened.scaled_gram - gram(self._Z)
        return A.addmm_(a, a.T, beta=self._statistics.targets * scale, alpha=-scale)

    def noise(self) -> Tensor:
        """−∂ log p/∂β² = ½ [ t (n − tr(GP)/β²) − ‖y − Sμ‖²/β² ]/β²."""
        statistics, mean = self._statistics, self._whitened.mean
        residual = statistics.target_square.sum() - (mean * (statistics.cross + self._rest)).sum()
        freedom = statistics.count - (self._Z * self._whitened.root).sum()
        return (statistics.targets * freedom - residual / self._noise) / (2 * self._noise)


def _square_root_gradient(
    K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """−∂ log p/∂K and −∂ log p/∂β² without a difference of terms that nearly cancel.

    With M = β²I + Rs K Rsᵀ, (r, r),

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
