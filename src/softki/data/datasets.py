"""A synthetic data set, and the splits of the benchmarks."""

from __future__ import annotations

import math

import numpy as np


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


def _turn(points: np.ndarray, angle: np.ndarray, plane: tuple[int, int]) -> np.ndarray:
    i, j = plane
    turned = points.copy()
    turned[:, i] = np.cos(angle) * points[:, i] - np.sin(angle) * points[:, j]
    turned[:, j] = np.sin(angle) * points[:, i] + np.cos(angle) * points[:, j]
    return turned
