"""Where SGPR, SKI and SoftKI err on the Ricker wavelet, and on how much of the plane.

The data is that of the figure `ricker`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from softki.bench.figures._canvas import panels, style
from softki.bench.figures.ricker import (
    TITLES,
    absolute_errors,
    compute,
    draw_error,
    error_levels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["compute", "draw"]


def draw(data: Mapping[str, Any]) -> Figure:
    """A panel a method with contours of its absolute error, and one with their distributions."""
    axis, errors = data["axis"], absolute_errors(data)
    levels = error_levels(errors)
    figure, axes = panels(1, len(errors) + 1, (3.6, 3.4))
    *surfaces, distribution = axes[0]
    for i, (ax, (name, error)) in enumerate(zip(surfaces, errors.items(), strict=True)):
        drawn = draw_error(ax, axis, error, levels)
        ax.set(title=f"{TITLES[name]}, at most {error.max():.1e}", xlabel="$x_1$", aspect="equal")
        share = np.arange(1, error.size + 1) / error.size
        distribution.plot(np.sort(error, axis=None), share, **style(i), label=TITLES[name])
    surfaces[0].set_ylabel("$x_2$")
    figure.colorbar(drawn, ax=surfaces, label="absolute error", format="%.0e")
    distribution.set(
        xscale="log",
        xlim=(levels[0], levels[-1]),
        xlabel="absolute error",
        ylabel="share of the plane with less",
    )
    distribution.legend(frameon=False)
    return figure
