"""Panels to draw on, and the look that the figures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from softki.exceptions import SoftKIError
from softki.plots._axes import DRAW, MISS, MODEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart. Lines differ in their
# dashes as well, for print without colours.
COLOURS = (MODEL, MISS, DRAW, "#CC79A7", "#E69F00", "#56B4E9", "black")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, np.ndarray]:
    """A new figure, and its axes (rows, columns), each of the given size in inches.

    The figure does not belong to pyplot: nothing has to be closed, and no display is needed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SoftKIError(
            "figures need the package matplotlib: pip install 'softki[plot]'"
        ) from error
    figure = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def style(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line of a panel."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}


def say(ax: Axes, words: str) -> None:
    """Words in the place of a picture."""
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color="0.4")
    ax.set_xticks([])
    ax.set_yticks([])
