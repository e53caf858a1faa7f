"""Parquet, CSV and Arrow files as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.csv_types import understood
from softki.data.readers import PARQUET_BYTES, Batches, file_format, read_batches
from softki.exceptions import InvalidInputError
from softki.streaming.rows import Rows, block_rows, rechunked
from softki.streaming.source import Part, Source
from softki.streaming.table_columns import (
    ENCODE,
    TableColumns,
    check_numeric,
    choose_columns,
    rows_of,
)

Target = str | Sequence[str] | None


def file_source(
    paths: Sequence[Path], target: Target, noise: str | None, columns: Sequence[str] | None
) -> Source:
    """Rows of files that have the same columns of the same types."""
    first = read_batches(paths[0])
    chosen = choose_columns(paths[0], first.names, target, noise, columns)
    kinds = {name: [pa.float64()] for name in chosen.all}
    schema = None
    parts: list[Part] = []
    for path in paths:
        reader = read_batches(path, chosen.all, kinds)
        if columns is None:
            _check_same_names(path, reader.names, paths[0], first.names)
        check_numeric(path, reader.schema, chosen.all)
        schema = schema or reader.schema
        _check_same_types(path, reader.schema, paths[0], schema)
        if file_format(path) == "parquet":
            parts += _row_groups(path, chosen)
        else:
            parts.append(_FilePart(reader, chosen))
    return table_source(parts, chosen, target, paths)


def folder_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, by name."""
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in (".parquet", ".pq") and not path.name.startswith((".", "_"))
    )
    if not paths:
        raise InvalidInputError(
            f"{folder}: has no Parquet files: give a folder of them, or a list of CSV files; for "
            "folders within folders, give pyarrow.dataset.dataset(folder)"
        )
    return paths


class TablePart(Part):
    """Record batches of one file, or of a part of it, with so many rows if that is known."""

    def __init__(
        self, path: Path, chosen: TableColumns, first_row: int = 0, count: int | None = None
    ) -> None:
        self.file, self.name, self.first_row = path, str(path), first_row
        self._chosen, self._size = chosen, block_rows(len(chosen.all))
        if count is not None:
            whole, rest = divmod(count, self._size)
            self.sizes = [self._size] * whole + [rest] * (rest > 0)

    def read(self) -> Iterator[Rows]:
        """The numbers of its record batches."""
        with naming(self.name, self._chosen.all):
            rows = (rows_of(batch, self._chosen) for batch in self._batches())
            yield from rechunked(rows, self._size)

    def _batches(self) -> Iterator[Any]:
        raise NotImplementedError


class _RowGroupPart(TablePart):
    def __init__(
        self, path: Path, metadata: Any, group: int, chosen: TableColumns, first_row: int
    ) -> None:
        super().__init__(path, chosen, first_row, metadata.row_group(group).num_rows)
        self._metadata, self._group = metadata, group

    def _batches(self) -> Iterator[Any]:
        with pa.parquet.ParquetFile(
            self.name,
            metadata=self._metadata,
            pre_buffer=False,
            buffer_size=PARQUET_BYTES,
            page_checksum_verification=True,
        ) as file:
            yield from file.iter_batches(self._size, [self._group], self._chosen.all)


class _FilePart(TablePart):
    def __init__(self, reader: Batches, chosen: TableColumns) -> None:
        super().__init__(reader.path, chosen)
        self._reader = reader

    def _batches(self) -> Iterator[Any]:
        try:
            yield from self._reader
        except InvalidInputError as error:
            if str(error).endswith("is not a number"):
                raise InvalidInputError(f"{error}: {ENCODE}") from error
            raise


def _row_groups(path: Path, chosen: TableColumns) -> list[Part]:
    with naming(str(path), chosen.all):
        metadata = pa.parquet.read_metadata(str(path))
    parts: list[Part] = []
    first_row = 0
    for group in range(metadata.num_row_groups):
        parts.append(_RowGroupPart(path, metadata, group, chosen, first_row))
        first_row += metadata.row_group(group).num_rows
    return parts


def table_source(
    parts: Sequence[Part], chosen: TableColumns, target: Target, files: Sequence[Path]
) -> Source:
    """The parts as a source of the chosen columns."""
    if not parts:
        raise InvalidInputError(f"{files[0] if files else 'dataset'}: has no rows")
    one = isinstance(target, str)
    return Source(parts, chosen.inputs, chosen.targets, chosen.noise, one, files)


@contextmanager
def naming(name: str, columns: Sequence[str]) -> Iterator[None]:
    """Errors of pyarrow and of the system as errors of softki that name the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{name}: {understood(error, columns)}") from error


def _check_same_names(
    path: Path, names: Sequence[str], first: Path, expected: Sequence[str]
) -> None:
    more = [name for name in names if name not in expected]
    if more:
        raise InvalidInputError(
            f"{path}: has a column {more[0]!r} that {first.name} has not: all files must have the "
            "same columns, or the columns to use must be given"
        )


def _check_same_types(path: Path, schema: Any, first: Path, expected: Any) -> None:
    for field, other in zip(schema, expected, strict=True):
        if field.type != other.type:
            raise InvalidInputError(
                f"{path}: column {field.name!r} has the type {field.type}, and in {first.name} it "
                f"has {other.type}: all files must have the same types"
            )
