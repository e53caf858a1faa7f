"""Files that `pyarrow.dataset` cannot read as they have to be read.

The dataset reader decodes a whole row group of a Parquet file before it gives the first batch of
it, so that memory would grow with the row groups, and it reads Arrow files but no Arrow streams,
although both have the same suffixes. The classes here have the two members of a
`pyarrow.dataset.Fragment` that are used: `physical_schema` and `to_batches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from softki.data.arrow import pa

# Bytes of a Parquet column that are read at once; by default, it is all of a row group.
_PARQUET_BYTES = 1 << 20


class RowGroups:
    """Consecutive row groups of a Parquet file, of which one batch is in memory at a time."""

    def __init__(self, path: Path, metadata: Any, groups: Sequence[int]) -> None:
        self._path, self._metadata, self._groups = path, metadata, groups
        self.physical_schema = metadata.schema.to_arrow_schema()

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(self._metadata.row_group(group).num_rows for group in self._groups)

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


class ArrowStream:
    """A file in the Arrow stream format."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as reader:
            self.physical_schema = reader.schema

    def to_batches(self, **_: Any) -> Iterator[Any]:
        """Batches of all columns, as they were written."""
        with self._open() as reader:
            yield from reader

    def _open(self) -> Any:
        return pa.ipc.open_stream(pa.memory_map(str(self._path)))
