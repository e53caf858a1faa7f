"""Axes to draw on: those of the caller, or those of a new figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from softki.exceptions import InvalidTypeError, SoftKIError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that colour-blind readers can tell apart (Okabe and Ito), with one meaning each.
MODEL = "#0072B2"  # predictions
DRAW = "#009E73"  # functions drawn from the posterior
MISS = "#D55E00"  # rows and steps that deserve attention
DATA = "0.55"  # rows
CHANCE = "0.85"  # the range of chance alone, and of extrapolation
IDEAL: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.0}  # the ideal

# A legend above the axes, where it hides nothing.
ABOVE: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "ncols": 3,
    "frameon": False,
    "fontsize": "small",
}

_PANELS_IN_A_ROW = 3


def one_axes(ax: Any, size: tuple[float, float]) -> Axes:
    """The axes, or new ones in a figure of the given size in inches."""
    return several_axes(ax, 1, size)[0]


def several_axes(
    ax: Any, count: int, size: tuple[float, float], *, share_y: bool = False
) -> np.ndarray:
    """As many axes as there are panels (count,), each of the given size if they are new."""
    given = _as_axes(ax) if ax is not None else _new_axes(count, size, share_y)
    if len(given) != count:
        raise InvalidTypeError(
            f"ax holds {len(given)} axes and the picture has {count} panel(s): pass as many, for "
            f"example those of plt.subplots(1, {count})"
        )
    return given


def _new_axes(count: int, size: tuple[float, float], share_y: bool) -> np.ndarray:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise SoftKIError(
            "pictures need the package matplotlib: pip install 'softki[plot]'"
        ) from error
    columns = min(count, _PANELS_IN_A_ROW)
    rows = -(-count // columns)
    _, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(columns * size[0], rows * size[1]),
        layout="constrained",
        sharey=share_y,
        squeeze=False,
    )
    for spare in grid.flat[count:]:
        spare.remove()
    axes: np.ndarray = grid.flat[:count]
    return axes


def _as_axes(ax: Any) -> np.ndarray:
    given = np.asarray(ax, dtype=object).ravel()
    for one in given:
        if not hasattr(one, "get_xlim"):
            raise InvalidTypeError(
                f"ax must be matplotlib axes, got {type(one).__name__}: "
                "pass those of plt.subplots(), or None for a new figure"
            )
    return given
