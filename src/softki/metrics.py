"""Measures of predictions and of their error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    """−log N(y; mean, variance), averaged over all values.

    Args:
        residual: r = y − mean.
        variance: variance s of y and not of f, which includes the noise. Broadcast against
            residual.

    Example:
        >>> gaussian_nll(torch.tensor([0.0, 0.0]), torch.tensor(1.0))
        tensor(0.9189)
    """
    return negative_log_density(residual, variance).mean()


def negative_log_density(residual: Tensor, variance: Tensor) -> Tensor:
    """−log N(y; mean, variance) of each value: ½ [ log 2πs + r²/s ]."""
    return (torch.log(2 * math.pi * variance) + residual.square() / variance) / 2


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
    return float(normal_quantile((1 + level) / 2))


def normal_quantile(level: Tensor | float | Sequence[float]) -> Tensor:
    """z with P(ε ≤ z) = level for a standard normal ε, in float64.

    Example:
        >>> normal_quantile(0.5)
        tensor(0., dtype=torch.float64)
    """
    if not isinstance(level, Tensor):
        level = torch.tensor(level, dtype=torch.float64, device="cpu")
    return torch.special.ndtri(level.double())
