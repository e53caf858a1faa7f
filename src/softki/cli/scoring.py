"""Predictions of a model file at rows with targets, scored in the units of the target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from softki.cli.console import Console, number, share
from softki.cli.model_file import ModelFile
from softki.data.column_kinds import KINDS, kind_of, numbers_of
from softki.data.file_sets import FileSet
from softki.estimator.regressor import Of, SoftKIRegressor
from softki.exceptions import InvalidInputError
from softki.metrics import half_width


class KnownNoise:
    """The noise of the rows of a table where the model was fitted with `--noise-variance`.

    Attributes:
        columns: the column that holds it, if the model knows one and the table has it.
    """

    def __init__(self, model: ModelFile, data: FileSet) -> None:
        self.model, self.data = model, data
        has = model.noise is not None and model.noise in data.names
        self.columns = [model.noise] if model.noise is not None and has else []
        self._unusable = 0

    def relative(self, batch: Any, rows: np.ndarray) -> np.ndarray:
        """vᵢ / v̄ of some rows, with the mean v̄ of the fit; 1 where it is not known, (rows,)."""
        if not self.columns:
            return np.ones(int(rows.sum()))
        variance = numbers_in(batch, self.columns)[rows, 0]
        usable = np.isfinite(variance) & (variance > 0)
        self._unusable += int((~usable).sum())
        return np.where(usable, variance / self.model.estimator.noise_unit_, 1.0)

    def tell(self, console: Console) -> None:
        """Warn where figures assume average noise."""
        name = self.model.noise
        if name is not None and not self.columns:
            console.warn(
                f"{self.data}: has no column {name!r}, the known noise of the fit: the figures "
                "assume average noise"
            )
        if self._unusable:
            console.warn(
                f"{self.data}: {name!r} is missing or not positive in {self._unusable} rows: "
                "their figures assume average noise"
            )


Moments = tuple[np.ndarray, np.ndarray]


def moments(estimator: SoftKIRegressor, x: Any, of: Of = "y") -> Moments:
    """Mean and standard deviation of y or of f at the rows of a table, (n, t) each."""
    shape = (len(x), len(noise_std(estimator)))
    if not len(x):
        return np.empty(shape), np.empty(shape)
    mean, std = estimator.predict(x, return_std=True, of=of)
    strange = ~np.isfinite(mean.reshape(shape) + std.reshape(shape)).all(1)
    if strange.any():
        raise InvalidInputError(
            f"the predictions of {int(strange.sum())} rows are not finite: their inputs are too "
            "far from those of the fit"
        )
    return mean.reshape(shape), std.reshape(shape)


def observed_moments(estimator: SoftKIRegressor, x: Any, relative_noise: np.ndarray) -> Moments:
    """Mean and standard deviation of y where the noise of the rows is known, (n, t) each.

    Its variance is that of f, and that of average noise times vᵢ / v̄, the relative noise (n,).
    """
    mean, std = moments(estimator, x, of="f")
    return mean, np.sqrt(std**2 + relative_noise[:, None] * noise_std(estimator) ** 2)


def noise_std(estimator: SoftKIRegressor) -> np.ndarray:
    """Standard deviation of average noise in each target (t,), in its units."""
    standardised = float(estimator.fit_.posterior.noise_variance) ** 0.5
    return np.asarray(standardised * estimator.y_standardizer_.scale)


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


def numbers_in(table: Any, names: Sequence[str]) -> np.ndarray:
    """The columns (n, c) in float64, missing values as NaN, or an error if they are no numbers."""
    for name in names:
        kind = kind_of(table.column(name), name)
        if kind not in ("number", "null"):
            raise InvalidInputError(
                f"column {name!r} holds {KINDS[kind].plural}, and softki is for regression, where "
                "targets and noise variances are numbers"
            )
    numbers = np.empty((len(table), len(names)))
    for position, name in enumerate(names):
        numbers[:, position] = numbers_of(table.column(name), "number")
    return numbers
