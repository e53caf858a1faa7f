"""How a block of rows becomes weights, and how ∂/∂S becomes ∂/∂z and ∂/∂T.

There are two backends with the same results: plain PyTorch, which runs everywhere, and Triton
kernels (`softki.interpolation._triton`), which never write the distances to memory. Training takes
the second for float32 rows on a CUDA device, where Triton works. Rows that are thousands of times
farther from the points than these from each other have fewer digits in the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from softki.interpolation.weights import (
    Interpolated,
    WeightGradient,
    temperature_gradient,
    weights_between,
)
from softki.linalg.cuda import triton_trouble
from softki.linalg.distances import Pairs, scaled_gradient
from softki.linalg.products import linear

# The Triton kernels hold a row of distances in registers.
_MAX_POINTS = 16_384


class Backend(Protocol):
    """Interpolates rows from points z (m, d) at the temperature T, () or (d,)."""

    name: str

    def __init__(self, z: Tensor, temperature: Tensor | None) -> None: ...

    def interpolate(self, x: Tensor) -> Interpolated:
        """The rows x (n, d), with the way back."""
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
        """The rows x (n, d), with the way back."""
        scaled = x if self._temperature is None else x / self._temperature
        return _Plain(*weights_between(scaled, self._z), self._temperature)

    def weights(self, x: Tensor) -> Tensor:
        """S alone, (n, m)."""
        return self.interpolate(x).weights


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
    """the backend that training takes for rows such as x and so many points."""
    if why_plain(x, points) is not None:
        return PlainBackend
    from softki.interpolation._triton import FusedBackend

    return FusedBackend


def why_plain(x: Tensor, points: int) -> str | None:
    """Why the plain backend is taken for such rows and points; None if it is not."""
    if not x.is_cuda:
        return "the rows are not on a CUDA device"
    if x.dtype != torch.float32:
        return "the rows are not in float32"
    if points > _MAX_POINTS:
        return f"there are more than {_MAX_POINTS:,} points"
    return triton_trouble()
