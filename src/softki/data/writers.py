"""Writing of record batches to a file that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from typing import Any

from softki.data.arrow import pa
from softki.data.file_checks import file_format
from softki.files.atomic import replaced

Write = Callable[[Any], None]


@contextmanager
def written(path: str | PathLike[str], schema: Any) -> Iterator[Write]:
    r"""A function that writes record batches to a CSV, Parquet or Arrow file, as they come.

    They go to a temporary file in the same folder, which is renamed at the end. Where the body
    fails, nothing is left, and an older file stays.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> batch = pa.record_batch({"a": [1, 2]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with written(f"{folder}/numbers.csv", batch.schema) as write:
        ...         write(batch)
        ...     Path(folder, "numbers.csv").read_text()
        '"a"\n1\n2\n'
    """
    kind = file_format(path)
    compression = "gzip" if str(path).lower().endswith(".gz") else None
    with (
        replaced(path) as temporary,
        pa.output_stream(str(temporary), compression=compression) as sink,
        _writer(kind, sink, schema) as writer,
    ):
        yield writer.write_batch


@contextmanager
def csv_to(sink: Any, schema: Any) -> Iterator[Write]:
    """A function that writes record batches as CSV to an open binary file, as they come.

    The header comes with the first batch: where that fails, nothing is written.
    """
    with ExitStack() as stack:
        writers: list[Any] = []

        def write(batch: Any) -> None:
            if not writers:
                writers.append(stack.enter_context(pa.csv.CSVWriter(sink, schema)))
            writers[0].write_batch(batch)

        yield write


def _writer(kind: str, sink: Any, schema: Any) -> Any:
    if kind == "csv":
        return pa.csv.CSVWriter(sink, schema)
    if kind == "parquet":
        return pa.parquet.ParquetWriter(sink, schema)
    return pa.ipc.new_file(sink, schema)
