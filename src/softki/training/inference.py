"""From a trained model to its posterior: statistics of rows, solution, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from softki.batches import Batch
from softki.exceptions import NumericalError
from softki.features import WeightedBatches
from softki.metrics import gaussian_nll, rmse
from softki.model import SoftKI
from softki.posterior.calibration import (
    ROW_WEIGHTS,
    Calibration,
    HeldOutRows,
    calibrate,
    calibrate_row_weights,
)
from softki.posterior.functions import Posterior
from softki.solvers import Solution, solve, solve_whitened, statistics_for
from softki.statistics import Statistics
from softki.training.data import Chunked, TrainingData
from softki.training.report import FitReport, HeldOut
from softki.training.settings import FitSettings


class Predictions(NamedTuple):
    """Means and variances at held-out rows, with their targets."""

    unseen: HeldOutRows
    variance: Tensor  # v, of f, (n,)

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: Posterior, rows: Batch) -> Self:
        """Predictions of a posterior at rows."""
        mean, variance = posterior.predict(rows.x)
        return cls(
            HeldOutRows(rows.y, mean, float(posterior.noise_variance), rows.noise_std), variance
        )

    @classmethod
    def pooled(cls, parts: Sequence[Predictions]) -> Self:
        """Predictions of several posteriors, each at its own rows; β² is their geometric mean."""
        targets, means, noises, scales = zip(*(part.unseen for part in parts), strict=True)
        noise = math.exp(sum(map(math.log, noises)) / len(parts))
        scale = None if scales[0] is None else torch.cat(scales)
        unseen = HeldOutRows(torch.cat(targets), torch.cat(means), noise, scale)
        return cls(unseen, torch.cat([part.variance for part in parts]))

    def scores(self, step: int) -> HeldOut:
        """RMSE and NLL after the refit of the variance, and NLL before it."""
        own = Calibration(1.0, self.unseen.noise_variance, math.nan)
        calibration = calibrate(self.unseen, self.variance)
        return HeldOut(
            step=step,
            rmse=rmse(calibration.residual_and_variance(self.unseen, self.variance)[0]),
            nll=float(gaussian_nll(*own.residual_and_variance(self.unseen, self.variance))),
            calibration=calibration,
        )


@torch.inference_mode(False)
@torch.no_grad()
def statistics_of(model: SoftKI, data: Chunked | TrainingData, settings: FitSettings) -> Statistics:
    """Statistics of the rows, in the form that the solver needs, a chunk at a time.

    Of training data, such as `softki.streaming.StreamedRows`, these are the rows that are not held
    out; where processes share the rows, those of all processes.
    """
    chunks, form = data.chunks(len(model.points)), statistics_for(settings.solver)
    processes = getattr(data, "processes", None)
    if processes is None:
        return form.from_blocks(WeightedBatches(model, chunks))
    from softki.training.shared_batches import SharedBatches, total

    return total(form.from_blocks(SharedBatches(model, chunks, processes)), processes)


@torch.inference_mode(False)
@torch.no_grad()
def posterior_of(
    model: SoftKI,
    statistics: Statistics,
    settings: FitSettings,
    calibration: Calibration | None = None,
    report: FitReport | None = None,
) -> Posterior:
    """The posterior given the statistics, calibrated; log p is noted in the report."""
    K, noise_variance = model.kernel_matrix(), model.noise_variance
    solution = solve(K, statistics, noise_variance, settings.solver, settings.cg_tolerance)
    if report is not None and solution.log_likelihood is not None:
        report.log_marginal_likelihood = float(solution.log_likelihood)
    if not bool(solution.mean.isfinite().all() and solution.root.isfinite().all()):
        raise NumericalError(
            "the posterior is not finite: training diverged; lower learning_rate, or check the "
            "scale of the data"
        )
    if calibration is None:
        return Posterior.from_solution(model, solution)

    def counting(weight: float) -> Solution:
        """The solution in which every row counts so much."""
        if weight == 1:
            return solution
        noise = noise_variance / weight
        return solve(K, statistics, noise, settings.solver, settings.cg_tolerance)

    weights = calibration.mean_row_weight, calibration.row_weight
    solutions = {weight: counting(weight) for weight in set(weights)}
    mean, root = solutions[weights[0]].mean, solutions[weights[1]].root
    posterior = Posterior.from_solution(model, Solution(mean, root))
    return posterior.calibrated(calibration)


@dataclass(frozen=True, eq=False)
class HeldOutPosterior:
    """A posterior given the statistics of some rows, and other rows to judge it by."""

    model: SoftKI
    statistics: Statistics
    posterior: Posterior
    rows: Batch

    @classmethod
    def of(cls, model: SoftKI, data: TrainingData, settings: FitSettings) -> Self:
        """The posterior given the training rows, to be judged by those held out."""
        assert data.held_out is not None
        statistics = statistics_of(model, data, settings)
        posterior = posterior_of(model, statistics, settings)
        return cls(model, statistics, posterior, data.held_out)

    @torch.no_grad()
    def predictions(self, weight: float) -> Predictions:
        """Predictions of the held-out rows by the tempered posterior, in which a row counts w.

        Less than fully by Cholesky, which is fast, whatever solver the posterior is by.
        """
        posterior = self.posterior
        if weight != 1:
            K, weaker = self.model.kernel_matrix(), self.model.noise_variance / weight
            solution = solve_whitened(K, self.statistics, weaker)
            posterior = Posterior.from_solution(self.model, solution)
        return Predictions.of(posterior, self.rows)


def calibration_by(judged: Sequence[HeldOutPosterior]) -> Calibration:
    """The calibration that suits the held-out rows of several posteriors, all together."""
    pooled: dict[float, Predictions] = {}
    for weight in ROW_WEIGHTS:
        parts = []
        for one in judged:
            parts.append(one.predictions(weight))
        pooled[weight] = Predictions.pooled(parts)
    return calibrate_row_weights(pooled)
