"""Which columns of a table are inputs, targets and noise, and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softki.data.arrow import pa
from softki.data.column_kinds import numbers_of
from softki.data.readers import check_there, check_unique
from softki.exceptions import InvalidInputError
from softki.streaming.rows import Rows

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


def rows_of(batch: Any, chosen: TableColumns) -> Rows:
    """The numbers of a record batch; missing ones are NaN."""
    noise = None if chosen.noise is None else _numbers(batch.column(chosen.noise))
    return Rows(
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
