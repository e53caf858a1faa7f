"""Four numbers that make predictions honest: y ~ N(αμ(w′), α·a·v(w) + b·σ²).

The variance of a model that learned its features is too small, and b = β² was learned for
features that were still moving. Both are refitted on rows that training did not see, by
maximising their likelihood with a log-normal prior around the model's own values,

    Σᵢ ½ [ log sᵢ + (yᵢ − αᵢμᵢ)²/sᵢ ] + ½ [ (log a)² + (log b/β²)² ],   sᵢ = αᵢ a vᵢ + b σᵢ²

which holds a and b back where the held-out rows are few. α is the part of f
that `share_kept` gives where its variance is a v; or 1, if the rows have a lower NLL + log RMSE
with that.

Where the model is not quite right, n rows tell less than n rows should: the variance all but
vanishes where data is dense, and no longer says where the error is; and features that were learned
from the rows follow their noise, so that the mean does too. So v may be the variance, and μ the
mean, of posteriors in which every row counts w ≤ 1 (their noise variance is β²/w): first a w for
v, given the mean of w = 1, and then a w′ for μ, the best of a few for each, chosen likewise, with
priors of their own.

What was fitted to N held-out values suits them better than others: by k/N in NLL for k fitted
numbers (Akaike), as if variances were too small by 1 + 2k/N. They are multiplied by that. And
where errors are no Gaussian's, so that fewer than 95% of held-out values are within 1.96
standard deviations, these grow to what would cover them: by 95%-quantile/1.96, of which a part
N/(N + 200) is believed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from softki.metrics import half_width, negative_log_density, rmse

# a and b/β² stay within 1e±6, which the prior alone would not ensure for absurd residuals.
_LOG_BOUND = math.log(1e6)
ROW_WEIGHTS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""w, of which one is chosen for the variance and one for the mean."""
_ROW_WEIGHT_WIDTH = 3.0  # of the prior of log w
_BELIEVED = 200
_ALL = 0.995  # where so much of f is kept at all rows, it is not asked whether to shrink
_FITTED = 4  # k: a and b, held back by their priors, and the choices of each w and of the step
TARGET_VARIANCE = 1.0
"""τ², of standardised targets."""


class HeldOutRows(NamedTuple):
    """What is known of rows that were held out, before their variance is."""

    target: Tensor  # y, (n, t)
    mean: Tensor  # μ, (n, t)
    noise_variance: float  # β²
    noise_std: Tensor | None = None  # σ, the known relative noise, (n,); None stands for 1


class Calibration(NamedTuple):
    """a, b, the negative log likelihood per held-out value that they give, each w, and τ²."""

    scale: float
    noise_variance: float
    nll: float
    row_weight: float = 1.0  # in the variance
    mean_row_weight: float = 1.0  # in the mean
    target_variance: float | None = None  # None where nothing is shrunk

    def residual_and_variance(self, unseen: HeldOutRows, variance: Tensor) -> tuple[Tensor, Tensor]:
        """y − αμ (n, t) and its variance (n, 1), given the variance v of f (n,)."""
        v, limit = self.scale * variance.double()[:, None], self.target_variance
        share = None if limit is None else share_kept(v, limit)
        return _residual_and_variance(unseen, v, share, self.noise_variance)

    def for_more_rows(self, share: float) -> Self:
        """These numbers for a posterior of more rows, of which those that they suit are a share.

        All rows together count as much in the variance as those did, so that it stays what it was
        found to be. The mean is that of more rows, each of which counts as it did.
        """
        return self._replace(row_weight=share * self.row_weight)

    def in_units(self, scale: float) -> Self:
        """These numbers for a target that was divided by the scale."""
        limit = self.target_variance
        return self._replace(
            noise_variance=scale**2 * self.noise_variance,
            nll=self.nll + math.log(scale),
            target_variance=None if limit is None else scale**2 * limit,
        )


def calibrate(unseen: HeldOutRows, variance: Tensor) -> Calibration:
    """Refit a and b on held-out rows, at which v (n,) is the variance of f.

    Example:
        >>> y = torch.tensor([[0.2], [-0.2]]).repeat(1000, 1)
        >>> unseen = HeldOutRows(y, mean=torch.zeros(2000, 1), noise_variance=1.0)
        >>> round(calibrate(unseen, torch.zeros(2000)).noise_variance, 3)
        0.04
    """
    return min(_candidates(unseen, variance), key=lambda candidate: candidate[0])[1]


def calibrate_row_weights(predictions: Mapping[float, tuple[HeldOutRows, Tensor]]) -> Calibration:
    """Refit a and b, choose both w, and allow for that.

    Args:
        predictions: for each w, 1 among them, what a posterior in which rows count so much says of
            the held-out rows, and its variance v of f at them (n,).
    """
    unseen, _ = predictions[1.0]
    count = unseen.target.numel()

    def best_of(pairs: Mapping[float, tuple[HeldOutRows, Tensor]]) -> tuple[float, Calibration]:
        """The w whose pair has the least score, with the prior of w, and its a and b."""
        candidates = []
        for weight, pair in pairs.items():
            prior = math.log(weight) ** 2 / (2 * _ROW_WEIGHT_WIDTH**2)
            for score, fitted in _candidates(*pair):
                candidates.append((score + prior / count, weight, fitted))
        _, weight, fitted = min(candidates, key=lambda candidate: candidate[0])
        return weight, fitted

    weight, _ = best_of({w: (unseen, variance) for w, (_, variance) in predictions.items()})
    variance = predictions[weight][1]
    mean_weight, best = best_of({w: (said, variance) for w, (said, _) in predictions.items()})
    said = predictions[mean_weight][0]
    wider = (1 + 2 * _FITTED / count) * _missed(best, said, variance)
    limit = best.target_variance
    return best._replace(
        scale=wider * best.scale,
        noise_variance=wider * best.noise_variance,
        row_weight=weight,
        mean_row_weight=mean_weight,
        target_variance=None if limit is None else wider * limit,  # α stays what it is
    )


def _candidates(unseen: HeldOutRows, variance: Tensor) -> Iterator[tuple[float, Calibration]]:
    """Without and with shrinkage: the score, which includes the priors, and a and b."""
    plain, loss = _calibrate(unseen, variance, None)
    share = share_kept(plain.scale * variance.double(), TARGET_VARIANCE)
    if float(share.min()) > _ALL:  # as good as the same, here; other rows may be less certain
        both = [(plain._replace(target_variance=TARGET_VARIANCE), loss)]
    else:
        both = [(plain, loss), _calibrate(unseen, variance, TARGET_VARIANCE)]
    for fitted, least in both:
        error = rmse(fitted.residual_and_variance(unseen, variance)[0])
        yield least + math.log(max(error, 1e-300)), fitted


def _missed(fitted: Calibration, unseen: HeldOutRows, variance: Tensor) -> float:
    """By what variances should grow for 95% intervals to cover 95% of the held-out values."""
    residual, total = fitted.residual_and_variance(unseen, variance)
    deviation = (residual / total.sqrt()).abs()
    quantile = float(np.quantile(deviation.cpu().numpy(), 0.95)) / half_width(0.95)
    count = residual.numel()
    return max(1.0, quantile) ** (2 * count / (count + _BELIEVED))


def _calibrate(
    unseen: HeldOutRows, variance: Tensor, target_variance: float | None
) -> tuple[Calibration, float]:
    """a and b, and what they minimise: NLL and prior, per value.

    With V = a v, r = y − αμ and s = αV + bσ², whose derivatives are, as ∂(αV)/∂V = α³,

        ∂s/∂log a = α³V,   ∂r/∂log a = μ α³V²/τ⁴,   ∂s/∂log b = bσ²

    (α = 1 and ∂r = 0 where nothing is shrunk).
    """
    noise, (y, mean) = unseen.noise_variance, (t.double().cpu() for t in unseen[:2])
    scale = None if unseen.noise_std is None else unseen.noise_std.double().cpu()
    unseen, v = HeldOutRows(y, mean, noise, scale), variance.double().cpu()[:, None]
    raw = torch.zeros(2, dtype=torch.float64, device="cpu", requires_grad=True)

    def logs() -> Tensor:
        return _LOG_BOUND * torch.tanh(raw.detach() / _LOG_BOUND)  # of a and b/β²

    def prior(logs: Tensor) -> Tensor:
        return logs.square().sum() / (2 * y.numel())

    def loss() -> Tensor:
        now = logs()
        a, b = now.exp().tolist()
        b *= noise
        share = None if target_variance is None else share_kept(a * v, target_variance)
        residual, s = _residual_and_variance(unseen, a * v, share, b)
        by_s = (1 - residual.square() / s) / (2 * s)  # (n, t), as the next
        by_a = by_s * a * v
        if share is not None and target_variance is not None:
            ratio = a * v / target_variance
            by_a = share**3 * (by_a + residual / s * mean * ratio.square())
        by_b = by_s * b if scale is None else by_s * b * scale.square()[:, None]
        gradient = torch.stack([by_a.mean(), by_b.mean()]) + now / y.numel()
        raw.grad = gradient * (1 - (now / _LOG_BOUND).square())  # tanh' = 1 − tanh²
        return negative_log_density(residual, s).mean() + prior(now)

    torch.optim.LBFGS([raw], max_iter=50, line_search_fn="strong_wolfe").step(loss)
    found, minimum = logs(), float(loss())
    a, b = found.exp().tolist()
    nll = minimum - float(prior(found))
    return Calibration(a, b * noise, nll, target_variance=target_variance), minimum


def _residual_and_variance(
    unseen: HeldOutRows, v: Tensor, share: Tensor | None, b: float
) -> tuple[Tensor, Tensor]:
    """y − αμ (n, t) and α·v + b·σ² (n, 1), given a·v and α, (n, 1) each."""
    scale = unseen.noise_std
    unit = torch.ones_like(v) if scale is None else scale.double()[:, None].square()
    share = torch.ones_like(v) if share is None else share
    return unseen.target.double() - share * unseen.mean.double(), share * v + b * unit


def share_kept(variance: Tensor, target_variance: Tensor | float) -> Tensor:
    """α, the part of f that is kept where its variance is v: f is no larger than targets are.

    Weights average the values u of many points, so that the variance of u is many times that of f.
    Where one point has much of the weight, and few rows, little is averaged: there the posterior
    may be uncertain by many standard deviations of the target, and its mean as wild. But the target
    has variance τ² = 1, once standardised. So f is shrunk towards its mean over all rows, zero,

        α(x) = (1 + v(x)²/τ⁴)^(−½),   mean αμ,   variance αv ≤ τ²,   cov(f(x), f(x')) √α(x) √α(x')

    where N(μ, v) is what the posterior says of s(x)ᵀu. Where v is small, α is 1 − v²/2τ⁴, and
    nothing changes; τ²/(τ² + v), as if f(x) ~ N(0, τ²) had been known besides, would also shrink
    what rows have shown. Whether to shrink is decided on held-out rows.

    Example:
        >>> share_kept(torch.tensor([0.0, 0.75, 1e30]), 1.0)
        tensor([1.0000e+00, 8.0000e-01, 1.0000e-30])
    """
    limit = torch.as_tensor(target_variance, dtype=variance.dtype, device=variance.device)
    return limit / torch.hypot(limit, variance)
