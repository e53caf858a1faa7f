"""A table in one or several files, or in all files of a folder, as record batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.column_kinds import KINDS, kind_of
from softki.data.file_checks import FORMATS, check_there, file_format
from softki.data.scans import FilePart, opened
from softki.exceptions import InvalidInputError

# Rows of a batch.
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class FileSet:
    r"""The files of one table, in order.

    Attributes:
        name: name of all of them together, for messages.
        title: the same, without folders.
        paths: paths of the files.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "1.csv").write_text("size\n120\n80\n")
        ...     _ = Path(folder, "2.csv").write_text("size\n95\n")
        ...     [batch["size"].to_pylist() for batch in FileSet.of([Path(folder)]).read()]
        [[120.0, 80.0], [95.0]]
    """

    name: str
    title: str
    paths: tuple[Path, ...]

    @classmethod
    def of(cls, given: Sequence[Path]) -> FileSet:
        """The files that are given, and those of folders that are given."""
        paths = [
            file for path in given for file in (_folder_files(path) if path.is_dir() else [path])
        ]
        twice = [path for path, count in Counter(map(Path.resolve, paths)).items() if count > 1]
        if twice:
            raise InvalidInputError(f"{twice[0]}: is given twice: its rows would count twice")
        more = f" and {len(given) - 1} more" if len(given) > 1 else ""
        return cls(f"{given[0]}{more}", f"{given[0].resolve().name}{more}", tuple(paths))

    def __str__(self) -> str:
        return self.name

    @cached_property
    def files(self) -> list[FilePart]:
        """The opened files."""
        return [opened(path) for path in self.paths]

    @cached_property
    def names(self) -> list[str]:
        """The columns that any of the files has."""
        return list(dict.fromkeys(name for file in self.files for name in file.names))

    def read(
        self,
        columns: Sequence[str] | None = None,
        types: Mapping[str, Sequence[Any]] | None = None,
        advice: str = "",
    ) -> TableReader:
        """A reader of columns that all of the files have.

        Args:
            columns: names of the columns, in this order; None for all.
            types: types to try for columns of CSV files, see `FilePart.with_types`.
            advice: added to errors about text where a number should be.
        """
        columns = self.names if columns is None else columns
        check_there(self.name, columns, self.names)
        typed = _typed(self.files, columns, types or {})
        schemas = [file.schema for file in typed]
        schema = pa.schema([(name, _common_type(name, schemas)) for name in columns])
        return TableReader(self.name, schema, [file.converted(schema, advice) for file in typed])


@dataclass(frozen=True, eq=False)
class TableReader:
    """Columns of a table in files, as record batches, as often as they are iterated.

    Where files have different types of the same kind, such as int64 and double, all batches have
    one that suits both.

    Attributes:
        name: name of the table, for messages.
        schema: names and types of the columns of all batches.
        files: files of the table.
    """

    name: str
    schema: Any
    files: Sequence[FilePart]

    @property
    def parts(self) -> list[FilePart]:
        """The parts of all files, in order."""
        return [part for file in self.files for part in file.split()]

    @property
    def count(self) -> int | None:
        """Number of rows, where the files say it."""
        counts = [file.count for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    def __iter__(self) -> Iterator[Any]:
        rows = 0
        for file in self.files:
            for batch in file.batches(BATCH_ROWS):
                rows += len(batch)
                yield batch
        if not rows:
            raise InvalidInputError(f"{self.name}: has no rows")


def _typed(
    files: Sequence[FilePart], columns: Sequence[str], types: Mapping[str, Sequence[Any]]
) -> list[FilePart]:
    """The files with types that suit their rows, and values of the same kind in each column."""
    typed = []
    known: dict[str, tuple[Any, Path]] = {}  # a field of each column, and the file that has it
    for file in files:
        missing = [name for name in columns if name not in file.names]
        if missing:
            raise InvalidInputError(
                f"{file.path}: has no column {missing[0]!r}, which other files have: all must have "
                f"the same columns, or it must be left out (--drop {missing[0]})"
            )
        # A column of a CSV file is read as what it is in the files before it.
        before = {name: KINDS[kind_of(field, name)] for name, (field, _) in known.items()}
        known_types = {name: kind.csv_types for name, kind in before.items()}
        typed.append(file.with_types(columns, known_types | dict(types)))
        for field in typed[-1].schema:
            expected, path = known.get(field.name, (field, file.path))
            _check_same_kind(file.path, field, path, expected)
            if not pa.types.is_null(field.type):
                known.setdefault(field.name, (field, file.path))
    return typed


def _folder_files(folder: Path) -> list[Path]:
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
        what = ""
        if path not in tables or path.is_dir():
            what = "a folder" if path.is_dir() else "no table"
        elif file_format(path) != file_format(tables[0]):
            what = f"not of the format of {tables[0].name}"
        if what:
            raise InvalidInputError(
                f"{path}: is {what}, in a folder that is read as one table: move it away, or give "
                "the files themselves"
            )
    return tables


def _check_same_kind(path: Path, field: Any, first: Path, expected: Any) -> None:
    name, nothing = field.name, pa.null()
    if field.type == expected.type or nothing in (field.type, expected.type):
        return
    kind, before = kind_of(field, name), kind_of(expected, name)
    if kind != before:
        raise InvalidInputError(
            f"{path}: column {name!r} holds {KINDS[kind].plural} ({field.type}), and "
            f"{KINDS[before].plural} in {first.name}: convert it, so that all files have the same, "
            f"or leave it out (--drop {name})"
        )


def _common_type(name: str, schemas: Sequence[Any]) -> Any:
    """The type of a column where all files have the same, and else that of its kind."""
    types = list(dict.fromkeys(schema.field(name).type for schema in schemas))
    if len(types) == 1:
        return types[0]
    kinds = [kind_of(schema.field(name), name) for schema in schemas]
    return KINDS[next(kind for kind in kinds if kind != "null")].common
