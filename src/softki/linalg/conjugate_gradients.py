"""Conjugate gradients for several right-hand sides at once, with failure as a value.

For A X = B, column by column, with a preconditioner M ≈ A and R = B − AX, from Z = P = M⁻¹R:

    α = (r·z)/(p·Ap),   x += αp,   r −= αAp,   z = M⁻¹r,   p ← z + p·(r·z)/(r·z before)

A step is a dozen small operations, and the residual is read in every tenth step alone, so that a
GPU does not wait for the host. (`benchmarks/pseudoloss.py` compares the times with those of
`linear_operator`.)
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
    """Solutions, and a flag that is true if their mean relative residual reached the tolerance.

    The residual is the r of the recursion above. The residual of the solution itself can be larger
    in float32 and with a large condition number.
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

    A column stays as it is from the step on in which A turns out not to be positive definite.

    Args:
        matmul: v ↦ A v.
        right: right-hand sides, (n, c).
        tolerance: mean relative residual to stop at.
        max_iterations: largest number of steps.
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
    is_positive = torch.ones_like(rz, dtype=torch.bool)  # by column, until the contrary shows
    residual = 1.0
    for step in range(1, max_iterations + 1):
        Ap = matmul(p)
        curvature = _dot(p, Ap)
        is_positive &= ~(curvature <= 0)  # NaN goes on, to be noticed at the end
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
    """The norm of every column (c,), 1 for a column of zeros, also where squares overflow."""
    largest = right.abs().amax(0)
    largest = torch.where(largest == 0, 1, largest)
    norm = torch.linalg.vector_norm(right / largest, dim=0)
    return largest * torch.where(norm == 0, 1, norm)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of every column of a with that of b, (c,)."""
    return (a * b).sum(0)
