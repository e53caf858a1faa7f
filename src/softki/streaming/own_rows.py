"""Rows that each of several processes has for itself, as one source."""

from __future__ import annotations

from typing import Any

from softki.exceptions import InvalidInputError
from softki.inputs import checked_table
from softki.processes import Processes
from softki.streaming.arrays import array_source
from softki.streaming.opening import source_of
from softki.streaming.rows import Rows
from softki.streaming.source import Source
from softki.tables import as_tensor, column_names


def source_of_process(X: Any, y: Any, noise_variance: Any) -> Source:
    """The rows that this process gives to a fit of several, of any kind; it may have none.

    Example:
        >>> import numpy as np
        >>> len(source_of_process(np.zeros((0, 3)), np.zeros(0), None))
        0
    """
    source = source_of(X, y, noise_variance)
    if source is None:
        source = _table_source(X, y, noise_variance)
    source.may_be_empty = not source.is_shared
    return source


def rows_up_to(source: Source, count: int, processes: Processes) -> Rows | None:
    """All rows of all processes at once, if they are no more than so many."""
    if source.is_shared or not processes.are_several:
        return processes.together(lambda: source.up_to(count))
    own = processes.together(lambda: len(source))
    total = sum(processes.gather(own))
    if total == 0:
        raise InvalidInputError("no process has any rows")
    if total > count:
        return None
    blocks = processes.together(lambda: [block.rows for block in source.blocks()])
    return Rows.join([rows for parts in processes.gather(blocks) for rows in parts])


def check_same_columns(source: Source, processes: Processes) -> None:
    """Raise where processes have other columns."""
    processes.check_same(
        {
            "the number of columns": len(source.columns),
            "the number of targets": len(source.targets),
            "a known noise_variance": source.noise is not None,
            "the list of columns": source.columns if source.is_named else None,
        }
    )


def _table_source(X: Any, y: Any, noise_variance: Any) -> Source:
    names = column_names(X)
    x = as_tensor(X, "X")
    if len(x):
        return array_source(*checked_table(X, y, noise_variance), names)
    noise = None if noise_variance is None else as_tensor(noise_variance, "noise_variance")
    return array_source(x, as_tensor(y, "y"), noise, names, may_be_empty=True)
