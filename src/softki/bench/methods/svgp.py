"""Stochastic variational GP (Hensman and others)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch import Tensor

from softki.bench.methods.gp import MinibatchMethod, gaussian_likelihood, matern32


class SVGP(MinibatchMethod):
    """GPyTorch's SVGP: a free Gaussian over the values at learned points, by minibatches.

    In float32, but for the Cholesky factor of k(z, z), which GPyTorch computes in float64.

    Settings:
        points: m, from k-means; their positions are learned.
        epochs, learning_rate: of Adam, for all parameters alike.
        batch_size: rows a step.
        least_steps: there are more epochs where these have fewer steps.
    """

    name = "svgp"
    defaults: ClassVar[dict[str, Any]] = {
        "points": 1024,
        "epochs": 50,
        "learning_rate": 0.01,
        "batch_size": 1024,
        "least_steps": 1000,
    }

    def _learn(self, x: Tensor, y: Tensor) -> None:
        self.model = _SVGP(self._start_points(x)).to(x)
        likelihood = gaussian_likelihood().to(x)
        objective = gpytorch.mlls.VariationalELBO(likelihood, self.model, num_data=len(y))
        size = self.settings["batch_size"]

        def losses() -> Iterator[Tensor]:
            for batch in torch.randperm(len(y), device="cpu").to(x.device).split(size):
                yield -objective(self.model(x[batch]), y[batch])

        self.model.train()
        parameters = [*self.model.parameters(), *likelihood.parameters()]
        self._minimise(parameters, losses, steps_an_epoch=math.ceil(len(y) / size))
        self.model.eval()
        kernel = self.model.covar_module
        self._note(kernel.base_kernel.lengthscale, kernel.outputscale, likelihood.noise)

    def _latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f = self.model(x)
        return f.mean, f.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)


class _SVGP(gpytorch.models.ApproximateGP):
    def __init__(self, points: Tensor) -> None:
        distribution = CholeskyVariationalDistribution(len(points))
        super().__init__(VariationalStrategy(self, points, distribution))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = matern32(points.shape[1])

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))
