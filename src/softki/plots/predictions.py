"""Predicted against observed values, with error bars."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softki.metrics import half_width
from softki.plots._axes import ABOVE, IDEAL, MISS, MODEL, one_axes
from softki.plots._data import predictions, sample_rows


@dataclass(repr=False, eq=False)
class RowsDisplay(ABC):
    """Observed values with their predictions, a dot a row, of a sample where rows are many."""

    y_true: np.ndarray
    y_pred: np.ndarray
    y_std: np.ndarray
    target_name: str = "y"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, target: int = 0, ax: Any = None, **options: Any
    ) -> Self:
        """Predict the rows of X, and draw.

        Args:
            estimator: fitted, with `predict(X, return_std=True)`.
            X: inputs (n, d), best of rows that the fit has not seen.
            y: observed targets, in the shape they had in fit.
            target: index of the target to draw, if there are several.
            ax: matplotlib axes to draw on; None for a new figure.
            options: of `plot`.
        """
        return cls(*predictions(estimator, X, y, target)).plot(ax, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: np.ndarray,
        y_pred: np.ndarray,
        y_std: np.ndarray,
        *,
        target_name: str = "y",
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Draw for given observations, means and standard deviations of y, (n,) each.

        The options are those of `plot`.
        """
        return cls(y_true, y_pred, y_std, target_name).plot(ax, **options)

    @abstractmethod
    def plot(
        self,
        ax: Any = None,
        *,
        level: float = 0.95,
        max_rows: int = 300,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw.

        Args:
            ax: matplotlib axes to draw on; None for a new figure.
            level: of the central interval.
            max_rows: rows to draw; of more, a random sample.
            random_state: seed of the sample.
        """


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
