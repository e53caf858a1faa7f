"""The exact GP: Cholesky while an n×n factorisation is affordable, conjugate gradients beyond."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import torch
from gpytorch import settings as options
from gpytorch.kernels import Kernel, MaternKernel, keops
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from softki.bench.methods.dense import (
    DensePosterior,
    DistinctRows,
    Parameters,
    log_likelihood,
)
from softki.bench.methods.gp import FullBatchMethod, correlation, scaled
from softki.exceptions import InvalidInputError

# On CUDA below √2³¹: beyond, the index of an element of K does not fit 32 bits.
_CHOLESKY_ROWS = {"cpu": 8_000, "cuda": 45_000}


class Exact(FullBatchMethod):
    """The full GP, without any approximation of the kernel.

    Up to `cholesky_rows` rows with distinct inputs: one Cholesky factorisation a step in float64
    with the gradient written out (`softki.bench.methods.dense`), which is quicker than GPyTorch's
    own way and takes a fraction of its memory. Beyond: GPyTorch in float32, by preconditioned
    conjugate gradients with Lanczos estimates of the log determinant; to a residual of 1 in
    training, as is usual, and of 1e-4 in prediction, since at the usual 0.01 variances are off by
    factors.

    A few numbers need no 40,000 rows to be learned roughly: with more than `start_rows` rows,
    they are learned from so many, taken at random, and then in `epochs_on_all` steps from all.
    The posterior is always that of all rows.

    Settings:
        epochs, learning_rate: of Adam, all rows in every step; fewer if the objective rests.
        start_rows, epochs_on_all: see above; the rate of these last steps is half of the other.
        cholesky_rows: None for 8,000 on a CPU and 45,000 on CUDA.
        keops: conjugate gradients at any size with KeOps, which never stores K; needs pykeops.
    """

    name = "exact"
    max_rows = 60_000
    chunk = 1024
    defaults: ClassVar[dict[str, Any]] = {
        "epochs": 200,
        "learning_rate": 0.1,
        "start_rows": 8_000,
        "epochs_on_all": 10,
        "cholesky_rows": None,
        "keops": False,
    }

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Learn, in the way that the number of rows allows."""
        if self.settings["keops"] and not find_spec("pykeops"):
            raise InvalidInputError("keops=True needs pykeops: pip install pykeops, or keops=False")
        most = self.settings["cholesky_rows"]
        if most is None:
            most = _CHOLESKY_ROWS.get(self.device.type, _CHOLESKY_ROWS["cpu"])
        distinct = len(y) if len(y) <= most else len(np.unique(X, axis=0))
        self._dense = distinct <= most and not self.settings["keops"]
        self.dtype = torch.float64 if self._dense else torch.float32
        super().fit(X, y)

    def _learn(self, x: Tensor, y: Tensor) -> None:
        self._parameters, self._rough = Parameters.start(x.double()), False
        if 0 < self.settings["start_rows"] < len(y):
            some = torch.randperm(len(y), device="cpu")[: self.settings["start_rows"]].to(x.device)
            self._learn_densely(DistinctRows.of(x[some].double(), y[some].double()))
            self._rough = True
            self.facts["start_seconds"] = self.facts["training_seconds"]
        if self._dense:
            self.facts["solver"] = "cholesky"
            rows = DistinctRows.of(x, y)
            self.facts["distinct_rows"] = len(rows.x)
            self._learn_densely(rows)
            self._posterior = DensePosterior.of(rows, self._parameters)
            learned = self._parameters
            self._note(learned.lengthscale, learned.outputscale, learned.noise_variance)
        else:
            self.facts["solver"] = "keops cg" if self.settings["keops"] else "cg"
            super()._learn(x, y)

    def _learn_densely(self, rows: DistinctRows) -> None:
        parameters, count = self._parameters, rows.counts.sum()

        def loss_and_gradient() -> Tensor:
            value, gradient = log_likelihood(rows, parameters)
            parameters.vector.grad = -gradient / count
            return -value / count

        self._descend([parameters.vector], loss_and_gradient)

    def _schedule(self) -> tuple[int, float]:
        epochs, learning_rate = super()._schedule()
        if self._rough:
            return self.settings["epochs_on_all"], learning_rate / 2
        return epochs, learning_rate

    def _latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._posterior(x) if self._dense else super()._latent(x)

    def _kernel(self, x: Tensor, likelihood: GaussianLikelihood) -> Kernel:
        kind = keops.MaternKernel if self.settings["keops"] else MaternKernel
        start = self._parameters
        likelihood.noise = start.noise_variance.to(x)
        kernel = scaled(correlation(x.shape[1], 1.0, kind)).to(x)
        kernel.base_kernel.lengthscale = start.lengthscale.to(x)
        kernel.outputscale = start.outputscale.to(x)
        return kernel

    def _options(self) -> ExitStack:
        stack = ExitStack()
        for option in (
            options.max_cholesky_size(0),
            options.max_preconditioner_size(100),
            options.max_cg_iterations(1000),
            options.cg_tolerance(1.0),
            options.eval_cg_tolerance(1e-4),
        ):
            stack.enter_context(option)
        return stack
