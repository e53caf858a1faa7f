"""What every method of the comparison is: fit, predict, settings, and facts about the fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from softki.checks import check_choice
from softki.exceptions import InvalidInputError


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

    def __init__(self, device: str = "cpu", seed: int = 0, **settings: Any) -> None:
        for name in settings:
            check_choice(f"setting of {self.name}", name, self.defaults)
        self.device, self.seed = torch.device(device), seed
        self.settings: dict[str, Any] = {**self.defaults, **settings}
        self.facts: dict[str, Any] = {}

    @abstractmethod
    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Learn from X (n, d) and y (n,), both in float64.

        Fills `facts`: what is worth noting and fits into JSON, among it, where the method has
        them, `epochs` and `training_seconds`, `lengthscale` and `temperature` (lists, in units
        of the standardised inputs), `noise_variance`.
        """

    @abstractmethod
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y at X, each (n,), in float64."""

    @classmethod
    def check_size(cls, rows: int, columns: int) -> None:
        """Raise `InvalidInputError` where the method is not made for so many rows or columns."""
        for what, count, most in (
            ("rows", rows, cls.max_rows),
            ("columns", columns, cls.max_columns),
        ):
            if most is not None and count > most:
                raise InvalidInputError(f"{cls.name} takes at most {most} {what}, not {count}")
