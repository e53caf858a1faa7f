"""From standardised data to a posterior: Algorithm 1 of the paper, made safe.

points and temperature → training → statistics of all rows → posterior, calibrated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from softki.batches import Data
from softki.checks import check_finite
from softki.exceptions import InvalidInputError
from softki.initialization import initial_points, initial_temperature
from softki.kernels import make_kernel
from softki.model import SoftKI
from softki.posterior import Posterior
from softki.report import Callback, FitReport
from softki.rows import Rows
from softki.settings import FitSettings
from softki.solvers import Solution, solve, statistics_for
from softki.statistics import Statistics
from softki.training import Split, Trainer, held_out_figures, split_rows

Array = Tensor | np.ndarray


@dataclass(frozen=True)
class Fit:
    """The result of `fit`."""

    model: SoftKI  # the learned parameters
    posterior: Posterior  # calibrated, in float64
    statistics: Statistics  # of all rows, in the form that the solver needs
    report: FitReport


def fit(
    x: Array,
    y: Array,
    noise_variance: Array | None = None,
    *,
    settings: FitSettings | None = None,
    model: SoftKI | None = None,
    device: torch.device | str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fit:
    """Fit SoftKI to standardised rows.

    Args:
        x: inputs (n, d), each column with mean 0 and standard deviation 1.
        y: targets (n,) or (n, t), standardised likewise; all share kernel and noise.
        noise_variance: known noise σᵢ² of each row (n,), relative to the learned β².
        settings: how to fit.
        model: to start from (it is trained in place), instead of k-means points and the
            kernel and temperature of the settings.
        device: to fit on; None for where x is.
        callbacks: called with a `softki.Event` after every step.

    Example:
        >>> x = torch.linspace(-2, 2, 200)[:, None]
        >>> result = fit(x, torch.sin(2 * x), settings=FitSettings(points=16, steps=50))
        >>> mean, variance = result.posterior.predict(torch.tensor([[0.5]]))
        >>> bool((mean - torch.sin(torch.tensor(1.0))).abs() < 0.1)
        True
    """
    settings = settings or FitSettings()
    data = _checked_data(x, y, noise_variance, settings.dtype, device)
    generator = torch.Generator().manual_seed(settings.seed)
    seconds: dict[str, float] = {}
    split = split_rows(len(data), settings.held_out, generator)
    with _timed(seconds, "initialization"):
        model = model or initial_model(data.x, settings, generator)
    report = FitReport(
        rows=len(data),
        held_out_rows=len(split.held_out),
        dimension=data.x.shape[1],
        targets=data.y.shape[1],
        points=len(model.points),
        device=str(data.x.device),
        precision=str(settings.dtype).removeprefix("torch."),
        objective=settings.objective,
        solver=settings.solver,
        jitter=model.jitter,
        planned_steps=settings.steps,
        seconds=seconds,
    )
    Trainer(model, data, split, settings, report, callbacks).run()
    with _timed(seconds, "posterior"), torch.no_grad():
        posterior, statistics = final_posterior(model, data, split, settings, report)
    return Fit(model, posterior, statistics, report)


def final_posterior(
    model: SoftKI, data: Data, split: Split, settings: FitSettings, report: FitReport
) -> tuple[Posterior, Statistics]:
    """The posterior on all rows, calibrated on the held-out ones.

    The statistics of the training rows give the posterior that a and b are fitted to; adding
    those of the held-out rows gives the final one.
    """
    form, K, m = statistics_for(settings.solver), model.kernel_matrix(), len(model.points)

    def statistics_of(index: Tensor) -> Statistics:
        return form.from_blocks(Rows(model, data.chunks(m, index.to(data.x.device))))

    def solved(statistics: Statistics) -> Solution:
        return solve(K, statistics, model.noise_variance, settings.solver)

    statistics = statistics_of(split.training)
    if len(split.held_out):
        trained = Posterior.from_solution(model, solved(statistics))
        held_out = data.take(split.held_out.to(data.x.device))
        report.calibration = held_out_figures(report.best_step, held_out, trained).calibration
        statistics = statistics + statistics_of(split.held_out)
    solution = solved(statistics)
    if solution.log_likelihood is not None:
        report.log_marginal_likelihood = float(solution.log_likelihood)
    posterior = Posterior.from_solution(model, solution)
    if report.calibration is not None:
        a, b, _ = report.calibration
        posterior = posterior.calibrated(a, b)
    return posterior, statistics


def initial_model(x: Tensor, settings: FitSettings, generator: torch.Generator) -> SoftKI:
    """The model before training: k-means points divided by T₀, default kernel and noise."""
    d = x.shape[1]
    start = initial_temperature(d)
    temperature = {
        "none": None,
        "one": torch.tensor(start),
        "per_dimension": torch.full((d,), start),
    }[settings.temperature]
    points = initial_points(x, settings.points, generator)
    if temperature is not None:
        points = points / start
    return SoftKI(points, make_kernel(settings.kernel, d), temperature).to(x.device)


def _checked_data(
    x: Array,
    y: Array,
    noise_variance: Array | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Data:
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    if x.ndim != 2 or x.numel() == 0:
        raise InvalidInputError(
            f"x must be a table of shape (n, d) with rows and columns, got {tuple(x.shape)}"
        )
    device = device or x.device
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError("device 'cuda' was asked for, but torch finds no CUDA device")
    if y.ndim not in (1, 2) or len(y) != len(x) or y.numel() == 0:
        raise InvalidInputError(
            f"y must have the shape ({len(x)},) or ({len(x)}, targets) to match x, "
            f"got {tuple(y.shape)}"
        )
    x, y = x.to(device, dtype), y.reshape(len(x), -1).to(device, dtype)
    check_finite("x", x)
    check_finite("y", y)
    if noise_variance is None:
        return Data(x, y)
    noise_variance = torch.as_tensor(noise_variance).to(device, dtype)
    if noise_variance.shape != (len(x),):
        raise InvalidInputError(
            f"noise_variance must have the shape ({len(x)},), got {tuple(noise_variance.shape)}"
        )
    check_finite("noise_variance", noise_variance)
    if not bool((noise_variance > 0).all()):
        row = int((noise_variance <= 0).nonzero()[0])
        raise InvalidInputError(
            f"noise_variance must be positive, got {float(noise_variance[row])} in row {row}"
        )
    return Data(x, y, noise_variance.sqrt())


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - start
