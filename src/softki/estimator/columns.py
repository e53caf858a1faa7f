"""The columns of a table against those of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from softki.exceptions import InvalidInputError
from softki.validation.tables import column_names, with_names


def check_names(X: Any) -> None:
    """Raise where names of columns are mixed with numbers, as scikit-learn does."""
    validate_data(BaseEstimator(), with_names(X), reset=True, skip_check_array=True)


def note_columns(estimator: Any, count: int, names: Sequence[str] | None) -> None:
    """Note number and names of the inputs of a fit, as scikit-learn does."""
    estimator.n_features_in_ = count
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_table_columns(estimator: Any, X: Any) -> None:
    """Raise unless the columns of a table are those of the fit, in their order."""
    _check_same(column_names(X), getattr(estimator, "feature_names_in_", None))
    try:
        validate_data(estimator, with_names(X), reset=False, skip_check_array=True)
    except ValueError as error:  # another number of columns
        raise InvalidInputError(str(error)) from error


def check_columns(estimator: Any, count: int, names: Sequence[str] | None) -> None:
    """Raise unless the columns of more rows are those of the fit, in their order."""
    _check_same(names, getattr(estimator, "feature_names_in_", None))
    if count != estimator.n_features_in_:
        raise InvalidInputError(
            f"X has {count} columns, and had {estimator.n_features_in_} in the fit"
        )


def _check_same(names: Sequence[str] | None, known: Sequence[str] | None) -> None:
    """Raise where names are new, missing or in another order; in scikit-learn's words and ours."""
    if names is None or known is None:
        return
    message = "The feature names should match those that were passed during fit.\n"
    for title, some in (
        ("unseen at fit time", [name for name in names if name not in known]),
        ("seen at fit time, yet now missing", [name for name in known if name not in names]),
    ):
        if some:
            listed = "\n".join(f"- {name}" for name in some[:5])
            raise InvalidInputError(f"{message}Feature names {title}:\n{listed}\n")
    for position, (name, expected) in enumerate(zip(names, known, strict=True)):
        if name != expected:
            raise InvalidInputError(
                f"{message}Feature names must be in the same order as they were in fit.\n"
                f"Column {position} is {name!r}, and was {expected!r}: reorder the columns "
                "as in feature_names_in_."
            )
