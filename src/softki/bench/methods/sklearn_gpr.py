"""scikit-learn's exact GP on a subset of the rows: what a user reaches for first."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from softki.bench.method import Method
from softki.bench.methods.gp import MIN_NOISE_VARIANCE, START_NOISE_VARIANCE, start_lengthscale
from softki.bench.methods.running import noted_warnings, timed

# scikit-learn's gradient of the kernel has n·n·d elements.
_GRADIENT = 2e8
_CHUNK = 4096


class SklearnGPR(Method):
    """`GaussianProcessRegressor` on random rows, its parameters found by L-BFGS, on the CPU.

    Settings:
        rows: of the subset; fewer from 50 columns on, where scikit-learn's gradient of the
            kernel, n·n·d numbers, would not fit into memory.
    """

    name = "sklearn_gpr"
    cpu_only = True
    defaults: ClassVar[dict[str, Any]] = {"rows": 2000}

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Fit to the subset."""
        d = X.shape[1]
        rows = min(self.settings["rows"], len(y), int(math.sqrt(_GRADIENT / d)))
        subset = np.random.default_rng(self.seed).permutation(len(y))[:rows]
        kernel = ConstantKernel(1.0, (1e-4, 1e4)) * Matern(
            np.full(d, start_lengthscale(d)), (1e-2, 1e4), nu=1.5
        ) + WhiteKernel(START_NOISE_VARIANCE, (MIN_NOISE_VARIANCE, 10.0))
        self._model = GaussianProcessRegressor(kernel, random_state=self.seed)
        self.facts = {"rows": rows}
        with noted_warnings(self.facts), timed(self.facts, self.device):
            self._model.fit(X[subset], y[subset])
        fitted = self._model.kernel_
        self.facts["lengthscale"] = np.atleast_1d(fitted.k1.k2.length_scale).tolist()
        self.facts["outputscale"] = float(fitted.k1.k1.constant_value)
        self.facts["noise_variance"] = float(fitted.k2.noise_level)

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y: the white kernel is part of the variance."""
        parts = [
            self._model.predict(X[start : start + _CHUNK], return_std=True)
            for start in range(0, len(X), _CHUNK)
        ]
        mean, std = (np.concatenate(moment) for moment in zip(*parts, strict=True))
        return mean, std
