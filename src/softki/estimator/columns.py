"""The columns of a table against those of the fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from softki.exceptions import InvalidInputError


def note_columns(estimator: Any, count: int, names: Sequence[str] | None) -> None:
    """Note number and names of the inputs of a fit, as scikit-learn does."""
    estimator.n_features_in_ = count
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_columns(estimator: Any, count: int, names: Sequence[str] | None) -> None:
    """Raise unless columns are those of the fit, in their order, in scikit-learn's words."""
    kind, known = type(estimator).__name__, getattr(estimator, "feature_names_in_", None)
    if names is not None and known is not None:
        _check_same(names, known)
    elif names is not None:
        warnings.warn(
            f"X has feature names, but {kind} was fitted without feature names", stacklevel=4
        )
    elif known is not None:
        warnings.warn(
            f"X does not have valid feature names, but {kind} was fitted with feature names",
            stacklevel=4,
        )
    if count != estimator.n_features_in_:
        raise InvalidInputError(
            f"X has {count} features, but {kind} is expecting {estimator.n_features_in_} features "
            "as input"
        )


def _check_same(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise where names are new, missing or in another order."""
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
