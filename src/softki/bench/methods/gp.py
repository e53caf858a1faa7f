"""What the GPyTorch methods share: kernel, noise, training loop, predictions in chunks.

    y = f(x) + ε,   f ~ GP(0, k),   ε ~ N(0, β²),   k(x, x') = σ² (1 + √3 r) exp(−√3 r),
    r² = Σₖ (xₖ − x'ₖ)²/ℓₖ²

The mean is zero, since the target is standardised. ℓ, σ² and β² are learned as logarithms:
Adam then moves a lengthscale of 30 as easily as one of 0.3.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, ClassVar

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from softki.bench.method import Method
from softki.bench.methods.running import Settled, noted_warnings, seeded, timed
from softki.exceptions import NumericalError
from softki.training.initialization import initial_points

MIN_NOISE_VARIANCE = 1e-6
START_NOISE_VARIANCE = 0.1
_MAX_NOTED = 1024


def start_lengthscale(columns: int) -> float:
    """√d: standardised rows lie about √(2d) apart, so that k starts neither at 1 nor at I.

    Example:
        >>> start_lengthscale(9)
        3.0
    """
    return math.sqrt(columns)


def matern32(columns: int) -> ScaleKernel:
    """The kernel of the comparison: Matérn 3/2, one lengthscale a column, an output scale."""
    return scaled(correlation(columns, start_lengthscale(columns)))


def correlation(
    columns: int, lengthscale: float, kind: type[Kernel] = MaternKernel, **options: Any
) -> Kernel:
    """Matérn 3/2 with one lengthscale a column and σ² = 1, by one of GPyTorch's classes."""
    kernel = kind(nu=1.5, ard_num_dims=columns, lengthscale_constraint=_positive(), **options)
    kernel.lengthscale = lengthscale
    return kernel


def scaled(kernel: Kernel) -> ScaleKernel:
    """σ² times the kernel, σ² = 1 at the start."""
    kernel = ScaleKernel(kernel, outputscale_constraint=_positive())
    kernel.outputscale = 1.0
    return kernel


def gaussian_likelihood() -> GaussianLikelihood:
    """Noise with a variance β² that is free above 1e-6."""
    likelihood = GaussianLikelihood(
        noise_constraint=GreaterThan(
            MIN_NOISE_VARIANCE, transform=torch.exp, inv_transform=torch.log
        )
    )
    likelihood.noise = START_NOISE_VARIANCE
    return likelihood


class GPMethod(Method):
    """A Gaussian process: a subclass learns from tensors and gives mean and variance of f."""

    dtype: torch.dtype = torch.float32
    chunk: ClassVar[int] = 4096  # rows that are predicted at once

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Learn, in `dtype` on the device; what the numerics had to say becomes a fact."""
        self.facts = {"precision": str(self.dtype).removeprefix("torch.")}
        with seeded(self.seed, self.device), noted_warnings(self.facts):
            try:
                self._learn(self._tensor(X), self._tensor(y))
            except (NotPSDError, NanError) as error:
                raise NumericalError(f"{self.name}: {error}") from error

    @torch.no_grad()
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of f, and the root of the variance of f, at least 0, plus noise."""
        with seeded(self.seed, self.device), noted_warnings(self.facts):
            parts = [self._latent(part) for part in self._tensor(X).split(self.chunk)]
        mean, variance = (torch.cat(moment).double() for moment in zip(*parts, strict=True))
        self.facts["negative_variances"] = int((variance < 0).sum())
        std = (variance.clamp_min(0) + self.facts["noise_variance"]).sqrt()
        return mean.cpu().numpy(), std.cpu().numpy()

    @abstractmethod
    def _learn(self, x: Tensor, y: Tensor) -> None:
        """Learn from x (n, d) and y (n,); fills `facts`, among them `noise_variance`."""

    @abstractmethod
    def _latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at x (n, d), each (n,)."""

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=self.dtype, device=self.device)

    def _start_points(self, x: Tensor) -> Tensor:
        """k-means centres of x for the setting `points`: at most the distinct rows."""
        generator = torch.Generator("cpu").manual_seed(self.seed)
        return initial_points(x, self.settings["points"], generator).to(x)

    def _check_finite(self, loss: Tensor, epoch: int) -> None:
        if not bool(loss.isfinite()):
            raise NumericalError(
                f"{self.name}: the loss is not finite in epoch {epoch}; lower learning_rate"
            )

    def _note_points(self, points: Tensor) -> None:
        """Where the points of the method are, if they are few and can be drawn."""
        if points.shape[1] <= 2 and len(points) <= _MAX_NOTED:
            self.facts["points"] = points.tolist()

    def _note(self, lengthscale: Tensor, outputscale: Tensor, noise_variance: Tensor) -> None:
        self.facts["lengthscale"] = lengthscale.detach().flatten().tolist()
        self.facts["outputscale"] = outputscale.item()
        self.facts["noise_variance"] = noise_variance.item()


class MinibatchMethod(GPMethod):
    """Trained on some of the rows in every step.

    Few rows make few steps an epoch, in which nothing is learned: there are as many epochs as
    `least_steps` take, if these are more than `epochs`. The fact `epochs` is what was done.
    """

    def _minimise(
        self,
        parameters: Iterable[Tensor],
        losses: Callable[[], Iterable[Tensor]],
        steps_an_epoch: int,
    ) -> None:
        """Adam; `losses` gives an epoch's losses, one a step."""
        optimizer = torch.optim.Adam(list(parameters), lr=self.settings["learning_rate"])
        least = math.ceil(self.settings["least_steps"] / steps_an_epoch)
        epochs = self.facts["epochs"] = max(self.settings["epochs"], least)
        with timed(self.facts, self.device):
            for epoch in range(1, epochs + 1):
                for loss in losses():
                    self._check_finite(loss, epoch)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()


class FullBatchMethod(GPMethod):
    """A GPyTorch `ExactGP` with a kernel of the subclass, trained on all rows in every step.

    Training stops after `epochs` steps, or when the objective rests (`Settled`): the fact
    `epochs` is what was done, and `last_change` by how much the objective still moved.
    """

    def _learn(self, x: Tensor, y: Tensor) -> None:
        likelihood = gaussian_likelihood().to(x)
        self.model = _ExactGP(x, y, likelihood, self._kernel(x, likelihood).to(x))
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model)

        def loss_and_gradient() -> Tensor:
            loss: Tensor = -objective(self.model(x), y)  # per row
            loss.backward()
            return loss.detach()

        self.model.train()
        with self._options():
            self._descend(self.model.parameters(), loss_and_gradient)
        self.model.eval()
        self._note(*self._kernel_parameters(), likelihood.noise)

    def _descend(
        self, parameters: Iterable[Tensor], loss_and_gradient: Callable[[], Tensor]
    ) -> None:
        """Adam; the function leaves the gradient with the parameters, and returns the loss."""
        epochs, learning_rate = self._schedule()
        optimizer = torch.optim.Adam(list(parameters), lr=learning_rate)
        settled, epoch = Settled(), 0
        with timed(self.facts, self.device):
            for epoch in range(1, epochs + 1):
                optimizer.zero_grad()
                loss = loss_and_gradient()
                self._check_finite(loss, epoch)
                optimizer.step()
                if settled(loss.item()):
                    break
        self.facts.update(epochs=epoch, last_change=settled.change)

    def _schedule(self) -> tuple[int, float]:
        """The most steps, and the learning rate."""
        return self.settings["epochs"], self.settings["learning_rate"]

    def _latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with self._options():
            f = self.model(x)
            return f.mean, f.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)

    @abstractmethod
    def _kernel(self, x: Tensor, likelihood: GaussianLikelihood) -> Kernel:
        """The covariance between rows."""

    def _kernel_parameters(self) -> tuple[Tensor, Tensor]:
        """Lengthscales and output scale."""
        kernel = self.model.covar_module
        return kernel.base_kernel.lengthscale, kernel.outputscale

    def _options(self) -> ExitStack:
        """GPyTorch's settings in training and prediction."""
        return ExitStack()


class _ExactGP(gpytorch.models.ExactGP):
    def __init__(
        self, x: Tensor, y: Tensor, likelihood: GaussianLikelihood, kernel: Kernel
    ) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _positive() -> Positive:
    return Positive(transform=torch.exp, inv_transform=torch.log)
