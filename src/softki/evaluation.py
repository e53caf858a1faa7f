"""What a posterior says of rows that it has not seen, and the figures of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from softki.batches import Batch
from softki.calibration import calibrate
from softki.metrics import gaussian_nll, rmse
from softki.posterior import Posterior
from softki.report import HeldOut


class Predictions(NamedTuple):
    """Residuals and variances at rows that were held out."""

    residual: Tensor  # y − mean, (n, t)
    variance: Tensor  # of f, (n,)
    noise_variance: float  # β²
    noise_scale: Tensor | None  # σ, (n,)

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: Posterior, rows: Batch) -> Self:
        """Of a posterior at rows."""
        mean, variance = posterior.predict(rows.x)
        return cls(rows.y - mean, variance, float(posterior.noise_variance), rows.noise_scale)

    @classmethod
    def pooled(cls, parts: Sequence[Predictions]) -> Self:
        """Those of several posteriors, each at its own rows; β² is their geometric mean."""
        scales = [part.noise_scale for part in parts if part.noise_scale is not None]
        logarithms = [math.log(part.noise_variance) for part in parts]
        return cls(
            torch.cat([part.residual for part in parts]),
            torch.cat([part.variance for part in parts]),
            math.exp(sum(logarithms) / len(parts)),
            torch.cat(scales) if scales else None,
        )

    def figures(self, step: int) -> HeldOut:
        """RMSE, NLL, and NLL after the refit of the variance."""
        noise, scale = self.noise_variance, self.noise_scale
        row_noise = noise if scale is None else noise * scale.square()
        return HeldOut(
            step=step,
            rmse=rmse(self.residual),
            nll=float(gaussian_nll(self.residual, (self.variance + row_noise)[:, None])),
            calibration=calibrate(self.residual, self.variance, noise, scale),
        )
