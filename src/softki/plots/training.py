"""The error on held-out rows during training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from softki.exceptions import InvalidInputError
from softki.plots._axes import IDEAL, MISS, MODEL, several_axes
from softki.plots._data import checked_softki

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(repr=False, eq=False)
class TrainingDisplay:
    """RMSE and NLL of the held-out rows over the training steps, the best step marked.

    The best step is that of the lowest NLL, whose parameters the fit has kept. The NLL is the
    one after the refit of the variance on these rows, as in `fit_report_`. With several targets,
    both are those of the standardised targets.

    Args:
        steps: steps at which the fit was evaluated (k,).
        rmse: RMSE after these steps (k,).
        nll: NLL after these steps, per value (k,).
        best_step: step whose parameters were kept.
        units: units of RMSE and NLL, as in the report.

    Attributes:
        ax_, axes_, figure_: the first of the two axes, both, and their figure.
        lines_: the two curves.

    Example:
        >>> display = TrainingDisplay(
        ...     steps=np.array([10, 20, 30]),
        ...     rmse=np.array([0.5, 0.3, 0.31]),
        ...     nll=np.array([0.7, 0.2, 0.25]),
        ...     best_step=20,
        ... ).plot()
        >>> [ax.get_ylabel() for ax in display.axes_]
        ['held-out RMSE', 'held-out NLL']
        >>> import matplotlib.pyplot as plt
        >>> plt.close(display.figure_)
    """

    steps: np.ndarray
    rmse: np.ndarray
    nll: np.ndarray
    best_step: int
    units: str = "the target's"

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the curves in the `fit_report_` of a fitted `SoftKIRegressor`.

        Args:
            estimator: fitted `SoftKIRegressor`.
            ax: two matplotlib axes to draw on; None for a new figure.
        """
        report = checked_softki(estimator).fit_report_
        if not report.history:
            raise InvalidInputError(
                "the fit held out no rows, so there is no curve to draw: fit with held_out=0.1, "
                "for example, and with so many rows that 5 or more are held out"
            )
        return cls(
            steps=np.array([figures.step for figures in report.history]),
            rmse=np.array([figures.rmse for figures in report.history]),
            nll=np.array([figures.calibration.nll for figures in report.history]),
            best_step=report.best_step,
            units=report.units,
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on two axes; None for a new figure."""
        self.axes_ = several_axes(ax, 2, (4.4, 3.4))
        self.lines_ = [
            self._plot_curve(axes, values, name)
            for axes, values, name in zip(
                self.axes_, (self.rmse, self.nll), ("RMSE", "NLL"), strict=True
            )
        ]
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        return self

    def _plot_curve(self, ax: Axes, values: np.ndarray, name: str) -> Any:
        (line,) = ax.plot(self.steps, values, "o-", color=MODEL, markersize=3)
        best = self.steps == self.best_step
        if best.any():
            label = f"best, step {self.best_step}: {values[best][0]:.4g}"
            ax.axvline(self.best_step, zorder=0, **IDEAL)
            ax.plot(self.best_step, values[best][0], "o", color=MISS, markersize=7, label=label)
            ax.legend()
        suffix = ", standardised" if self.units == "standardised" else ""
        ax.set(xlabel="training step", ylabel=f"held-out {name}{suffix}")
        return line
