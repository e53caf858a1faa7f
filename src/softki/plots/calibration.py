"""Calibration of error bars: coverage of their intervals, and the PIT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from scipy.stats import binom

from softki.metrics import coverage
from softki.plots._axes import CHANCE, IDEAL, MODEL, several_axes
from softki.plots._data import DisplayOfPredictions
from softki.validation.parameters import check_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = np.linspace(0.01, 0.99, 99)
# Share of well calibrated models that stay inside the grey band, at each level or bin.
_CHANCE = 0.95


@dataclass(repr=False, eq=False)
class CalibrationDisplay(DisplayOfPredictions):
    """Coverage of central intervals against their level, and the PIT histogram beside it.

    The probability integral transform of row i is Φ((yᵢ − meanᵢ)/stdᵢ). For honest error bars
    it is uniform, and intervals of every level cover as many rows as they say. A coverage above
    the diagonal, or a PIT heaped in the middle, means error bars that are too wide; below, or
    heaped at both ends, too narrow. A PIT that leans to one side is a biased mean.

    The grey bands hold 95% of what chance gives for as many independent rows, by the binomial
    distribution, at each level and for each bin by itself.

    Args:
        levels: nominal levels of the central intervals (k,).
        coverage: share of the rows inside them (k,).
        pit: probability integral transform of each row (n,), between 0 and 1.
        target_name: name of the target in the labels.

    Attributes:
        ax_, axes_, figure_: the first of the two axes, both, and their figure.
        line_: the coverage.
        histogram_: the histogram of the PIT.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> y_pred, y_std = np.zeros(500), np.ones(500)
        >>> display = CalibrationDisplay.from_predictions(rng.normal(size=500), y_pred, y_std)
        >>> bool(np.abs(display.coverage - display.levels).max() < 0.05)
        True
        >>> import matplotlib.pyplot as plt
        >>> plt.close(display.figure_)
    """

    levels: np.ndarray
    coverage: np.ndarray
    pit: np.ndarray
    target_name: str = "y"

    @classmethod
    def _of_predictions(
        cls, y_true: np.ndarray, y_pred: np.ndarray, y_std: np.ndarray, target_name: str
    ) -> Self:
        residual, std = torch.as_tensor(y_true - y_pred), torch.as_tensor(y_std)
        covered = [coverage(residual, std.square(), level) for level in _LEVELS]
        pit = torch.special.ndtr(residual / std).numpy()
        return cls(_LEVELS, np.array(covered), pit, target_name)

    def plot(self, ax: Any = None, *, bins: int = 20) -> Self:
        """Draw on two matplotlib axes, or None for a new figure; `bins` are those of the PIT."""
        check_integer("bins", bins, 1)
        self.axes_ = several_axes(ax, 2, (4.4, 3.8))
        self._plot_coverage(self.axes_[0])
        self._plot_pit(self.axes_[1], bins)
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        return self

    def _plot_coverage(self, ax: Axes) -> None:
        count = len(self.pit)
        low, high = np.array(binom.interval(_CHANCE, count, self.levels)) / count
        ax.fill_between(self.levels, low, high, color=CHANCE, label="95% of what chance gives")
        ax.plot([0, 1], [0, 1], label="honest error bars", **IDEAL)
        (self.line_,) = ax.plot(
            self.levels, self.coverage, color=MODEL, linewidth=2, label=f"these {count} rows"
        )
        ax.set(
            xlabel="level of the central interval",
            ylabel=f"share of {self.target_name} inside",
            xlim=(0, 1),
            ylim=(0, 1),
        )
        ax.legend()

    def _plot_pit(self, ax: Axes, bins: int) -> None:
        count = len(self.pit)
        low, high = np.array(binom.interval(_CHANCE, count, 1 / bins)) * bins / count
        ax.axhspan(low, high, color=CHANCE)
        ax.axhline(1, **IDEAL)
        density, edges = np.histogram(self.pit, bins, range=(0, 1), density=True)
        self.histogram_ = ax.stairs(density, edges, color=MODEL, linewidth=2, baseline=None)
        ax.set(xlabel="PIT: predicted P(y ≤ observed)", ylabel="density", xlim=(0, 1))
        ax.set_ylim(bottom=0)
