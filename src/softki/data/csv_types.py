"""Types of the columns of a CSV file, and what pyarrow's errors about files mean.

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
_OPENING = re.compile(r"Could not open \w+ input source '.*?': (?:Invalid: )?")


def fitting_types(
    inferred: Any,
    columns: Sequence[str],
    types: Mapping[str, Sequence[Any]],
    read: Callable[[Any], Iterable[Any]],
) -> Any:
    """A schema with the first type of each column that suits all rows.

    Args:
        inferred: schema of all columns of the file, as pyarrow infers it from the first block.
        columns: names of the columns that are read.
        types: types to try, by column; other columns have `CSV_TYPES`.
        read: function that gives the record batches of the file with the types of a schema.
    """
    left = {
        name: list(types.get(name) or CSV_TYPES[_first(inferred.field(name).type) :])
        for name in columns
    }
    failures: dict[str, list[tuple[int, pa.ArrowInvalid]]] = {}  # by column, with the line
    while any(len(left[name]) > 1 or _may_fail(left[name][0], name in failures) for name in left):
        try:
            for _ in read(_schema(left)):
                pass
        except pa.ArrowInvalid as error:
            match = _CONVERSION.search(str(error))
            if match is None:
                raise
            column = inferred.names[int(match[1])]
            failures.setdefault(column, []).append((int(match[2] or 0), error))
            if len(left[column]) == 1:  # the type that went furthest is the one that was meant
                raise max(reversed(failures[column]), key=lambda failure: failure[0])[1] from None
            left[column].pop(0)
        else:
            break
    return _schema(left)


def understood(error: Exception, names: Sequence[str]) -> str:
    """The meaning of an error of pyarrow or of the system, in one line.

    Example:
        >>> understood(ValueError("CSV parse error: Row #7: Expected 2 columns, got 3: 1,2,3"), [])
        'line 7 has 3 fields, and the header has 2'
    """
    text = _OPENING.sub("", str(error))
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


def _schema(left: Mapping[str, Sequence[Any]]) -> Any:
    return pa.schema([(name, candidates[0]) for name, candidates in left.items()])


def _first(inferred: Any) -> int:
    """Index of the first of `CSV_TYPES` that may suit a column of the inferred type."""
    types = pa.types
    if types.is_boolean(inferred):
        return 1
    if types.is_temporal(inferred):
        return CSV_TYPES.index(pa.time64("us") if types.is_time(inferred) else DATES[0])
    is_number = types.is_integer(inferred) or types.is_floating(inferred)
    return 0 if types.is_null(inferred) or is_number else len(CSV_TYPES) - 1


def _may_fail(kind: Any, others_failed: bool) -> bool:
    """True if the last type that is left has to be tried, so that the best failure is known."""
    return others_failed and kind != pa.string()
