"""Residuals against predictions, with the spread that was predicted for them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from softki.metrics import half_width
from softki.plots._axes import ABOVE, IDEAL, MISS, MODEL, one_axes
from softki.plots._data import sample_rows
from softki.plots._rows import RowsDisplay

_GROUPS = 20
_ROWS_A_GROUP = 10


class ResidualDisplay(RowsDisplay):
    """Residuals y − mean against the mean, over a band of the spread that was predicted.

    The band is the central interval for the root mean square of the predicted standard
    deviations of rows with a similar mean. Residuals outside the interval of their own row have
    another colour, and their share, of all rows, is in the legend.

    Args:
        y_true: observed values (n,).
        y_pred: predicted means (n,).
        y_std: predicted standard deviations of y (n,).
        target_name: for the labels.

    Attributes:
        ax_, figure_: what was drawn on.
        band_: the spread that was predicted.
        inside_, outside_: the residuals inside and outside their own interval.
        line_: zero.

    Example:
        >>> y_pred = np.linspace(0, 10, 50)
        >>> display = ResidualDisplay(y_pred + 1, y_pred, np.full(50, 0.8)).plot()
        >>> len(display.outside_.get_xdata())
        0
        >>> import matplotlib.pyplot as plt
        >>> plt.close(display.figure_)
    """

    def plot(
        self,
        ax: Any = None,
        *,
        level: float = 0.95,
        max_rows: int = 1000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw; see `RowsDisplay.plot`."""
        residual, z = self.y_true - self.y_pred, half_width(level)
        inside = np.abs(residual) <= z * self.y_std
        drawn = sample_rows(len(inside), max_rows, random_state)
        ax = one_axes(ax, (6.4, 4.0))

        def dots(rows: np.ndarray, color: str, label: str) -> Any:
            return ax.plot(
                self.y_pred[rows], residual[rows], "o", color=color, markersize=3, label=label
            )[0]

        means, stds = _typical_std(self.y_pred, self.y_std)
        self.band_ = ax.fill_between(
            means, -z * stds, z * stds, color=MODEL, alpha=0.2, label=f"{level * 100:g}% interval"
        )
        self.inside_ = dots(drawn[inside[drawn]], MODEL, f"inside: {inside.mean():.1%}")
        self.outside_ = dots(drawn[~inside[drawn]], MISS, f"outside: {1 - inside.mean():.1%}")
        self.line_ = ax.axhline(0, zorder=3, **IDEAL)
        ax.set(
            xlabel=f"predicted {self.target_name}",
            ylabel=f"observed − predicted {self.target_name}",
        )
        ax.legend(**ABOVE)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _typical_std(y_pred: np.ndarray, y_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means from the least to the greatest, and the typical std around each.

    Rows are sorted by mean and cut into groups of equal size.
    """
    order = np.argsort(y_pred)
    groups = np.array_split(order, min(_GROUPS, max(1, len(order) // _ROWS_A_GROUP)))
    centres = [y_pred[group].mean() for group in groups]
    stds = np.array([np.sqrt(np.square(y_std[group]).mean()) for group in groups])
    means = np.array([y_pred.min(), *centres, y_pred.max()])
    return means, stds[[0, *range(len(groups)), -1]]
