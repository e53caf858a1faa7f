"""Three numbers that make error bars honest: y ~ N(αμ, α·a·v(w) + b·σ²).

The variance of a model that learned its features is too small, and b = β² was learned for
features that were still moving. Both are refitted on rows that training did not see, by
maximising their likelihood with a log-normal prior around the model's own values,

    Σᵢ ½ [ log sᵢ + (yᵢ − αᵢμᵢ)²/sᵢ ] + ½ [ (log a)² + (log b/β²)² ],   sᵢ = αᵢ a vᵢ + b σᵢ²

which holds a and b back where the held-out rows are few. α is what `softki.shrinkage` keeps of f
where its variance is a v.

Where the model is not quite right, n rows tell less than n rows should: the variance all but
vanishes where data is dense, and no longer says where the error is. So v may be the variance
of a posterior in which every row counts w ≤ 1 (its noise variance is β²/w), while the mean
stays that of all rows, but for α: the best w of a few is chosen, with a prior of its own.

What was fitted to N held-out values suits them better than others: by k/N in NLL for k fitted
numbers (Akaike), as if variances were too small by 1 + 2k/N. They are multiplied by that. And
where errors are no Gaussian's, so that fewer than 95% of held-out values are within 1.96
standard deviations, these grow to what would cover them: by 95%-quantile/1.96, of which a part
N/(N + 200) is believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from softki.metrics import gaussian_nll
from softki.shrinkage import share_kept

# a and b/β² stay within 1e±6, which the prior alone would not ensure for absurd residuals.
_LOG_BOUND = math.log(1e6)
_ROW_WEIGHTS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
_ROW_WEIGHT_WIDTH = 3.0  # of the prior of log w
_BELIEVED = 200
_FITTED = 3  # k: a and b, held back by their priors, and the choices of w and of the step


class Seen(NamedTuple):
    """What is known of rows that were held out, before their variance is."""

    target: Tensor  # y, (n, t)
    mean: Tensor  # μ, (n, t)
    noise_variance: float  # β²
    noise_scale: Tensor | None = None  # σ, the known relative noise, (n,); None stands for 1


class Calibration(NamedTuple):
    """a, b, the negative log likelihood per held-out value that they give, and w."""

    scale: float
    noise_variance: float
    nll: float
    row_weight: float = 1.0

    def moments(self, seen: Seen, variance: Tensor) -> tuple[Tensor, Tensor]:
        """y − αμ (n, t) and its variance (n, 1), given the variance v of f (n,)."""
        return _moments(seen, variance, self.scale, self.noise_variance)

    def for_more_rows(self, share: float) -> Self:
        """These numbers for a posterior of more rows, of which those that they suit are a share.

        All rows together count as much as those did, so that the variance stays what it was
        found to be; the mean is that of all rows.
        """
        return self._replace(row_weight=share * self.row_weight)

    def in_units(self, scale: float) -> Self:
        """These numbers for a target that was divided by the scale."""
        return self._replace(
            noise_variance=scale**2 * self.noise_variance, nll=self.nll + math.log(scale)
        )


def calibrate(seen: Seen, variance: Tensor) -> Calibration:
    """Refit a and b on held-out rows, at which v (n,) is the variance of f.

    Example:
        >>> y = torch.tensor([[0.2], [-0.2]]).repeat(1000, 1)
        >>> seen = Seen(y, mean=torch.zeros(2000, 1), noise_variance=1.0)
        >>> round(calibrate(seen, torch.zeros(2000)).noise_variance, 3)
        0.04
    """
    return _calibrate(seen, variance)[0]


def calibrate_row_weight(seen: Seen, variance: Callable[[float], Tensor]) -> Calibration:
    """Refit a and b, choose w, and allow for that; `variance` gives v at the rows for a w."""
    candidates, count = [], seen.target.numel()
    for weight in _ROW_WEIGHTS:
        fitted, loss = _calibrate(seen, variance(weight))
        prior = math.log(weight) ** 2 / (2 * _ROW_WEIGHT_WIDTH**2)
        candidates.append((loss + prior / count, fitted._replace(row_weight=weight)))
    best = min(candidates, key=lambda candidate: candidate[0])[1]
    wider = (1 + 2 * _FITTED / count) * _missed(best, seen, variance(best.row_weight))
    return best._replace(scale=wider * best.scale, noise_variance=wider * best.noise_variance)


def _missed(fitted: Calibration, seen: Seen, variance: Tensor) -> float:
    """By what variances should grow for 95% intervals to cover 95% of the held-out values."""
    residual, total = fitted.moments(seen, variance)
    deviation = (residual / total.sqrt()).abs()
    quantile = float(np.quantile(deviation.cpu().numpy(), 0.95)) / 1.96
    count = residual.numel()
    return max(1.0, quantile) ** (2 * count / (count + _BELIEVED))


def _calibrate(seen: Seen, variance: Tensor) -> tuple[Calibration, float]:
    """a and b, and what they minimise: NLL and prior, per value."""
    target, mean = seen.target.double().cpu(), seen.mean.double().cpu()
    scale = None if seen.noise_scale is None else seen.noise_scale.double().cpu()
    seen, v = Seen(target, mean, seen.noise_variance, scale), variance.double().cpu()
    raw = torch.zeros(2, dtype=torch.float64, device="cpu", requires_grad=True)

    def factors() -> Tensor:
        return torch.exp(_LOG_BOUND * torch.tanh(raw / _LOG_BOUND))  # a, b/β²

    def nll() -> Tensor:
        a, b = factors()
        return gaussian_nll(*_moments(seen, v, a, b * seen.noise_variance))

    def loss() -> Tensor:
        raw.grad = None
        prior = factors().log().square().sum() / 2
        value = nll() + prior / target.numel()
        value.backward()
        return value

    torch.optim.LBFGS([raw], max_iter=50, line_search_fn="strong_wolfe").step(loss)
    minimum = float(loss().detach())
    with torch.no_grad():
        a, b = factors()
        return Calibration(float(a), seen.noise_variance * float(b), float(nll())), minimum


def _moments(
    seen: Seen, variance: Tensor, a: Tensor | float, b: Tensor | float
) -> tuple[Tensor, Tensor]:
    """y − αμ (n, t) and α·a·v + b·σ² (n, 1)."""
    v, scale = a * variance.double()[:, None], seen.noise_scale
    unit = torch.ones_like(v) if scale is None else scale.double()[:, None].square()
    share = share_kept(v)
    return seen.target.double() - share * seen.mean.double(), share * v + b * unit
