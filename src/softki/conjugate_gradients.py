"""Block conjugate gradients: linear_operator's, with its failure as a value."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from linear_operator.utils.linear_cg import linear_cg
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from softki.exceptions import NumericalError

Map = Callable[[Tensor], Tensor]


class CGResult(NamedTuple):
    """Solutions, and whether all of them reached the tolerance."""

    solution: Tensor  # (n, c)
    converged: bool


def conjugate_gradients(
    matmul: Map,
    right: Tensor,
    tolerance: float,
    max_iterations: int,
    preconditioner: Map | None = None,
) -> CGResult:
    """Solve A X = right (n, c) for a positive definite A given by its product.

    Args:
        matmul: v ↦ A v.
        right: right-hand sides, (n, c).
        tolerance: mean relative residual to stop at.
        max_iterations: to stop at otherwise.
        preconditioner: v ↦ M⁻¹ v with M near A.

    Example:
        >>> A = torch.diag(torch.tensor([1.0, 2.0]))
        >>> conjugate_gradients(A.matmul, torch.ones(2, 1), 1e-6, 20).solution.T
        tensor([[1.0000, 0.5000]])
    """
    if not bool(right.isfinite().all()):
        raise NumericalError("conjugate gradients got a right-hand side that is not finite")
    if not bool(matmul(right).isfinite().all()):
        raise NumericalError("conjugate gradients got a matrix that is not finite")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NumericalWarning)
        solution: Tensor = linear_cg(
            matmul,
            right,
            tolerance=tolerance,
            max_iter=max_iterations,
            max_tridiag_iter=0,
            preconditioner=preconditioner,
            # Its own limits are absolute and would stop it at a residual of 1e-5.
            eps=torch.finfo(right.dtype).tiny,
            stop_updating_after=tolerance / 100,
        )
    if not bool(solution.isfinite().all()):
        raise NumericalError("conjugate gradients gave a solution that is not finite")
    missed = any(issubclass(warning.category, NumericalWarning) for warning in caught)
    return CGResult(solution, not missed)
