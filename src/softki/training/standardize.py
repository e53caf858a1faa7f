"""Columns to mean 0 and standard deviation 1, and back; known noise to a mean variance of 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import NamedTuple, Self

import torch
from torch import Tensor

from softki.batches import Batch
from softki.exceptions import InvalidInputError

# Numbers of a table that are held in float64 at once: on a CPU they stay in the cache, and a GPU
# needs more to be busy with.
_CPU_BLOCK, _GPU_BLOCK = 1 << 17, 1 << 23
# Sums of squares above its inverse, or below it, have lost digits.
_SMALLEST = 1e-250


class RawBatch(NamedTuple):
    """Rows in the user's units."""

    x: Tensor  # (n, d)
    y: Tensor  # (n, t)
    noise_variance: Tensor | None = None  # (n,)


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and spread of the columns of a table; those of two tables add.

    With δ the difference of the means, the sums of squared deviations S of n and n′ rows give

        S″ = S + S′ + δ² n n′ / (n + n′),

    which is added as √S, so that no square overflows or vanishes.

    Example:
        >>> values = torch.tensor([[1.0], [2.0], [6.0]])
        >>> moments = Moments.of(values[:2]) + Moments.of(values[2:])
        >>> moments.mean, moments.scale
        (tensor([3.], dtype=torch.float64), tensor([2.1602], dtype=torch.float64))
    """

    count: int
    mean: Tensor  # (c,), float64
    root: Tensor  # √S, (c,), float64

    @classmethod
    def none(cls, columns: int) -> Self:
        """Moments of no rows."""
        zero = torch.zeros(columns, dtype=torch.float64, device="cpu")
        return cls(0, zero, zero)

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Moments of values (n, c), computed in float64, a block at a time."""
        if not len(values):
            return cls.none(values.shape[1])
        return reduce(add, map(cls._of_block, _blocks(values)))

    @classmethod
    def _of_block(cls, values: Tensor) -> Self:
        # A product with 1/n has no sum that overflows where the mean does not.
        weights = values.new_full((len(values),), 1 / len(values), dtype=torch.float64)
        exact = values.double()
        rough = weights @ exact
        deviation = exact - rough
        shift = weights @ deviation  # rounding error of the mean
        deviation -= shift
        return cls(len(values), rough + shift, _norms(deviation))

    def __add__(self, other: Self) -> Self:
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        share = other.count / count
        apart = other.mean - self.mean
        between = apart.abs() * (self.count * share) ** 0.5
        root = torch.hypot(torch.hypot(self.root, other.root), between)
        return type(self)(count, self.mean + apart * share, root)

    @property
    def scale(self) -> Tensor:
        """Standard deviation, (c,)."""
        return self.root / self.count**0.5

    def standardizer(self, name: str, columns: Sequence[str] | None = None) -> Standardizer:
        """The standardizer of columns with these moments; the name is that of the table."""
        mean, scale = self.mean.cpu(), self.scale.cpu()
        usable = mean.isfinite() & scale.isfinite()
        if not bool(usable.all()):
            column = int((~usable).nonzero()[0])
            label = column if columns is None else repr(columns[column])
            raise InvalidInputError(
                f"{name} column {label} has values so large that their mean overflows: rescale it"
            )
        # The rounding errors of a constant column are no spread to divide by.
        constant = scale <= 10 * torch.finfo(torch.float64).eps * mean.abs()
        return Standardizer(mean, torch.where(constant, 1.0, scale))


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
        """Mean and standard deviation of the columns of values (n, c)."""
        found = Moments.of(values).standardizer(name, columns)
        return cls(found.mean, found.scale)

    def to(self, device: torch.device) -> Self:
        """The same, for values on a device."""
        return replace(self, mean=self.mean.to(device), scale=self.scale.to(device))

    def transform(self, values: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """(values − mean)/scale, computed in float64, on the device of the values."""
        mean, scale = self.mean.to(values.device), self.scale.to(values.device)
        result = torch.empty(values.shape, dtype=dtype, device=values.device)
        start = 0
        for block in _blocks(values):
            result[start : start + len(block)] = (block.double() - mean) / scale
            start += len(block)
        return result

    def inverse(self, values: Tensor) -> Tensor:
        """Standardised values (…, c) in the units of the table."""
        return values * self.scale.to(values.device) + self.mean.to(values.device)


@dataclass(frozen=True, eq=False)
class RowStandardizer:
    """Standardises inputs and targets, and known noise variance relative to its mean."""

    x: Standardizer
    y: Standardizer
    noise_unit: float | None  # v̄, mean of the known noise variance
    dtype: torch.dtype

    def __call__(self, rows: RawBatch) -> Batch:
        """Standardised rows with σᵢ = √(vᵢ/v̄), computed in float64 on the device of the rows."""
        std = None
        if rows.noise_variance is not None and self.noise_unit is not None:
            std = (rows.noise_variance.double() / self.noise_unit).sqrt().to(self.dtype)
        x, y = self.x.transform(rows.x, self.dtype), self.y.transform(rows.y, self.dtype)
        return Batch(x, y, std)

    def to(self, device: torch.device) -> Self:
        """The same, for rows on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))


def _blocks(values: Tensor) -> Iterator[Tensor]:
    """Blocks of rows that are small in float64, too."""
    numbers = _CPU_BLOCK if values.device.type == "cpu" else _GPU_BLOCK
    yield from values.split(max(1, numbers // max(1, values.shape[1])))


def _norms(values: Tensor) -> Tensor:
    """√Σv² of each column; in units of the largest where squares would overflow or vanish."""
    squares = values.square().sum(0)
    if bool(((squares > _SMALLEST) & (squares < 1 / _SMALLEST)).all()):
        return squares.sqrt()
    largest = values.abs().amax(0)
    unit = torch.where(largest > 0, largest, 1.0)
    return unit * (values / unit).square().sum(0).sqrt()
