"""A `pyarrow.dataset.Dataset` as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset

from softki.exceptions import InvalidInputError
from softki.streaming.pieces import Piece, naming
from softki.streaming.source import Source
from softki.streaming.tables import (
    NumberPart,
    TableColumns,
    Target,
    check_numeric,
    choose_columns,
    table_source,
)


def dataset_source(
    dataset: Any, target: Target, noise: str | None, columns: Sequence[str] | None
) -> Source:
    """Rows of a `pyarrow.dataset.Dataset`; one with a filter is read from its start."""
    chosen = choose_columns(Path("dataset"), dataset.schema.names, target, noise, columns)
    check_numeric("dataset", dataset.schema, chosen.all)
    files = [Path(name) for name in getattr(dataset, "files", [])]
    parts = [NumberPart(piece, chosen) for piece in _pieces(dataset, chosen)]
    return table_source(parts, chosen, target, files)


class _Scan(Piece):
    """A piece of a data set, or all of it."""

    def __init__(
        self,
        piece: Any,
        schema: Any,
        chosen: TableColumns,
        first_row: int = 0,
        count: int | None = None,
    ) -> None:
        super().__init__(Path(getattr(piece, "path", "dataset")), chosen.all, first_row, count)
        self._piece, self._schema = piece, schema

    def _batches(self, size: int) -> Iterator[Any]:
        # A fragment knows only its own columns; a data set takes no schema.
        schema = {"schema": self._schema} if hasattr(self._piece, "physical_schema") else {}
        yield from self._piece.to_batches(
            columns=self.columns,
            batch_size=size,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
            **schema,
        )


def _pieces(dataset: Any, chosen: TableColumns) -> Iterator[Piece]:
    """The row groups of a data set, or its files where they have none."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # of a filter or a projection
        yield _Scan(dataset, dataset.schema, chosen)
        return
    for fragment in fragments:
        _check_fragment(fragment, chosen)
        if not hasattr(fragment, "split_by_row_group"):
            yield _Scan(fragment, dataset.schema, chosen)
            continue
        start = 0
        for piece in fragment.split_by_row_group():
            count = piece.row_groups[0].num_rows
            yield _Scan(piece, dataset.schema, chosen, start, count)
            start += count


def _check_fragment(fragment: Any, chosen: TableColumns) -> None:
    """Raise if a file of a data set has not the columns itself, nor by its place in a folder."""
    path = getattr(fragment, "path", "dataset")
    with naming(path, chosen.all):
        schema = fragment.physical_schema
    known = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
    own = [name for name in chosen.all if name not in known]
    missing = [name for name in own if name not in schema.names]
    if missing:
        raise InvalidInputError(f"{path}: has no column {missing[0]!r}")
    check_numeric(path, schema, own)
