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
    """Solutions, and whether their mean relative residual reached the tolerance.

    The residual is the r above. In float32, and with a large condition, that of the solution can be
    larger.
    """

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
    if not right.numel():
        return CGResult(torch.zeros_like(right), True)
    precondition = preconditioner or torch.clone
    size = _size(right)
    x, r = torch.zeros_like(right), right / size
    z = precondition(r)
    p, rz = z.clone(), _dot(r, z)
    is_positive = torch.ones_like(rz, dtype=torch.bool)  # as far as is known, by column
    residual = 1.0
    for step in range(1, max_iterations + 1):
        Ap = matmul(p)
        curvature = _dot(p, Ap)
        is_positive &= ~(curvature <= 0)  # what is not a number goes on, to be noticed
        alpha = torch.where(is_positive, rz / curvature, 0)
        x.addcmul_(p, alpha)
        r.addcmul_(Ap, alpha, value=-1)
        z = precondition(r)
        before, rz = rz, _dot(r, z)
        p = torch.addcmul(z, p, torch.where(before <= 0, 0, rz / before))
        if step % _STRETCH == 0 or step == max_iterations:
            residual = float(torch.linalg.vector_norm(r, dim=0).mean())
            if residual <= tolerance or not math.isfinite(residual):
                break
    if not math.isfinite(residual):
        raise NumericalError("conjugate gradients: the matrix or the right-hand side is not finite")
    return CGResult(x.mul_(size), residual <= tolerance)


def _size(right: Tensor) -> Tensor:
    """The norm of every column (c,), 1 for one of zeros; squares of its numbers may overflow."""
    largest = right.abs().amax(0)
    largest = torch.where(largest == 0, 1, largest)
    norm = torch.linalg.vector_norm(right / largest, dim=0)
    return largest * torch.where(norm == 0, 1, norm)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Of every column, (c,)."""
    return (a * b).sum(0)
