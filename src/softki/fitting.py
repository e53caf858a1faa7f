"""From standardised data to a posterior: Algorithm 1 of the paper, made safe.

points and temperature → training → statistics of all rows → posterior, calibrated, with an edge.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from softki.batches import Data
from softki.cross_validation import Fold, cross_validate
from softki.exceptions import InvalidInputError
from softki.inference import Judged, calibration_by, posterior_of, statistics_of
from softki.initialization import initial_points, initial_temperature
from softki.inputs import checked_data
from softki.kernels import make_kernel
from softki.model import SoftKI
from softki.novelty import edge_of
from softki.posterior import Posterior
from softki.refitting import refit_scales
from softki.report import Callback, FitReport
from softki.rows import Rows
from softki.runtime import prepared
from softki.settings import FitSettings
from softki.statistics import SquareRootStatistics, Statistics
from softki.training import LEAST_HELD_OUT, Split, Trainer, split_rows

# Rows that the noise to start from is found by.
_NOISE_ROWS = 8192
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
    with torch.inference_mode(False), torch.enable_grad(), prepared():
        if first.folds and len(data) >= first.folds * LEAST_HELD_OUT:
            trained = _cross_validated(data, first, model, generator, callbacks)
        else:
            split = split_rows(len(data), first.held_out, generator)
            if not len(split.held_out):
                candidates = candidates[:1]  # there is nothing to compare them by
            trained = _best_of(candidates, data, split, model, generator, callbacks)
        model, settings, report = trained.model, trained.settings, trained.report
        with _timed(report.seconds, "posterior", data.x.device):
            posterior, statistics = _final_posterior(trained, data)
            posterior = posterior.within(edge_of(model, data))
    return Fit(model, posterior, statistics, report, settings, trained.split.held_out)


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
    split: Split
    report: FitReport

    @property
    def score(self) -> float:
        """On held-out rows; less is better."""
        best = self.report.best
        return math.inf if best is None else best.score


def _best_of(
    candidates: Sequence[FitSettings],
    data: Data,
    split: Split,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> _Trained:
    """The best of what the settings give, each tried as long as the one before was a gain."""
    best, trials, noise = None, [], None
    for settings in candidates:
        start, seconds = _start(data, settings, model, generator, split.training, noise)
        noise = float(start.noise_variance.detach())  # for all sizes, as that of the first
        report = _new_report(start, data, split, settings, seconds)
        Trainer(start, data, split, settings, report, callbacks).run()
        trained = _Trained(start, settings, split, report)
        trials.append(report.trial)
        gain = math.inf if best is None else best.score - trained.score
        if best is None or gain > 0:
            best = trained
        if gain < _LEAST_GAIN or report.stopped == "interrupted":
            break
    assert best is not None
    best.report.trials = trials if len(candidates) > 1 else []
    return best


def _cross_validated(
    data: Data,
    settings: FitSettings,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> _Trained:
    """Trained on all rows, for as many steps as were best for rows left out."""
    order = torch.randperm(len(data), generator=generator, device="cpu")
    start, seconds = _start(data, settings, model, generator, order)
    with _timed(seconds, "cross-validation", data.x.device):
        folds = cross_validate(
            start,
            data,
            settings,
            order,
            lambda fold, split: _new_report(fold, data, split, settings, {}),
            callbacks,
        )
    if isinstance(folds, Fold):  # interrupted: all there is
        start.load_state_dict(folds.model.state_dict())
        folds.report.seconds |= seconds
        return _Trained(start, settings, folds.split, folds.report)
    split = Split(order, order[:0])
    report = _new_report(start, data, split, settings, seconds)
    report.history, report.folds = folds.history, len(folds.folds)
    Trainer(start, data, split, settings, report, callbacks, last=folds.best.step).run()
    report.calibration = calibration_by(
        [_judged(fold, data, part, settings) for fold, part in folds.at_best()]
    )
    return _Trained(start, settings, split, report)


def _start(
    data: Data,
    settings: FitSettings,
    model: SoftKI | None,
    generator: torch.Generator,
    training: Tensor,
    noise_variance: float | None = None,
) -> tuple[SoftKI, dict[str, float]]:
    """The model to train, and the seconds that it took."""
    seconds: dict[str, float] = {}
    with _timed(seconds, "initialization", data.x.device):
        if model is None:
            model = initial_model(data.x, settings, generator)
            if noise_variance is None:
                set_initial_noise(model, data, training[:_NOISE_ROWS])
            else:
                model.noise_variance = noise_variance
        _check_model(model, data)
    return model, seconds


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


def set_initial_noise(model: SoftKI, data: Data, index: Tensor) -> None:
    """Let β² start where the likelihood of some rows is best while nothing is learned yet.

    From too little noise, points would move after the noise before β² has grown to it. The output
    scale that would suit the first weights is much larger than that of learned ones, and stays.
    """
    if not len(index) or not hasattr(model.kernel, "outputscale"):
        return
    trial = copy.deepcopy(model)
    rows = Rows(trial, data.chunks(len(trial.points), index.to(data.x.device)))
    with torch.no_grad():
        statistics = SquareRootStatistics.from_blocks(rows)
    refit_scales(trial, statistics)
    model.noise_variance = trial.noise_variance.detach()


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


def _final_posterior(trained: _Trained, data: Data) -> tuple[Posterior, Statistics]:
    """The posterior on all rows, calibrated on the held-out ones.

    The statistics of the training rows give the posterior that a, b and w are fitted to; adding
    those of the held-out rows gives the final one.
    """
    model, settings, report = trained.model, trained.settings, trained.report
    if len(trained.split.held_out):
        judged = _judged(model, data, trained.split, settings)
        report.calibration = calibration_by([judged])
        held_out = trained.split.held_out.to(data.x.device)
        statistics = judged.statistics + statistics_of(model, data, settings, held_out)
    else:
        statistics = statistics_of(model, data, settings)
    return posterior_of(model, statistics, settings, report.calibration, report), statistics


def _judged(model: SoftKI, data: Data, split: Split, settings: FitSettings) -> Judged:
    training, held_out = (i.to(data.x.device) for i in (split.training, split.held_out))
    statistics = statistics_of(model, data, settings, training)
    posterior = posterior_of(model, statistics, settings)
    return Judged(model, statistics, posterior, data.take(held_out))


@contextmanager
def _timed(seconds: dict[str, float], stage: str, device: torch.device) -> Iterator[None]:
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds[stage] = time.perf_counter() - start
