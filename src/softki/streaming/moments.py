"""Mean and standard deviation of columns, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from softki.exceptions import InvalidInputError
from softki.standardize import Standardizer

# Sums of squares beyond it, or beyond its inverse, have lost something.
_SMALLEST = 1e-250


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and spread of the columns of a table; those of two tables add.

    With δ the difference of the means, the sums of squared deviations S of n and n′ rows give

        S″ = S + S′ + δ² n n′ / (n + n′),

    which is added as √S, so that no square overflows or vanishes.

    Example:
        >>> values = np.array([[1.0], [2.0], [6.0]])
        >>> moments = Moments.of(values[:2]) + Moments.of(values[2:])
        >>> moments.mean, moments.scale.round(4)
        (array([3.]), array([2.1602]))
    """

    count: int
    mean: np.ndarray  # (c,)
    root: np.ndarray  # √S, (c,)

    @classmethod
    def none(cls, columns: int) -> Moments:
        """Those of no rows."""
        return cls(0, np.zeros(columns), np.zeros(columns))

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Those of values (n, c), in float64."""
        if not len(values):
            return cls.none(values.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):  # said by `standardizer`
            # A product with ones adds the rows faster than a sum over the first axis.
            weights = np.full(len(values), 1 / len(values))
            deviation = values.astype(np.float64)
            rough = weights @ deviation
            deviation -= rough
            shift = weights @ deviation  # what rounding left of the mean
            deviation -= shift
            root = _norms(deviation)
        return cls(len(values), rough + shift, root)

    def __add__(self, other: Moments) -> Moments:
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        share = other.count / count
        with np.errstate(over="ignore", invalid="ignore"):
            apart = other.mean - self.mean
            mean = self.mean + apart * share
            between = np.abs(apart) * np.sqrt(self.count * share)
            root = np.hypot(np.hypot(self.root, other.root), between)
        return Moments(count, mean, root)

    @property
    def scale(self) -> np.ndarray:
        """Standard deviation, (c,)."""
        return self.root / np.sqrt(self.count)

    def standardizer(self, name: str, columns: Sequence[str]) -> Standardizer:
        """To mean 0 and standard deviation 1; a constant column keeps the scale 1."""
        mean, scale = self.mean, self.scale
        usable = np.isfinite(mean) & np.isfinite(scale)
        if not usable.all():
            column = columns[int(np.argmin(usable))]
            raise InvalidInputError(
                f"{name} column {column!r} has values so large that their mean overflows: "
                "rescale it"
            )
        # What rounding leaves of a constant column is no spread to divide by.
        constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        scale = np.where(constant, 1.0, scale)
        return Standardizer(torch.from_numpy(mean), torch.from_numpy(scale))


def _norms(values: np.ndarray) -> np.ndarray:
    """√Σv² of each column; in units of the largest where squares would overflow or vanish."""
    squares = np.einsum("nc,nc->c", values, values)
    if ((squares > _SMALLEST) & (squares < 1 / _SMALLEST)).all():
        return np.asarray(np.sqrt(squares))
    largest = np.maximum(values.max(0), -values.min(0))
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(unit * np.sqrt(np.square(values / unit).sum(0)))
