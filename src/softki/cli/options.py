"""Options that several commands share, with the checks of their values.

Nothing here needs torch or PyArrow, so that `--help` and `--version` answer at once.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from softki.exceptions import InvalidInputError, SoftKIError

if TYPE_CHECKING:
    from softki.data.file_sets import FileSet

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class UsageError(SoftKIError):
    """An error on the command line itself, and not in a file that it names."""


@contextmanager
def usage() -> Iterator[None]:
    """Errors about the value of an option count as wrong usage."""
    try:
        yield
    except InvalidInputError as error:
        raise UsageError(str(error)) from error


@contextmanager
def about(source: object) -> Iterator[None]:
    """Errors about data begin with the name of the file, data set or option they came from."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{source}: {error}") from error


def explained(error: Exception) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, SoftKIError):
        return text
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else text
    return f"unexpected {type(error).__name__}: {text} (--debug shows where)"


class MissingChoice(StrEnum):
    """Treatment of rows with missing values."""

    refuse = "refuse"
    drop = "drop"
    impute = "impute"


class OfChoice(StrEnum):
    """Quantity that standard deviations and quantiles are those of."""

    y = "y"
    f = "f"


class PictureKind(StrEnum):
    """Kinds of pictures, in the order in which they are drawn."""

    prediction = "prediction"
    residuals = "residuals"
    calibration = "calibration"
    training = "training"
    relevance = "relevance"
    points = "points"
    slice = "slice"


ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file that softki fit wrote.")
]
DataArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...",
        help="Table: .csv, .csv.gz, .parquet, .arrow or .feather; several files, or a folder.",
    ),
]
Device = Annotated[
    str,
    typer.Option(metavar="DEVICE", help="auto (CUDA if there is a device), cpu, cuda, cuda:1, …"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
OwnMissing = Annotated[
    MissingChoice | None,
    typer.Option(help="Rows with missing values; by default as the model was fitted."),
]


def listed(values: Sequence[str] | None) -> list[str]:
    """The names in options such as `--drop a,b --drop c`, without repetitions.

    Example:
        >>> listed(["a,b", '"c,d",a'])
        ['a', 'b', 'c,d']
    """
    names = [
        name for row in csv.reader(values or [], skipinitialspace=True) for name in row or [""]
    ]
    return list(dict.fromkeys(names))


def check_named(option: str, chosen: Sequence[str], data: FileSet) -> None:
    """Raise a `UsageError` unless the table has all of the columns that an option names."""
    from softki.data.file_checks import suggestion

    for name in chosen:
        if name not in data.names:
            hint = suggestion(name, data.names)
            raise UsageError(f"{option}: {data} has no column {name!r}{hint}")


def check_new_file(path: Path, data: FileSet) -> None:
    """Raise a `UsageError` if the output would replace the input."""
    for source in data.paths:
        if path.exists() and source.exists() and path.samefile(source):
            raise UsageError(f"--output: {path} is the file that is read")
