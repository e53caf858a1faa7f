"""SoftKI: the parameters of the model and their constraints, nothing else.

    y = s(x)ᵀu + ε,   u ~ N(0, K),   K = k(z, z) + jitter·k̄·I,   ε ~ N(0, β²σ²(x))

with s(x) the softmax weights of x/T over the points z, k̄ the mean of k(z, z)'s diagonal, and
σ²(x) the known relative noise of a row (1 where none is given).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from softki.exceptions import InvalidInputError
from softki.interpolation.weights import interpolation_weights
from softki.kernels.matrix import check_columns, kernel_matrix
from softki.validation.parameters import as_double, check_above


class SoftKI(nn.Module):
    """Parameters θ = (z, T, kernel, β²), in float64 whatever the precision of the data.

    Args:
        points: z, (m, d), in units of x/T.
        kernel: a kernel of `softki.kernels`, or any `gpytorch.kernels.Kernel`, in float64.
        temperature: T of shape () for one temperature or (d,) for one per dimension; None
            for the interpolation without temperature.
        noise_variance: initial value of β².
        jitter: addition to the diagonal of K, relative to its mean; a part of the model.
    """

    # β² never falls below this: 0.03% of the standard deviation of a standardised target.
    min_noise_variance = 1e-7

    def __init__(
        self,
        points: Tensor,
        kernel: nn.Module,
        temperature: Tensor | float | None = None,
        noise_variance: float = 0.1,
        jitter: float = 1e-6,
    ) -> None:
        super().__init__()
        if points.ndim != 2 or points.numel() == 0:
            raise InvalidInputError(f"points must have the shape (m, d), got {tuple(points.shape)}")
        self.points = nn.Parameter(points.detach().double().clone())
        check_columns(kernel, self.points)
        self.kernel = kernel
        self.jitter = jitter
        self.raw_noise_variance = nn.Parameter(
            torch.zeros((), dtype=torch.float64, device=points.device)
        )
        self.noise_variance = noise_variance
        self.log_temperature: nn.Parameter | None = None
        if temperature is not None:
            self.log_temperature = nn.Parameter(self._checked_temperature(temperature).log())

    @property
    def noise_variance(self) -> Tensor:
        """β² = min_noise_variance + exp(raw)."""
        return self.min_noise_variance + self.raw_noise_variance.exp()

    @noise_variance.setter
    def noise_variance(self, value: Tensor | float) -> None:
        value = as_double(value)
        check_above("noise_variance", value, self.min_noise_variance)
        with torch.no_grad():
            self.raw_noise_variance.copy_((value - self.min_noise_variance).log())

    @property
    def temperature(self) -> Tensor | None:
        """T, of shape () or (d,), or None."""
        return None if self.log_temperature is None else self.log_temperature.exp()

    def weights(self, x: Tensor) -> Tensor:
        """Interpolation weights (n, m) of x (n, d), in the precision of x."""
        temperature = self.temperature
        if temperature is not None:
            temperature = temperature.to(x.dtype)
        return interpolation_weights(x, self.points.to(x.dtype), temperature)

    def kernel_matrix(self) -> Tensor:
        """K = k(z, z) + jitter·k̄·I, (m, m) in float64."""
        return kernel_matrix(self.kernel, self.points, self.jitter)

    def _checked_temperature(self, temperature: Tensor | float) -> Tensor:
        temperature = as_double(temperature).to(self.points.device)
        if temperature.shape not in ((), self.points.shape[1:]):
            raise InvalidInputError(
                f"temperature must have shape () or ({self.points.shape[1]},), "
                f"got {tuple(temperature.shape)}"
            )
        check_above("temperature", temperature, 0.0)
        return temperature
