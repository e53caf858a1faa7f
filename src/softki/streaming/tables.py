"""Parquet, CSV and Arrow files as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softki.data.arrow import pa
from softki.data.column_kinds import numbers_of
from softki.data.readers import check_there, check_unique, read_batches
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import RawRows, block_rows, rechunked
from softki.streaming.pieces import Piece, pieces_of
from softki.streaming.source import Part, Source

ENCODE = "encode it as numbers first, or use `softki fit`, which encodes it"


class TableColumns(NamedTuple):
    """Names of columns, by what they are for."""

    inputs: list[str]
    targets: list[str]
    noise: str | None

    @property
    def all(self) -> list[str]:
        """All that are read."""
        return [*self.inputs, *self.targets, *([] if self.noise is None else [self.noise])]


def choose_columns(
    path: Path,
    names: Sequence[str],
    target: str | Sequence[str] | None,
    noise: str | None,
    columns: Sequence[str] | None,
) -> TableColumns:
    """The columns of a table to read; by default, all are inputs but for targets and noise.

    Example:
        >>> choose_columns(Path("t.csv"), ["a", "b", "y"], "y", None, None).inputs
        ['a', 'b']
    """
    if target is None or not len(target):
        some = ", ".join(map(repr, names[-3:]))
        raise InvalidInputError(f"{path}: y must name the column to predict, such as {some}")
    targets = [target] if isinstance(target, str) else list(target)
    others = [*targets, *([] if noise is None else [noise])]
    inputs = [name for name in names if name not in others] if columns is None else list(columns)
    chosen = TableColumns(inputs, targets, noise)
    check_unique(path, names)
    check_there(path, chosen.all, names)
    twice = [name for name in chosen.all if chosen.all.count(name) > 1]
    if twice:
        raise InvalidInputError(
            f"{path}: column {twice[0]!r} has more than one use, or is repeated"
        )
    if not inputs:
        raise InvalidInputError(f"{path}: has no columns for the inputs")
    return chosen


def check_numeric(path: Path | str, schema: Any, names: Sequence[str]) -> None:
    """Raise if a column holds no numbers."""
    types = pa.types
    tests = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean
    for name in names:
        kind = schema.field(name).type
        if not any(test(kind) for test in tests):
            raise InvalidInputError(
                f"{path}: column {name!r} holds no numbers but has the type {kind}: {ENCODE}"
            )


def rows_of(batch: Any, chosen: TableColumns) -> RawRows:
    """The numbers of a record batch; missing ones are NaN."""
    noise = None if chosen.noise is None else _numbers(batch.column(chosen.noise))
    return RawRows(
        matrix_of(batch, chosen.inputs),
        matrix_of(batch, chosen.targets),
        None if noise is None else noise.astype(np.float64),
    )


def matrix_of(batch: Any, names: Sequence[str]) -> np.ndarray:
    """The columns side by side: in float32 if all are, else in float64."""
    columns = [batch.column(name) for name in names]
    single = all(column.type == pa.float32() for column in columns)
    matrix = np.empty((len(batch), len(names)), np.float32 if single else np.float64)
    for j, column in enumerate(columns):
        matrix[:, j] = _numbers(column)
    return matrix


def _numbers(column: Any) -> np.ndarray:
    if column.type in (pa.float32(), pa.float64()) and not column.null_count:
        return np.asarray(column.to_numpy())
    return numbers_of(column, "number")


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
        parts += [NumberPart(piece, chosen) for piece in pieces_of(reader, ENCODE)]
    return table_source(parts, chosen, target, paths)


class NumberPart(Part):
    """A piece of a table that holds numbers only."""

    def __init__(self, piece: Piece, chosen: TableColumns) -> None:
        self.file, self.name, self.first_row = piece.path, str(piece.path), piece.first_row
        self._piece, self._chosen, self._size = piece, chosen, block_rows(len(chosen.all))
        if piece.count is not None:
            self.sizes = block_sizes(piece.count, self._size)

    def read(self) -> Iterator[RawRows]:
        """The numbers of its record batches."""
        batches = self._piece.batches(self._size)
        rows = (rows_of(batch, self._chosen) for batch in batches)
        yield from rechunked(rows, self._size, RawRows.join)


def block_sizes(count: int, size: int) -> list[int]:
    """The rows of blocks of a size, but for the last.

    Example:
        >>> block_sizes(5, 2), block_sizes(4, 2)
        ([2, 2, 1], [2, 2])
    """
    whole, rest = divmod(count, size)
    return [size] * whole + [rest] * (rest > 0)


def table_source(
    parts: Sequence[Part], chosen: TableColumns, target: Target, files: Sequence[Path]
) -> Source:
    """The parts as a source of the chosen columns."""
    if not parts:
        raise InvalidInputError(f"{files[0] if files else 'dataset'}: has no rows")
    one = isinstance(target, str)
    return Source(parts, chosen.inputs, chosen.targets, chosen.noise, one, files)


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
