"""Splits into training and test rows."""

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
