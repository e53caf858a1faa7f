"""How good predictions are, summed over batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softki.cli.console import number, share
from softki.metrics import half_width

LEVELS = (0.5, 0.8, 0.95)
HEADER = ("", "RMSE", "MAE", "R²", "NLL", *(f"{100 * level:g}% covers" for level in LEVELS))


class Scores:
    """Figures of t targets; the batches they are computed from need not be kept.

    Example:
        >>> scores = Scores(1)
        >>> scores.add(np.array([[1.0], [3.0]]), np.array([[1.0], [2.0]]), np.ones((2, 1)))
        >>> scores.figures()[0]["mae"]
        0.5
    """

    def __init__(self, targets: int) -> None:
        self.rows = 0
        self._shift: np.ndarray | None = None
        # Sums of e², |e|, y, y², −log p and of what lies inside each interval, (·, t); y from its
        # mean in the first batch, so that its variance does not cancel.
        self._sums = np.zeros((5 + len(LEVELS), targets))

    def add(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> None:
        """Observed values, means and standard deviations of y, (n, t) each."""
        if not len(y):
            return
        if self._shift is None:
            self._shift = y.mean(0)
        self.rows += len(y)
        error, shifted = y - mean, y - self._shift
        nll = 0.5 * (np.log(2 * math.pi * std**2) + (error / std) ** 2)
        inside = [abs(error) <= half_width(level) * std for level in LEVELS]
        terms = [error**2, abs(error), shifted, shifted**2, nll, *inside]
        self._sums += np.stack([np.sum(term, axis=0) for term in terms])

    def figures(self) -> list[dict[str, Any]]:
        """RMSE, MAE, R², NLL and coverage of each target."""
        if not self.rows:
            return [_figures(np.full(len(self._sums), np.nan), np.nan) for _ in self._sums.T]
        means = self._sums / self.rows
        variance = means[3] - means[2] ** 2
        return [_figures(means[:, t], variance[t]) for t in range(means.shape[1])]


def figures_row(name: str, figures: dict[str, Any]) -> list[str]:
    """The row of a table with the columns `HEADER`."""
    covered = [share(figures["coverage"][f"{level:g}"]) for level in LEVELS]
    return [name, *(number(figures[key]) for key in ("rmse", "mae", "r2", "nll")), *covered]


def _figures(means: np.ndarray, variance: float) -> dict[str, Any]:
    square, absolute, _, _, nll, *inside = map(float, means)
    return {
        "rmse": math.sqrt(square),
        "mae": absolute,
        "r2": 1 - square / float(variance) if variance > 0 else math.nan,
        "nll": nll,
        "coverage": {f"{level:g}": part for level, part in zip(LEVELS, inside, strict=True)},
    }
