"""Predicted against observed values, with error bars."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from softki.metrics import half_width
from softki.plots._axes import ABOVE, IDEAL, MISS, MODEL, one_axes
from softki.plots._data import DisplayOfPredictions, sample_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(repr=False, eq=False)
class RowsDisplay(DisplayOfPredictions, ABC):
    """Observed values with their predictions, a dot a row, of a sample where rows are many.

    Args:
        y_true: observed values (n,).
        y_pred: predicted means (n,).
        y_std: predicted standard deviations of y (n,).
        target_name: name of the target in the labels.
    """

    _SIZE: ClassVar[tuple[float, float]]  # of a new figure, in inches
    _MAX_ROWS: ClassVar[int]

    y_true: np.ndarray
    y_pred: np.ndarray
    y_std: np.ndarray
    target_name: str = "y"

    @classmethod
    def _of_predictions(
        cls, y_true: np.ndarray, y_pred: np.ndarray, y_std: np.ndarray, target_name: str
    ) -> Self:
        return cls(y_true, y_pred, y_std, target_name)

    def plot(
        self,
        ax: Any = None,
        *,
        level: float = 0.95,
        max_rows: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw.

        Args:
            ax: matplotlib axes to draw on; None for a new figure.
            level: level of the central interval.
            max_rows: largest number of rows to draw, a random sample of all; None for 300 error
                bars or 1,000 residuals.
            random_state: seed of the sample.
        """
        half = half_width(level) * self.y_std
        limit = self._MAX_ROWS if max_rows is None else max_rows
        drawn = sample_rows(len(half), limit, random_state)
        inside = np.abs(self.y_true - self.y_pred) <= half
        hit, missed = drawn[inside[drawn]], drawn[~inside[drawn]]
        interval = f"{level * 100:g}% interval"
        ax = one_axes(ax, self._SIZE)
        self.inside_ = self._plot_rows(
            ax, hit, half[hit], color=MODEL, label=f"in the {interval}: {inside.mean():.1%}"
        )
        self.outside_ = self._plot_rows(
            ax, missed, half[missed], color=MISS, label=f"outside: {1 - inside.mean():.1%}"
        )
        self._plot_reference(ax, drawn, level)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @abstractmethod
    def _plot_rows(self, ax: Axes, rows: np.ndarray, half: np.ndarray, **style: Any) -> Any:
        """Draw rows, given their indices and the half widths of their intervals."""

    @abstractmethod
    def _plot_reference(self, ax: Axes, drawn: np.ndarray, level: float) -> None:
        """Draw where perfect predictions would be, the labels and the legend."""


class PredictionDisplay(RowsDisplay):
    """Predicted against observed values, with a central interval as the error bar of each row.

    The arguments are those of `RowsDisplay`. Rows whose interval misses the observed value have
    another colour. Their share in the legend is that of all rows, also where only a sample is
    drawn.

    Attributes:
        ax_, figure_: the axes and their figure.
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

    _SIZE = (5.0, 4.6)
    _MAX_ROWS = 300

    def _plot_rows(self, ax: Axes, rows: np.ndarray, half: np.ndarray, **style: Any) -> Any:
        marks: dict[str, Any] = {"fmt": "o", "markersize": 3, "elinewidth": 0.8, "alpha": 0.6}
        return ax.errorbar(self.y_true[rows], self.y_pred[rows], yerr=half, **marks, **style)

    def _plot_reference(self, ax: Axes, drawn: np.ndarray, level: float) -> None:
        ends = [self.y_true[drawn].min(), self.y_true[drawn].max()]
        (self.line_,) = ax.plot(ends, ends, zorder=3, **IDEAL)
        ax.set(xlabel=f"observed {self.target_name}", ylabel=f"predicted {self.target_name}")
        ax.legend()


_GROUPS = 20
_ROWS_A_GROUP = 10


class ResidualDisplay(RowsDisplay):
    """Residuals y − mean against the mean, over a band of the spread that was predicted.

    The arguments are those of `RowsDisplay`. The band is the central interval for the root mean
    square of the predicted standard deviations of rows with a similar mean. Residuals outside the
    interval of their own row have another colour, and their share, of all rows, is in the legend.

    Attributes:
        ax_, figure_: the axes and their figure.
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

    _SIZE = (6.4, 4.0)
    _MAX_ROWS = 1000

    def _plot_rows(self, ax: Axes, rows: np.ndarray, half: np.ndarray, **style: Any) -> Any:
        residual = self.y_true[rows] - self.y_pred[rows]
        return ax.plot(self.y_pred[rows], residual, "o", markersize=3, **style)[0]

    def _plot_reference(self, ax: Axes, drawn: np.ndarray, level: float) -> None:
        means, stds = _typical_std(self.y_pred, self.y_std)
        half = half_width(level) * stds
        label = f"{level * 100:g}% interval of similar rows"
        self.band_ = ax.fill_between(means, -half, half, color=MODEL, alpha=0.2, label=label)
        self.line_ = ax.axhline(0, zorder=3, **IDEAL)
        ax.set(
            xlabel=f"predicted {self.target_name}",
            ylabel=f"observed − predicted {self.target_name}",
        )
        ax.legend(**ABOVE)


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
