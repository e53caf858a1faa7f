"""Atomic writes: a file is written beside its place, synced, then renamed into it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from softki.exceptions import InvalidInputError, InvalidTypeError


def checked_path(path: str | PathLike[str]) -> Path:
    """The path, or an error if it is no name of a file."""
    try:
        checked = Path(path)
    except TypeError as error:
        raise InvalidTypeError(
            f"path must be the name of a file, got {type(path).__name__}"
        ) from error
    if "\0" in str(checked):
        raise InvalidInputError(f"path must be the name of a file, got {str(checked)!r}")
    return checked


@contextmanager
def replaced(path: str | PathLike[str]) -> Iterator[Path]:
    """A temporary file beside the path, which replaces the file at the path after the body.

    Where the body fails, an older file stays as it was. A file that is already there keeps its
    permissions, and a link its target.
    """
    target = checked_target(path)
    temporary = target.with_name(f".softki-{secrets.token_hex(8)}.tmp")
    try:
        with _explained(path):
            temporary.touch()
            if target.exists():
                shutil.copymode(target, temporary)
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:  # an interrupt, too, leaves nothing behind
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write the whole file, or raise and leave an older file as it was.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(f"{folder}/numbers", b"123")
        ...     Path(folder, "numbers").read_bytes()
        b'123'
    """
    with replaced(path) as temporary:
        temporary.write_bytes(data)


def checked_target(path: str | PathLike[str]) -> Path:
    """The path with links followed, or an error if no file can be written there."""
    target = Path(os.path.realpath(checked_path(path)))
    with _explained(path):
        if target.is_dir():
            raise OSError("it is a folder; give the name of a file in it")
        if not target.parent.is_dir():
            raise OSError(f"there is no folder {target.parent}")
        if target.exists() and not target.is_file():  # renaming over a device would remove it
            raise OSError("it is not an ordinary file")
        if not os.access(target if target.exists() else target.parent, os.W_OK):
            raise OSError("it is write-protected")
    return target


@contextmanager
def _explained(path: str | PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    """Sync the new name to disk, on systems that can sync a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
