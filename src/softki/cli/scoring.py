"""Predictions of a model at rows with targets, scored in the units of the target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from softki.cli.console import Console, number, share
from softki.cli.model_file import EncodedBatches, ModelFile, noise_std
from softki.cli.options import about
from softki.data.arrow import pa
from softki.data.column_kinds import KINDS, kind_of
from softki.data.file_sets import FileSet
from softki.estimator.regressor import Of, SoftKIRegressor
from softki.estimator.rows import feature_names
from softki.exceptions import InvalidInputError
from softki.metrics import half_width, negative_log_density
from softki.streaming.blocks import RawRows
from softki.streaming.tables import matrix_of


class ObservedRows:
    """The complete rows of a table, a batch at a time, with their targets and relative noise.

    The relative noise is vᵢ / v̄, where v̄ is the mean of the noise variances of the fit; where none
    are known, it is 1. Iterating warns at the end where the noise of rows is unknown and average
    noise was taken, and raises where no row is complete.

    Args:
        batches: batches of the table, with their encoded inputs.
        targets: columns of the targets; none for inputs alone.
        noise: column of the known noise, if there is one.
        noise_unit: mean of the noise variances of the fit.
    """

    def __init__(
        self,
        batches: EncodedBatches,
        targets: Sequence[str],
        noise: str | None,
        noise_unit: float | None,
    ) -> None:
        self._batches, self._targets = batches, targets
        self._noise, self._noise_unit = noise, noise_unit
        self._unknown = 0  # rows whose noise is not usable

    @classmethod
    def of(
        cls, file: ModelFile, data: FileSet, targets: Sequence[str], console: Console
    ) -> ObservedRows:
        """The rows of a table for a model file, with the targets of the given names."""
        noise = file.noise if file.noise in data.names else None
        others = [*targets, *([] if noise is None else [noise])]
        reader = file.reader(data, others)
        with about(data):
            numbers_in(reader.schema.empty_table(), others)
        if targets and file.noise != noise:
            console.warn(
                f"{data}: has no column {file.noise!r}, the known noise of the fit: the figures "
                "assume average noise"
            )
        encoded = EncodedBatches(file.encoder, data.name, reader, reader.count, console, targets)
        return cls(encoded, targets, noise, file.estimator.noise_unit_)

    @property
    def left_out(self) -> int:
        """Rows with missing values, once all rows were read."""
        return self._batches.incomplete

    def __iter__(self) -> Iterator[RawRows]:
        """Read the table once."""
        count, name = 0, self._batches.name
        for batch, encoded, complete in self._batches:
            noise = self._relative_noise(batch, complete)
            rows = RawRows(encoded.values, numbers_in(batch, self._targets), noise)
            count += int(complete.sum())
            yield rows if complete.all() else rows.take(np.flatnonzero(complete))
        if not count:
            raise InvalidInputError(f"{name}: no row is complete")
        if self._targets and self._unknown:
            self._batches.console.warn(
                f"{name}: {self._noise!r} is missing or not positive in {self._unknown} rows: "
                "their figures assume average noise"
            )

    def _relative_noise(self, batch: Any, complete: np.ndarray) -> np.ndarray:
        if self._noise is None or self._noise_unit is None:
            return np.ones(len(batch))
        variance = numbers_in(batch, [self._noise])[:, 0]
        usable = np.isfinite(variance) & (variance > 0)
        self._unknown += int((complete & ~usable).sum())
        return np.divide(variance, self._noise_unit, out=np.ones(len(batch)), where=usable)


Moments = tuple[np.ndarray, np.ndarray]


def moments(estimator: SoftKIRegressor, x: np.ndarray, of: Of = "y") -> Moments:
    """Mean and standard deviation of y or of f at rows of numbers (n, d), (n, t) each."""
    shape = (len(x), len(noise_std(estimator)))
    if not len(x):
        return np.empty(shape), np.empty(shape)
    mean, std = estimator.predict(with_names(estimator, x), return_std=True, of=of)
    strange = ~np.isfinite(mean.reshape(shape) + std.reshape(shape)).all(1)
    if strange.any():
        raise InvalidInputError(
            f"the predictions of {int(strange.sum())} rows are not finite: their inputs are too "
            "far from those of the fit"
        )
    return mean.reshape(shape), std.reshape(shape)


def with_names(estimator: SoftKIRegressor, x: np.ndarray) -> Any:
    """Rows of numbers (n, d) as a table with the names of the inputs of the fit."""
    return pa.table(dict(zip(feature_names(estimator), x.T, strict=True)))


def observed_moments(estimator: SoftKIRegressor, rows: RawRows) -> Moments:
    """Mean and standard deviation of y where the noise of the rows is known, (n, t) each.

    Its variance is that of f, and that of average noise times the relative noise of the row.
    """
    mean, std = moments(estimator, rows.x, of="f")
    assert rows.noise is not None
    return mean, np.sqrt(std**2 + rows.noise[:, None] * noise_std(estimator) ** 2)


LEVELS = (0.5, 0.8, 0.95)
HEADER = ("", "RMSE", "MAE", "R²", "NLL", *(f"{100 * level:g}% covers" for level in LEVELS))


class Scores:
    """Scores of t targets, added up batch by batch.

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
        """Add observed values, means and standard deviations of y, (n, t) each."""
        if not len(y):
            return
        if self._shift is None:
            self._shift = y.mean(0)
        self.rows += len(y)
        error, shifted = y - mean, y - self._shift
        nll = negative_log_density(torch.from_numpy(error), torch.from_numpy(std**2)).numpy()
        inside = [abs(error) <= half_width(level) * std for level in LEVELS]
        terms = [error**2, abs(error), shifted, shifted**2, nll, *inside]
        self._sums += np.stack([np.sum(term, axis=0) for term in terms])

    def figures(self) -> list[dict[str, Any]]:
        """RMSE, MAE, R², NLL and coverage of each target."""
        means = self._sums / self.rows if self.rows else np.full_like(self._sums, np.nan)
        variance = means[3] - means[2] ** 2
        return [_figures(means[:, t], float(variance[t])) for t in range(means.shape[1])]


def scores_of(estimator: SoftKIRegressor, batches: Iterable[RawRows], data: object) -> Scores:
    """Scores of a fitted estimator at rows that come in batches.

    Args:
        estimator: fitted estimator.
        batches: complete rows with their relative noise, see `ObservedRows`.
        data: name of the table in errors.
    """
    scores = Scores(len(noise_std(estimator)))
    for rows in batches:
        with about(data):
            predicted = observed_moments(estimator, rows)
        scores.add(rows.y, *predicted)
    return scores


def figures_row(name: str, figures: dict[str, Any]) -> list[str]:
    """The row of a table with the columns `HEADER`."""
    covered = [share(figures["coverage"][f"{level:g}"]) for level in LEVELS]
    return [name, *(number(figures[key]) for key in ("rmse", "mae", "r2", "nll")), *covered]


def _figures(means: np.ndarray, variance: float) -> dict[str, Any]:
    square, absolute, _, _, nll, *inside = map(float, means)
    return {
        "rmse": math.sqrt(square),
        "mae": absolute,
        "r2": 1 - square / variance if variance > 0 else math.nan,
        "nll": nll,
        "coverage": {f"{level:g}": part for level, part in zip(LEVELS, inside, strict=True)},
    }


def numbers_in(table: Any, names: Sequence[str]) -> np.ndarray:
    """The columns (n, c) in float64 with NaN for missing values; raises if one holds no numbers."""
    for name in names:
        kind = kind_of(table.column(name), name)
        if kind not in ("number", "null"):
            raise InvalidInputError(
                f"column {name!r} holds {KINDS[kind].plural}, and softki is for regression, where "
                "targets and noise variances are numbers"
            )
    return matrix_of(table, names).astype(np.float64)
