"""The numbers of the columns that are no inputs: targets and noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softki.data.column_kinds import KINDS, kind_of, numbers_of
from softki.exceptions import InvalidInputError


def numbers_in(table: Any, names: Sequence[str]) -> np.ndarray:
    """The columns (n, c) in float64, missing values as NaN, or an error if they are no numbers."""
    for name in names:
        kind = kind_of(table.column(name), name)
        if kind not in ("number", "null"):
            raise InvalidInputError(
                f"column {name!r} holds {KINDS[kind].plural}, and softki is for regression, where "
                "targets and noise variances are numbers"
            )
    numbers = np.empty((len(table), len(names)))
    for position, name in enumerate(names):
        numbers[:, position] = numbers_of(table.column(name), "number")
    return numbers
