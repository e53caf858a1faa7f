"""Vecchia's approximation as GPBoost has it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from softki.bench.method import Method
from softki.bench.methods.running import noted_warnings, timed
from softki.exceptions import InvalidInputError


class GPBoostVecchia(Method):
    """GPBoost's GP with Vecchia's approximation: each row given its nearest before it.

    On the CPU, in float64, its parameters found by GPBoost's own optimiser. Needs gpboost.

    Settings:
        neighbours: rows that a row is conditioned on.
    """

    name = "gpboost_vecchia"
    cpu_only = True
    defaults: ClassVar[dict[str, Any]] = {"neighbours": 20}

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Fit GPBoost's model."""
        try:
            gpboost: Any = import_module("gpboost")
        except ImportError as error:
            raise InvalidInputError(
                f"{self.name} needs the package gpboost: pip install gpboost ({error})"
            ) from error
        self.facts = {}
        with noted_warnings(self.facts), timed(self.facts, self.device):
            self._model = gpboost.GPModel(
                gp_coords=X,
                cov_function="matern_ard",
                cov_fct_shape=1.5,
                gp_approx="vecchia",
                num_neighbors=self.settings["neighbours"],
                seed=self.seed,
                likelihood="gaussian",
            )
            self._model.fit(y=y)
        # Noise variance, output scale, then a range for every column.
        noise, outputscale, *ranges = np.ravel(self._model.get_cov_pars()).tolist()
        self.facts.update(
            noise_variance=noise, outputscale=outputscale, lengthscale=ranges[: X.shape[1]]
        )

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y: the noise is part of the response's variance."""
        result = self._model.predict(gp_coords_pred=X, predict_var=True, predict_response=True)
        variance = np.maximum(np.asarray(result["var"], dtype=float), 0.0)
        return np.asarray(result["mu"], dtype=float), np.sqrt(variance)
