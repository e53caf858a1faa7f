"""What displays of single rows have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softki.plots._data import predictions


@dataclass(repr=False, eq=False)
class RowsDisplay(ABC):
    """Observed values with their predictions, a dot a row, of a sample where rows are many."""

    y_true: np.ndarray
    y_pred: np.ndarray
    y_std: np.ndarray
    target_name: str = "y"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, target: int = 0, ax: Any = None, **options: Any
    ) -> Self:
        """Predict the rows of X, and draw.

        Args:
            estimator: fitted, with `predict(X, return_std=True)`.
            X: inputs (n, d), best of rows that the fit has not seen.
            y: observed targets, in the shape they had in fit.
            target: index of the target to draw, if there are several.
            ax: matplotlib axes to draw on; None for a new figure.
            options: of `plot`.
        """
        return cls(*predictions(estimator, X, y, target)).plot(ax, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: np.ndarray,
        y_pred: np.ndarray,
        y_std: np.ndarray,
        *,
        target_name: str = "y",
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Draw for given observations, means and standard deviations of y, (n,) each.

        The options are those of `plot`.
        """
        return cls(y_true, y_pred, y_std, target_name).plot(ax, **options)

    @abstractmethod
    def plot(
        self,
        ax: Any = None,
        *,
        level: float = 0.95,
        max_rows: int = 300,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw.

        Args:
            ax: matplotlib axes to draw on; None for a new figure.
            level: of the central interval.
            max_rows: rows to draw; of more, a random sample.
            random_state: seed of the sample.
        """
