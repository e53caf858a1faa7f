"""The rows of several processes as one source, of which each process reads its shard."""

from __future__ import annotations

from operator import add
from typing import Any

from softki.exceptions import InvalidInputError
from softki.parallel.processes import Processes
from softki.streaming.arrays import array_source
from softki.streaming.blocks import RawRows
from softki.streaming.first_pass import FirstPass
from softki.streaming.open import source_of
from softki.streaming.shards import consecutive_shards, even_shards
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


def shared_first_pass(
    source: Source, seed: int, processes: Processes
) -> tuple[FirstPass, list[range]]:
    """The first pass of all processes, and the shards of the rows that they read.

    Each process reads its own shard of files and data sets, if the number of their rows is known
    beforehand, and all of them in this pass otherwise. Arrays and batches are rows that a process
    has; they come after those of the processes before it.
    """
    reads_all = source.is_shared and not source.knows_layout
    if reads_all:
        first = processes.together(lambda: FirstPass.over(source, seed))
    shards = _shards_of_files(source, processes) if source.is_shared else _own(source, processes)
    if not reads_all:
        own = source.between(shards[processes.rank])
        first = processes.together(lambda: FirstPass.over(source, seed, own))
    processes.together(source.check_unchanged)
    return first if reads_all else processes.reduce(first, add), shards


def _shards_of_files(source: Source, processes: Processes) -> list[range]:
    """Even shards of rows that all processes can read."""
    processes.check_same({"the number of rows": len(source)})
    return even_shards(len(source), processes.size)


def _own(source: Source, processes: Processes) -> list[range]:
    """The shards where each process has rows of its own."""
    source.may_be_empty = True
    count = processes.together(lambda: len(source))
    shards = consecutive_shards(processes.gather(count))
    if not shards[-1].stop:
        raise InvalidInputError("no process has any rows")
    source.start_at(shards[processes.rank].start)
    return shards


def _table_source(X: Any, y: Any, noise_variance: Any) -> Source:
    names = column_names(X)
    x = as_tensor(X, "X")
    if len(x):
        return array_source(*checked_table(X, y, noise_variance), names)
    noise = None if noise_variance is None else as_tensor(noise_variance, "noise_variance")
    return array_source(x, as_tensor(y, "y"), noise, names, may_be_empty=True)
