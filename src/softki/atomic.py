"""A file appears whole or not at all: written beside its place, synced, then renamed into it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from os import PathLike
from pathlib import Path

from softki.exceptions import InvalidInputError, InvalidTypeError


def checked_path(path: str | PathLike[str]) -> Path:
    """The path, if it is one."""
    try:
        checked = Path(path)
    except TypeError as error:
        raise InvalidTypeError(
            f"path must be the name of a file, got {type(path).__name__}"
        ) from error
    if "\0" in str(checked):
        raise InvalidInputError(f"path must be the name of a file, got {str(checked)!r}")
    return checked


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write the file, or leave everything as it was and raise.

    A file that is already there keeps its permissions; a link keeps pointing where it does.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(f"{folder}/numbers", b"123")
        ...     Path(folder, "numbers").read_bytes()
        b'123'
    """
    path = checked_path(path)
    try:
        _replace(_checked_target(path), data)
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from error


def _checked_target(path: Path) -> Path:
    """The place to write to, with links followed."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InvalidInputError(
            f"cannot write {path}: it is a folder; give the name of a file in it"
        )
    if not target.parent.is_dir():
        raise InvalidInputError(f"cannot write {path}: there is no folder {target.parent}")
    if target.exists():
        if not target.is_file():  # renaming over a device would remove it
            raise InvalidInputError(f"cannot write {path}: it is not an ordinary file")
        if not os.access(target, os.W_OK):
            raise InvalidInputError(f"cannot write {path}: it is write-protected")
    return target


def _replace(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".softki-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:  # an interrupt, too, leaves nothing behind
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name last; not every system can sync a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
