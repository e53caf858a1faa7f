"""Covariance kernels between the interpolation points.

    k(z, z') = σ² ρ(r),   r² = Σₖ (zₖ − z'ₖ)²/ℓₖ²

with one lengthscale ℓₖ per dimension, capped: lengthscale and temperature push and pull on
each other, and a cap keeps the pair from drifting away together. Any `gpytorch.kernels.Kernel`
serves in the place of these.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from softki.exceptions import InvalidInputError
from softki.linalg.distances import pairwise_distance
from softki.validation.parameters import as_double, check_above, check_choice


class StationaryKernel(nn.Module, ABC):
    """σ² ρ(r) with one lengthscale per dimension; a subclass gives the correlation ρ.

    Args:
        dimension: d, the number of input columns.
        lengthscale: where every ℓₖ starts, below `max_lengthscale`.
        outputscale: where σ² starts.
        max_lengthscale: the cap on ℓₖ, in the units of z.
    """

    def __init__(
        self,
        dimension: int,
        lengthscale: float = 1.0,
        outputscale: float = 1.0,
        max_lengthscale: float = 5.0,
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

        A kernel that also has `profile(r)`, for ρ(r) and ρ'(r)/r, is quicker on a CPU.
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
    kernel: str | StationaryKernel | Kernel, dimension: int, max_lengthscale: float = 5.0
) -> nn.Module:
    """A kernel by name, with that cap, or a copy of the given one, with float64 parameters.

    Example:
        >>> make_kernel("matern52", dimension=3).lengthscale.detach()
        tensor([1., 1., 1.], dtype=torch.float64)
    """
    if isinstance(kernel, StationaryKernel | Kernel):
        return copy.deepcopy(kernel).double()
    check_choice("kernel", kernel, KERNELS, ", or a gpytorch.kernels.Kernel")
    return KERNELS[kernel](dimension, max_lengthscale=max_lengthscale)


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=torch.float64, device="cpu"))
