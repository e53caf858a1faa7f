"""Checks of parameters and data, with messages that say what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral, Real
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
    close = nearest(str(value), choices, cutoff=0.4)
    hint = f", did you mean {close!r}? It" if close else ": it"
    raise InvalidInputError(f"unknown {name} {value!r}{hint} is one of: {', '.join(choices)}{also}")


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that is closest to a mistaken one, if any is close.

    Example:
        >>> nearest("Prise", ["price", "size"])
        'price'
    """
    by_case = {known.strip().lower(): known for known in names}
    close = difflib.get_close_matches(name.strip().lower(), by_case, n=1, cutoff=cutoff)
    return by_case[close[0]] if close else None


def check_range(name: str, value: Any, low: float, high: float = float("inf")) -> None:
    """Raise unless low ≤ value < high.

    Example:
        >>> check_range("held_out", 1.0, 0, 1)
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: held_out must be a number, at least 0 and below 1, ...
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not low <= float(value) < high:
        bound = "" if high == float("inf") else f" and below {high:g}"
        raise InvalidInputError(f"{name} must be a number, at least {low:g}{bound}, got {value!r}")


def as_double(value: Tensor | float) -> Tensor:
    """The value in float64: a tensor on its device, a number on the CPU whatever the default."""
    if isinstance(value, Tensor):
        return value.detach().double()
    return torch.tensor(value, dtype=torch.float64, device="cpu")


def check_above(name: str, value: Tensor, low: float) -> None:
    """Raise unless every entry is above low.

    Example:
        >>> check_above("outputscale", torch.tensor(-1.0), 0.0)
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: outputscale must be above 0, got -1.0
    """
    if not bool((value > low).all()):
        raise InvalidInputError(f"{name} must be above {low:g}, got {value.tolist()}")


def check_integer(name: str, value: Any, low: int) -> None:
    """Raise unless the value is a whole number, at least low.

    Example:
        >>> check_integer("steps", 2.5, 0)
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: steps must be a whole number, at least 0, got 2.5
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise InvalidInputError(f"{name} must be a whole number, at least {low}, got {value!r}")
