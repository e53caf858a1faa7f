"""Inducing against interpolation points: SGPR, SKI and SoftKI on the Ricker wavelet.

The paper's settings: 3,000 training and 200 test rows, 128 points at k-means centres and learned,
or a lattice of 20 × 20; 100 epochs of Adam. It does not say how its learning rates fall: here
SoftKI's follows a cosine, those of the others are constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from softki.bench.figures._canvas import panels
from softki.bench.methods import make
from softki.bench.synthetic import ricker, ricker_wavelet
from softki.training.fit import fit
from softki.training.initialization import initial_model
from softki.training.settings import FitSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"sgpr": "SGPR", "ski": "SKI", "softki": "SoftKI"}
_LEVELS = 22  # of the mean; an even number has 0 in the middle of a colour
_TICKS = (-1, -0.5, 0, 0.5, 1)
_DECADES = 4  # of absolute error


def compute(
    device: str = "cpu",
    seed: int = 0,
    rows: int = 3000,
    test_rows: int = 200,
    points: int = 128,
    lattice: int = 20,
    epochs: int = 100,
    resolution: int = 64,
) -> dict[str, Any]:
    """Posterior means on a grid, test errors and points of the three methods.

    Args:
        device: to fit on.
        seed: of the data and of the fits.
        rows: to train on.
        test_rows: that the RMSE is of.
        points: of SGPR and SoftKI.
        lattice: points of SKI along each axis.
        epochs: of training, all rows in every step.
        resolution: points of the grid along each axis.
    """
    x, y = ricker(rows + test_rows, seed=seed)
    of_x, of_y = StandardScaler().fit(x[:rows]), StandardScaler().fit(y[:rows, None])
    X, Y = of_x.transform(x), of_y.transform(y[:, None])[:, 0]
    training: dict[str, Any] = {
        "X": X[:rows],
        "y": Y[:rows],
        "device": device,
        "seed": seed,
        "epochs": epochs,
    }
    fits = {
        "sgpr": _method("sgpr", **training, points=points, learning_rate=0.1),
        "ski": _method("ski", **training, grid_size=lattice, learning_rate=0.1),
        "softki": _softki(**training, points=points),
    }
    axis = np.linspace(x.min(), x.max(), resolution)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)

    def surface(values: np.ndarray) -> list[Any]:
        return _rounded(values.reshape(resolution, resolution))

    def mean(fitted: _Fitted, inputs: np.ndarray) -> np.ndarray:
        heights: np.ndarray = of_y.inverse_transform(fitted.mean(inputs)[:, None])[:, 0]
        return heights

    return {
        "axis": _rounded(axis),
        "truth": surface(ricker_wavelet(grid)),
        "methods": {
            name: {
                "mean": surface(mean(fitted, of_x.transform(grid))),
                "rmse": float(np.sqrt(np.mean((y[rows:] - mean(fitted, X[rows:])) ** 2))),
                "points": fitted.points and _rounded(of_x.inverse_transform(fitted.points)),
            }
            for name, fitted in fits.items()
        },
    }


def draw(data: Mapping[str, Any]) -> Figure:
    """A column a method: the posterior mean with the points above, the absolute error below."""
    axis, errors = data["axis"], absolute_errors(data)
    largest = max(np.abs(fitted["mean"]).max() for fitted in data["methods"].values())
    heights = np.linspace(-largest, largest, _LEVELS)
    figure, axes = panels(2, len(errors), (3.8, 3.4), sharex=True, sharey=True)
    for column, (name, fitted) in zip(axes.T, data["methods"].items(), strict=True):
        mean = column[0].contourf(axis, axis, fitted["mean"], heights, cmap="RdBu_r")
        points = fitted["points"] or []
        if points:
            column[0].plot(*np.array(points).T, ".", color="black", markersize=3)
        count = f", {len(points)} points" if points else ""
        column[0].set_title(f"{TITLES[name]}{count}\ntest RMSE {fitted['rmse']:.1e}")
        error = draw_error(column[1], axis, errors[name], error_levels(errors))
        column[1].set_xlabel("$x_1$")
        for ax in column:  # points may lie outside
            ax.set(xlim=(axis[0], axis[-1]), ylim=(axis[0], axis[-1]), aspect="equal")
    for ax in axes[:, 0]:
        ax.set_ylabel("$x_2$")
    figure.colorbar(mean, ax=axes[0], label="posterior mean", ticks=_TICKS)
    figure.colorbar(error, ax=axes[1], label="absolute error", format="%.0e")
    return figure


def absolute_errors(data: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """|posterior mean − wavelet| on the grid, by method."""
    truth = np.array(data["truth"])
    return {
        name: np.abs(np.array(fitted["mean"]) - truth) for name, fitted in data["methods"].items()
    }


def error_levels(errors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Levels of contours, two a decade, that all methods share."""
    largest = max(error.max() for error in errors.values())
    top = np.ceil(2 * np.log10(max(largest, 1e-12)))
    return 10 ** (np.arange(top - 2 * _DECADES, top + 1) / 2)


def draw_error(ax: Axes, axis: list[float], error: np.ndarray, levels: np.ndarray) -> Any:
    """Filled contours on a logarithmic scale; what is below the lowest level looks like it."""
    from matplotlib.colors import LogNorm

    return ax.contourf(
        axis, axis, error.clip(min=levels[0]), levels, norm=LogNorm(), cmap="cividis"
    )


class _Fitted(NamedTuple):
    mean: Callable[[np.ndarray], np.ndarray]  # of standardised inputs (n, 2): (n,)
    points: list[list[float]] | None  # standardised; None where the method does not give them


def _method(
    name: str, X: np.ndarray, y: np.ndarray, device: str, seed: int, **settings: Any
) -> _Fitted:
    method = make(name, device, seed, **settings)
    method.fit(X, y)
    return _Fitted(lambda x: method.predict(x)[0], method.facts.get("points"))


def _softki(
    X: np.ndarray, y: np.ndarray, device: str, seed: int, points: int, epochs: int
) -> _Fitted:
    """The paper's settings for the wavelet: β = 0.5 at the start, learning rate 0.5."""
    settings = FitSettings(
        points=points, steps=epochs, batch_size=None, learning_rate=0.5, held_out=0, seed=seed
    )
    x = torch.tensor(X, dtype=settings.dtype, device=device)
    model = initial_model(x, settings, torch.Generator("cpu").manual_seed(seed))
    model.noise_variance = 0.25
    posterior = fit(x, y, settings=settings, model=model, device=device).posterior
    assert posterior.temperature is not None  # by the settings
    learned = posterior.temperature * posterior.points
    return _Fitted(lambda x: posterior.mean(x)[:, 0].cpu().numpy(), learned.tolist())


def _rounded(values: np.ndarray) -> list[Any]:
    """As lists, with the digits that a picture needs."""
    rounded: list[Any] = values.round(6).tolist()
    return rounded
