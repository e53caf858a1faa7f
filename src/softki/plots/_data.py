"""The numbers that displays take from an estimator and its data, checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, check_random_state

from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.validation.parameters import check_integer
from softki.validation.tables import as_tensor, check_finite, column_names


class DisplayOfPredictions(ABC):
    """A display of one target: observed values, predicted means and standard deviations of y."""

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, target: int = 0, ax: Any = None, **options: Any
    ) -> Self:
        """Predict the rows of X, and draw.

        Args:
            estimator: fitted estimator with `predict(X, return_std=True)`.
            X: inputs (n, d), best of rows that the fit has not seen.
            y: observed targets, in the shape they had in fit.
            target: index of the target to draw, if there are several.
            ax: matplotlib axes to draw on; None for a new figure.
            options: options of `plot`.
        """
        check_is_fitted(estimator)
        y_pred, y_std = map(as_array, _mean_and_std(estimator, X))
        observed = as_tensor(y, "y")
        if observed.shape != y_pred.shape:
            raise InvalidInputError(
                f"y has the shape {tuple(observed.shape)} and the predictions at X have "
                f"{y_pred.shape}: pass one row of y for each of X, in the shape it had in fit"
            )
        check_finite(observed, "y", column_names(y))
        if not (y_std > 0).all():
            raise InvalidInputError("a predicted standard deviation is not above 0")
        check_index("target", target, 1 if y_pred.ndim == 1 else y_pred.shape[1], "the estimator")
        one = [v.reshape(len(v), -1)[:, target] for v in (as_array(observed), y_pred, y_std)]
        return cls.from_predictions(*one, target_name=_target_name(y, target), ax=ax, **options)

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
        display: Any = cls._of_predictions(y_true, y_pred, y_std, target_name)
        drawn: Self = display.plot(ax, **options)
        return drawn

    @classmethod
    @abstractmethod
    def _of_predictions(
        cls, y_true: np.ndarray, y_pred: np.ndarray, y_std: np.ndarray, target_name: str
    ) -> Self:
        """The numbers of the picture."""


def _mean_and_std(estimator: Any, X: Any) -> tuple[Any, Any]:
    try:
        mean, std = estimator.predict(X, return_std=True)
    except TypeError as error:
        if "return_std" not in str(error):
            raise
        raise InvalidTypeError(
            f"{type(estimator).__name__} predicts no standard deviation: the picture needs an "
            "estimator with predict(X, return_std=True), such as SoftKIRegressor; of a search, "
            "pass best_estimator_"
        ) from error
    return mean, std


def checked_softki(estimator: Any) -> SoftKIRegressor:
    """The estimator, which must be a fitted `SoftKIRegressor`."""
    if not isinstance(estimator, SoftKIRegressor):
        raise InvalidTypeError(
            f"the picture needs a SoftKIRegressor, got {type(estimator).__name__}: pass the "
            "fitted regressor itself, such as pipeline[-1] or search.best_estimator_"
        )
    check_is_fitted(estimator)
    return estimator


def as_array(values: Any) -> np.ndarray:
    """Numbers of any kind, on any device, in float64."""
    return np.asarray(as_tensor(values).double().cpu())


def check_index(name: str, index: Any, count: int, owner: str) -> None:
    """Raise unless 0 ≤ index < count.

    Example:
        >>> check_index("target", 1, 1, "the estimator")
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: no target 1: the estimator has 1, the first is 0
    """
    check_integer(name, index, 0)
    if index >= count:
        raise InvalidInputError(f"no {name} {index}: {owner} has {count}, the first is 0")


def _target_name(y: Any, target: int) -> str:
    """The name of the target in y, or y, or y0, y1, … where there are several."""
    names = column_names(y)
    if names is not None:
        return names[target]
    name = getattr(y, "name", None)
    if isinstance(name, str) and name:
        return name
    return "y" if np.ndim(y) < 2 or np.shape(y)[1] == 1 else f"y{target}"


def sample_rows(
    count: int, max_rows: int, random_state: int | np.random.RandomState | None
) -> np.ndarray:
    """Indices of all rows, or of a random sample of max_rows of them."""
    check_integer("max_rows", max_rows, 1)
    if count <= max_rows:
        return np.arange(count)
    return np.sort(check_random_state(random_state).choice(count, max_rows, replace=False))
