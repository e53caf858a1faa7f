"""Data sets made on the spot."""

from __future__ import annotations

import math

import numpy as np


def robot_arm(
    count: int = 20_000, noise: float = 0.02, seed: int = 0, joints: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """Forward kinematics of a robot arm: joint angles to the reach of the hand.

    Joint k turns by θₖ ∈ [−π/2, π/2], about the vertical axis if k is even and about the
    horizontal one if it is odd, and carries a link of length 0.8ᵏ along its own axis:

        p = Σₖ R(θ₀) R(θ₁) ⋯ R(θₖ) (0.8ᵏ, 0, 0)ᵀ,     y = ‖p − q‖ + noise

    with q a fixed point one unit above the base.

    Args:
        count: number of rows.
        noise: its standard deviation, as a share of that of y.
        seed: of angles and noise.
        joints: number of joints, the number of columns.

    Returns:
        Angles (count, joints) and distances (count,).

    Example:
        >>> x, y = robot_arm(1000)
        >>> x.shape, y.shape
        ((1000, 8), (1000,))
    """
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-math.pi / 2, math.pi / 2, (count, joints))
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
