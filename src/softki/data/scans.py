"""One file of a table: CSV, Parquet or Arrow IPC (Feather), read as record batches.

A file can be read as often as one likes, and one batch of it is in memory at a time.

Files are not read as fragments of `pyarrow.dataset`: that decodes a whole row group of a Parquet
file before its first batch, so that memory would grow with the row groups; it follows the offsets
in a damaged Arrow file before a batch can be validated, to a segmentation fault; and it reads no
Arrow streams.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from softki.data.arrow import pa
from softki.data.csv_types import MISSING_FIELDS, fitting_types
from softki.data.file_checks import check_header, check_there, check_unique, file_format, naming
from softki.exceptions import InvalidInputError

# Bytes of a block of a CSV file.
CSV_BYTES = 1 << 22
# Bytes of a Parquet column that are read at once; by default, it is all of a row group.
_PARQUET_BYTES = 1 << 20


class FilePart(ABC):
    """Rows of a file that are read from their start: all of them, or a row group.

    Attributes:
        path: path of the file, for messages.
        stored: names and types of all columns of the file.
        names: names of all columns of the file.
        schema: columns that are read, with the types of the table.
        count: number of rows, if it is known before they are read.
        first_row: number of the first row in the file.
        advice: added to errors about text where a number should be.
    """

    count: int | None = None
    first_row: int = 0
    advice: str = ""

    def __init__(self, path: Path, stored: Any) -> None:
        self.path, self.stored, self.schema = path, stored, stored
        self.names: list[str] = stored.names

    def batches(self, size: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Record batches of at most `size` rows, the same in every pass.

        Every batch is validated in full: Arrow files say where values begin and end, and pyarrow
        would follow a wrong offset to any place in memory.
        """
        names = self.schema.names if columns is None else list(columns)
        types = [self.schema.field(name).type for name in names]
        with naming(self.path, self.names, self.advice):
            for batch in self._read(names, size):
                batch.validate(full=True)
                for start in range(0, len(batch), size):
                    yield _as_typed(batch.slice(start, size).select(names), types)

    @abstractmethod
    def _read(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        """Batches of about `size` rows with these columns, and maybe others, as they are stored."""

    def with_types(self, columns: Sequence[str], types: Mapping[str, Sequence[Any]]) -> Self:
        """These columns, with types that suit all rows.

        Only a CSV file has to find out, in a pass over its rows, and one more, up to the row in
        question, each time that a row does not suit the type tried so far.

        Args:
            columns: names of the columns.
            types: types to try for columns of a CSV file. By default these are numbers, booleans,
                timestamps, times of day, and text. Other files have their own types.
        """
        check_there(self.path, columns, self.names)
        return self._with(schema=pa.schema([self.stored.field(name) for name in columns]))

    def converted(self, schema: Any, advice: str) -> Self:
        """The columns of a schema, with other types of the same kinds."""
        return self._with(schema=schema, advice=advice)

    def split(self) -> Sequence[Self]:
        """The row groups of a Parquet file, or the whole file."""
        return [self]

    def place(self, row: int) -> str:
        """The place of a row of this part in the file, in words; users count from 1."""
        row += self.first_row
        return f"line {row + 2}" if file_format(self.path) == "csv" else f"row {row + 1}"

    def _with(self, **attributes: Any) -> Self:
        changed = copy.copy(self)
        vars(changed).update(attributes)
        return changed


def _as_typed(batch: Any, types: Sequence[Any]) -> Any:
    """The batch with other types of the same kinds, rounded where need be, as in any encoding."""
    if batch.schema.types == types:
        return batch
    columns = [
        pa.compute.cast(column, kind, safe=False)
        for column, kind in zip(batch.columns, types, strict=True)
    ]
    return pa.record_batch(columns, names=batch.schema.names)


class CsvFile(FilePart):
    """A CSV file, which may be gzipped; its types are inferred from the first block."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _open_csv(path).schema)
        self._types = self.stored
        check_header(path, self.names)

    def with_types(self, columns: Sequence[str], types: Mapping[str, Sequence[Any]]) -> Self:
        """These columns, with the first type of each that suits all rows."""
        check_there(self.path, columns, self.names)
        with naming(self.path, self.names):
            schema = fitting_types(self.stored, columns, types, partial(_csv_batches, self.path))
        return self._with(schema=schema, _types=schema)

    def _read(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        """Batches of `CSV_BYTES`."""
        return _csv_batches(self.path, pa.schema([self._types.field(name) for name in columns]))


def _csv_batches(path: Path, schema: Any) -> Iterator[Any]:
    """Batches of the columns of a schema, with its types."""
    types = dict(zip(schema.names, schema.types, strict=True))
    yield from _open_csv(path, include_columns=schema.names, column_types=types)


def _open_csv(path: Path, **chosen: Any) -> Any:
    return pa.csv.open_csv(
        str(path),
        # One thread: only then do errors say the line.
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=CSV_BYTES),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            null_values=MISSING_FIELDS, strings_can_be_null=True, **chosen
        ),
    )


class ParquetFile(FilePart):
    """A Parquet file, or one of its row groups."""

    def __init__(self, path: Path) -> None:
        self._metadata = pa.parquet.read_metadata(str(path))
        super().__init__(path, self._metadata.schema.to_arrow_schema())
        self._groups: Sequence[int] = range(self._metadata.num_row_groups)
        self.count = self._metadata.num_rows

    def _read(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        """Batches of the columns; the file is open only while it is read."""
        with pa.parquet.ParquetFile(
            str(self.path),
            metadata=self._metadata,
            pre_buffer=False,
            buffer_size=_PARQUET_BYTES,
            page_checksum_verification=True,
        ) as file:
            yield from file.iter_batches(size, self._groups, columns)
        # The memory that pyarrow keeps in every thread would be a large part of that of a fit.
        pa.default_memory_pool().release_unused()

    def split(self) -> Sequence[Self]:
        """The row groups, one by one."""
        counts = [self._metadata.row_group(group).num_rows for group in self._groups]
        starts = accumulate(counts, initial=0)
        return [
            self._with(_groups=[group], count=count, first_row=start)
            for group, count, start in zip(self._groups, counts, starts, strict=False)
        ]


class ArrowFile(FilePart):
    """A file in the Arrow file or stream format, which have the same suffixes."""

    def __init__(self, path: Path) -> None:
        with _open_arrow(path) as reader:
            super().__init__(path, reader.schema)

    def _read(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        """Batches of all columns as they were written, mapped into memory."""
        with _open_arrow(self.path) as reader:
            if hasattr(reader, "num_record_batches"):
                yield from map(reader.get_batch, range(reader.num_record_batches))
            else:
                yield from reader


def _open_arrow(path: Path) -> Any:
    with open(path, "rb") as file:
        is_file = file.read(6) == b"ARROW1"
    source = pa.memory_map(str(path))
    return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


class Fragment(FilePart):
    """A fragment of a user's `pyarrow.dataset.Dataset`, or a data set with a filter.

    Args:
        fragment: the fragment or data set.
        path: path of its file, or a name for messages.
        schema: columns that are read, with the types of the data set.
        first_row: number of the first row in the file.
        count: number of rows, if it is known.
    """

    def __init__(
        self, fragment: Any, path: Path, schema: Any, first_row: int = 0, count: int | None = None
    ) -> None:
        # A file knows only its own columns, and a data set with a filter takes no other schema.
        self._is_file = hasattr(fragment, "physical_schema")
        super().__init__(path, fragment.physical_schema if self._is_file else schema)
        self.schema, self.first_row, self.count = schema, first_row, count
        self._fragment = fragment

    def _read(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        """Batches of the columns, with the types of the data set."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        yield from self._fragment.to_batches(
            columns=list(columns),
            batch_size=size,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,  # only then do errors of a CSV file say the line
            **({"schema": schema} if self._is_file else {}),
        )


_KINDS: dict[str, Callable[[Path], FilePart]] = {
    "csv": CsvFile,
    "parquet": ParquetFile,
    "arrow": ArrowFile,
}


def opened(path: Path) -> FilePart:
    """All rows of a file, if it is there and has the columns of a table."""
    kind = file_format(path)
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path}: is empty")
    with naming(path):
        file = _KINDS[kind](path)
    check_unique(path, file.names)
    return file
