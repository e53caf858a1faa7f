"""The rows of several processes as one source, of which each process reads its shard."""

from __future__ import annotations

from operator import add
from typing import Any

from softki.exceptions import InvalidInputError
from softki.parallel.processes import Processes
from softki.streaming.arrays import array_source
from softki.streaming.blocks import RawRows
from softki.streaming.first_pass import FirstPass
from softki.streaming.layout import Shards
from softki.streaming.open import source_of
from softki.streaming.source import Source
from softki.validation.inputs import checked_table
from softki.validation.tables import as_tensor, column_names


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


def rows_up_to(source: Source, count: int, processes: Processes) -> RawRows | None:
    """All rows of all processes at once, if they are no more than the count."""
    if source.is_shared:
        return processes.together(lambda: source.up_to(count))
    own = processes.together(lambda: len(source))
    total = sum(processes.gather(own))
    if total == 0:
        raise InvalidInputError("no process has any rows")
    if total > count:
        return None
    blocks = processes.together(lambda: [block.rows for block in source.blocks()])
    return RawRows.join([rows for parts in processes.gather(blocks) for rows in parts])


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


def shared_first_pass(source: Source, seed: int, processes: Processes) -> tuple[FirstPass, Shards]:
    """The first pass of all processes, and the shards that they read.

    Each process reads its own shard of files and data sets, if the number of their rows is known
    beforehand, and all of them in this pass otherwise. Arrays and batches are rows that a process
    has; they come after those of the processes before it.
    """
    shards = None if source.is_shared else _shards_of_own_rows(source, processes)
    if shards is None and source.knows_layout:
        shards = Shards.even(len(source), processes.rank, processes.size)
    blocks = None if shards is None else source.between(shards.own)
    first = processes.together(lambda: FirstPass.over(source, seed, blocks))
    processes.together(source.check_unchanged)
    if shards is None:  # all processes have read all rows
        shards = Shards.even(len(source), processes.rank, processes.size)
    else:
        first = processes.reduce(first, add)
    _check_same_rows(processes, shards)
    return first, shards


def _shards_of_own_rows(source: Source, processes: Processes) -> Shards:
    """The shards where each process has rows of its own."""
    source.may_be_empty = True
    count = processes.together(lambda: len(source))
    shards = Shards.of_counts(processes.gather(count), processes.rank)
    if not shards.total:
        raise InvalidInputError("no process has any rows")
    source.start_at(shards.own.start)
    return shards


def _check_same_rows(processes: Processes, shards: Shards) -> None:
    for rank, total in enumerate(processes.gather(shards.total)):
        if total != shards.total:
            raise InvalidInputError(
                f"process {rank} finds {total} rows, and process {processes.rank} {shards.total}: "
                "all processes must open the same files"
            )


def _table_source(X: Any, y: Any, noise_variance: Any) -> Source:
    names = column_names(X)
    x = as_tensor(X, "X")
    if len(x):
        return array_source(*checked_table(X, y, noise_variance), names)
    noise = None if noise_variance is None else as_tensor(noise_variance, "noise_variance")
    return array_source(x, as_tensor(y, "y"), noise, names, may_be_empty=True)
