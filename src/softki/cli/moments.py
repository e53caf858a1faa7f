"""Means and standard deviations of predictions, with a column for each target."""

from __future__ import annotations

from typing import Any

import numpy as np

from softki.estimator import Of, SoftKIRegressor
from softki.exceptions import InvalidInputError

Moments = tuple[np.ndarray, np.ndarray]


def moments(estimator: SoftKIRegressor, x: Any, of: Of = "y") -> Moments:
    """Mean and standard deviation of y or of f at the rows of a table, (n, t) each."""
    shape = (len(x), len(noise_std(estimator)))
    if not len(x):
        return np.empty(shape), np.empty(shape)
    mean, std = estimator.predict(x, return_std=True, of=of)
    strange = ~np.isfinite(mean.reshape(shape) + std.reshape(shape)).all(1)
    if strange.any():
        raise InvalidInputError(
            f"the predictions of {int(strange.sum())} rows are not finite: their inputs are too "
            "far from those of the fit"
        )
    return mean.reshape(shape), std.reshape(shape)


def observed_moments(estimator: SoftKIRegressor, x: Any, relative_noise: np.ndarray) -> Moments:
    """Mean and standard deviation of y where the noise of the rows is known, (n, t) each.

    Its variance is that of f, and that of average noise times vᵢ / v̄, the relative noise (n,).
    """
    mean, std = moments(estimator, x, of="f")
    return mean, np.sqrt(std**2 + relative_noise[:, None] * noise_std(estimator) ** 2)


def noise_std(estimator: SoftKIRegressor) -> np.ndarray:
    """Standard deviation of average noise in each target (t,), in its units."""
    standardised = float(estimator.fit_.posterior.noise_variance) ** 0.5
    return np.asarray(standardised * estimator.y_standardizer_.scale)
