"""Backends: the ways to compute the weights of a block of rows and the gradient of z and T.

There are two with the same results: plain PyTorch, which runs everywhere, and Triton kernels
(`softki.interpolation._triton`), which never write the distances to memory. Training takes the
second for float32 rows on a CUDA device where Triton works. Of rows that are thousands of times
farther from the points than the points are from each other, it keeps fewer digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from softki.interpolation.weights import (
    Interpolated,
    WeightGradient,
    plain_weights,
    temperature_gradient,
)
from softki.linalg.cuda import triton_trouble
from softki.linalg.distances import Pairs, scaled_gradient
from softki.linalg.products import linear

# The Triton kernels hold a row of distances in registers.
_MAX_POINTS = 16_384


class Backend(Protocol):
    """Interpolation of rows from points z (m, d) at the temperature T, () or (d,)."""

    name: str

    def __init__(self, z: Tensor, temperature: Tensor | None) -> None: ...

    def interpolate(self, x: Tensor) -> Interpolated:
        """The rows x (n, d) with all that the gradient needs."""
        ...

    def weights(self, x: Tensor) -> Tensor:
        """S alone, (n, m), in the precision of x or a higher one."""
        ...


class PlainBackend:
    """Distances from one matrix product, near pairs recomputed: `softki.linalg.distances`."""

    name = "plain PyTorch"

    def __init__(self, z: Tensor, temperature: Tensor | None) -> None:
        self._z, self._temperature = z, temperature

    def interpolate(self, x: Tensor) -> Interpolated:
        """The rows x (n, d) with all that the gradient needs."""
        return _Plain(*plain_weights(x, self._z, self._temperature), self._temperature)

    def weights(self, x: Tensor) -> Tensor:
        """S alone, (n, m)."""
        return plain_weights(x, self._z, self._temperature)[0]


@dataclass(frozen=True)
class _Plain:
    weights: Tensor
    pairs: Pairs
    temperature: Tensor | None

    def times(self, matrix: Tensor) -> Tensor:
        return linear(self.weights, matrix.T)

    def pull_back(self, gradient: WeightGradient) -> tuple[Tensor, Tensor]:
        weighted = gradient.full(self.weights).mul_(self.weights)
        logit_gradient = torch.addcmul(
            weighted, self.weights, weighted.sum(1, keepdim=True), value=-1
        )
        # The logits are −distance, hence the signs.
        z_gradient, moment = scaled_gradient(self.pairs, logit_gradient)
        return -z_gradient, temperature_gradient(-moment, self.temperature)


def backend_for(x: Tensor, points: int) -> type[Backend]:
    """The backend that training takes for rows like x and this number of points."""
    if why_plain(x, points) is not None:
        return PlainBackend
    from softki.interpolation._triton import FusedBackend

    return FusedBackend


def why_plain(x: Tensor, points: int) -> str | None:
    """The reason for which training takes the plain backend; None if it takes the other one."""
    if not x.is_cuda:
        return "the rows are not on a CUDA device"
    if x.dtype != torch.float32:
        return "the rows are not in float32"
    if points > _MAX_POINTS:
        return f"there are more than {_MAX_POINTS:,} points"
    return triton_trouble()
