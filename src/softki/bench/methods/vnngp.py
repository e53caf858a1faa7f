"""Variational nearest-neighbour GP (Wu and others): every row is an inducing point."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import MeanFieldVariationalDistribution, NNVariationalStrategy
from torch import Tensor

from softki.bench.methods.gp import MinibatchMethod, gaussian_likelihood, matern32

# Distances between rows that are held at once.
_DISTANCES = 1 << 27
# As GPyTorch starts it: small, so that the divergence from the prior comes down quickly.
_START_STD = 0.01


class VNNGP(MinibatchMethod):
    """GPyTorch's VNNGP: the value at a row depends on those at its nearest rows alone.

    Rows are put into random order, and row j is given the k nearest before it; a step takes
    some of the rows, with an unbiased estimate of the bound. The variational means start at
    half the targets: Adam moves a value by no more than its rate a step, so that from zero
    they do not arrive where rows, and steps, are few, and from the targets the noise stays in.

    A predictive variance, which is a difference, can come out below zero: it is then zero, and
    counted.

    Settings:
        neighbours: k.
        epochs, learning_rate: of Adam, for all parameters alike.
        batch_size: rows a step.
        least_steps: there are more epochs where these have fewer steps.
    """

    name = "vnngp"
    chunk = 1024
    defaults: ClassVar[dict[str, Any]] = {
        "neighbours": 32,
        "epochs": 50,
        "learning_rate": 0.01,
        "batch_size": 1024,
        "least_steps": 1000,
    }

    def _learn(self, x: Tensor, y: Tensor) -> None:
        order = torch.randperm(len(x), device="cpu").to(x.device)
        x, y = x[order].contiguous(), y[order]
        k = min(self.settings["neighbours"], len(x) - 1)
        self.model = _VNNGP(x, y, k, self.settings["batch_size"]).to(x)
        likelihood = gaussian_likelihood().to(x)
        objective = gpytorch.mlls.VariationalELBO(likelihood, self.model, num_data=len(x))
        strategy = self.model.variational_strategy
        steps = strategy._total_training_batches

        def losses() -> Iterator[Tensor]:
            for _ in range(steps):
                f = strategy(None)
                yield -objective(f, y[strategy.current_training_indices])

        self.model.train()
        self._minimise([*self.model.parameters(), *likelihood.parameters()], losses, steps)
        self.model.eval()
        kernel = self.model.covar_module
        self._note(kernel.base_kernel.lengthscale, kernel.outputscale, likelihood.noise)

    def _latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f = self.model.variational_strategy(x)
        return f.mean, f.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)


class Neighbours(torch.nn.Module):
    """The k nearest of the rows, by all distances on their device; stands in for `NNUtil`."""

    def __init__(self, rows: Tensor, k: int) -> None:
        super().__init__()
        self.rows, self.k = rows, k

    def find_nn_idx(self, x: Tensor) -> Tensor:
        """Indices (n, k) of the rows that are nearest to those of x (n, d)."""
        return torch.cat([self._nearest(part, self.rows) for part in x.split(self._chunk)])

    def before(self) -> Tensor:
        """Indices (m − k, k) of the rows nearest to row j = k, …, m − 1 among those before it."""
        indices = []
        for start in range(self.k, len(self.rows), self._chunk):
            part = self.rows[start : start + self._chunk]
            stop = start + len(part)
            later = torch.ones(len(part), stop, dtype=torch.bool, device=part.device)
            indices.append(self._nearest(part, self.rows[:stop], later.triu_(start)))
        return torch.cat(indices)

    @property
    def _chunk(self) -> int:
        return max(1, _DISTANCES // len(self.rows))

    def _nearest(self, x: Tensor, rows: Tensor, excluded: Tensor | None = None) -> Tensor:
        distance = torch.cdist(x, rows)
        if excluded is not None:
            distance.masked_fill_(excluded, torch.inf)
        return distance.topk(self.k, largest=False).indices


class _Strategy(NNVariationalStrategy):
    """With neighbours found on the device: GPyTorch builds a tree anew for every row."""

    def _compute_nn(self) -> _Strategy:
        self.nn_util = Neighbours(self.inducing_points, self.k)
        self.nn_xinduce_idx = self.nn_util.before()
        return self


class _VNNGP(gpytorch.models.ApproximateGP):
    def __init__(self, x: Tensor, y: Tensor, k: int, batch_size: int) -> None:
        distribution = MeanFieldVariationalDistribution(len(x))
        batch_size = min(batch_size, len(x))
        with warnings.catch_warnings():  # that faiss is not installed, which is not used here
            warnings.simplefilter("ignore", ImportWarning)
            strategy = _Strategy(self, x, distribution, k, batch_size)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = matern32(x.shape[1])
        distribution.variational_mean.data.copy_(y / 2)
        distribution._variational_stddev.data.fill_(_START_STD)
        strategy.variational_params_initialized.fill_(1)

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))
