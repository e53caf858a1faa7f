"""Synthetic data sets, and the splits of the benchmarks."""

from __future__ import annotations

import math

import numpy as np

from softki.validation.parameters import check_integer


def split_indices(
    count: int, seed: int = 0, training: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and test rows: `RandomState(seed).permutation(n)`, cut at ⌊0.9 n⌋.

    Rounding errors of the share do not count: 1 − 0.9 of 10 rows is one row.

    Example:
        >>> train, test = split_indices(10)
        >>> len(train), len(test)
        (9, 1)
    """
    order = np.random.RandomState(seed).permutation(count)
    cut = math.floor(round(training * count, 6))
    return order[:cut], order[cut:]


def ski_split_indices(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and test rows for a comparison with variants of SKI: ⌊4n/9⌋ of each.

    Published figures of SKIP and Simplex-SKI are for 4/9 training, 2/9 validation and 4/9 test
    rows. The rows in between, which would be for validation, are left out.

    Example:
        >>> train, test = ski_split_indices(90)
        >>> len(train), len(test), len(set(train) & set(test))
        (40, 40, 0)
    """
    order = np.random.RandomState(seed).permutation(count)
    share = 4 * count // 9
    return order[:share], order[count - share :]


def robot_arm(
    count: int = 20_000, noise: float = 0.02, seed: int = 0, joints: int = 8, turn: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Forward kinematics of a robot arm: joint angles to the reach of the hand.

    Joint k turns by θₖ ∈ [−π/2, π/2], times `turn`, about the vertical axis if k is even and
    about the horizontal one if it is odd, and carries a link of length 0.8ᵏ along its own axis:

        p = Σₖ R(θ₀) R(θ₁) ⋯ R(θₖ) (0.8ᵏ, 0, 0)ᵀ,     y = ‖p − q‖ + noise

    with q a fixed point one unit above the base.

    Args:
        count: number of rows.
        noise: its standard deviation, as a share of that of y.
        seed: seed of angles and noise.
        joints: number of joints, the number of columns.
        turn: how far they turn; more than 1 leaves the range of the others.

    Returns:
        Angles (count, joints) and distances (count,).

    Example:
        >>> x, y = robot_arm(1000)
        >>> x.shape, y.shape
        ((1000, 8), (1000,))
    """
    rng = np.random.default_rng(seed)
    angles = turn * rng.uniform(-math.pi / 2, math.pi / 2, (count, joints))
    hand = np.zeros((count, 3))
    for k in reversed(range(joints)):  # from the hand inwards
        hand[:, 0] += 0.8**k
        hand = _turn(hand, angles[:, k], (0, 1) if k % 2 == 0 else (0, 2))
    distance = np.linalg.norm(hand - np.array([0.0, 0.0, 1.0]), axis=1)
    return angles, distance + noise * distance.std() * rng.standard_normal(count)


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


def _turn(points: np.ndarray, angle: np.ndarray, plane: tuple[int, int]) -> np.ndarray:
    i, j = plane
    turned = points.copy()
    turned[:, i] = np.cos(angle) * points[:, i] - np.sin(angle) * points[:, j]
    turned[:, j] = np.sin(angle) * points[:, i] + np.cos(angle) * points[:, j]
    return turned
