"""From standardised data to a posterior: Algorithm 1 of the paper, made safe.

points and temperature → training → statistics of all rows → posterior, calibrated, with an edge.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from softki.batches import Batch, Data
from softki.calibration import Calibration, calibrate_row_weight
from softki.exceptions import InvalidInputError, NumericalError
from softki.initialization import initial_points, initial_temperature
from softki.inputs import checked_data
from softki.kernels import make_kernel
from softki.model import SoftKI
from softki.novelty import edge_of
from softki.posterior import Posterior
from softki.report import Callback, FitReport
from softki.rows import Rows
from softki.runtime import prepared
from softki.settings import FitSettings
from softki.solvers import solve, solve_whitened, statistics_for
from softki.statistics import Statistics
from softki.training import Split, Trainer, split_rows

# Where settings improve the score by less than this, the next are not tried.
_LEAST_GAIN = 0.01


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `fit`."""

    model: SoftKI  # the learned parameters
    posterior: Posterior  # calibrated, in float64
    statistics: Statistics  # of all rows, in the form that the solver needs
    report: FitReport
    settings: FitSettings
    held_out: Tensor  # indices of the rows that training did not see

    def with_rows(self, x: Any, y: Any, noise_variance: Any = None) -> Self:
        """This fit with more rows: their statistics added, the posterior solved anew.

        Points, kernel, noise and calibration are taken as they are. The rows must be
        standardised like those of the fit.
        """
        device = self.posterior.points.device
        data = checked_data(x, y, noise_variance, self.settings.dtype, device)
        with prepared():
            statistics = self.statistics + statistics_of(self.model, data, self.settings)
            report = replace(self.report, rows=statistics.count)
            posterior = posterior_of(
                self.model, statistics, self.settings, self.report.calibration, report
            )
            if self.posterior.edge is not None:
                posterior = posterior.within(self.posterior.edge.wider(edge_of(self.model, data)))
        return replace(self, posterior=posterior, statistics=statistics, report=report)


def fit(
    x: Any,
    y: Any,
    noise_variance: Any = None,
    *,
    settings: FitSettings | Sequence[FitSettings] | None = None,
    model: SoftKI | None = None,
    device: torch.device | str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fit:
    """Fit SoftKI to standardised rows.

    Args:
        x: inputs (n, d), each column with mean 0 and standard deviation 1: a NumPy array, a torch
            tensor, or a data frame.
        y: targets (n,) or (n, t), standardised likewise; all share kernel and noise.
        noise_variance: known noise σᵢ² of each row (n,), relative to the learned β².
        settings: how to fit. Of several, each is tried as long as held-out rows improve by it,
            and the best on these is kept; they share seed, precision and held-out rows.
        model: to start from (it is trained in place), instead of k-means points and the
            kernel and temperature of the settings.
        device: to fit on; None for where x is, "auto" for CUDA if there is one.
        callbacks: called with a `softki.Event` after every step.

    Example:
        >>> x = torch.linspace(-2, 2, 200)[:, None]
        >>> result = fit(x, torch.sin(2 * x), settings=FitSettings(points=16, steps=50))
        >>> mean, variance = result.posterior.predict(torch.tensor([[0.5]]))
        >>> bool((mean - torch.sin(torch.tensor(1.0))).abs() < 0.1)
        True
    """
    candidates = _candidates(settings, model)
    first = candidates[0]
    data = checked_data(x, y, noise_variance, first.dtype, device)
    generator = torch.Generator("cpu").manual_seed(first.seed)
    split = split_rows(len(data), first.held_out, generator)
    if not len(split.held_out):
        candidates = candidates[:1]  # there is nothing to compare them by
    with torch.inference_mode(False), torch.enable_grad(), prepared():
        best, trials = None, []
        for settings in candidates:
            trained = _train(data, split, settings, model, generator, callbacks)
            trials.append(trained.report.trial)
            gain = math.inf if best is None else best.score - trained.score
            if best is None or gain > 0:
                best = trained
            if gain < _LEAST_GAIN or trained.report.stopped == "interrupted":
                break
        assert best is not None
        model, settings, report = best.model, best.settings, best.report
        report.trials = trials if len(candidates) > 1 else []
        with _timed(report.seconds, "posterior", data.x.device):
            posterior, statistics = _final_posterior(model, data, split, settings, report)
            posterior = posterior.within(edge_of(model, data))
    return Fit(model, posterior, statistics, report, settings, split.held_out)


def _candidates(
    settings: FitSettings | Sequence[FitSettings] | None, model: SoftKI | None
) -> list[FitSettings]:
    if settings is None or isinstance(settings, FitSettings):
        return [settings or FitSettings()]
    first, *others = settings
    shared = [(s.held_out, s.seed, s.dtype) for s in settings]
    if len(set(shared)) > 1:
        raise InvalidInputError("settings to choose from must share held_out, seed and dtype")
    if others and model is not None:
        raise InvalidInputError("a model to start from goes with one settings, not with several")
    return [first, *others]


@dataclass(frozen=True, eq=False)
class _Trained:
    model: SoftKI
    settings: FitSettings
    report: FitReport

    @property
    def score(self) -> float:
        """On held-out rows; less is better."""
        best = self.report.best
        return math.inf if best is None else best.score


def _train(
    data: Data,
    split: Split,
    settings: FitSettings,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> _Trained:
    seconds: dict[str, float] = {}
    with _timed(seconds, "initialization", data.x.device):
        model = model or initial_model(data.x, settings, generator)
        _check_model(model, data)
    report = _new_report(model, data, split, settings, seconds)
    Trainer(model, data, split, settings, report, callbacks).run()
    return _Trained(model, settings, report)


def initial_model(x: Tensor, settings: FitSettings, generator: torch.Generator) -> SoftKI:
    """The model before training: k-means points divided by T₀, default kernel and noise."""
    d = x.shape[1]
    start = torch.tensor(initial_temperature(d), dtype=torch.float64, device=x.device)
    points = initial_points(x, settings.points, generator)
    if settings.temperature == "none":
        temperature = None
    else:
        points = points / start
        temperature = start if settings.temperature == "one" else start.expand(d)
    return SoftKI(points, make_kernel(settings.kernel, d), temperature).to(x.device)


@torch.inference_mode(False)
@torch.no_grad()
def statistics_of(
    model: SoftKI, data: Data, settings: FitSettings, index: Tensor | None = None
) -> Statistics:
    """Statistics of all rows, or of those at the index, in the form that the solver needs."""
    rows = Rows(model, data.chunks(len(model.points), index))
    return statistics_for(settings.solver).from_blocks(rows)


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
    return posterior.calibrated(calibration.scale, calibration.noise_variance)


def _check_model(model: SoftKI, data: Data) -> None:
    d = model.points.shape[1]
    if d != data.x.shape[1]:
        raise InvalidInputError(f"the model is for {d} columns, the data has {data.x.shape[1]}")
    model.to(data.x.device)


def _new_report(
    model: SoftKI, data: Data, split: Split, settings: FitSettings, seconds: dict[str, float]
) -> FitReport:
    objective = settings.objective
    kind = getattr(objective, "__name__", type(objective).__name__)
    return FitReport(
        rows=len(data),
        held_out_rows=len(split.held_out),
        dimension=data.x.shape[1],
        targets=data.y.shape[1],
        points=len(model.points),
        device=str(data.x.device),
        precision=str(settings.dtype).removeprefix("torch."),
        objective=objective if isinstance(objective, str) else kind,
        solver=settings.solver,
        jitter=model.jitter,
        planned_steps=settings.steps,
        seconds=seconds,
    )


def _final_posterior(
    model: SoftKI, data: Data, split: Split, settings: FitSettings, report: FitReport
) -> tuple[Posterior, Statistics]:
    """The posterior on all rows, calibrated on the held-out ones.

    The statistics of the training rows give the posterior that a and b are fitted to; adding
    those of the held-out rows gives the final one.
    """
    training, held_out = (i.to(data.x.device) for i in (split.training, split.held_out))
    statistics = statistics_of(model, data, settings, training)
    if len(held_out):
        trained = posterior_of(model, statistics, settings)
        report.calibration = _calibration(model, trained, statistics, data.take(held_out))
        statistics = statistics + statistics_of(model, data, settings, held_out)
    return posterior_of(model, statistics, settings, report.calibration, report), statistics


def _calibration(
    model: SoftKI, trained: Posterior, statistics: Statistics, rows: Batch
) -> Calibration:
    """a, b and w that suit held-out rows, given the posterior of the others."""
    with torch.no_grad():
        K, noise_variance = model.kernel_matrix(), model.noise_variance

    @torch.no_grad()
    def variance(weight: float) -> Tensor:
        posterior = trained
        if weight != 1:
            root = solve_whitened(K, statistics, noise_variance / weight).root
            posterior = replace(trained, root=root)
        return posterior.variance(rows.x)

    residual = rows.y - trained.mean(rows.x)
    return calibrate_row_weight(residual, variance, float(noise_variance), rows.noise_scale)


@contextmanager
def _timed(seconds: dict[str, float], stage: str, device: torch.device) -> Iterator[None]:
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds[stage] = time.perf_counter() - start
