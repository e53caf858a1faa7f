"""What a posterior says of rows that it has not unseen, and the figures of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from softki.batches import Batch
from softki.calibration import Calibration, Unseen, calibrate
from softki.metrics import gaussian_nll, rmse
from softki.posterior import Posterior
from softki.report import HeldOut


class Predictions(NamedTuple):
    """Means and variances at rows that were held out, and what was there."""

    unseen: Unseen
    variance: Tensor  # v, of f, (n,)

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: Posterior, rows: Batch) -> Self:
        """Of a posterior at rows."""
        mean, variance = posterior.predict(rows.x)
        return cls(
            Unseen(rows.y, mean, float(posterior.noise_variance), rows.noise_scale), variance
        )

    @classmethod
    def pooled(cls, parts: Sequence[Predictions]) -> Self:
        """Those of several posteriors, each at its own rows; β² is their geometric mean."""
        targets, means, noises, scales = zip(*(part.unseen for part in parts), strict=True)
        noise = math.exp(sum(map(math.log, noises)) / len(parts))
        scale = None if scales[0] is None else torch.cat(scales)
        unseen = Unseen(torch.cat(targets), torch.cat(means), noise, scale)
        return cls(unseen, torch.cat([part.variance for part in parts]))

    def figures(self, step: int) -> HeldOut:
        """RMSE and NLL after the refit of the variance, and NLL before it."""
        own = Calibration(1.0, self.unseen.noise_variance, math.nan)
        calibration = calibrate(self.unseen, self.variance)
        return HeldOut(
            step=step,
            rmse=rmse(calibration.residual_and_variance(self.unseen, self.variance)[0]),
            nll=float(gaussian_nll(*own.residual_and_variance(self.unseen, self.variance))),
            calibration=calibration,
        )
