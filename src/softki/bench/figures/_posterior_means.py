"""The solvers of the paper's comparison, for the posterior mean alone.

All but QR solve the paper's system, with one right-hand side,

    Ĉα = KV/β²,   Ĉ = K + KGK/β²,   μ = Kα

QR is `softki.solvers.solve_qr`. `softki.solvers.solve` gives the covariance too, and there the
tolerance of conjugate gradients is that of m more right-hand sides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from softki.exceptions import NumericalError
from softki.linalg.conjugate_gradients import conjugate_gradients
from softki.solvers import factorise, solve_qr
from softki.statistics import SquareRootStatistics

_CG_ITERATIONS = 1000


class Mean(NamedTuple):
    """The posterior mean of u, and whether an iterative solver reached its tolerance."""

    value: Tensor  # μ, (m, t)
    converged: bool = True


SolveMean = Callable[[Tensor, SquareRootStatistics, Tensor], Mean]
"""From K, the statistics and β², all in one precision; `NumericalError` where it fails."""


def by_qr(K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor) -> Mean:
    """From the QR of the square-root form."""
    return _finite(Mean(solve_qr(K, statistics, noise_variance).mean))


def directly(K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor) -> Mean:
    """By an LU factorisation of Ĉ."""
    C, right = _paper_system(K, statistics, noise_variance)
    alpha, info = torch.linalg.solve_ex(C, right)
    if int(info) != 0:
        raise NumericalError(f"Ĉ is singular in {C.dtype}")
    return _finite(Mean(K @ alpha))


def by_cholesky(K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor) -> Mean:
    """By a Cholesky factorisation of Ĉ."""
    C, right = _paper_system(K, statistics, noise_variance)
    return _finite(Mean(K @ torch.cholesky_solve(right, factorise(C, "Ĉ"))))


def by_conjugate_gradients(
    K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor, tolerance: float
) -> Mean:
    """By conjugate gradients on Ĉ, down to a relative residual."""
    C, right = _paper_system(K, statistics, noise_variance)
    alpha, converged = conjugate_gradients(C.matmul, right, tolerance, _CG_ITERATIONS)
    return _finite(Mean(K @ alpha, converged))


SOLVERS: dict[str, SolveMean] = {
    "direct": directly,
    "Cholesky": by_cholesky,
    "CG 1e-1": partial(by_conjugate_gradients, tolerance=1e-1),
    "CG 1e-2": partial(by_conjugate_gradients, tolerance=1e-2),
    "CG 1e-3": partial(by_conjugate_gradients, tolerance=1e-3),
    "CG 1e-4": partial(by_conjugate_gradients, tolerance=1e-4),
    "QR": by_qr,
}


def _paper_system(
    K: Tensor, statistics: SquareRootStatistics, noise_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Ĉ (m, m) and the right-hand side (m, t)."""
    interpolated = statistics.weights_factor @ K  # in the place of ΣK, whose Gram matrix it shares
    C = K + interpolated.T @ interpolated / noise_variance
    return C, interpolated.T @ statistics.targets_factor / noise_variance


def _finite(mean: Mean) -> Mean:
    if not bool(mean.value.isfinite().all()):
        raise NumericalError("the posterior mean is not finite")
    return mean
