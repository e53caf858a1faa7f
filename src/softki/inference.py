"""From a trained model to its posterior: statistics of rows, solution, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from softki.batches import Batch
from softki.calibration import Calibration, calibrate_row_weight
from softki.evaluation import Predictions
from softki.exceptions import NumericalError
from softki.model import SoftKI
from softki.posterior import Posterior
from softki.processes import ALONE, Processes
from softki.report import FitReport
from softki.rows import Rows
from softki.settings import FitSettings
from softki.solvers import solve, solve_whitened, statistics_for
from softki.statistics import Statistics
from softki.training_data import Chunked, TrainingData


@torch.inference_mode(False)
@torch.no_grad()
def statistics_of(
    model: SoftKI, data: Chunked, settings: FitSettings, processes: Processes = ALONE
) -> Statistics:
    """Statistics of the rows, in the form that the solver needs, a chunk at a time.

    Of training data, such as `softki.streaming.StreamedRows`, it is those that are not held out.
    Where processes share the rows, it is those of all of them.
    """
    rows = Rows(model, data.chunks(len(model.points)), processes)
    return statistics_for(settings.solver).from_blocks(rows).over(processes)


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
    if calibration.row_weight != 1:
        weaker = noise_variance / calibration.row_weight
        root = solve(K, statistics, weaker, settings.solver, settings.cg_tolerance).root
        solution = solution._replace(root=root)
    posterior = Posterior.from_solution(model, solution)
    return posterior.calibrated(calibration)


@dataclass(frozen=True, eq=False)
class Judged:
    """A posterior given the statistics of some rows, and other rows to judge it by."""

    model: SoftKI
    statistics: Statistics
    posterior: Posterior
    rows: Batch

    @classmethod
    def of(cls, model: SoftKI, data: TrainingData, settings: FitSettings) -> Self:
        """The posterior given the training rows, to be judged by those held out."""
        assert data.held_out is not None
        statistics = statistics_of(model, data, settings, data.processes)
        posterior = posterior_of(model, statistics, settings)
        return cls(model, statistics, posterior, data.held_out)

    @torch.no_grad()
    def predictions(self, weight: float) -> Predictions:
        """What it says of the rows, if those it was given count so much in its variance."""
        posterior = self.posterior
        if weight != 1:
            K, weaker = self.model.kernel_matrix(), self.model.noise_variance / weight
            posterior = replace(posterior, root=solve_whitened(K, self.statistics, weaker).root)
        return Predictions.of(posterior, self.rows)


def calibration_by(judged: Sequence[Judged]) -> Calibration:
    """a, b and w that suit the rows which posteriors are judged by, all together."""
    whole = Predictions.pooled([one.predictions(1.0) for one in judged])

    def variance(weight: float) -> Tensor:
        if weight == 1:
            return whole.variance
        return torch.cat([one.predictions(weight).variance for one in judged])

    return calibrate_row_weight(whole.unseen, variance)
