"""A file of results: one line of JSON a run, appended as the runs end."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from os import PathLike

from softki.bench.record import Key, Record
from softki.exceptions import InvalidInputError, SoftKIWarning
from softki.files.atomic import checked_path


class Results:
    """The records in a file, the latest of each key, in the order in which they were written.

    The file is read once, and one process writes to it. A last line that a killed run left
    unfinished is passed over with a warning, and removed by the next `append`.

    Args:
        path: of the file; it and its folders need not exist yet.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results = Results(f"{folder}/runs/results.jsonl")
        ...     results.append(Record("pol", "svgp", 0, "90/10", rmse=0.2))
        ...     results.append(Record("pol", "svgp", 0, "90/10", rmse=0.1))
        ...     [record.rmse for record in Results(f"{folder}/runs/results.jsonl")]
        [0.1]
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = checked_path(path)
        self._records: dict[Key, Record] = {}
        *lines, tail = self._content().split(b"\n")
        for number, line in enumerate(lines, start=1):
            if line.strip():
                self._add(self._record(line, number))
        if _is_whole(tail):  # a file that somebody edited
            self._add(self._record(tail, len(lines) + 1))
        elif tail.strip():
            warnings.warn(
                f"the last line of {self.path} is cut short and is not used: run it again",
                SoftKIWarning,
                stacklevel=2,
            )

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def __len__(self) -> int:
        return len(self._records)

    def done(self, key: Key) -> bool:
        """Whether there is a record of this run that is `Record.final`."""
        return key in self._records and self._records[key].final

    def append(self, record: Record) -> None:
        """Write the record to the end of the file, in one piece, and wait until it is on disk."""
        self._write(record.to_json().encode() + b"\n")
        self._add(record)

    def check_writable(self) -> None:
        """Raise where `append` would: before the work, not after it."""
        self._write(b"")

    def _write(self, line: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._mended():
                line = b"\n" + line
            with open(self.path, "ab", buffering=0) as file:
                written = file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise InvalidInputError(
                f"cannot write {self.path}: {error.strerror or error}"
            ) from error
        if written != len(line):
            raise InvalidInputError(f"cannot write {self.path}: the disk is full")

    def _add(self, record: Record) -> None:
        self._records.pop(record.key, None)  # the later one takes its place in the order, too
        self._records[record.key] = record

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise InvalidInputError(
                f"cannot read {self.path}: {error.strerror or error}"
            ) from error

    def _record(self, line: bytes, number: int) -> Record:
        try:
            return Record.from_json(line.decode())
        except ValueError as error:  # not UTF-8, or no record
            raise InvalidInputError(
                f"line {number} of {self.path} cannot be used, mend or remove it: {error}"
            ) from error

    def _mended(self) -> bool:
        """Remove an unfinished last line; whether a finished one still lacks its end."""
        content = self._content()
        end = content.rfind(b"\n") + 1
        if _is_whole(content[end:]):
            return True
        if end < len(content):
            os.truncate(self.path, end)
        return False


def _is_whole(line: bytes) -> bool:
    """Whether no part of the line is missing: no beginning of a JSON object is one itself."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
