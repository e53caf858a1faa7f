"""Checks of parameters and data, with messages that say what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from softki.exceptions import InvalidInputError


def check_choice(name: str, value: Any, choices: Iterable[str], also: str = "") -> None:
    """Raise unless the value is one of the choices; suggest the nearest.

    Example:
        >>> check_choice("solver", "rq", ["qr", "cg"])
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: unknown solver 'rq', did you mean 'qr'? ...
    """
    choices = list(choices)
    if isinstance(value, str) and value in choices:
        return
    close = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.4)
    hint = f", did you mean {close[0]!r}? It" if close else ": it"
    raise InvalidInputError(f"unknown {name} {value!r}{hint} is one of: {', '.join(choices)}{also}")


def check_range(name: str, value: float, low: float, high: float = float("inf")) -> None:
    """Raise unless low ≤ value < high.

    Example:
        >>> check_range("held_out", 1.0, 0, 1)
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: held_out must be at least 0 and below 1, got 1.0
    """
    if not low <= value < high:
        bound = "" if high == float("inf") else f" and below {high:g}"
        raise InvalidInputError(f"{name} must be at least {low:g}{bound}, got {value}")


def check_finite(name: str, value: Tensor) -> None:
    """Raise if a value is NaN or infinite, with the first row and column.

    Example:
        >>> check_finite("x", torch.tensor([[0.0, 1.0], [2.0, float("nan")]]))
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: x has 1 value that is NaN or infinite, ...
    """
    bad = ~torch.isfinite(value)
    count = int(bad.sum())
    if count:
        row, *column = (int(i) for i in bad.nonzero()[0])
        where = f"row {row}" + (f", column {column[0]}" if column else "")
        values, them = (
            ("1 value that is", "it") if count == 1 else (f"{count} values that are", "them")
        )
        raise InvalidInputError(
            f"{name} has {values} NaN or infinite, the first in {where}: remove or impute {them}"
        )
