"""Kinds of columns, and the numbers and categories of a column."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from softki.data.arrow import pa
from softki.data.csv_types import DATES
from softki.exceptions import InvalidInputError

_DAY = 86_400e6  # in microseconds


class Kind(NamedTuple):
    """A kind of column.

    Attributes:
        plural: name of its values.
        note: what its values become.
        csv_types: types that such a column may have in a CSV file.
        common: type for files that have different types of this kind, such as int64 and double.
    """

    plural: str
    note: str
    csv_types: tuple[Any, ...]
    common: Any


KINDS = {
    "number": Kind("numbers", "a number", (pa.float64(),), pa.float64()),
    "boolean": Kind("booleans", "0 and 1", (pa.bool_(),), pa.bool_()),
    "category": Kind("categories", "one-hot encoded", (pa.string(),), pa.string()),
    "date": Kind("dates", "days since 1970-01-01", DATES, pa.timestamp("us")),
    "time": Kind("times of day", "seconds of the day", (pa.time64("us"),), pa.time64("us")),
    "duration": Kind("durations", "seconds", (pa.float64(),), pa.duration("us")),
    "null": Kind("nothing", "nothing", (), pa.null()),
}


def kind_of(column: Any, name: str) -> str:
    """The kind of a column, one of `KINDS`.

    Example:
        >>> kind_of(pa.array(["a", "b"]), "letter")
        'category'
    """
    types, kind = pa.types, column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_boolean(kind):
        return "boolean"
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if is_text or types.is_dictionary(kind):
        return "category"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_time(kind):
        return "time"
    if types.is_duration(kind):
        return "duration"
    if types.is_null(kind):
        return "null"
    raise InvalidInputError(
        f"column {name!r} has the type {kind}, which cannot be turned into numbers: leave it out "
        f"(--drop {name}), or convert it"
    )


def numbers_of(column: Any, kind: str) -> np.ndarray:
    """The values of a column that is no category, in float64; missing ones are NaN.

    Example:
        >>> import datetime
        >>> numbers_of(pa.array([datetime.date(1970, 1, 3), None]), "date")
        array([ 2., nan])
    """
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if kind in ("date", "time", "duration"):
        return _microseconds(column, kind) / (_DAY if kind == "date" else 1e6)
    return np.asarray(_cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def categories_of(column: Any) -> Counter[str]:
    """The categories of a column, as text, and how often each occurs."""
    counts = pa.compute.value_counts(column.cast(pa.string()).drop_null())
    return Counter({entry["values"]: entry["counts"] for entry in counts.to_pylist()})


def is_present(column: Any, name: str) -> np.ndarray:
    """A mask (n,) of the rows that have a value which is neither null nor NaN nor infinite."""
    kind = kind_of(column, name)
    if kind == "category":
        return np.asarray(column.cast(pa.string()).is_valid())
    return np.isfinite(numbers_of(column, kind))


def _microseconds(column: Any, kind: str) -> np.ndarray:
    whole = _cast(_cast(column, KINDS[kind].common), pa.int64())
    return _cast(whole, pa.float64()).to_numpy(zero_copy_only=False)


def _cast(column: Any, kind: Any) -> Any:
    return pa.compute.cast(column, kind, safe=False)
