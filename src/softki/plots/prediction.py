"""Predicted against observed values, with error bars."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from softki.metrics import half_width
from softki.plots._axes import IDEAL, MISS, MODEL, one_axes
from softki.plots._data import sample_rows
from softki.plots._rows import RowsDisplay


class PredictionDisplay(RowsDisplay):
    """Predicted against observed values, with a central interval as the error bar of each row.

    Rows whose interval misses the observed value have another colour. Their share in the legend
    is that of all rows, also where only a sample is drawn.

    Args:
        y_true: observed values (n,).
        y_pred: predicted means (n,).
        y_std: predicted standard deviations of y (n,).
        target_name: for the labels.

    Attributes:
        ax_, figure_: what was drawn on.
        inside_, outside_: error bars of the rows inside and outside their interval.
        line_: the diagonal.

    Example:
        >>> from softki import SoftKIRegressor
        >>> from softki.data import robot_arm
        >>> X, y = robot_arm(1000)
        >>> model = SoftKIRegressor(points=32, steps=50, random_state=0).fit(X[:800], y[:800])
        >>> display = PredictionDisplay.from_estimator(model, X[800:], y[800:])
        >>> display.ax_.get_xlabel()
        'observed y'
        >>> import matplotlib.pyplot as plt
        >>> plt.close(display.figure_)
    """

    def plot(
        self,
        ax: Any = None,
        *,
        level: float = 0.95,
        max_rows: int = 300,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw; see `RowsDisplay.plot`."""
        half = half_width(level) * self.y_std
        inside = np.abs(self.y_true - self.y_pred) <= half
        drawn = sample_rows(len(inside), max_rows, random_state)
        ax = one_axes(ax, (5.0, 4.6))

        def bars(rows: np.ndarray, color: str, label: str) -> Any:
            return ax.errorbar(
                self.y_true[rows],
                self.y_pred[rows],
                yerr=half[rows],
                fmt="o",
                markersize=3,
                elinewidth=0.8,
                alpha=0.6,
                color=color,
                label=label,
            )

        self.inside_ = bars(
            drawn[inside[drawn]], MODEL, f"in the {level * 100:g}% interval: {inside.mean():.1%}"
        )
        self.outside_ = bars(drawn[~inside[drawn]], MISS, f"outside: {1 - inside.mean():.1%}")
        ends = [self.y_true[drawn].min(), self.y_true[drawn].max()]
        (self.line_,) = ax.plot(ends, ends, zorder=3, **IDEAL)
        ax.set(xlabel=f"observed {self.target_name}", ylabel=f"predicted {self.target_name}")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
