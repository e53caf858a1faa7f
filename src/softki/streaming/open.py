"""Any data that is read a block at a time, as a source."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.streaming.arrays import array_source, iterable_source
from softki.streaming.source import Source


def open_source(
    data: Any, y: Any = None, noise_variance: Any = None, columns: Sequence[str] | None = None
) -> Source:
    """The rows of data that may be larger than memory.

    Args:
        data: one or several files (Parquet, CSV, gzipped CSV, or Arrow), a folder of such, a
            `pyarrow.dataset.Dataset`, a `.npy` file or an array, or an object that gives batches
            (X, y) or (X, y, noise variance) each time that it is iterated.
        y: name or names of the columns to predict in files and data sets; for an array or a `.npy`
            file, another with the targets; None for batches.
        noise_variance: name of the column with the known noise variance, or an array.
        columns: names of the inputs; by default all other columns.

    Example:
        >>> source = open_source(np.zeros((1000, 3)), np.zeros(1000))
        >>> len(source), source.columns, source.targets
        (1000, ['x0', 'x1', 'x2'], ['y'])
    """
    paths = _paths(data)
    if paths or is_dataset(data):
        from softki.data.file_sets import FileSet
        from softki.streaming.tables import dataset_source, file_source

        names = _names("y", y), _names("noise_variance", noise_variance), columns
        return file_source(FileSet.of(paths), *names) if paths else dataset_source(data, *names)
    if isinstance(data, np.ndarray | Tensor) or is_npy(data):
        if y is None:
            raise InvalidInputError(
                f"{data if is_npy(data) else 'X'}: y is missing: give an array, or a .npy file, of "
                "the targets"
            )
        return array_source(data, y, noise_variance, columns)
    if hasattr(data, "columns"):
        raise InvalidTypeError(
            f"a table of the type {type(data).__name__} is in memory already: fit to it directly"
        )
    if not isinstance(data, Iterable):
        raise InvalidTypeError(
            f"data of the type {type(data).__name__} cannot be read: give files, a "
            "pyarrow.dataset.Dataset, arrays, or an object that gives batches (X, y)"
        )
    if (y is not None or noise_variance is not None) and not isinstance(data, Iterator):
        raise InvalidInputError(
            "y and noise variance are in the batches (X, y, noise variance): give X alone"
        )
    return iterable_source(data, columns)


def source_of(X: Any, y: Any = None, noise_variance: Any = None) -> Source | None:
    """The rows as a source, if X is not one already; None where it is a table in memory.

    Without y, a list is one of batches if its first item is a pair or triple of tables.

    Example:
        >>> source_of([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0]) is None
        True
        >>> len(source_of([(np.zeros((5, 2)), np.zeros(5))]))
        5
    """
    if isinstance(X, Source):
        return X
    is_source = (
        is_path(X)
        or isinstance(X, np.memmap)
        or is_dataset(X)
        or (isinstance(X, list | tuple) and len(X) > 0 and all(map(is_path, X)))
        or _gives_batches(X, y)
    )
    return open_source(X, y, noise_variance) if is_source else None


def _gives_batches(X: Any, y: Any) -> bool:
    if isinstance(X, Iterator):
        return True  # which is refused, with what to do
    if y is not None or any(hasattr(X, name) for name in ("shape", "columns", "__array__")):
        return False
    if not isinstance(X, list | tuple):
        return isinstance(X, Iterable)
    first = X[0] if X else None
    return isinstance(first, list | tuple) and bool(first) and hasattr(first[0], "shape")


def is_npy(data: Any) -> bool:
    """True for the name of a `.npy` file."""
    return is_path(data) and Path(data).suffix.lower() == ".npy"


def is_path(data: Any) -> bool:
    """True for the name of a file or folder."""
    return isinstance(data, str | PathLike)


def is_dataset(data: Any) -> bool:
    """True for a `pyarrow.dataset.Dataset`."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(data, module.Dataset)


def _paths(data: Any) -> list[Path]:
    """The files and folders of tables that the data name, if they do."""
    if is_path(data):
        return [] if is_npy(data) else [Path(data)]
    if not isinstance(data, list | tuple) or not all(map(is_path, data)):
        return []
    for path in data:
        if is_npy(path):
            raise InvalidInputError(f"{path}: one .npy file is read at a time, not a list of them")
    return [Path(path) for path in data]


def _names(argument: str, value: Any) -> Any:
    """The names of columns, where they are text."""
    listed = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    if value is None or isinstance(value, str) or (argument == "y" and listed):
        return value
    what = "the name of a column, or a list of names" if argument == "y" else "the name of a column"
    raise InvalidTypeError(
        f"{argument} must be {what} where the rows are in files or a data set, got "
        f"{type(value).__name__}"
    )
