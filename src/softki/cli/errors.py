"""From an exception to one line and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softki.data.file_sets import FileSet
from softki.exceptions import InvalidInputError, SoftKIError

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class UsageError(SoftKIError):
    """What is wrong stands on the command line itself."""


@contextmanager
def usage() -> Iterator[None]:
    """Errors about the value of an option count as wrong usage."""
    try:
        yield
    except InvalidInputError as error:
        raise UsageError(str(error)) from error


@contextmanager
def about(path: Path | FileSet | str) -> Iterator[None]:
    """Errors about data name the file that it came from."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


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
