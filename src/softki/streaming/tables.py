"""Parquet, CSV and Arrow files as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.readers import read_batches
from softki.exceptions import InvalidInputError
from softki.streaming.pieces import Piece, pieces_of
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
        parts += [NumberPart(piece, chosen) for piece in pieces_of(reader, ENCODE)]
    return table_source(parts, chosen, target, paths)


class NumberPart(Part):
    """A piece of a table that holds numbers only."""

    def __init__(self, piece: Piece, chosen: TableColumns) -> None:
        self.file, self.name, self.first_row = piece.path, str(piece.path), piece.first_row
        self._piece, self._chosen, self._size = piece, chosen, block_rows(len(chosen.all))
        if piece.count is not None:
            self.sizes = block_sizes(piece.count, self._size)

    def read(self) -> Iterator[Rows]:
        """The numbers of its record batches."""
        batches = self._piece.batches(self._size)
        rows = (rows_of(batch, self._chosen) for batch in batches)
        yield from rechunked(rows, self._size, Rows.join)


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
