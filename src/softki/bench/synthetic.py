"""The synthetic data sets of the paper's experiments, and two of many rows and many columns."""

from __future__ import annotations

import math

import numpy as np

from softki.validation.parameters import check_integer


def ricker(count: int = 3000, noise: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The Ricker wavelet at points that are uniform in the square [−4, 4]².

    The paper has 3,000 training and 200 test points, and an error so small that its data can
    have had next to no noise; it does not say what the square was.

    Args:
        count: number of rows.
        noise: its standard deviation, as a share of that of y.
        seed: seed of points and noise.

    Returns:
        Points (count, 2) and heights (count,).

    Example:
        >>> x, y = ricker()
        >>> x.shape, bool((y == ricker_wavelet(x)).all())
        ((3000, 2), True)
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 4, (count, 2))
    return x, _with_noise(ricker_wavelet(x), noise, rng)


def ricker_wavelet(x: np.ndarray) -> np.ndarray:
    """The Ricker wavelet, or Mexican hat: (1 − ‖x‖²/2) exp(−‖x‖²/2).

    Example:
        >>> ricker_wavelet(np.array([[0.0, 0.0], [1.0, 1.0]]))
        array([1., 0.])
    """
    half = (x**2).sum(axis=-1) / 2
    return (1 - half) * np.exp(-half)


def large_n(
    count: int = 1_000_000, columns: int = 10, noise: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Many rows: a smooth function of three directions among independent columns.

        x ~ N(0, I),   uₖ = wₖᵀx,   y = sin 2u₁ + u₂ cos u₃ + noise
        wₖⱼ = √(2/d) cos(πk(j + ½)/d),   j = 0, …, d − 1

    The directions w₁, w₂, w₃ are orthonormal, and each of them takes every column.

    Args:
        count: number of rows.
        columns: d, at least 4.
        noise: its standard deviation, as a share of that of y.
        seed: seed of all random numbers.

    Returns:
        Inputs (count, columns) and target (count,).

    Example:
        >>> x, y = large_n(1000)
        >>> x.shape, y.shape
        ((1000, 10), (1000,))
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, columns))
    return x, _with_noise(_smooth(x @ _directions(columns)), noise, rng)


def large_d(
    count: int = 10_000, columns: int = 1000, noise: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Many columns, which hang together: a smooth function of the three directions they vary in.

        u ~ N(0, I₃),   x = √(d/3) Σₖ uₖwₖ + ε/3,   ε ~ N(0, I),   y = sin 2u₁ + u₂ cos u₃ + noise

    with w as in `large_n`, so that a column has a variance of about 1. Rows are near each other
    where y is; with independent columns, no method could tell in a thousand dimensions.

    Args:
        count: number of rows.
        columns: d, at least 4.
        noise: its standard deviation, as a share of that of y.
        seed: seed of all random numbers.

    Returns:
        Inputs (count, columns) and target (count,).

    Example:
        >>> x, y = large_d(100)
        >>> x.shape, y.shape
        ((100, 1000), (100,))
    """
    rng = np.random.default_rng(seed)
    directions = _directions(columns)
    u = rng.standard_normal((count, 3))
    x = math.sqrt(columns / 3) * u @ directions.T + rng.standard_normal((count, columns)) / 3
    return x, _with_noise(_smooth(u), noise, rng)


def _directions(columns: int) -> np.ndarray:
    """Three orthonormal directions (columns, 3): cosines of one, two and three half waves."""
    check_integer("columns", columns, 4)
    places = (np.arange(columns)[:, None] + 0.5) / columns
    return math.sqrt(2 / columns) * np.cos(math.pi * places * np.arange(1, 4))


def _smooth(u: np.ndarray) -> np.ndarray:
    return np.sin(2 * u[:, 0]) + u[:, 1] * np.cos(u[:, 2])


def _with_noise(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    return y + share * y.std() * rng.standard_normal(len(y))
