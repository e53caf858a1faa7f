"""What displays need of an estimator and its data, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted, check_random_state

from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.validation.parameters import check_integer, nearest
from softki.validation.tables import as_tensor, check_finite, column_names

_NAMES_SHOWN = 10


class Predictions(NamedTuple):
    """One target at n rows: observed, predicted, standard deviation of y; and its name."""

    y_true: np.ndarray
    y_pred: np.ndarray
    y_std: np.ndarray
    name: str


def predictions(estimator: Any, X: Any, y: Any, target: int) -> Predictions:
    """What the estimator predicts for one target; it may be any with `predict(X, return_std)`."""
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
    check_target(target, 1 if y_pred.ndim == 1 else y_pred.shape[1])
    y_true, mean, std = (
        values.reshape(len(values), -1)[:, target] for values in (as_array(observed), y_pred, y_std)
    )
    return Predictions(y_true, mean, std, target_name(y, target))


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


def check_target(target: Any, count: int) -> None:
    """Raise unless the target is the index of one of so many."""
    check_integer("target", target, 0)
    if target >= count:
        raise InvalidInputError(
            f"there is no target {target}: the estimator has {count}, the first is target 0"
        )


def target_name(y: Any, target: int) -> str:
    """The name that y gives the target, or y, or y0, y1, … where there are several."""
    names = column_names(y)
    if names is not None:
        return names[target]
    name = getattr(y, "name", None)
    if isinstance(name, str) and name:
        return name
    return "y" if np.ndim(y) < 2 or np.shape(y)[1] == 1 else f"y{target}"


def feature_names(estimator: SoftKIRegressor) -> list[str]:
    """The names of the columns of X, or x0, x1 and so on."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"x{k}" for k in range(estimator.n_features_in_)]
    return [str(name) for name in names]


def feature_index(feature: Any, names: Sequence[str]) -> int:
    """The column that is meant by a name or an index.

    Example:
        >>> feature_index("elbw", ["shoulder", "elbow"])
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: unknown feature 'elbw': did you mean 'elbow'?
    """
    if isinstance(feature, str):
        if feature in names:
            return list(names).index(feature)
        raise InvalidInputError(f"unknown feature {feature!r}: {_suggestion(feature, names)}")
    check_integer("feature", feature, 0)
    if feature >= len(names):
        raise InvalidInputError(
            f"there is no feature {feature}: X has {len(names)} columns, the first is 0"
        )
    return int(feature)


def _suggestion(feature: str, names: Sequence[str]) -> str:
    close = nearest(feature, names)
    if close is not None:
        return f"did you mean {close!r}?"
    more = ", …" if len(names) > _NAMES_SHOWN else ""
    return f"the columns are {', '.join(map(repr, names[:_NAMES_SHOWN]))}{more}"


def sample_rows(
    count: int, max_rows: int, random_state: int | np.random.RandomState | None
) -> np.ndarray:
    """Indices of all rows, or of a random sample of max_rows of them."""
    check_integer("max_rows", max_rows, 1)
    if count <= max_rows:
        return np.arange(count)
    return np.sort(check_random_state(random_state).choice(count, max_rows, replace=False))
