"""Tables of any library as tensors of numbers, or one clear error that names the column.

NumPy arrays, lists, torch tensors, and the data frames of pandas, polars and PyArrow are taken;
none of those packages is imported. Float32 stays, all other numbers become float64.
"""

from __future__ import annotations

import datetime
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softki.exceptions import InvalidInputError, InvalidTypeError

_ENCODE = "encode it first, for example with sklearn.preprocessing.OneHotEncoder"
_REGRESSION = "softki is for regression, where targets are numbers"


def as_tensor(table: Any, name: str = "x") -> Tensor:
    """The numbers of a table with n rows and d columns, (n, d), or of one column, (n,).

    Example:
        >>> as_tensor([[1, 2], [3, 4]]).dtype
        torch.float64
        >>> as_tensor(np.array([["a", "b"]]))
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: x column 0 holds text: encode it first, ...
    """
    if table is None:
        raise InvalidInputError(f"{name} is None: a table of numbers is needed")
    if isinstance(table, Tensor):
        return _tensor(table, name)
    if hasattr(table, "collect") and not hasattr(table, "__len__"):  # polars
        raise InvalidTypeError(f"{name} is not computed yet: pass {name}.collect()")
    if hasattr(table, "columns"):
        return _from_numpy(_frame(validated(table), name))
    if hasattr(table, "to_numpy"):  # one column of a data frame
        return _from_numpy(_frame_column(validated(table), name))
    if hasattr(table, "toarray"):  # SciPy
        raise InvalidTypeError(
            f"{name} is a sparse matrix, and sparse data is not supported: pass {name}.toarray()"
        )
    array = _array(table, name)
    if array.ndim == 2 and array.dtype.kind not in "biuf" and array.shape[1]:
        columns = [_numbers(array[:, j], f"{name} column {j}") for j in range(array.shape[1])]
        array = np.column_stack(columns)
    return _from_numpy(_numbers(array, name))


def validated(table: Any) -> Any:
    """The table, if it is no Arrow table, or one whose text and buffers are what they claim to be.

    Offsets in a damaged Arrow file lead anywhere in memory; of numbers, this reads nothing.
    """
    if type(table).__module__ == "pyarrow.lib":
        try:
            table.validate(full=True)
        except ValueError as error:
            raise InvalidInputError(f"the Arrow table is damaged: {error}") from error
    return table


def with_names(table: Any) -> Any:
    """The table with column names that scikit-learn reads: a record batch becomes a table."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(table, pyarrow.RecordBatch):
        return pyarrow.Table.from_batches([table])
    return table


def column_names(table: Any) -> list[str] | None:
    """The names of the columns, if the table has names and all are text.

    Example:
        >>> column_names([[1, 2]]) is None
        True
    """
    if not hasattr(table, "columns"):
        return None
    labels = _labels(table)
    return labels if all(isinstance(label, str) for label in labels) else None


def check_finite(
    values: Tensor | np.ndarray,
    name: str = "x",
    columns: Sequence[str] | None = None,
    first_row: int = 0,
) -> None:
    """Raise if a value is NaN or infinite, with the first such row and column.

    Args:
        values: numbers, (n,) or (n, c).
        name: name of the table in the error.
        columns: names of the columns, if they have names.
        first_row: number of the first of these rows, where they are a block of a table.

    Example:
        >>> check_finite(torch.tensor([[1.0, 2.0], [np.nan, 3.0]]))
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: x contains NaN in row 1, column 0: ...
    """
    if isinstance(values, np.ndarray):
        values = _from_numpy(values)
    if values.numel() == 0 or all(bool(end.isfinite()) for end in values.aminmax()):
        return  # least and greatest are NaN if any value is, and need no copy of the table
    row, *column = map(int, (~values.isfinite()).nonzero()[0])
    kind = "NaN" if bool(values[row, *column].isnan()) else "infinity"
    advice = (
        "missing values are not supported, so remove such rows, or impute them (inputs, for "
        "example, with sklearn.impute.SimpleImputer)"
        if kind == "NaN"
        else "remove such rows, or replace the value by a number"
    )
    label = "".join(f", column {repr(columns[j]) if columns else j}" for j in column)
    raise InvalidInputError(f"{name} contains {kind} in row {first_row + row}{label}: {advice}")


def _labels(table: Any) -> list[Any]:
    return list(getattr(table, "column_names", table.columns))


def _array(table: Any, name: str) -> np.ndarray:
    if isinstance(table, np.ma.MaskedArray) and np.ma.is_masked(table):
        table = np.ma.filled(table.astype(np.float64), np.nan)  # what is masked is missing
    try:
        array = np.asarray(table)
        if array.dtype.kind == "U" and not isinstance(table, np.ndarray):
            array = np.asarray(table, dtype=object)  # numbers beside text stay numbers
    except ValueError as error:
        raise InvalidInputError(f"{name} is not a table: {error}") from error
    return array


def _tensor(table: Tensor, name: str) -> Tensor:
    if table.is_complex():
        raise InvalidInputError(f"Complex data not supported: {name} has the type {table.dtype}")
    if table.layout != torch.strided:
        raise InvalidTypeError(
            f"{name} is a sparse tensor, and sparse data is not supported: pass {name}.to_dense()"
        )
    table = table.detach().contiguous()  # sums over rows are rounded by their order in memory
    return table if table.dtype in (torch.float32, torch.float64) else table.double()


def _frame(table: Any, name: str) -> np.ndarray:
    labels = _labels(table)
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InvalidInputError(f"{name} has more than one column {twice!r}: rename them")
    columns = [_frame_column(table[label], f"{name} column {label!r}") for label in labels]
    for label, column in zip(labels, columns, strict=True):
        if column.ndim != 1:
            raise InvalidInputError(
                f"{name} column {label!r} holds nested values: make a column of each"
            )
    return np.column_stack(columns) if columns else np.empty((len(table), 0))


def _frame_column(column: Any, label: str) -> np.ndarray:
    kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    if kind.startswith(("category", "categorical", "enum", "dictionary")):
        raise InvalidInputError(f"{label} holds categories: {_advice(label)}")
    if kind.startswith(("datetime64", "timestamp")):
        raise _dates(label)
    if hasattr(column, "null_count") and hasattr(column, "buffers"):  # an Arrow array
        return _numbers(column.to_numpy(zero_copy_only=False), label)
    return _numbers(np.asarray(column.to_numpy()), label)


def _from_numpy(array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():
        # Nothing is written to, so that a table that must not be written to needs no copy.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def _numbers(array: np.ndarray, label: str) -> np.ndarray:
    kind = array.dtype.kind
    if kind in "biuf":
        keeps = array.dtype in (np.float32, np.float64)  # also false in the other byte order
        return np.require(array, None if keeps else np.float64, "C")
    if array.ndim > 2 or kind == "V":
        raise InvalidInputError(f"{label} holds nested values: make a column of each")
    if kind == "c":
        raise InvalidInputError(f"Complex data not supported: {label} has the type {array.dtype}")
    if kind == "m":
        raise InvalidInputError(f"{label} holds durations: turn it into numbers, such as seconds")
    if kind == "M":
        raise _dates(label)
    if kind == "O" and not any(isinstance(value, str | bytes) for value in array.flat):
        return _objects(array, label)
    raise InvalidInputError(f"{label} holds text: {_advice(label)}")


def _dates(label: str) -> InvalidInputError:
    return InvalidInputError(
        f"{label} holds dates: turn it into numbers first, for example into days since a date"
    )


def _advice(label: str) -> str:
    """The advice for a column that holds no numbers."""
    of_inputs = label.split()[0].lower() == "x"
    return _ENCODE if of_inputs else _REGRESSION if label.split()[0] == "y" else "give numbers"


def _objects(array: np.ndarray, label: str) -> np.ndarray:
    """Numbers that were stored as Python objects; None and the like become NaN."""
    try:
        return np.array([np.nan if _is_missing(v) else float(v) for v in array.flat]).reshape(
            array.shape
        )
    except OverflowError as error:
        raise InvalidInputError(
            f"{label} holds whole numbers beyond 1e308, too large for float64: rescale it"
        ) from error
    except TypeError as error:
        if any(isinstance(value, datetime.date) for value in array.flat):
            raise _dates(label) from error
        raise InvalidTypeError(
            f"{label} has the type object and holds values that are not numbers: {error}; "
            "convert it first"
        ) from error


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType")
