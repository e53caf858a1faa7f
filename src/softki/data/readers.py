"""Tables in files, read as record batches: CSV, Parquet and Arrow IPC (Feather).

A file can be read as often as one likes, and one batch of it is in memory at a time. An error of
pyarrow or of the system becomes one line that names the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.csv_types import fitting_types, understood
from softki.data.scans import ArrowFile, CsvFile, RowGroups
from softki.data.text_hints import are_numbers
from softki.exceptions import InvalidInputError
from softki.validation.parameters import nearest

# Rows of a batch.
BATCH_ROWS = 1 << 16

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


class FilePart:
    """Rows of a file that are read from their start: a row group, or a whole file.

    Args:
        path: path of the file, for messages.
        scan: a `pyarrow.dataset.Fragment` or `Dataset`, or an object of `softki.data.scans`.
        stored: schema by which the file is read.
        schema: the same columns with the types of the table.
        first_row: number of the first row in the file.
        advice: added to errors about text where a number should be.

    Attributes:
        count: number of rows, if it is known before they are read.
    """

    def __init__(
        self,
        path: Path,
        scan: Any,
        stored: Any,
        schema: Any,
        first_row: int = 0,
        advice: str = "",
    ) -> None:
        self.path, self.schema, self.first_row = path, schema, first_row
        self.count: int | None = getattr(scan, "count", None)
        self._scan, self._stored, self._advice = scan, stored, advice

    def batches(self, size: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Record batches of at most `size` rows, the same in every pass.

        Every batch is validated in full: Arrow files say where values begin and end, and pyarrow
        would follow a wrong offset to any place in memory.
        """
        names = self.schema.names if columns is None else list(columns)
        stored = pa.schema([self._stored.field(name) for name in names])
        types = [self.schema.field(name).type for name in names]
        every = getattr(self._scan, "physical_schema", self._stored).names
        with naming(self.path, every, self._advice):
            for batch in scanned(self._scan, stored, size):
                batch.validate(full=True)
                for start in range(0, len(batch), size):
                    yield _as_typed(batch.slice(start, size).select(names), types)

    def place(self, row: int) -> str:
        """The place of a row of this part in the file, in words; users count from 1.

        Example:
            >>> schema = pa.schema([])
            >>> [FilePart(Path(n), None, schema, schema, 5).place(0) for n in ("t.csv", "t.pq")]
            ['line 7', 'row 6']
        """
        row += self.first_row
        return f"line {row + 2}" if file_format(self.path) == "csv" else f"row {row + 1}"


_SCANS = {"csv": CsvFile, "parquet": RowGroups, "arrow": ArrowFile}


class TableFile:
    """A file of a table.

    Attributes:
        path: path of the file.
        names: names of all of its columns.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        kind = file_format(self.path)
        if not self.path.exists():
            raise InvalidInputError(f"{self.path}: no such file")
        if self.path.stat().st_size == 0:
            raise InvalidInputError(f"{self.path}: is empty")
        with naming(self.path):
            self._scan: Any = _SCANS[kind](self.path)
            self._inferred = self._scan.physical_schema
            self.names: list[str] = self._inferred.names
        self.is_csv = kind == "csv"
        if self.is_csv:
            _check_header(self.path, self.names)
        check_unique(self.path, self.names)

    def schema(self, columns: Sequence[str], types: Mapping[str, Sequence[Any]]) -> Any:
        """The schema of some columns; those of a CSV file have the first type that suits all rows.

        Finding out takes a pass over the CSV file, and one more, up to the row in question, each
        time that a row does not suit the type tried so far.

        Args:
            columns: names of the columns.
            types: types to try for columns of a CSV file. By default these are numbers, booleans,
                timestamps, times of day, and text. Other files have their own types.
        """
        check_there(self.path, columns, self.names)
        if not self.is_csv:
            return pa.schema([self._inferred.field(name) for name in columns])
        with naming(self.path, self.names):
            return fitting_types(
                self._inferred,
                columns,
                types,
                lambda schema: scanned(self._scan, schema, BATCH_ROWS),
            )

    def part(self, stored: Any, schema: Any, advice: str) -> FilePart:
        """All rows of the file, see `FilePart`."""
        return FilePart(self.path, self._scan, stored, schema, 0, advice)

    def parts(self, stored: Any, schema: Any, advice: str) -> list[FilePart]:
        """The row groups of a Parquet file, or the whole file."""
        if not isinstance(self._scan, RowGroups):
            return [self.part(stored, schema, advice)]
        groups = self._scan.split()
        starts = accumulate((group.count for group in groups), initial=0)
        return [
            FilePart(self.path, group, stored, schema, start, advice)
            for group, start in zip(groups, starts, strict=False)
        ]


def scanned(scan: Any, schema: Any, size: int) -> Iterator[Any]:
    """Record batches of about `size` rows, in order, with the columns of a schema."""
    # A file knows only its own columns, and a data set with a filter takes no other schema.
    own = {"schema": schema} if hasattr(scan, "physical_schema") else {}
    yield from scan.to_batches(
        columns=schema.names,
        batch_size=size,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,  # only then do errors of a CSV file say the line
        **own,
    )


def _as_typed(batch: Any, types: Sequence[Any]) -> Any:
    """The batch with other types of the same kinds, rounded where need be, as in any encoding."""
    if batch.schema.types == types:
        return batch
    columns = [
        pa.compute.cast(column, kind, safe=False)
        for column, kind in zip(batch.columns, types, strict=True)
    ]
    return pa.record_batch(columns, names=batch.schema.names)


@contextmanager
def naming(path: Path | str, names: Sequence[str] = (), advice: str = "") -> Iterator[None]:
    """Errors of pyarrow and of the system as errors of softki that name the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        message = understood(error, names)
        if advice and message.endswith("is not a number"):
            message += f": {advice}"
        of_system = getattr(error, "errno", None) is not None
        if not of_system and not str(path).lower().endswith((".csv", ".gz")):
            message += "; the file is damaged or incomplete: write it anew"
        raise InvalidInputError(f"{path}: {message}") from error


def _check_header(path: Path, names: Sequence[str]) -> None:
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise InvalidInputError(
            f"{path}: has one column, {names[0]!r}: columns must be separated by commas"
        )
    # pandas calls the columns of a matrix 0, 1, 2, …
    if are_numbers(names) and names != [str(k) for k in range(len(names))]:
        some = ",".join(names[:5]) + (",…" if len(names) > 5 else "")
        raise InvalidInputError(
            f"{path}: has no header: the first row {some!r} looks like data: add a line with the "
            "names of the columns above it"
        )


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
