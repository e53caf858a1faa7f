"""Parquet, CSV and Arrow files, and data sets of pyarrow, as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softki.data.arrow import pa
from softki.data.column_kinds import numbers_of
from softki.data.file_checks import check_there, check_unique, naming
from softki.data.file_sets import FileSet
from softki.data.scans import FilePart, Fragment
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import RawRows, block_rows, rechunked
from softki.streaming.source import Part, Source

_ENCODE = "encode it as numbers first, or use `softki fit`, which encodes it"

Target = str | Sequence[str] | None


class TablePart(Part):
    """A part of a table whose rows become numbers as they are read.

    Args:
        part: rows of a file.
        columns: names of the columns that are read.
        numbers: function of a record batch, and of the number of its first row in the part.
        width: numbers of a row.
        count: number of rows, if it is known before they are read.
    """

    def __init__(
        self,
        part: FilePart,
        columns: Sequence[str],
        numbers: Callable[[Any, int], RawRows],
        width: int,
        count: int | None,
    ) -> None:
        self.file, self.name, self.first_row = part.path, str(part.path), part.first_row
        self._part, self._columns, self._numbers = part, columns, numbers
        self._size = block_rows(width)
        if count is not None:
            whole, rest = divmod(count, self._size)
            self.sizes = [self._size] * whole + [rest] * (rest > 0)

    def read(self) -> Iterator[RawRows]:
        """Its rows, in blocks."""
        yield from map(RawRows.join, rechunked(self._rows(), self._size))

    def _rows(self) -> Iterator[RawRows]:
        row = 0
        for batch in self._part.batches(self._size, self._columns):
            yield self._numbers(batch, row)
            row += len(batch)


class TableColumns(NamedTuple):
    """Names of columns, by what they are for."""

    inputs: list[str]
    targets: list[str]
    noise: str | None

    @classmethod
    def of(
        cls,
        path: Path,
        names: Sequence[str],
        target: Target,
        noise: str | None,
        columns: Sequence[str] | None,
    ) -> TableColumns:
        """The columns of a table to read; by default, all are inputs but for targets and noise.

        Example:
            >>> TableColumns.of(Path("t.csv"), ["a", "b", "y"], "y", None, None).inputs
            ['a', 'b']
        """
        if target is None or not len(target):
            some = ", ".join(map(repr, names[-3:]))
            raise InvalidInputError(f"{path}: y must name the column to predict, such as {some}")
        targets = [target] if isinstance(target, str) else list(target)
        others = [*targets, *([] if noise is None else [noise])]
        inputs = [name for name in names if name not in others] if columns is None else columns
        chosen = cls(list(inputs), targets, noise)
        check_unique(path, names)
        check_there(path, chosen.all, names)
        twice = [name for name in chosen.all if chosen.all.count(name) > 1]
        if twice:
            raise InvalidInputError(
                f"{path}: column {twice[0]!r} has more than one use, or is repeated"
            )
        if not chosen.inputs:
            raise InvalidInputError(f"{path}: has no columns for the inputs")
        return chosen

    @property
    def others(self) -> list[str]:
        """The columns that are no inputs: targets, then noise."""
        return [*self.targets, *([] if self.noise is None else [self.noise])]

    @property
    def all(self) -> list[str]:
        """All columns that are read."""
        return [*self.inputs, *self.others]

    def rows(self, batch: Any, _: int = 0) -> RawRows:
        """The numbers of a record batch; missing ones are NaN."""
        noise = None if self.noise is None else matrix_of(batch, [self.noise])[:, 0]
        return RawRows(
            matrix_of(batch, self.inputs),
            matrix_of(batch, self.targets),
            None if noise is None else noise.astype(np.float64),
        )

    def source(self, parts: Sequence[FilePart], target: Target, files: Sequence[Path]) -> Source:
        """The parts as a source of these columns."""
        if not parts:
            raise InvalidInputError(f"{files[0] if files else 'dataset'}: has no rows")
        as_part = partial(TablePart, columns=self.all, numbers=self.rows, width=len(self.all))
        return Source(
            [as_part(part, count=part.count) for part in parts],
            self.inputs,
            self.targets,
            self.noise,
            single_target=isinstance(target, str),
            files=files,
        )


def matrix_of(batch: Any, names: Sequence[str]) -> np.ndarray:
    """The columns of a batch or table, side by side: in float32 if all are, else in float64."""
    columns = [batch.column(name) for name in names]
    single = all(column.type == pa.float32() for column in columns)
    matrix = np.empty((len(batch), len(names)), np.float32 if single else np.float64)
    for j, column in enumerate(columns):
        is_float = column.type in (pa.float32(), pa.float64()) and not column.null_count
        if is_float and isinstance(column, pa.Array):
            matrix[:, j] = np.from_dlpack(column)  # `to_numpy` would import pandas
        else:
            matrix[:, j] = numbers_of(column, "number")
    return matrix


def file_source(
    files: FileSet, target: Target, noise: str | None, columns: Sequence[str] | None
) -> Source:
    """Rows of files that have the same columns of the same types."""
    paths, first = files.paths, files.files[0].names
    chosen = TableColumns.of(paths[0], first, target, noise, columns)
    kinds = {name: [pa.float64()] for name in chosen.all}
    typed: list[FilePart] = []
    for file in files.files:
        typed.append(file.with_types(chosen.all, kinds))
        more = [name for name in file.names if name not in first]
        if more and columns is None:
            raise InvalidInputError(
                f"{file.path}: has a column {more[0]!r} that {paths[0].name} has not: all files "
                "must have the same columns, or the columns to use must be given"
            )
        _check_numeric(file.path, typed[-1].schema, chosen.all)
        for field, other in zip(typed[-1].schema, typed[0].schema, strict=True):
            if field.type != other.type:
                raise InvalidInputError(
                    f"{file.path}: column {field.name!r} has the type {field.type}, and in "
                    f"{paths[0].name} it has {other.type}: all files must have the same types"
                )
    parts = [part for file in typed for part in file.converted(file.schema, _ENCODE).split()]
    return chosen.source(parts, target, paths)


def dataset_source(
    dataset: Any, target: Target, noise: str | None, columns: Sequence[str] | None
) -> Source:
    """Rows of a `pyarrow.dataset.Dataset`; one with a filter is read from its start."""
    chosen = TableColumns.of(Path("dataset"), dataset.schema.names, target, noise, columns)
    _check_numeric("dataset", dataset.schema, chosen.all)
    files = [Path(name) for name in getattr(dataset, "files", [])]
    return chosen.source(list(_dataset_parts(dataset, chosen.all)), target, files)


def _dataset_parts(dataset: Any, names: Sequence[str]) -> Iterator[FilePart]:
    """The row groups of a data set, or its files where they have none."""
    schema = pa.schema([dataset.schema.field(name) for name in names])
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # of a filter or a projection
        yield Fragment(dataset, Path("dataset"), schema)
        return
    for fragment in fragments:
        path = Path(getattr(fragment, "path", "dataset"))
        _check_fragment(path, fragment, names)
        if not hasattr(fragment, "split_by_row_group"):
            yield Fragment(fragment, path, schema)
            continue
        start = 0
        for group in fragment.split_by_row_group():
            count = group.row_groups[0].num_rows
            yield Fragment(group, path, schema, start, count)
            start += count


def _check_fragment(path: Path, fragment: Any, names: Sequence[str]) -> None:
    """Raise if a file of a data set has not the columns itself, nor by its place in a folder."""
    import pyarrow.dataset

    with naming(path):
        schema = fragment.physical_schema
    known = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
    own = [name for name in names if name not in known]
    missing = [name for name in own if name not in schema.names]
    if missing:
        raise InvalidInputError(f"{path}: has no column {missing[0]!r}")
    _check_numeric(path, schema, own)


def _check_numeric(path: Path | str, schema: Any, names: Sequence[str]) -> None:
    """Raise if a column holds no numbers."""
    types = pa.types
    tests = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean
    for name in names:
        kind = schema.field(name).type
        if not any(test(kind) for test in tests):
            raise InvalidInputError(
                f"{path}: column {name!r} holds no numbers but has the type {kind}: {_ENCODE}"
            )
