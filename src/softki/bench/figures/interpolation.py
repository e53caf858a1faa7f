"""Structured against soft interpolation: which points a row uses, and how much.

On a lattice, a row is interpolated from the 4ᵈ lattice points around it; with softmax weights,
from all points, which are learned and lie where the data is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softki.bench.figures._canvas import panels
from softki.interpolation.weights import interpolation_weights
from softki.plots._axes import DATA, MISS, MODEL
from softki.training.fit import fit
from softki.training.settings import FitSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN = (0.1, 0.45, 0.8)  # the rows with lines to their points, as shares of the way along the arc
_VISIBLE = 1e-3  # a smaller weight is not drawn
_WIDTH = 7.0  # of the line of weight 1


def compute(
    device: str = "cpu",
    seed: int = 0,
    rows: int = 300,
    points: int = 24,
    lattice: int = 9,
    steps: int = 100,
) -> dict[str, Any]:
    """Weights of a few rows on a lattice and on the points that a fit has learned.

    Args:
        device: to fit on.
        seed: of the data and of the fit.
        rows: of the toy data, along an arc.
        points: learned ones.
        lattice: points along each axis, 4 at least.
        steps: of the fit.
    """
    rng = np.random.default_rng(seed)
    along = np.sort(rng.uniform(size=rows))
    x = _arc(along, rng)
    y = torch.from_numpy(np.sin(9 * along) + 0.2 * rng.standard_normal(rows))
    settings = FitSettings(points=points, steps=steps, batch_size=None, held_out=0, seed=seed)
    model = fit(torch.from_numpy(x), y, settings=settings, device=device).model.cpu()
    shown = x[np.searchsorted(along, _SHOWN).clip(max=rows - 1)]
    with torch.no_grad():
        T = model.temperature
        assert T is not None  # by the settings
        soft_points = model.points * T
        soft_weights = interpolation_weights(torch.from_numpy(shown), model.points, T)
    axes = [_lattice_axis(column, lattice) for column in x.T]
    return {
        "rows": x.tolist(),
        "shown": shown.tolist(),
        "lattice": _json(lattice_points(axes), cubic_weights(shown, axes)),
        "soft": _json(soft_points.numpy(), soft_weights.numpy()),
    }


def draw(data: Mapping[str, Any]) -> Figure:
    """Two panels: the lattice and the learned points, with lines as wide as the weights."""
    figure, axes = panels(1, 2, (5.2, 4.6), sharex=True, sharey=True)
    titles = {"lattice": "on a lattice: local cubic weights", "soft": "soft: softmax weights"}
    for ax, (kind, title) in zip(axes[0], titles.items(), strict=True):
        rows, points = np.array(data["rows"]), np.array(data[kind]["points"])
        ax.plot(*rows.T, ".", color=DATA, markersize=3, label=f"{len(rows)} rows")
        counts = [
            _draw_weights(ax, np.array(row), points, np.array(weights))
            for row, weights in zip(data["shown"], data[kind]["weights"], strict=True)
        ]
        ax.plot(
            *points.T,
            "o",
            color="white",
            markeredgecolor="black",
            markersize=5,
            label="points",
        )
        ax.plot(*np.array(data["shown"]).T, "s", color="black", markersize=5, label="rows shown")
        used = ", ".join(map(str, counts))
        ax.set_title(f"{title}\n{used} of {len(points)} points above {_VISIBLE:.1%}")
        ax.set_aspect("equal")
    for colour, dashes, sign in ((MODEL, "-", "positive"), (MISS, ":", "negative")):
        axes[0, 0].plot([], color=colour, linestyle=dashes, linewidth=2, label=f"{sign} weight")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False
    )
    return figure


def cubic_convolution(s: np.ndarray) -> np.ndarray:
    """Weight of a lattice point that is s spacings away, for local cubic interpolation.

        c(s) = 3|s|³/2 − 5|s|²/2 + 1             for |s| ≤ 1
               −|s|³/2 + 5|s|²/2 − 4|s| + 2      for 1 < |s| < 2,  and 0 beyond

    Over a lattice the weights sum to one, and give quadratic functions back exactly.

    Example:
        >>> cubic_convolution(np.array([-1.5, -0.5, 0.5, 1.5]))
        array([-0.0625,  0.5625,  0.5625, -0.0625])
    """
    s = np.abs(s)
    near = 1.5 * s**3 - 2.5 * s**2 + 1
    far = -0.5 * s**3 + 2.5 * s**2 - 4 * s + 2
    weights: np.ndarray = np.where(s <= 1, near, np.where(s < 2, far, 0.0))
    return weights


def lattice_points(axes: list[np.ndarray]) -> np.ndarray:
    """The points (∏ points, d) of the lattice of these axes; the last axis runs fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def cubic_weights(x: np.ndarray, axes: list[np.ndarray]) -> np.ndarray:
    """Weights (n, ∏ points) of x (n, d) on `lattice_points`: products over columns."""
    weights = np.ones((len(x), 1))
    for column, axis in zip(x.T, axes, strict=True):
        along = cubic_convolution((column[:, None] - axis) / (axis[1] - axis[0]))
        weights = (weights[:, :, None] * along[:, None, :]).reshape(len(x), -1)
    return weights


def _arc(along: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows (n, 2) scattered about an arc, standardised."""
    angle = 0.2 + 4.2 * along
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    x += 0.12 * rng.standard_normal(x.shape)
    standardised: np.ndarray = (x - x.mean(0)) / x.std(0)
    return standardised


def _lattice_axis(values: np.ndarray, count: int) -> np.ndarray:
    """Evenly spaced, with one point beyond the data at either end: all that cubic weights need."""
    spacing = (values.max() - values.min()) / (count - 3)
    return values.min() + spacing * np.arange(-1, count - 1)


def _json(points: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    return {"points": points.tolist(), "weights": weights.tolist()}


def _draw_weights(ax: Axes, row: np.ndarray, points: np.ndarray, weights: np.ndarray) -> int:
    """Lines from a row to the points it uses; how many these are."""
    used = np.flatnonzero(np.abs(weights) > _VISIBLE)
    for i in used:
        positive = weights[i] > 0
        ax.plot(
            *np.stack([row, points[i]], 1),
            color=MODEL if positive else MISS,
            linestyle="-" if positive else ":",
            linewidth=max(0.4, _WIDTH * abs(weights[i])),
            solid_capstyle="butt",
        )
    return len(used)
