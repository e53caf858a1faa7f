"""Test RMSE by solver while SoftKI trains: which solver can be trusted with the posterior.

A model is trained once, with the paper's settings. After every epoch its posterior mean is
solved for by every solver, from the same K, statistics and β²; training depends on none of them.
The paper works in float32, softki solves in float64, and both are drawn: for float32, the float64
K, β² and square root of the statistics are rounded, and all that follows is done in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softki.batches import Batch, Data
from softki.bench.datasets import Observations, is_available, load
from softki.bench.figures._canvas import panels, say, style
from softki.bench.figures._posterior_means import SOLVERS
from softki.bench.registry import select
from softki.data import split_indices
from softki.exceptions import InvalidInputError, NumericalError
from softki.kernels.stationary import make_kernel
from softki.metrics import rmse
from softki.model import SoftKI
from softki.objective.exact_likelihood import Stabilised
from softki.objective.hutchinson import Hutchinson
from softki.statistics import SquareRootStatistics
from softki.training.fit import fit
from softki.training.inference import statistics_of
from softki.training.initialization import initial_points
from softki.training.report import Event
from softki.training.settings import FitSettings
from softki.training.standardize import Standardizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
_HIGHEST = 10.0  # RMSE that a panel shows; predicting the mean gives 1

Curves = dict[str, dict[str, list[float | None]]]  # by precision and solver, a value an epoch


def compute(
    device: str = "cpu",
    seed: int = 0,
    sets: str = "protein,keggdirected,keggundirected",
    epochs: int = 50,
    points: int = 512,
    batch_size: int = 1024,
    rows: int | None = None,
    data_folder: Path | None = None,
) -> dict[str, Any]:
    """RMSE on test rows after every epoch, by data set, precision and solver.

    Args:
        device: to train and solve on.
        seed: of the split, the points and the batches.
        sets: names and groups of data sets, a panel each; the paper names both kegg sets.
        epochs: of training.
        points: m.
        batch_size: rows a step.
        rows: of each set, at most; None for all.
        data_folder: of the data sets.
    """
    by_set: dict[str, Any] = dict.fromkeys(dataset.name for dataset in select(sets))
    here = [name for name in by_set if is_available(name, data_folder)]
    if not here:
        raise InvalidInputError(
            f"there is no data of {', '.join(by_set)} here: set SOFTKI_DATA to the folder that "
            f"holds it, or get it with `softki bench download {sets}`"
        )
    for name in here:
        train, test = _split(load(name, data_folder), seed, rows)
        model = _paper_model(train.x, points, seed, device)
        settings = FitSettings(
            # An objective without a name is not captured in a CUDA graph, which would be some
            # steps ahead of the callback.
            objective=Stabilised(Hutchinson()),
            steps=epochs * max(1, len(train) // batch_size),
            batch_size=batch_size,
            learning_rate=0.01,
            point_learning_rate=0.01,
            schedule="constant",
            held_out=0,
            seed=seed,
        )
        by_set[name] = _curves(model, train, test, settings, epochs)
    return {"panels": by_set}


def draw(data: Mapping[str, Any]) -> Figure:
    """A column a data set, a row a precision, a line a solver; failures are gaps and counted."""
    figure, axes = panels(len(_PRECISIONS), len(data["panels"]), (4.2, 4.2))
    for column, (name, panel) in zip(axes.T, data["panels"].items(), strict=True):
        for ax, precision in zip(column, _PRECISIONS, strict=True):
            ax.set_title(f"{name}, {precision}")
            if panel is None:
                say(ax, "no data here")
            else:
                _draw_panel(ax, panel["rmse"][precision], panel["unconverged"][precision])
    return figure


def _split(data: Observations, seed: int, rows: int | None) -> tuple[Data, Batch]:
    """Training and test rows, standardised by the training rows."""
    train, test = split_indices(len(data.y), seed)
    if rows is not None:
        train, test = train[:rows], test[:rows]
    x, y = torch.from_numpy(data.X), torch.from_numpy(data.y)[:, None]
    of_x, of_y = Standardizer.of(x[train]), Standardizer.of(y[train], "y")
    x, y = of_x.transform(x, torch.float32), of_y.transform(y, torch.float32)
    return Data(x[train], y[train]), Batch(x[test], y[test])


def _paper_model(x: torch.Tensor, points: int, seed: int, device: str) -> SoftKI:
    """T = 1 in every column, points at k-means centres."""
    d = x.shape[1]
    centres = initial_points(x, points, torch.Generator("cpu").manual_seed(seed))
    return SoftKI(centres, make_kernel("matern32", d, 5.0), torch.ones(d)).to(device)


def _curves(
    model: SoftKI, train: Data, test: Batch, settings: FitSettings, epochs: int
) -> dict[str, Any]:
    device = model.points.device
    train = Data(train.x.to(device), train.y.to(device))
    test = Batch(test.x.to(device), test.y.double().to(device))
    curves: Curves = {precision: {solver: [] for solver in SOLVERS} for precision in _PRECISIONS}
    unconverged = {precision: dict.fromkeys(SOLVERS, 0) for precision in _PRECISIONS}

    @torch.no_grad()
    def after_step(event: Event) -> None:
        if event.step % (settings.steps // epochs):
            return
        statistics = statistics_of(model, train, settings)
        assert isinstance(statistics, SquareRootStatistics)  # by the solver of the settings
        K, noise_variance = model.kernel_matrix(), model.noise_variance
        weights = model.weights(test.x).double()
        for precision, dtype in _PRECISIONS.items():
            rounded = replace(statistics, factor=statistics.factor.to(dtype))
            for solver, solve_mean in SOLVERS.items():
                error = None
                with suppress(NumericalError):
                    mean = solve_mean(K.to(dtype), rounded, noise_variance.to(dtype))
                    error = rmse(test.y - weights @ mean.value.double())
                    unconverged[precision][solver] += not mean.converged
                curves[precision][solver].append(error)

    with suppress(NumericalError):  # where training diverged, the curves up to there remain
        fit(train.x, train.y, settings=settings, model=model, callbacks=[after_step])
    return {
        "rows": len(train),
        "test_rows": len(test.x),
        "rmse": curves,
        "unconverged": unconverged,
    }


def _draw_panel(
    ax: Axes, curves: Mapping[str, Sequence[float | None]], unconverged: Mapping[str, int]
) -> None:
    lines = {solver: np.array(curve, dtype=float) for solver, curve in curves.items()}  # None → NaN
    for i, (solver, values) in enumerate(lines.items()):
        failed = int(np.isnan(values).sum())
        notes = [f"{failed} failed"] * (failed > 0)
        notes += [f"{unconverged[solver]} not converged"] * (unconverged[solver] > 0)
        label = f"{solver} ({', '.join(notes)})" if notes else solver
        # Ever thinner, so that lines on top of each other are all seen; a point between two gaps
        # is seen by its marker.
        width = 1 + 0.6 * (len(curves) - 1 - i)
        ax.plot(
            np.arange(1, len(values) + 1),
            values,
            **style(i),
            linewidth=width,
            marker=".",
            markersize=width + 2,
            label=label,
        )
    ax.set_yscale("log")
    values = np.concatenate(list(lines.values()))
    shown = values[values <= _HIGHEST]
    if len(shown):
        ax.set_ylim(0.95 * shown.min(), 1.05 * shown.max())
    ax.set_xlabel("epoch")
    ax.set_ylabel("test RMSE")
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize="x-small", frameon=False
    )
