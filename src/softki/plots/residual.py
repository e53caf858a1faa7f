"""Residuals against predictions, with the spread that was predicted for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softki.metrics import half_width
from softki.plots._axes import ABOVE, IDEAL, MISS, MODEL, one_axes
from softki.plots._data import predictions, sample_rows

_GROUPS = 20
_ROWS_A_GROUP = 10


@dataclass(repr=False, eq=False)
class ResidualDisplay:
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

    y_true: np.ndarray
    y_pred: np.ndarray
    y_std: np.ndarray
    target_name: str = "y"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        target: int = 0,
        level: float = 0.95,
        max_rows: int = 1000,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
    ) -> Self:
        """Predict the rows of X, and draw.

        Args:
            estimator: fitted, with `predict(X, return_std=True)`.
            X: inputs (n, d), best of rows that the fit has not seen.
            y: observed targets, in the shape they had in fit.
            target: index of the target to draw, if there are several.
            level: of the central interval.
            max_rows: rows to draw; of more, a random sample.
            random_state: seed of the sample.
            ax: matplotlib axes to draw on; None for a new figure.
        """
        y_true, y_pred, y_std, name = predictions(estimator, X, y, target)
        return cls.from_predictions(
            y_true,
            y_pred,
            y_std,
            target_name=name,
            level=level,
            max_rows=max_rows,
            random_state=random_state,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: np.ndarray,
        y_pred: np.ndarray,
        y_std: np.ndarray,
        *,
        target_name: str = "y",
        level: float = 0.95,
        max_rows: int = 1000,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
    ) -> Self:
        """Draw for given observations, means and standard deviations of y, (n,) each."""
        display = cls(y_true, y_pred, y_std, target_name)
        return display.plot(ax, level=level, max_rows=max_rows, random_state=random_state)

    def plot(
        self,
        ax: Any = None,
        *,
        level: float = 0.95,
        max_rows: int = 1000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
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
