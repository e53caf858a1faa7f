"""Conjugate gradients for several right-hand sides at once, with failure as a value.

For A X = B, column by column, with a preconditioner M ≈ A and R = B − AX, from Z = P = M⁻¹R:

    α = (r·z)/(p·Ap),   x += αp,   r −= αAp,   z = M⁻¹r,   p ← z + p·(r·z)/(r·z before)

A dozen small operations a step, and a look at the residual in every tenth: a GPU does not wait
for the host. (`benchmarks/pseudoloss.py` has the times beside those of `linear_operator`'s.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from softki.exceptions import NumericalError

Map = Callable[[Tensor], Tensor]

# Steps between two looks at the residual.
_STRETCH = 10


class CGResult(NamedTuple):
    """Solutions, and whether their mean relative residual reached the tolerance."""

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

    A column in which A turns out not to be positive definite, to the last digit, is left as it
    is from there on.

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
    precondition = preconditioner or torch.clone
    size = torch.linalg.vector_norm(right, dim=0)
    size = torch.where(size > 0, size, 1)  # (c,)
    x, r = torch.zeros_like(right), right / size
    z = precondition(r)
    p, rz = z.clone(), _dot(r, z)
    residual = math.inf
    for step in range(1, max_iterations + 1):
        Ap = matmul(p)
        alpha = _ratio(rz, _dot(p, Ap))
        x.addcmul_(p, alpha)
        r.addcmul_(Ap, alpha, value=-1)
        z = precondition(r)
        before, rz = rz, _dot(r, z)
        p = torch.addcmul(z, p, _ratio(rz, before))
        if step % _STRETCH == 0 or step == max_iterations:
            residual = float(torch.linalg.vector_norm(r, dim=0).mean())
            if residual <= tolerance or not math.isfinite(residual):
                break
    if not math.isfinite(residual):
        raise NumericalError("conjugate gradients: the matrix or the right-hand side is not finite")
    return CGResult(x.mul_(size), residual <= tolerance)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Of every column, (c,)."""
    return (a * b).sum(0)


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """The quotient, or 0 where it is divided by what should be positive, and is not."""
    return torch.where(below <= 0, 0, above / below)
