"""Columns to mean 0 and standard deviation 1, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from softki.exceptions import InvalidInputError

# Elements of a table that are held in float64 at once.
_BLOCK = 1 << 23


@dataclass(frozen=True, eq=False)
class Standardizer:
    """x ↦ (x − mean)/scale by column, in float64; a constant column keeps the scale 1.

    Example:
        >>> standardizer = Standardizer.of(torch.tensor([[0.0, 5.0], [2.0, 5.0]]))
        >>> standardizer.transform(torch.tensor([[4.0, 5.0]]))
        tensor([[3., 0.]], dtype=torch.float64)
    """

    mean: Tensor  # (c,), on the CPU unless it was moved
    scale: Tensor  # (c,)

    @classmethod
    def of(cls, values: Tensor, name: str = "x", columns: Sequence[str] | None = None) -> Self:
        """Mean and standard deviation of the columns of values (n, c), a block at a time."""
        mean = _total(block.sum(0) for block in _blocks(values)) / len(values)
        largest = torch.stack([(block - mean).abs().amax(0) for block in _blocks(values)]).amax(0)
        # In units of the largest deviation, squares neither overflow nor vanish.
        unit = torch.where(largest > 0, largest, 1.0)
        square = _total(((block - mean) / unit).square().sum(0) for block in _blocks(values))
        scale = unit * (square / len(values)).sqrt()
        _check_range(mean, scale, name, columns)
        # What rounding leaves of a constant column is no spread to divide by.
        constant = scale <= 10 * torch.finfo(torch.float64).eps * mean.abs()
        scale = torch.where(constant, 1.0, scale)
        return cls(mean.cpu(), scale.cpu())

    def to(self, device: torch.device) -> Self:
        """The same, for values on a device."""
        return replace(self, mean=self.mean.to(device), scale=self.scale.to(device))

    def transform(self, values: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """(values − mean)/scale, computed in float64, where the values are."""
        mean, scale = self.mean.to(values.device), self.scale.to(values.device)
        result = torch.empty(values.shape, dtype=dtype, device=values.device)
        start = 0
        for block in _blocks(values):
            result[start : start + len(block)] = (block - mean) / scale
            start += len(block)
        return result

    def inverse(self, values: Tensor) -> Tensor:
        """Standardised values (…, c) in the units of the table."""
        return values * self.scale.to(values.device) + self.mean.to(values.device)


def _blocks(values: Tensor) -> Iterator[Tensor]:
    """Blocks of rows in float64."""
    for block in values.split(max(1, _BLOCK // max(1, values.shape[1]))):
        yield block.double()


def _total(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)


def _check_range(mean: Tensor, scale: Tensor, name: str, columns: Sequence[str] | None) -> None:
    usable = mean.isfinite() & scale.isfinite()
    if not bool(usable.all()):
        column = int((~usable).nonzero()[0])
        label = column if columns is None else repr(columns[column])
        raise InvalidInputError(
            f"{name} column {label} has values so large that their mean overflows: rescale it"
        )


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
