"""Checks of the files of a table: their formats, headers and columns, and errors that name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from softki.data.arrow import pa
from softki.data.csv_types import understood
from softki.data.text_hints import are_numbers
from softki.exceptions import InvalidInputError
from softki.validation.parameters import nearest

FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


def file_format(path: str | PathLike[str]) -> str:
    """`csv`, `parquet` or `arrow`, by the end of the name.

    Example:
        >>> file_format("rows.csv.gz")
        'csv'
    """
    name = Path(path).name.lower()
    for suffix, kind in FORMATS.items():
        if name.endswith(suffix):
            return kind
    raise InvalidInputError(f"{path}: the name must end in one of {', '.join(FORMATS)}")


@contextmanager
def naming(path: Path | str, names: Sequence[str] = (), advice: str = "") -> Iterator[None]:
    """Errors of pyarrow and of the system as errors of softki that name the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        message = understood(error, names)
        if advice and message.endswith("is not a number"):
            message += f": {advice}"
        of_system = getattr(error, "errno", None) is not None
        if not of_system and not str(path).lower().endswith((".csv", ".gz")):
            message += "; the file is damaged or incomplete: write it anew"
        raise InvalidInputError(f"{path}: {message}") from error


def check_header(path: Path, names: Sequence[str]) -> None:
    """Raise if the first line of a CSV file is no header, or columns are separated otherwise."""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise InvalidInputError(
            f"{path}: has one column, {names[0]!r}: columns must be separated by commas"
        )
    # pandas calls the columns of a matrix 0, 1, 2, …
    if are_numbers(names) and names != [str(k) for k in range(len(names))]:
        some = ",".join(names[:5]) + (",…" if len(names) > 5 else "")
        raise InvalidInputError(
            f"{path}: has no header: the first row {some!r} looks like data: add a line with the "
            "names of the columns above it"
        )


def check_unique(path: Path, names: Sequence[str]) -> None:
    """Raise if a column name stands twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(f"{path}: has more than one column {twice[0]!r}: rename them")


def check_there(path: Path | str, columns: Iterable[str], names: Sequence[str]) -> None:
    """Raise if the file lacks a column, with the nearest name that it has."""
    missing = [name for name in columns if name not in names]
    if missing:
        some = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise InvalidInputError(f"{path}: has no column {some}{suggestion(missing[0], names)}")


def suggestion(name: str, names: Iterable[str]) -> str:
    """`: did you mean …?` where one of the names is close.

    Example:
        >>> suggestion("prise", ["price", "size"])
        ": did you mean 'price'?"
    """
    close = nearest(name, names)
    return "" if close is None else f": did you mean {close!r}?"
