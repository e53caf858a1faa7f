"""Record batches into a file that appears whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.readers import file_format
from softki.exceptions import InvalidInputError

Write = Callable[[Any], None]


@contextmanager
def written(path: str | PathLike[str], schema: Any) -> Iterator[Write]:
    r"""A function that writes record batches to a CSV, Parquet or Arrow file, as they come.

    They go to a temporary file in the same folder, which is renamed at the end. Where the body
    fails, nothing is left, and an older file stays.

    Example:
        >>> import tempfile
        >>> batch = pa.record_batch({"a": [1, 2]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with written(f"{folder}/numbers.csv", batch.schema) as write:
        ...         write(batch)
        ...     Path(folder, "numbers.csv").read_text()
        '"a"\n1\n2\n'
    """
    kind, target = file_format(path), checked_target(path)
    temporary = target.with_name(f".softki-{secrets.token_hex(8)}.tmp")
    try:
        compression = "gzip" if str(path).lower().endswith(".gz") else None
        with (
            pa.output_stream(str(temporary), compression=compression) as sink,
            _writer(kind, sink, schema) as writer,
        ):
            yield writer.write_batch
        os.replace(temporary, target)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def csv_to(sink: Any, schema: Any) -> Iterator[Write]:
    """A function that writes record batches as CSV to an open binary file, as they come."""
    with pa.csv.CSVWriter(sink, schema) as writer:
        yield writer.write_batch


def checked_target(path: str | PathLike[str]) -> Path:
    """The place to write to, links followed, if a file can be made there."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InvalidInputError(f"{path}: is a folder; give the name of a file in it")
    if not target.parent.is_dir():
        raise InvalidInputError(f"{path}: there is no folder {target.parent}")
    if target.exists() and not target.is_file():
        raise InvalidInputError(f"{path}: is not an ordinary file")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InvalidInputError(f"{path}: is write-protected")
    return target


def _writer(kind: str, sink: Any, schema: Any) -> Any:
    if kind == "csv":
        return pa.csv.CSVWriter(sink, schema)
    if kind == "parquet":
        return pa.parquet.ParquetWriter(sink, schema)
    return pa.ipc.new_file(sink, schema)
