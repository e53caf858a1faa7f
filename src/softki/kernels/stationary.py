"""Covariance kernels between the interpolation points.

    k(z, z') = σ² ρ(r),   r² = Σₖ (zₖ − z'ₖ)²/ℓₖ²

with one lengthscale ℓₖ per dimension, capped: lengthscale and temperature push and pull on
each other, and a cap keeps the pair from drifting away together.

Any `gpytorch.kernels.Kernel` serves in the place of these. They exist because every training step
computes K and its gradient: from ρ(r) and ρ'(r)/r these take a third of the passes over memory of
automatic differentiation (`softki.kernels.matrix`), and on a CUDA device one Triton kernel each
(`softki.kernels._triton`). A `gpytorch.kernels.MaternKernel` with the same cap is a
`ScaleKernel(MaternKernel(ard_num_dims=d, lengthscale_constraint=Interval(0, cap)))`.
"""

from __future__ import annotations

import copy
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from softki.exceptions import InvalidInputError
from softki.linalg.distances import pairwise_distance
from softki.validation.parameters import as_double, check_above, check_choice

if TYPE_CHECKING:
    import gpytorch

# The cap on lengthscales, in units of x/T, in which rows lie about 7 apart before training.
MAX_LENGTHSCALE = 3.0


class Kernel(nn.Module, ABC):
    """A covariance function of the interpolation points, called with z (m, d) for k(z, z)."""

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """The covariance matrix (m, m) of the points z (m, d)."""


class StationaryKernel(Kernel):
    """σ² ρ(r) with one lengthscale per dimension; a subclass gives the correlation ρ.

    Args:
        dimension: d, the number of input columns.
        lengthscale: initial value of every ℓₖ, below `max_lengthscale`.
        outputscale: initial value of σ².
        max_lengthscale: the cap on ℓₖ, in the units of z.
    """

    def __init__(
        self,
        dimension: int,
        lengthscale: float = 1.0,
        outputscale: float = 1.0,
        max_lengthscale: float = MAX_LENGTHSCALE,
    ) -> None:
        super().__init__()
        self.max_lengthscale = max_lengthscale
        self.raw_lengthscale = _parameter(dimension)
        self.log_outputscale = _parameter()
        self.lengthscale = lengthscale
        self.outputscale = outputscale

    @property
    def dimension(self) -> int:
        """d, the number of input columns."""
        return len(self.raw_lengthscale)

    @property
    def lengthscale(self) -> Tensor:
        """ℓ = max_lengthscale · sigmoid(raw), (d,)."""
        return self.max_lengthscale * torch.sigmoid(self.raw_lengthscale)

    @lengthscale.setter
    def lengthscale(self, value: Tensor | float) -> None:
        value = as_double(value)
        if not bool(((value > 0) & (value < self.max_lengthscale)).all()):
            raise InvalidInputError(
                f"lengthscale must lie between 0 and max_lengthscale = {self.max_lengthscale}, "
                f"got {value.tolist()}"
            )
        with torch.no_grad():
            self.raw_lengthscale.copy_(torch.logit(value / self.max_lengthscale))

    @property
    def outputscale(self) -> Tensor:
        """σ², the variance of u at every point."""
        return self.log_outputscale.exp()

    @outputscale.setter
    def outputscale(self, value: Tensor | float) -> None:
        value = as_double(value)
        check_above("outputscale", value, 0.0)
        with torch.no_grad():
            self.log_outputscale.copy_(value.log())

    def forward(self, z: Tensor) -> Tensor:
        """The covariance matrix (m, m) of the points z (m, d)."""
        scaled = z / self.lengthscale
        return self.outputscale * self.correlation(pairwise_distance(scaled, scaled))

    @abstractmethod
    def correlation(self, r: Tensor) -> Tensor:
        """ρ(r), with ρ(0) = 1.

        A class that also has `profile(r)`, which returns ρ(r) and ρ'(r)/r, is faster on a CPU. A
        subclass that overrides `correlation` alone is computed by its `correlation`.
        """


class Matern12(StationaryKernel):
    """ρ(r) = exp(−r): rough, continuous functions."""

    def correlation(self, r: Tensor) -> Tensor:
        """exp(−r)."""
        return torch.exp(-r)


class Matern32(StationaryKernel):
    """ρ(r) = (1 + √3 r) exp(−√3 r): functions with one derivative. The default."""

    def correlation(self, r: Tensor) -> Tensor:
        """(1 + √3 r) exp(−√3 r)."""
        r = math.sqrt(3) * r
        return (1 + r) * torch.exp(-r)

    def profile(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """ρ(r), and ρ'(r)/r = −3 exp(−√3 r)."""
        s = math.sqrt(3) * r
        power = torch.exp(-s)
        return s.add_(1).mul_(power), power.mul_(-3)


class Matern52(StationaryKernel):
    """ρ(r) = (1 + √5 r + 5r²/3) exp(−√5 r): functions with two derivatives."""

    def correlation(self, r: Tensor) -> Tensor:
        """(1 + √5 r + 5r²/3) exp(−√5 r)."""
        r = math.sqrt(5) * r
        return (1 + r + r.square() / 3) * torch.exp(-r)

    def profile(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """ρ(r), and ρ'(r)/r = −(5/3)(1 + √5 r) exp(−√5 r)."""
        s = math.sqrt(5) * r
        power = torch.exp(-s)
        slope = (s + 1).mul_(power)
        return s.square_().mul_(power / 3).add_(slope), slope.mul_(-5 / 3)


class RBF(StationaryKernel):
    """ρ(r) = exp(−r²/2): smooth functions."""

    def correlation(self, r: Tensor) -> Tensor:
        """exp(−r²/2)."""
        return torch.exp(-r.square() / 2)

    def profile(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """ρ(r), and ρ'(r)/r = −ρ(r)."""
        rho = self.correlation(r)
        return rho, -rho


class RationalQuadratic(StationaryKernel):
    """ρ(r) = (1 + r²/2α)^(−α): a mixture of RBF kernels of many lengthscales; α is learned."""

    def __init__(self, dimension: int, *settings: float, **named: float) -> None:
        super().__init__(dimension, *settings, **named)
        self.log_alpha = _parameter()

    def correlation(self, r: Tensor) -> Tensor:
        """(1 + r²/2α)^(−α)."""
        alpha = self.log_alpha.exp()
        return torch.exp(-alpha * torch.log1p(r.square() / (2 * alpha)))


KERNELS: dict[str, Callable[..., StationaryKernel]] = {
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rbf": RBF,
    "rq": RationalQuadratic,
}


def make_kernel(
    kernel: str | Kernel | gpytorch.kernels.Kernel,
    dimension: int,
    max_lengthscale: float = MAX_LENGTHSCALE,
) -> nn.Module:
    """A kernel by name, with that cap, or a copy of the given one, with float64 parameters.

    Example:
        >>> make_kernel("matern52", dimension=3).lengthscale.detach()
        tensor([1., 1., 1.], dtype=torch.float64)
    """
    check_kernel(kernel)
    if isinstance(kernel, str):
        return KERNELS[kernel](dimension, max_lengthscale=max_lengthscale)
    return copy.deepcopy(kernel).double()


def check_kernel(kernel: Any) -> None:
    """Raise unless it is the name of a kernel, one of softki's, or one of gpytorch's."""
    if not isinstance(kernel, Kernel) and not is_gpytorch(kernel):
        check_choice("kernel", kernel, KERNELS, ", or a gpytorch.kernels.Kernel")


def is_gpytorch(kernel: Any) -> bool:
    """True for a kernel of gpytorch, a heavy package that is not imported to find out."""
    kernels = sys.modules.get("gpytorch.kernels")
    return kernels is not None and isinstance(kernel, kernels.Kernel)


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=torch.float64, device="cpu"))
