"""One table in several files, or in all files of a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from softki.data.arrow import pa
from softki.data.column_kinds import KINDS, kind_of
from softki.data.readers import FORMATS, Batches, check_there, file_format, read_batches
from softki.exceptions import InvalidInputError

# What a column becomes where files have different types of the same kind, such as int64 and double.
_COMMON = {
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "category": pa.string(),
    "date": pa.timestamp("us"),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "null": pa.null(),
}


@dataclass(frozen=True)
class FileSet:
    r"""The files of one table, in order.

    Attributes:
        name: what they are called together, in messages.
        title: the same, without folders.
        paths: of the files.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "1.csv").write_text("size\n120\n80\n")
        ...     _ = Path(folder, "2.csv").write_text("size\n95\n")
        ...     FileSet.of([Path(folder)]).read().table()["size"].to_pylist()
        [120.0, 80.0, 95.0]
    """

    name: str
    title: str
    paths: tuple[Path, ...]

    @classmethod
    def of(cls, given: Sequence[Path]) -> FileSet:
        """The files that are given, and those of folders that are given."""
        paths = [file for path in given for file in _files_of(path)]
        twice = [path for path, count in Counter(map(Path.resolve, paths)).items() if count > 1]
        if twice:
            raise InvalidInputError(f"{twice[0]}: is given twice: its rows would count twice")
        more = f" and {len(given) - 1} more" if len(given) > 1 else ""
        return cls(f"{given[0]}{more}", f"{given[0].resolve().name}{more}", tuple(paths))

    def __str__(self) -> str:
        return self.name

    @cached_property
    def names(self) -> list[str]:
        """The columns that any of the files has."""
        every = [name for path in self.paths for name in read_batches(path).names]
        return list(dict.fromkeys(every))

    def read(
        self,
        columns: Sequence[str] | None = None,
        types: Mapping[str, Sequence[Any]] | None = None,
    ) -> Batches:
        """A reader of columns that all of the files have; see `read_batches`."""
        if len(self.paths) == 1:
            return read_batches(self.paths[0], columns, types)
        return _SeveralFiles(self, columns, types or {})


def folder_files(folder: Path) -> list[Path]:
    """The tables of a folder, by name; they must be of one format, and nothing else be there.

    Names that begin with `.` or `_` are left aside, as writers of data sets put their own there.
    """
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))
    tables = [path for path in entries if path.name.lower().endswith(tuple(FORMATS))]
    if not tables:
        raise InvalidInputError(
            f"{folder}: has no Parquet, CSV or Arrow files, and folders within it are not read: "
            "give a folder of such files, or the files themselves (in Python, also "
            "pyarrow.dataset.dataset(folder))"
        )
    for path in entries:
        if path not in tables or path.is_dir():
            what = "a folder" if path.is_dir() else "no table"
            raise InvalidInputError(
                f"{path}: is {what}, in a folder that is read as one table: move it away, or give "
                "the files themselves"
            )
        if file_format(path) != file_format(tables[0]):
            raise InvalidInputError(
                f"{path}: is not of the format of {tables[0].name}, in a folder that is read as "
                "one table: move it away, or give the files themselves"
            )
    return tables


def _files_of(path: Path) -> list[Path]:
    return folder_files(path) if path.is_dir() else [path]


class _SeveralFiles(Batches):
    """Files that have the same kinds of columns, one after the other."""

    def __init__(
        self,
        files: FileSet,
        columns: Sequence[str] | None,
        types: Mapping[str, Sequence[Any]],
    ) -> None:
        self.name, self.names = files.name, files.names
        self.columns = list(files.names if columns is None else columns)
        check_there(files.name, self.columns, self.names)
        self._paths, self._types = files.paths, types
        self._counts: list[int] = []  # rows of the files, once they are read

    @cached_property
    def files(self) -> list[Batches]:
        """A reader for each file, with the same kind of values in each column."""
        readers: list[Batches] = []
        kinds: dict[str, tuple[str, str]] = {}  # by column, and the file that has it
        for path in self._paths:
            # A column of a CSV file is read as what it is in the files before it.
            known = {name: KINDS[kind].csv_types for name, (kind, _) in kinds.items()}
            self._check_columns(path)
            reader = read_batches(path, self.columns, known | dict(self._types))
            for field in reader.schema:
                kind = kind_of(field, field.name)
                expected, first = kinds.get(field.name, ("null", ""))
                if "null" not in (kind, expected) and kind != expected:
                    raise InvalidInputError(
                        f"{path}: column {field.name!r} holds {KINDS[kind].plural} "
                        f"({field.type}), and {KINDS[expected].plural} in {first}: convert it, so "
                        f"that all files have the same, or leave it out (--drop {field.name})"
                    )
                if expected == "null":
                    kinds[field.name] = kind, path.name
            readers.append(reader)
        return readers

    @property
    def count(self) -> int | None:
        counts = [reader.count for reader in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    def place(self, row: int) -> str:
        """Where a row is: its line or row, and the file; the rows must have been read."""
        ends = np.cumsum(self._counts)
        number = int(np.searchsorted(ends, row, side="right"))
        reader, before = self.files[number], int(ends[number]) - self._counts[number]
        return f"{reader.place(row - before)} of {reader.path.name}"

    def _check_columns(self, path: Path) -> None:
        missing = [name for name in self.columns if name not in read_batches(path).names]
        if missing:
            raise InvalidInputError(
                f"{path}: has no column {missing[0]!r}, which other files have: all must have the "
                f"same columns, or it must be left out (--drop {missing[0]})"
            )

    def _names(self) -> list[str]:
        return self.names

    def _schema(self) -> Any:
        schemas = [reader.schema for reader in self.files]
        return pa.schema([(name, _common_type(name, schemas)) for name in self.columns])

    def __iter__(self) -> Iterator[Any]:
        counts = []
        for reader in self.files:
            count = 0
            if reader.count != 0:  # a file without rows does no harm beside others
                for batch in reader:
                    count += len(batch)
                    yield _as_typed(batch, self.schema)
            counts.append(count)
        self._counts = counts
        if not sum(counts):
            raise InvalidInputError(f"{self.name}: has no rows")

    def _batches(self) -> Iterable[Any]:
        return iter(self)


def _as_typed(batch: Any, schema: Any) -> Any:
    """The batch with the types of the schema, rounded where need be, as in any encoding."""
    if batch.schema.types == schema.types:
        return batch
    columns = [
        pa.compute.cast(batch.column(name), schema.field(name).type, safe=False)
        for name in schema.names
    ]
    return pa.record_batch(columns, schema=schema)


def _common_type(name: str, schemas: Sequence[Any]) -> Any:
    """The type of a column where all files have the same, and else that of its kind."""
    fields = [schema.field(name) for schema in schemas]
    kinds = [kind for kind in (kind_of(field, name) for field in fields) if kind != "null"]
    same = all(field.type == fields[0].type for field in fields)
    return fields[0].type if same else _COMMON[kinds[0]]
