"""Files that must stay as they are while they are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from softki.exceptions import InvalidInputError


class Files:
    """Size and time of change of files when they were opened.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "rows.csv")
        ...     _ = path.write_text("x")
        ...     files = Files([path])
        ...     _ = path.write_text("another text")
        ...     try:
        ...         files.check_unchanged()
        ...     except InvalidInputError as error:
        ...         print(str(error).removeprefix(folder))
        /rows.csv: changed while it was read: fit again, to a file that stays as it is
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self.fingerprint = {path: _state(path) for path in paths}

    def check_unchanged(self, path: Path | None = None) -> None:
        """Raise if the file, or any of them, is no longer what it was."""
        for known in self.fingerprint if path is None else [path]:
            if known in self.fingerprint and _state(known) != self.fingerprint[known]:
                what = "changed" if known.exists() else "was removed"
                raise InvalidInputError(
                    f"{known}: {what} while it was read: fit again, to a file that stays as it is"
                )


def _state(path: Path) -> tuple[int, int] | None:
    """Size and time of change; None where there is no such file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns
