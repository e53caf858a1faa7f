"""Arrays, `.npy` files and re-iterables of batches as a source."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.streaming.blocks import RawRows, block_rows
from softki.streaming.source import Part, Source
from softki.validation.tables import as_tensor, column_names

_PAIRS = "each batch must be a pair (X, y) or a triple (X, y, noise variance)"


def array_source(
    x: Any,
    y: Any,
    noise: Any = None,
    columns: Sequence[str] | None = None,
    may_be_empty: bool = False,
) -> Source:
    """Rows of arrays in memory, memory-mapped arrays, or `.npy` files.

    A file is mapped again for each block, so that what was read does not stay in memory. Of several
    processes, all have the rows of the same files, and each has arrays of its own.
    """
    tables = {"X": x, "y": y} | ({} if noise is None else {"noise": noise})
    tables = {name: _opened(table, name) for name, table in tables.items()}
    count, targets = len(tables["X"]), tables["y"].shape[1:]
    if len(tables["X"].shape) != 2 or len(targets) > 1:
        raise InvalidInputError(
            "X must have the shape (rows, columns) and y (rows,) or (rows, targets), got "
            f"{tuple(tables['X'].shape)} and {tuple(tables['y'].shape)}"
        )
    for name, table in tables.items():
        if len(table) != count:
            raise InvalidInputError(f"X has {count} rows and {name} has {len(table)}")
    size = block_rows(tables["X"].shape[1] + sum(targets))
    parts = [_ArrayPart(tables, i, min(i + size, count)) for i in range(0, count, size)]
    files = [table.path for table in tables.values() if isinstance(table, _NpyFile)]
    return _source(parts, tables["X"], tables["y"], noise, columns, files, may_be_empty)


def iterable_source(batches: Iterable[Any], columns: Sequence[str] | None = None) -> Source:
    """Rows of an object that gives pairs (X, y) of arrays, the same at each iteration."""
    if iter(batches) is batches:
        raise InvalidTypeError(
            "the batches can be iterated only once, and a fit needs several passes: instead of a "
            "generator give an object with a method __iter__ that starts anew each time, such as "
            "a list, a DataLoader without shuffling, or a class whose __iter__ has the yields"
        )
    for batch in batches:
        x, y, noise = _checked_batch(batch, 0)
        names = column_names(batch[0])
        parts = [_IterablePart(batches, names)]
        return _source(parts, x, y, noise, names if columns is None else columns)
    raise InvalidInputError("there are no batches: the iterable is empty")


def _source(
    parts: Sequence[Part],
    x: Any,
    y: Any,
    noise: Any,
    columns: Sequence[str] | None,
    files: Sequence[Path] = (),
    may_be_empty: bool = False,
) -> Source:
    """The parts as a source; columns and targets without names are numbered."""
    width, targets = x.shape[1], y.shape[1:]
    if columns is not None and len(columns) != width:
        raise InvalidInputError(f"columns has {len(columns)} names, and X has {width} columns")
    return Source(
        parts,
        [f"x{k}" for k in range(width)] if columns is None else columns,
        [f"y{k}" for k in range(targets[0])] if targets else ["y"],
        None if noise is None else "noise",
        single_target=not targets,
        files=files,
        is_named=columns is not None,
        is_shared=bool(files),
        may_be_empty=may_be_empty,
    )


class _NpyFile:
    """An array in a `.npy` file, of which only slices are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shape = self._mapped().shape

    def __len__(self) -> int:
        return int(self.shape[0]) if self.shape else 0

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.array(self._mapped()[rows])

    def _mapped(self) -> np.ndarray:
        try:
            return np.load(self.path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            what = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise InvalidInputError(f"{self.path}: cannot be read: {what}") from error


class _ArrayPart(Part):
    def __init__(self, tables: dict[str, Any], start: int, stop: int) -> None:
        self._tables, self._rows = tables, slice(start, stop)
        x = tables["X"]
        self.file = x.path if isinstance(x, _NpyFile) else None
        self.name = "X" if self.file is None else str(self.file)
        self.first_row, self.sizes = start, [stop - start]

    def read(self) -> Iterator[RawRows]:
        numbers = {name: _numbers(table[self._rows], name) for name, table in self._tables.items()}
        yield _rows(numbers["X"], numbers["y"], numbers.get("noise"))


class _IterablePart(Part):
    name, stays = "batches", False

    def __init__(self, batches: Iterable[Any], names: list[str] | None) -> None:
        self._batches, self._names = batches, names
        self._checksums: list[int] = []  # of the first row of each batch

    def read(self) -> Iterator[RawRows]:
        for number, batch in enumerate(self._batches):
            x, y, noise = _checked_batch(batch, number)
            names = column_names(batch[0])
            if names != self._names:
                raise InvalidInputError(
                    f"batch {number} has the columns {names}, and batch 0 has {self._names}: all "
                    "batches must have the same, in the same order"
                )
            # Copies, as the arrays may be filled again for the next batch.
            rows = _rows(x.copy(), y.copy(), None if noise is None else noise.copy())
            yield self._same(number, rows)

    def _same(self, number: int, rows: RawRows) -> RawRows:
        checksum = zlib.crc32(rows.x[:1].tobytes(), zlib.crc32(rows.y[:1].tobytes()))
        if number >= len(self._checksums):
            self._checksums.append(checksum)
        elif self._checksums[number] != checksum:
            raise InvalidInputError(
                f"batch {number} is not the one of the first pass: the batches must be the same "
                "in every pass, so that held-out rows stay apart; turn shuffling off"
            )
        return rows


def _checked_batch(batch: Any, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise InvalidTypeError(f"batch {number} is of the type {type(batch).__name__}: {_PAIRS}")
    tables = [
        _numbers(table, f"{name} of batch {number}")
        for table, name in zip(batch, ("X", "y", "noise"), strict=False)
    ]
    x, y, noise = tables[0], tables[1], tables[2] if len(tables) == 3 else None
    if x.ndim != 2 or y.ndim not in (1, 2) or len(x) != len(y):
        raise InvalidInputError(
            f"batch {number} has X of shape {x.shape} and y of shape {y.shape}, which must be "
            "(rows, columns) and (rows,) or (rows, targets)"
        )
    return x, y, noise


def _rows(x: np.ndarray, y: np.ndarray, noise: np.ndarray | None) -> RawRows:
    return RawRows(x, y[:, None] if y.ndim == 1 else y, noise)


def _opened(table: Any, name: str) -> Any:
    if isinstance(table, str | PathLike):
        path = Path(table)
        if path.suffix.lower() != ".npy":
            raise InvalidInputError(f"{path}: with y apart from X, both must be .npy files")
        return _NpyFile(path)
    if not hasattr(table, "shape"):
        raise InvalidTypeError(
            f"{name} is of the type {type(table).__name__}: it must be an array or a .npy file"
        )
    return table


def _numbers(table: Any, name: str) -> np.ndarray:
    return as_tensor(table, name).cpu().numpy()
