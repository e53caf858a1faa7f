"""The start of training: k-means centres, temperature, noise, and an empty report."""

from __future__ import annotations

import copy
import math
import warnings

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from softki.batches import Data, chunk_rows
from softki.exceptions import InvalidInputError
from softki.features import WeightedBatches
from softki.kernels.stationary import make_kernel
from softki.linalg.distances import pairs_between
from softki.model import SoftKI
from softki.statistics import SquareRootStatistics
from softki.training.data import Chunked, TrainingData
from softki.training.refit import refit_scales
from softki.training.report import FitReport, timed
from softki.training.settings import FitSettings

# k-means looks at this many rows for each point, at most.
_ROWS_PER_POINT = 20
_KMEANS_ITERATIONS = 10


def initial_temperature(dimension: int) -> float:
    """T₀ = 0.2 √d.

    Standardised rows lie about √(2d) apart. With T = 1 the softmax is then nearly one-hot in
    high dimension, which training has to undo; with 0.2 √d they are about 7 apart for every d.
    """
    return 0.2 * math.sqrt(dimension)


def kmeans_rows(points: int) -> int:
    """The number of rows that k-means looks at, at most."""
    return max(_ROWS_PER_POINT * points, 10_000)


def initial_points(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means centres of the rows of x (n, d): (m, d) with m = count, or fewer.

    Looks at a sample of the rows when there are many. There are never more centres than
    distinct rows in the sample: equal points would add nothing and make K singular.
    """
    size = kmeans_rows(count)
    if len(x) > size:
        x = x[torch.randperm(len(x), generator=generator, device="cpu")[:size].to(x.device)]
    distinct = torch.unique(x, dim=0)
    if len(distinct) <= count:
        return distinct.double()
    if x.is_cuda:
        return _lloyd(x, _plus_plus(x, count, generator)).double()
    seed = int(torch.randint(2**31 - 1, (), generator=generator, device="cpu"))
    return torch.from_numpy(_sklearn_kmeans(x.numpy(), count, seed)).double()


def _sklearn_kmeans(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    kmeans = KMeans(count, n_init=1, max_iter=_KMEANS_ITERATIONS, random_state=seed)
    with warnings.catch_warnings():
        # Ten iterations are enough to start from; convergence is not what is wanted here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        centres: np.ndarray = kmeans.fit(x).cluster_centers_
    return centres


def _plus_plus(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++ seeds: each next row is drawn in proportion to its squared distance to the rest.

    The draws are inverse cumulative sums on the device of x, so that nothing waits for the host.
    """
    uniform = torch.rand(count, generator=generator, device="cpu").to(x)
    chosen = (uniform[:1] * len(x)).long()
    squared = torch.full_like(x[:, 0], math.inf)
    for draw in uniform[1:]:
        squared = torch.minimum(squared, (x - x[chosen[-1:]]).square().sum(1))
        total = squared.double().cumsum(0)
        index = torch.searchsorted(total, draw.double() * total[-1:], right=True)
        chosen = torch.cat([chosen, index.clamp_max(len(x) - 1)])
    return x[chosen]


def _lloyd(x: Tensor, centres: Tensor) -> Tensor:
    """Lloyd's algorithm on the device of x; an empty cluster keeps its centre."""
    m = len(centres)
    for _ in range(_KMEANS_ITERATIONS):
        sums, sizes = torch.zeros_like(centres), centres.new_zeros(m, 1)
        for part in x.split(chunk_rows(max(centres.shape), x.device)):
            nearest = pairs_between(part, centres).distance.argmin(1)
            # A product with the one-hot matrix adds in a fixed order, unlike a scatter.
            members = torch.nn.functional.one_hot(nearest, m).to(x.dtype)  # (rows, m)
            sums += members.T @ part
            sizes += members.sum(0)[:, None]
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1), centres)
    return centres


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
        settings: settings of the fit.
        model: model to start from, if there is one.
        generator: generator of the random numbers.
        noise_variance: noise variance that a new model starts from; None to find it.
    """
    seconds: dict[str, float] = {}
    with timed(seconds, "initialization", data.device):
        if model is None:
            rows = data.sample(kmeans_rows(settings.points))
            model = initial_model(rows.x, settings, generator)
            if noise_variance is None:
                set_initial_noise(model, Data(*data.sample(_NOISE_ROWS)))
            else:
                model.noise_variance = noise_variance
        _check_model(model, data)
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


def initial_model(x: Tensor, settings: FitSettings, generator: torch.Generator) -> SoftKI:
    """The model before training: k-means points divided by T₀, default kernel and noise."""
    return _model_at(initial_points(x, settings.points, generator), settings)


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
    rows = WeightedBatches(trial, data.chunks(len(trial.points)))
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
        processes=1 if data.processes is None else data.processes.size,
        seconds=seconds,
    )


def _check_model(model: SoftKI, data: TrainingData) -> None:
    d = model.points.shape[1]
    if d != data.dimension:
        raise InvalidInputError(f"the model is for {d} columns, the data has {data.dimension}")
    model.to(data.device)
