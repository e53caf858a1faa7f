"""CSV, Parquet and Arrow files as the reader of `softki.data.readers` takes them.

The classes have the two members of a `pyarrow.dataset.Fragment` that are used, `physical_schema`
and `to_batches`, so that files and data sets of a user are read by the same code. Files are not
themselves read as fragments: that decodes a whole row group of a Parquet file before its first
batch, so that memory would grow with the row groups; it follows the offsets in a damaged Arrow file
before a batch can be validated, to a segmentation fault; and it reads no Arrow streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.csv_types import MISSING_FIELDS

# Bytes of a block of a CSV file.
CSV_BYTES = 1 << 22
# Bytes of a Parquet column that are read at once; by default, it is all of a row group.
_PARQUET_BYTES = 1 << 20


class CsvFile:
    """A CSV file, which may be gzipped; its physical schema is inferred from the first block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.physical_schema = self._open().schema

    def to_batches(self, schema: Any, **_: Any) -> Iterator[Any]:
        """Batches of the columns of a schema, with its types."""
        types = dict(zip(schema.names, schema.types, strict=True))
        yield from self._open(include_columns=schema.names, column_types=types)

    def _open(self, **chosen: Any) -> Any:
        return pa.csv.open_csv(
            str(self._path),
            # One thread: only then do errors say the line.
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=CSV_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                null_values=MISSING_FIELDS, strings_can_be_null=True, **chosen
            ),
        )


class RowGroups:
    """Consecutive row groups of a Parquet file; by default, all of them."""

    def __init__(self, path: Path, metadata: Any = None, groups: Sequence[int] = ()) -> None:
        self._path = path
        self._metadata = pa.parquet.read_metadata(str(path)) if metadata is None else metadata
        every = range(self._metadata.num_row_groups)
        self._groups = every if metadata is None else groups
        self.physical_schema = self._metadata.schema.to_arrow_schema()

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(self._metadata.row_group(group).num_rows for group in self._groups)

    def split(self) -> list[RowGroups]:
        """The row groups, one by one."""
        return [RowGroups(self._path, self._metadata, [group]) for group in self._groups]

    def to_batches(self, columns: Sequence[str], batch_size: int, **_: Any) -> Iterator[Any]:
        """Batches of the columns; the file is open only while it is read."""
        with pa.parquet.ParquetFile(
            str(self._path),
            metadata=self._metadata,
            pre_buffer=False,
            buffer_size=_PARQUET_BYTES,
            page_checksum_verification=True,
        ) as file:
            yield from file.iter_batches(batch_size, self._groups, columns)
        # The memory that pyarrow keeps in every thread would be a large part of that of a fit.
        pa.default_memory_pool().release_unused()


class ArrowFile:
    """A file in the Arrow file or stream format, which have the same suffixes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as reader:
            self.physical_schema = reader.schema

    def to_batches(self, **_: Any) -> Iterator[Any]:
        """Batches of all columns as they were written, mapped into memory."""
        with self._open() as reader:
            if hasattr(reader, "num_record_batches"):
                yield from map(reader.get_batch, range(reader.num_record_batches))
            else:
                yield from reader

    def _open(self) -> Any:
        with open(self._path, "rb") as file:
            is_file = file.read(6) == b"ARROW1"
        source = pa.memory_map(str(self._path))
        return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
