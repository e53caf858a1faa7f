"""The sufficient statistics of the data, which add.

With S the weights of n rows (each row of S and Y divided by its relative noise σᵢ, where one
is known), everything a posterior, a likelihood or a gradient needs is

    Gram form          G = SᵀS (m, m),  V = SᵀY (m, t),  yy = diag(YᵀY) (t,)
    square-root form   R, the triangular factor of the QR of [S Y]

with n and Σ log σᵢ². Both are monoids: the statistics of two sets of rows combine into those
of their union, and so do those of the rows of several processes. Neither depends on the kernel or
on β².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, Self

import torch
from torch import Tensor

from softki.exceptions import InvalidInputError
from softki.linalg.products import gram_and_cross

# The rows that a block has for each of its columns before it gets a QR.
_TALL = 8


class Features(NamedTuple):
    """A block of rows after interpolation."""

    weights: Tensor  # S, (n, m)
    targets: Tensor  # Y, (n, t)
    noise_std: Tensor | None = None  # σ, (n,); None stands for 1


@dataclass(frozen=True, eq=False)
class Statistics(ABC):
    """Sufficient statistics of n rows with t targets for the m values u; combine two with `+`."""

    count: int  # n
    log_noise: float  # Σ log σᵢ²

    @property
    @abstractmethod
    def gram(self) -> Tensor:
        """G = SᵀS, (m, m)."""

    @property
    @abstractmethod
    def cross(self) -> Tensor:
        """V = SᵀY, (m, t)."""

    @property
    @abstractmethod
    def target_square(self) -> Tensor:
        """yy: the squared norm of every target, (t,)."""

    @classmethod
    @abstractmethod
    def from_block(cls, block: Features) -> Self:
        """Statistics of one block of rows, in float64."""

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """Statistics of both sets of rows."""

    @classmethod
    def from_blocks(cls, blocks: Iterable[Features]) -> Self:
        """Statistics of many blocks, one in memory at a time.

        Example:
            >>> S, Y = torch.eye(3).double(), torch.ones(3, 1).double()
            >>> parts = [Features(S[:2], Y[:2]), Features(S[2:], Y[2:])]
            >>> GramStatistics.from_blocks(parts).cross.T
            tensor([[1., 1., 1.]], dtype=torch.float64)
        """
        parts = map(cls.from_block, cls._grouped(blocks))
        first = next(parts, None)
        if first is None:
            raise InvalidInputError("no rows were given: statistics need at least one block")
        return reduce(lambda total, part: total + part, parts, first)

    @staticmethod
    def _grouped(blocks: Iterable[Features]) -> Iterable[Features]:
        """The blocks in the sizes that they are best added in."""
        return blocks

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(m, t), the number of points and of targets."""

    @property
    def targets(self) -> int:
        """t, the number of targets."""
        return self.shape[1]

    def check_points(self, count: int) -> None:
        """Raise unless these are statistics of the weights over this number of points."""
        if self.shape[0] != count:
            raise InvalidInputError(
                f"the statistics are of weights over {self.shape[0]} points, and K has {count}: "
                "take them from the weights of the same model"
            )

    def _check_same_shape(self, other: Statistics) -> None:
        if type(self) is not type(other) or self.shape != other.shape:
            raise InvalidInputError(
                f"cannot add {type(other).__name__} of shape {other.shape} to "
                f"{type(self).__name__} of shape {self.shape}: both need the same form, points "
                "and targets"
            )


@dataclass(frozen=True, eq=False)
class GramStatistics(Statistics):
    """The Gram form: cheapest, and squares the condition number of S."""

    gram_matrix: Tensor
    cross_matrix: Tensor
    square: Tensor

    @property
    def gram(self) -> Tensor:
        """G = SᵀS, (m, m)."""
        return self.gram_matrix

    @property
    def cross(self) -> Tensor:
        """V = SᵀY, (m, t)."""
        return self.cross_matrix

    @property
    def target_square(self) -> Tensor:
        """yy, (t,)."""
        return self.square

    @property
    def shape(self) -> tuple[int, int]:
        """(m, t), the number of points and of targets."""
        m, t = self.cross_matrix.shape
        return m, t

    @classmethod
    def from_block(cls, block: Features) -> Self:
        """G, V and yy of one block, accumulated in float64."""
        S, Y, log_noise = _whitened(block)
        return cls(len(S), log_noise, *gram_and_cross(S, Y), Y.square().sum(0))

    def __add__(self, other: Self) -> Self:
        """G + G', V + V', yy + yy'."""
        self._check_same_shape(other)
        return type(self)(
            self.count + other.count,
            self.log_noise + other.log_noise,
            self.gram_matrix + other.gram_matrix,
            self.cross_matrix + other.cross_matrix,
            self.square + other.square,
        )


@dataclass(frozen=True, eq=False)
class SquareRootStatistics(Statistics):
    """The square-root form: G = RsᵀRs is never formed, so that no digits are lost.

    `factor` is R = [Rs C], (min(n, m + t), m + t), with S = Q Rs and QᵀY = C.
    """

    factor: Tensor
    points: int  # m

    @property
    def weights_factor(self) -> Tensor:
        """Rs, (min(n, m + t), m)."""
        return self.factor[:, : self.points]

    @property
    def targets_factor(self) -> Tensor:
        """C, (min(n, m + t), t)."""
        return self.factor[:, self.points :]

    @property
    def gram(self) -> Tensor:
        """G = RsᵀRs, (m, m)."""
        return self.weights_factor.T @ self.weights_factor

    @property
    def cross(self) -> Tensor:
        """V = RsᵀC, (m, t)."""
        return self.weights_factor.T @ self.targets_factor

    @property
    def target_square(self) -> Tensor:
        """yy, the squared column norms of C, (t,)."""
        return self.targets_factor.square().sum(0)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, t), the number of points and of targets."""
        return self.points, self.factor.shape[1] - self.points

    @staticmethod
    def _grouped(blocks: Iterable[Features]) -> Iterable[Features]:
        """Several blocks at a time where they are small."""
        return _tall(blocks)

    @classmethod
    def from_block(cls, block: Features) -> Self:
        """R of one block, by a QR in float64."""
        S, Y, log_noise = _whitened(block)
        factor = triangular_factor(torch.cat([S.double(), Y], 1))
        return cls(len(S), log_noise, factor, S.shape[1])

    def __add__(self, other: Self) -> Self:
        """R of the two factors stacked."""
        self._check_same_shape(other)
        return type(self)(
            self.count + other.count,
            self.log_noise + other.log_noise,
            triangular_factor(torch.cat([self.factor, other.factor])),
            self.points,
        )


def _whitened(block: Features) -> tuple[Tensor, Tensor, float]:
    """S/σ and Y/σ, and Σ log σ²; all in float64, but for S where no σ is known."""
    S, Y, scale = block.weights, block.targets.double(), block.noise_std
    if scale is None:
        return S, Y, 0.0
    scale = scale.double()
    return S / scale[:, None], Y / scale[:, None], 2 * float(scale.log().sum())


def _tall(blocks: Iterable[Features]) -> Iterator[Features]:
    """The same rows in blocks that are much taller than wide.

    The QR that adds the factor of a block to the others takes as long as that of m + t rows.
    """
    waiting: list[Features] = []
    rows = 0
    for block in blocks:
        waiting.append(block)
        rows += len(block.weights)
        if rows >= _TALL * block.weights.shape[1]:
            yield _stacked(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _stacked(waiting)


def _stacked(blocks: Sequence[Features]) -> Features:
    if len(blocks) == 1:
        return blocks[0]
    weights, targets, scales = zip(*blocks, strict=True)
    scale = None if scales[0] is None else torch.cat(scales)
    return Features(torch.cat(weights), torch.cat(targets), scale)


def triangular_factor(matrix: Tensor) -> Tensor:
    """R of the QR factorisation of a matrix."""
    return torch.linalg.qr(matrix, mode="r").R
