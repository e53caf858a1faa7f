"""From statistics to the posterior of u: five ways to solve the same system.

With L Lᵀ = K and B = I + LᵀGL/β² = LB LBᵀ, the posterior of the values u at the points is

    P = cov(u | y) = L B⁻¹ Lᵀ = rootᵀ root,   root = LB⁻¹ Lᵀ,   μ = E(u | y) = P V/β²

    log p(y) = −½ [ (yy − vᵀμ)/β² + log det B + n log β² + Σ log σᵢ² + n log 2π ]

(summed over targets). `qr` and `whitened` compute just this. `cholesky`, `solve` and `cg` work
on the system that the paper compares solvers on, Ĉα = KV/β² with Ĉ = K + KGK/β² and μ = Kα,
whose condition is that of K times that of B.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from softki.exceptions import ConvergenceWarning, InvalidInputError, NumericalError
from softki.linalg.conjugate_gradients import conjugate_gradients
from softki.linalg.products import cholesky, congruence, lower_solver
from softki.statistics import GramStatistics, SquareRootStatistics, Statistics
from softki.validation.parameters import as_double, check_above, check_choice

_CG_ITERATIONS = 1000

Solver = Literal["qr", "whitened", "cholesky", "solve", "cg"]


class Solution(NamedTuple):
    """The posterior of u."""

    mean: Tensor  # μ, (m, t)
    root: Tensor  # (r, m), with cov(u | y) = rootᵀ root
    log_likelihood: Tensor | None = None  # log p(y), where the solver gives it


def solve(
    K: Tensor,
    statistics: Statistics,
    noise_variance: Tensor | float,
    solver: Solver = "qr",
    tolerance: float = 1e-4,
) -> Solution:
    """The posterior of u given the statistics of the data.

    Args:
        K: covariance of u, (m, m).
        statistics: statistics of the data; `qr` needs the square-root form, the others take either.
        noise_variance: β².
        solver: `qr` (square-root form, the most accurate), `whitened` (Cholesky of B from the
            Gram form, the fastest), or the paper's `cholesky`, `solve` (LU) and `cg` on Ĉ.
        tolerance: relative residual at which `cg` stops.
    """
    check_choice("solver", solver, get_args(Solver))
    statistics.check_points(len(K))
    noise_variance = noise_tensor(noise_variance, K)
    if solver == "qr":
        if not isinstance(statistics, SquareRootStatistics):
            raise InvalidInputError("the solver 'qr' needs SquareRootStatistics")
        return solve_qr(K, statistics, noise_variance)
    if solver == "whitened":
        return solve_whitened(K, statistics, noise_variance)
    return _solve_paper_system(K, statistics, noise_variance, solver, tolerance)


def noise_tensor(noise_variance: Tensor | float, K: Tensor) -> Tensor:
    """β² as a tensor on the device of K; a number must be positive."""
    if isinstance(noise_variance, Tensor):
        return noise_variance
    check_above("noise_variance", as_double(noise_variance), 0.0)
    return K.new_tensor(noise_variance)


def statistics_for(solver: Solver) -> type[GramStatistics] | type[SquareRootStatistics]:
    """The form of the statistics that a solver works on."""
    return SquareRootStatistics if solver == "qr" else GramStatistics


def solve_qr(K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor) -> Solution:
    """Stable solve from the square-root form, without forming G.

    QR of the stacked matrix, with the right-hand side carried along:

        [Rs L/β  C/β]        [R̃  W]
        [  I      0 ]  =  Q̃  [0  E],     R̃ᵀR̃ = B,  μ = L R̃⁻¹ W,  (yy − vᵀμ)/β² = ‖E‖² by column
    """
    L, m = factorise(K, "the kernel matrix K"), len(K)
    beta = noise_variance.sqrt()
    top = torch.cat([statistics.weights_factor @ L, statistics.targets_factor], 1) / beta
    bottom = torch.eye(m, top.shape[1], dtype=top.dtype, device=top.device)
    R = torch.linalg.qr(torch.cat([top, bottom]), mode="r").R
    upper, W, E = R[:m, :m], R[:m, m:], R[m:, m:]
    root = torch.linalg.solve_triangular(upper.T, L.T, upper=False)
    log_det = 2 * upper.diagonal().abs().log().sum()
    return Solution(
        root.T @ W, root, _log_likelihood(statistics, noise_variance, E.square().sum(), log_det)
    )


def solve_whitened(K: Tensor, statistics: Statistics, noise_variance: Tensor) -> Solution:
    """Cholesky of B = I + LᵀGL/β², from the Gram form."""
    L = factorise(K, "the kernel matrix K")
    whitened = solve_factorised(L, statistics, noise_variance)
    log_likelihood = whitened_log_likelihood(whitened, statistics, noise_variance)
    return Solution(whitened.mean, whitened.root, log_likelihood)


@dataclass
class Whitened:
    """The posterior of u, with the matrices from which log p and its gradient follow."""

    mean: Tensor  # μ, (m, t)
    root: Tensor  # (m, m)
    half: Tensor  # root V/β², (m, t)
    factor: Tensor  # LB, (m, m)
    scaled_gram: Tensor  # G/β², (m, m)
    _root_gram: Callable[[], Tensor] | None

    def root_gram(self) -> Tensor:
        """root G/β², (m, m); once, after which the memory behind it is given back."""
        compute, self._root_gram = self._root_gram, None
        assert compute is not None
        return compute()


def solve_factorised(L: Tensor, statistics: Statistics, noise_variance: Tensor) -> Whitened:
    """As `solve_whitened`, given the Cholesky factor L of K, and without log p."""
    G = statistics.gram / noise_variance
    left, B = congruence(L, G)
    B.diagonal().add_(1)
    LB = factorise(B, "B = I + LᵀGL/β²")
    solve = lower_solver(LB)
    root = solve(L.T)
    half = root @ statistics.cross / noise_variance
    return Whitened(root.T @ half, root, half, LB, G, lambda: solve(left))


def whitened_log_likelihood(
    whitened: Whitened, statistics: Statistics, noise_variance: Tensor
) -> Tensor:
    """log p(y), summed over targets."""
    quadratic = statistics.target_square.sum() / noise_variance - whitened.half.square().sum()
    log_det = 2 * whitened.factor.diagonal().log().sum()
    return _log_likelihood(statistics, noise_variance, quadratic, log_det)


def factorise(matrix: Tensor, name: str) -> Tensor:
    """Lower Cholesky factor, or a `NumericalError` that names the matrix.

    Nothing can be read back while a CUDA graph is captured: there, a failure gives NaN.
    """
    L, info = cholesky(matrix)
    if matrix.is_cuda and torch.cuda.is_current_stream_capturing():
        return L.masked_fill_(info.bool(), torch.nan)
    if int(info) != 0 or not bool(L.diagonal().isfinite().all()):
        raise NumericalError(f"{name} is not positive definite in {matrix.dtype}")
    return L


def _log_likelihood(
    statistics: Statistics, noise_variance: Tensor, quadratic: Tensor, log_det: Tensor
) -> Tensor:
    per_target = (
        log_det
        + statistics.count * (noise_variance.log() + math.log(2 * math.pi))
        + statistics.log_noise
    )
    return -(quadratic + statistics.targets * per_target) / 2


def _solve_paper_system(
    K: Tensor, statistics: Statistics, noise_variance: Tensor, solver: Solver, tolerance: float
) -> Solution:
    """Ĉα = KV/β² for the mean, and P = K Ĉ⁻¹ K for the covariance."""
    KGK = K @ statistics.gram @ K
    C = K + (KGK + KGK.T) / (2 * noise_variance)
    right = torch.cat([K @ statistics.cross / noise_variance, K], 1)  # (m, t + m)
    if solver == "cholesky":
        solved = torch.cholesky_solve(right, factorise(C, "Ĉ = K + KGK/β²"))
    elif solver == "solve":
        solved, info = torch.linalg.solve_ex(C, right)
        if int(info) != 0 or not bool(solved.isfinite().all()):
            raise NumericalError(f"Ĉ = K + KGK/β² is singular in {C.dtype}")
    else:
        solved, converged = conjugate_gradients(C.matmul, right, tolerance, _CG_ITERATIONS)
        if not converged:
            warnings.warn(
                f"conjugate gradients did not reach the tolerance {tolerance} in "
                f"{_CG_ITERATIONS} steps",
                ConvergenceWarning,
                stacklevel=3,
            )
    t = statistics.targets
    return Solution(K @ solved[:, :t], _root_of(K @ solved[:, t:]))


def _root_of(P: Tensor) -> Tensor:
    """root with rootᵀ root = the positive part of the symmetrised P."""
    values, vectors = torch.linalg.eigh((P + P.T) / 2)
    return values.clamp_min(0).sqrt()[:, None] * vectors.T
