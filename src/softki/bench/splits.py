"""How the rows of a data set are split into training and test rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from softki.data import ski_split_indices, split_indices

USUAL_SPLIT = "90/10"
SPLITS: Mapping[str, Callable[[int, int], tuple[np.ndarray, np.ndarray]]] = {
    USUAL_SPLIT: split_indices,
    "4/9": ski_split_indices,
}
"""From the number of rows and a seed to the indices of training and test rows."""


@cache
def training_rows(split: str, rows: int) -> int:
    """How many of so many rows a split trains on.

    Example:
        >>> training_rows("90/10", 15_000), training_rows("4/9", 15_000)
        (13500, 6666)
    """
    train, _ = SPLITS[split](rows, 0)
    return len(train)
