"""Where a fit starts: the model before training, and an empty report."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from softki.batches import Data
from softki.exceptions import InvalidInputError
from softki.initialization import initial_points, initial_temperature
from softki.kernels import make_kernel
from softki.model import SoftKI
from softki.processes import ALONE, Processes
from softki.refitting import refit_scales
from softki.report import FitReport
from softki.rows import Rows
from softki.runtime import timed
from softki.settings import FitSettings
from softki.statistics import SquareRootStatistics
from softki.training_data import Chunked, TrainingData

# Rows that the noise to start from is found by.
_NOISE_ROWS = 8192


def start(
    data: TrainingData,
    settings: FitSettings,
    model: SoftKI | None,
    generator: torch.Generator,
    noise_variance: float | None = None,
) -> tuple[SoftKI, dict[str, float]]:
    """The model to train, one that is given or a new one, and the seconds that it took.

    Args:
        data: the rows.
        settings: how to fit.
        model: to start from, if there is one.
        generator: of the random numbers.
        noise_variance: that a new model starts from; None to find it.
    """
    seconds: dict[str, float] = {}
    with timed(seconds, "initialization", data.device):
        if model is None:
            model = initial_model(data.inputs, settings, generator, data.processes)
            if noise_variance is None:
                set_initial_noise(model, Data(*data.sample(_NOISE_ROWS)))
            else:
                model.noise_variance = noise_variance
        _check_model(model, data)
        data.processes.copy_from_first(list(model.state_dict().values()))
    return model, seconds


def model_again(
    data: TrainingData, settings: FitSettings, model: SoftKI | None, parameters: dict[str, Tensor]
) -> SoftKI:
    """The model that is to be trained further, with these parameters and without k-means."""
    if model is None:
        model = _model_at(parameters["points"].to(data.device), settings)
    _check_model(model, data)
    model.load_state_dict(parameters)
    return model


def initial_model(
    x: Tensor, settings: FitSettings, generator: torch.Generator, processes: Processes = ALONE
) -> SoftKI:
    """The model before training: k-means points divided by T₀, default kernel and noise."""

    def centres() -> Tensor:
        return initial_points(x, settings.points, generator)

    if processes.are_several:
        points = processes.from_first(lambda: centres().cpu()).to(x.device)
    else:
        points = centres()
    return _model_at(points, settings)


def _model_at(points: Tensor, settings: FitSettings) -> SoftKI:
    d = points.shape[1]
    T0 = torch.tensor(initial_temperature(d), dtype=torch.float64, device=points.device)
    if settings.temperature == "none":
        temperature = None
    else:
        points = points / T0
        temperature = T0 if settings.temperature == "one" else T0.expand(d)
    kernel = make_kernel(settings.kernel, d, settings.max_lengthscale)
    return SoftKI(points, kernel, temperature).to(points.device)


def set_initial_noise(model: SoftKI, data: Chunked) -> None:
    """Let β² start where the likelihood of the rows is best while nothing is learned yet.

    From too little noise, points would move after the noise before β² has grown to it. The output
    scale that would suit the first weights is much larger than that of learned ones, and stays.
    """
    if not hasattr(model.kernel, "outputscale"):
        return
    trial = copy.deepcopy(model)
    rows = Rows(trial, data.chunks(len(trial.points)))
    with torch.no_grad():
        statistics = SquareRootStatistics.from_blocks(rows)
    refit_scales(trial, statistics)
    # Where the targets are constant, rounding leaves nothing above the least noise there may be.
    model.noise_variance = trial.noise_variance.detach().clamp_min(1.01 * model.min_noise_variance)


def new_report(
    model: SoftKI, data: TrainingData, settings: FitSettings, seconds: dict[str, float]
) -> FitReport:
    """The report of a fit that begins."""
    objective = settings.objective
    kind = getattr(objective, "__name__", type(objective).__name__)
    return FitReport(
        rows=len(data),
        held_out_rows=len(data.held_out_index),
        dimension=data.dimension,
        targets=data.targets,
        points=len(model.points),
        device=str(data.device),
        precision=str(settings.dtype).removeprefix("torch."),
        objective=objective if isinstance(objective, str) else kind,
        solver=settings.solver,
        jitter=model.jitter,
        planned_steps=settings.steps,
        is_streamed=data.is_streamed,
        processes=data.processes.size,
        seconds=seconds,
    )


def _check_model(model: SoftKI, data: TrainingData) -> None:
    d = model.points.shape[1]
    if d != data.dimension:
        raise InvalidInputError(f"the model is for {d} columns, the data has {data.dimension}")
    model.to(data.device)
