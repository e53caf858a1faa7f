"""The numbers of the target columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softki.data.column_kinds import KINDS, kind_of, numbers_of
from softki.exceptions import InvalidInputError


def target_numbers(table: Any, names: Sequence[str]) -> np.ndarray:
    """The targets (n, t) in float64, missing ones as NaN, or an error if they are no numbers."""
    for name in names:
        kind = kind_of(table.column(name), name)
        if kind not in ("number", "null"):
            raise InvalidInputError(
                f"the target {name!r} holds {KINDS[kind].plural}, and softki is for regression, "
                "where targets are numbers"
            )
    return np.column_stack([numbers_of(table.column(name), "number") for name in names])
