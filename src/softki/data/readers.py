"""Tables in files, read as record batches: CSV, Parquet and Arrow IPC (Feather).

A reader can be iterated as often as one likes, and holds one batch at a time, so that a file may
be larger than memory. What is wrong with a file is said in one line that names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.csv_types import CSV_OPTIONS, fitting_types, understood
from softki.data.text_hints import are_numbers
from softki.exceptions import InvalidInputError
from softki.validation.parameters import nearest

# Rows of a batch of a Parquet or Arrow file, and bytes of a batch of a CSV file.
BATCH_ROWS = 1 << 16
CSV_BYTES = 1 << 22
# Bytes of a Parquet column that are read at once; by default, it is all of a row group.
PARQUET_BYTES = 1 << 20

FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


def file_format(path: str | PathLike[str]) -> str:
    """`csv`, `parquet` or `arrow`, by the end of the name.

    Example:
        >>> file_format("rows.csv.gz")
        'csv'
    """
    name = Path(path).name.lower()
    for suffix, kind in FORMATS.items():
        if name.endswith(suffix):
            return kind
    raise InvalidInputError(f"{path}: the name must end in one of {', '.join(FORMATS)}")


class Batches(ABC):
    """The rows of a file as record batches, as often as they are iterated.

    Attributes:
        path: of the file.
        name: the same, for messages.
        names: all columns of the file.
        columns: those that are read, in this order.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None) -> None:
        self.path, self.name = path, str(path)
        self.names: list[str] = []
        with self._reading():
            self.names = self._names()
        check_unique(path, self.names)
        self.columns = list(self.names if columns is None else columns)
        check_there(path, self.columns, self.names)

    @cached_property
    def schema(self) -> Any:
        """Names and types of the columns that are read."""
        with self._reading():
            return self._schema()

    @property
    def count(self) -> int | None:
        """Number of rows, where the file says it."""
        return None

    def __iter__(self) -> Iterator[Any]:
        rows = 0
        with self._reading():
            for batch in self._batches():
                if len(batch):
                    rows += len(batch)
                    yield batch.select(self.columns)
        if not rows:
            raise InvalidInputError(f"{self.path}: has no rows")

    @property
    def files(self) -> list[Batches]:
        """A reader for each file."""
        return [self]

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return row_place(self.path, row)

    def table(self) -> Any:
        """All rows at once."""
        return pa.Table.from_batches(list(self), self.schema)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Errors of pyarrow and of the system as errors of softki that name the file."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            message = f"{self.name}: {understood(error, self.names)}"
            raise InvalidInputError(message) from error

    @abstractmethod
    def _names(self) -> list[str]: ...

    @abstractmethod
    def _schema(self) -> Any: ...

    @abstractmethod
    def _batches(self) -> Iterable[Any]: ...


def read_batches(
    path: str | PathLike[str],
    columns: Sequence[str] | None = None,
    types: Mapping[str, Sequence[Any]] | None = None,
) -> Batches:
    r"""A reader of the columns of a file.

    Args:
        path: of a CSV file (may be gzipped), a Parquet file, or an Arrow IPC (Feather) file.
        columns: to read, in this order; None for all.
        types: for columns of a CSV file, Arrow types of which the first that suits all rows is
            taken. By default these are numbers, booleans, timestamps, times of day, and text.
            Finding out takes another pass over the file, and one more, up to the row in question,
            each time that a row does not suit the type tried so far. Other files have their own
            types.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "rows.csv")
        ...     _ = path.write_text("size,city\n120,Paris\n80.5,Oslo\n")
        ...     reader = read_batches(path, ["city", "size"])
        ...     [batch.num_rows for batch in reader], reader.schema.types
        ([2], [DataType(string), DataType(double)])
    """
    path = Path(path)
    kind = file_format(path)
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file")
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder, not a file")
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path}: is empty")
    if kind == "csv":
        return _CsvBatches(path, columns, types or {})
    return _ParquetBatches(path, columns) if kind == "parquet" else _ArrowBatches(path, columns)


class _CsvBatches(Batches):
    def __init__(
        self, path: Path, columns: Sequence[str] | None, types: Mapping[str, Sequence[Any]]
    ) -> None:
        super().__init__(path, columns)
        self.types = types

    def _names(self) -> list[str]:
        names = list(self._open(None).schema.names)
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            raise InvalidInputError(
                f"{self.path}: has one column, {names[0]!r}: columns must be separated by commas"
            )
        # pandas calls the columns of a matrix 0, 1, 2, …
        if are_numbers(names) and names != [str(k) for k in range(len(names))]:
            some = ",".join(names[:5]) + (",…" if len(names) > 5 else "")
            raise InvalidInputError(
                f"{self.path}: has no header: the first row {some!r} looks like data: add a line "
                "with the names of the columns above it"
            )
        return names

    @cached_property
    def _types(self) -> dict[str, Any]:
        """The first type of each column that suits all its rows."""
        return fitting_types(self.names, self.columns, self.types, self._open)

    def _schema(self) -> Any:
        return pa.schema([(name, self._types[name]) for name in self.columns])

    def _batches(self) -> Iterable[Any]:
        return self._open(self._types)

    def _open(self, types: Mapping[str, Any] | None) -> Any:
        chosen = {} if types is None else {"include_columns": list(types), "column_types": types}
        return pa.csv.open_csv(
            str(self.path),
            # One thread: only then do errors say the line.
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=CSV_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(**CSV_OPTIONS, **chosen),
        )


class _ParquetBatches(Batches):
    @cached_property
    def _metadata(self) -> Any:
        return pa.parquet.read_metadata(str(self.path))

    @cached_property
    def _whole_schema(self) -> Any:
        return self._metadata.schema.to_arrow_schema()

    @property
    def count(self) -> int | None:
        return int(self._metadata.num_rows)

    def _names(self) -> list[str]:
        return list(self._whole_schema.names)

    def _schema(self) -> Any:
        return pa.schema([self._whole_schema.field(name) for name in self.columns])

    def _batches(self) -> Iterable[Any]:
        # Opened anew each time: of a folder, not all files are open at once.
        with pa.parquet.ParquetFile(
            str(self.path), pre_buffer=False, buffer_size=PARQUET_BYTES
        ) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=self.columns)


class _ArrowBatches(Batches):
    def _names(self) -> list[str]:
        with self._open() as reader:
            return list(reader.schema.names)

    def _schema(self) -> Any:
        with self._open() as reader:
            return pa.schema([reader.schema.field(name) for name in self.columns])

    def _batches(self) -> Iterable[Any]:
        with self._open() as reader:
            if hasattr(reader, "num_record_batches"):
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:
                batches = iter(reader)
            for batch in batches:
                for start in range(0, len(batch), BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)

    def _open(self) -> Any:
        """A reader of the file format, or of the stream format, which has the same suffixes."""
        with open(self.path, "rb") as file:
            is_file = file.read(6) == b"ARROW1"
        source = pa.memory_map(str(self.path))
        return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


def row_place(path: Path, row: int) -> str:
    """Where a row of a file is, in words; it is counted from 0, and users count from 1.

    Example:
        >>> row_place(Path("t.csv"), 0), row_place(Path("t.parquet"), 0)
        ('line 2', 'row 1')
    """
    return f"line {row + 2}" if file_format(path) == "csv" else f"row {row + 1}"


def check_unique(path: Path, names: Sequence[str]) -> None:
    """Raise if a column name stands twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(f"{path}: has more than one column {twice[0]!r}: rename them")


def check_there(path: Path | str, columns: Iterable[str], names: Sequence[str]) -> None:
    """Raise if the file lacks a column, with the nearest name that it has."""
    missing = [name for name in columns if name not in names]
    if missing:
        some = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise InvalidInputError(f"{path}: has no column {some}{suggestion(missing[0], names)}")


def suggestion(name: str, names: Iterable[str]) -> str:
    """`: did you mean …?` where one of the names is close.

    Example:
        >>> suggestion("prise", ["price", "size"])
        ": did you mean 'price'?"
    """
    close = nearest(name, names)
    return "" if close is None else f": did you mean {close!r}?"
