"""Where a posterior knows little, f is no larger than targets are.

Weights average the values u of many points, so that the variance of u is many times that of f.
Where one point has much of the weight, and few rows, little is averaged: there the posterior may
be uncertain by many standard deviations of the target, and its mean as wild. But the target has
variance τ² = 1, once standardised. So f is shrunk towards its mean over all rows, which is zero,

    α(x) = (1 + v(x)²/τ⁴)^(−½),   mean αμ,   variance αv ≤ τ²,   cov(f(x), f(x')) √α(x) √α(x')

where N(μ, v) is what the posterior says of s(x)ᵀu. Where v is small, α is 1 − v²/2τ⁴, and nothing
changes; τ²/(τ² + v), as if f(x) ~ N(0, τ²) had been known besides, would also shrink what rows
have shown. Whether to shrink is decided on held-out rows (`softki.posterior.calibration`).
"""

from __future__ import annotations

import torch
from torch import Tensor

TARGET_VARIANCE = 1.0
"""τ², of standardised targets."""


def share_kept(variance: Tensor, target_variance: Tensor | float) -> Tensor:
    """α, for variances v.

    Example:
        >>> share_kept(torch.tensor([0.0, 0.75, 1e30]), 1.0)
        tensor([1.0000e+00, 8.0000e-01, 1.0000e-30])
    """
    limit = torch.as_tensor(target_variance, dtype=variance.dtype, device=variance.device)
    return limit / torch.hypot(limit, variance)
