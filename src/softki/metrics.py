"""How good predictions and their error bars are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softki.validation.parameters import check_range


def rmse(residual: Tensor) -> float:
    """Root mean squared error of residuals y − mean.

    Example:
        >>> rmse(torch.tensor([3.0, -3.0]))
        3.0
    """
    return float(residual.square().mean().sqrt())


def gaussian_nll(residual: Tensor, variance: Tensor) -> Tensor:
    """−log N(y; mean, variance), averaged: ½ mean[ log 2πs + r²/s ].

    Args:
        residual: r = y − mean.
        variance: s, of y and not of f: the noise is part of it. Broadcast against residual.

    Example:
        >>> gaussian_nll(torch.tensor([0.0, 0.0]), torch.tensor(1.0))
        tensor(0.9189)
    """
    return (torch.log(2 * math.pi * variance) + residual.square() / variance).mean() / 2


def coverage(residual: Tensor, variance: Tensor, level: float = 0.95) -> float:
    """Share of observations inside the central interval of the given level.

    Example:
        >>> coverage(torch.tensor([0.0, 1.9, 2.1]), torch.tensor(1.0))
        0.6666666865348816
    """
    inside = residual.abs() <= half_width(level) * variance.sqrt()
    return float(inside.float().mean())


def half_width(level: float) -> float:
    """z with P(|ε| ≤ z) = level for a standard normal ε.

    Example:
        >>> round(half_width(0.95), 2)
        1.96
    """
    check_range("level", level, 0, 1)
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
