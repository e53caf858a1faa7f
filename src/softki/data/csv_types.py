"""Types of the columns of a CSV file, and what pyarrow's errors about them mean.

pyarrow infers types from the first block of a file, and fails where a later block does not agree.
Here every column has a list of types, and goes on to the next one when a row does not suit, so
that the type suits the whole file. The file is read from its start again each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from softki.data.arrow import pa

# The coarsest first, so that a file written from them looks as the one that was read.
DATES = (pa.date32(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us", "UTC"))
# In the order in which they are tried: whole numbers are numbers, and 0 and 1 are no booleans.
CSV_TYPES = (pa.float64(), pa.bool_(), *DATES, pa.time64("us"), pa.string())
# Fields that mean a missing value, in any column.
MISSING_FIELDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")
CSV_OPTIONS: dict[str, Any] = {"null_values": MISSING_FIELDS, "strings_can_be_null": True}

_WANTED = {
    "double": "a number",
    "bool": "true or false",
    "time64[us]": "a time of day",
    "string": "text in UTF-8",
} | {str(kind): "a date" for kind in DATES}
_CONVERSION = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]+):(?:.*?'(.*?)')?", re.S
)
_RAGGED = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


def fitting_types(
    names: Sequence[str],
    columns: Sequence[str],
    types: Mapping[str, Sequence[Any]],
    read: Callable[[Mapping[str, Any] | None], Any],
) -> dict[str, Any]:
    """The first type of each column that suits all rows.

    Args:
        names: all columns of the file.
        columns: those that are read.
        types: to be tried, by column; others have `CSV_TYPES`.
        read: opens the file with the given types, or as pyarrow infers them.
    """
    inferred = read(None).schema
    left = {
        name: list(types.get(name) or CSV_TYPES[_first(inferred.field(name).type) :])
        for name in columns
    }
    failures: dict[str, list[tuple[int, pa.ArrowInvalid]]] = {}  # by column, with the line
    while any(len(left[name]) > 1 or _may_fail(left[name][0], name in failures) for name in left):
        try:
            _read_all(read({name: candidates[0] for name, candidates in left.items()}))
        except pa.ArrowInvalid as error:
            match = _CONVERSION.match(str(error))
            if match is None:
                raise
            column = names[int(match[1])]
            failures.setdefault(column, []).append((int(match[2] or 0), error))
            if len(left[column]) == 1:  # the type that went furthest is the one that was meant
                raise max(reversed(failures[column]), key=lambda failure: failure[0])[1] from None
            left[column].pop(0)
        else:
            break
    return {name: candidates[0] for name, candidates in left.items()}


def understood(error: Exception, names: Sequence[str]) -> str:
    """What an error of pyarrow or of the system means, in one line.

    Example:
        >>> understood(ValueError("CSV parse error: Row #7: Expected 2 columns, got 3: 1,2,3"), [])
        'line 7 has 3 fields, and the header has 2'
    """
    text = str(error)
    if ragged := _RAGGED.match(text):
        line = f"line {ragged[1]}" if ragged[1] else "a line"
        return f"{line} has {ragged[3]} fields, and the header has {ragged[2]}"
    if found := _CONVERSION.match(text):
        line = f", line {found[2]}" if found[2] else ""
        value = "a field" if found[4] is None else repr(found[4][:50])
        wanted = _WANTED.get(found[3], found[3])
        return f"column {names[int(found[1])]!r}{line}: {value} is not {wanted}"
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    return f"cannot be read: {' '.join(text.split())[:200]}"


def _first(inferred: Any) -> int:
    """The first of `CSV_TYPES` that may suit, given what pyarrow infers from the first block."""
    if pa.types.is_boolean(inferred):
        return 1
    if pa.types.is_temporal(inferred):
        return CSV_TYPES.index(pa.time64("us") if pa.types.is_time(inferred) else DATES[0])
    return 0 if pa.types.is_null(inferred) or _is_number(inferred) else len(CSV_TYPES) - 1


def _may_fail(kind: Any, others_failed: bool) -> bool:
    """Whether the last type that is left has to be tried, so that the best failure is known."""
    return others_failed and kind != pa.string()


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _read_all(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass
