"""What every method of the comparison is: fit, predict, settings, and facts about the fit."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch

from softki.exceptions import InvalidInputError
from softki.validation.parameters import check_choice


class Method(ABC):
    """A regression method under the conditions of the comparison.

    Inputs and target come standardised by the training rows. Gaussian processes have a Matérn 3/2
    kernel with one lengthscale a column, and a free noise variance that is part of the predictive
    variance exactly once.

    Args:
        device: of the tensors, where the method uses torch.
        seed: of everything random.
        settings: replace some of `defaults`.
    """

    name: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]] = {}
    max_columns: ClassVar[int | None] = None  # more are refused
    max_rows: ClassVar[int | None] = None
    cpu_only: ClassVar[bool] = False  # whatever the device

    def __init__(self, device: str = "cpu", seed: int = 0, **settings: Any) -> None:
        for name, value in settings.items():
            self.check_setting(name, value)
        self.device, self.seed = torch.device(device), seed
        self.settings: dict[str, Any] = {**self.defaults, **settings}
        self.facts: dict[str, Any] = {}

    @abstractmethod
    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Learn from X (n, d) and y (n,), both in float64.

        Fills `facts`: what is worth noting and fits into JSON, among it, where the method has
        them, `epochs` and `training_seconds`, `lengthscale` and `temperature` (lists, in units
        of the standardised inputs), `noise_variance`; `kernel_lengthscale`, where the kernel has
        one of its own, in other units.
        """

    @abstractmethod
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y at X, each (n,), in float64."""

    @classmethod
    def check_setting(cls, name: str, value: Any) -> None:
        """Raise `InvalidInputError` unless there is such a setting, and the value may be one of it.

        The default tells what may be: a number or a choice by name. None may always be.
        """
        check_choice(f"setting of {cls.name}", name, cls.defaults)
        default = cls.defaults[name]
        if value is not None and not _is_like(value, default):
            raise InvalidInputError(
                f"setting {name} of {cls.name} must be {_kind(default)}, such as {default!r}, "
                f"got {value!r}"
            )

    @classmethod
    def check_size(cls, rows: int, columns: int) -> None:
        """Raise `InvalidInputError` where the method is not made for so many rows or columns."""
        for what, count, most in (
            ("rows", rows, cls.max_rows),
            ("columns", columns, cls.max_columns),
        ):
            if most is not None and count > most:
                raise InvalidInputError(f"{cls.name} takes at most {most} {what}, not {count}")


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value may stand for a default: the kinds below, or anything if that is None."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and (default is None or isinstance(default, bool))
    if isinstance(default, Integral):
        return isinstance(value, Integral)
    if isinstance(default, Real):
        return isinstance(value, Real) and math.isfinite(value)
    return default is None or not isinstance(value, Real)


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, Integral):
        return "a whole number"
    return "a number" if isinstance(default, Real) else "a name"
