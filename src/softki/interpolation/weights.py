"""Softmax interpolation weights Σ(x; z, T), the features of SoftKI.

    sⱼ(x) = exp(−‖x/T − zⱼ‖) / Σₖ exp(−‖x/T − zₖ‖)

A row of weights is a distribution over the m points. The softmax does not change when a row
of distances is shifted by ‖x/T‖, and

    ‖x/T − zⱼ‖ − ‖x/T‖ = eᵢⱼ / (‖x/T − zⱼ‖ + ‖x/T‖),   eᵢⱼ = ‖zⱼ‖² − 2 x·zⱼ/T

has no cancellation far from the points, so that weights keep their digits at any distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.linalg.distances import Pairs, pairs_between, pairs_gradient, scaled_gradient
from softki.linalg.products import linear


def interpolation_weights(x: Tensor, z: Tensor, temperature: Tensor | None = None) -> Tensor:
    """Softmax interpolation weights of x with respect to the points z.

    Args:
        x: inputs, (n, d).
        z: interpolation points, (m, d), in units of x/T.
        temperature: T, of shape () or (d,); None stands for 1.

    Returns:
        Weights (n, m), non-negative, each row summing to one. Differentiable in all arguments.

    Example:
        >>> z = torch.tensor([[-1.0], [1.0]])
        >>> interpolation_weights(torch.tensor([[0.0], [1.0]]), z)
        tensor([[0.5000, 0.5000],
                [0.1192, 0.8808]])
    """
    for name, value in (("x", x), ("z", z)):
        if not isinstance(value, Tensor):
            raise InvalidTypeError(f"{name} must be a tensor, got {type(value).__name__}")
    check_columns(x, z)
    if temperature is not None and temperature.shape not in ((), z.shape[1:]):
        raise InvalidInputError(
            f"temperature must have the shape () or ({z.shape[1]},), got {tuple(temperature.shape)}"
        )
    scaled = x if temperature is None else x / temperature
    for name, values in (("x", scaled), ("z", z)):
        if not values.is_floating_point():
            raise InvalidTypeError(
                f"{name} has the type {values.dtype}, and weights are of floating-point numbers: "
                f"pass {name}.double()"
            )
    if scaled.dtype != z.dtype:
        raise InvalidTypeError(
            f"x/T has the type {scaled.dtype} and z has {z.dtype}: give both the same, as by "
            "z.to(x.dtype)"
        )
    weights: Tensor = _SoftmaxInterpolation.apply(scaled, z)
    return weights


def check_columns(x: Tensor, z: Tensor) -> None:
    """Raise unless x (n, d) has as many columns as z (m, d)."""
    if z.ndim != 2:
        raise InvalidInputError(f"z must have the shape (m, d), got {tuple(z.shape)}")
    if x.ndim != 2 or x.shape[1] != z.shape[1]:
        raise InvalidInputError(f"x must have the shape (n, {z.shape[1]}), got {tuple(x.shape)}")


def softmax_weights(pairs: Pairs) -> Tensor:
    """The weights (n, m), given the distances between the rows of x/T and z; no autograd."""
    tiny = torch.finfo(pairs.norm.dtype).tiny  # for a row on a point in the middle of all points
    logits = (pairs.excess / (pairs.distance + pairs.norm.clamp_min(tiny))).neg_()
    rows, columns = pairs.rows, pairs.columns
    logits[rows, columns] = pairs.norm[rows, 0] - pairs.distance[rows, columns]
    return torch.softmax(logits, dim=1)


class WeightGradient(NamedTuple):
    """∂/∂S of a block of rows in the form dense + (left − S·mean) rightᵀ."""

    dense: Tensor | None  # (n, m); None stands for 0
    left: Tensor  # (n, r)
    right: Tensor  # (m, r)
    mean: Tensor | None = None  # (m, r); None stands for 0

    def full(self, S: Tensor) -> Tensor:
        """∂/∂S as one matrix (n, m), given the weights S."""
        left = self.left if self.mean is None else self.left - S @ self.mean
        if self.dense is None:
            return left @ self.right.T
        return torch.addmm(self.dense, left, self.right.T)


class Interpolated(Protocol):
    """The interpolation weights of a block of rows, and their gradient with respect to z and T."""

    @property
    def weights(self) -> Tensor:
        """S, (n, m)."""
        ...

    def times(self, matrix: Tensor) -> Tensor:
        """S times a matrix (m, m), to the precision of the rows."""
        ...

    def pull_back(self, gradient: WeightGradient) -> tuple[Tensor, Tensor]:
        """∂/∂z (m, d) and ∂/∂T by column (d,), whose sum is ∂/∂T of one T for all columns."""
        ...


def temperature_gradient(moment: Tensor, temperature: Tensor | None) -> Tensor:
    """∂/∂T by column from Σᵢ x̃ᵢₖ ∂/∂x̃ᵢₖ, with x̃ = x/T: minus the moment, divided by T."""
    return -moment if temperature is None else -moment / temperature


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
        pairs = pairs_between(x if self._temperature is None else x / self._temperature, self._z)
        return _Plain(softmax_weights(pairs), pairs, self._temperature)

    def weights(self, x: Tensor) -> Tensor:
        """S alone, (n, m)."""
        scaled = x if self._temperature is None else x / self._temperature
        return softmax_weights(pairs_between(scaled, self._z))


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


class _SoftmaxInterpolation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor) -> Tensor:
        pairs = pairs_between(x, z)
        weights = softmax_weights(pairs)
        ctx.save_for_backward(weights, *pairs)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        weights, *saved = ctx.saved_tensors
        weighted = weights * gradient
        # The logits are −distance, hence the sign.
        distance_gradient = weights * weighted.sum(1, keepdim=True) - weighted
        return pairs_gradient(Pairs(*saved), distance_gradient)
