"""A `pyarrow.dataset.Dataset` as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset

from softki.exceptions import InvalidInputError
from softki.streaming.source import Part, Source
from softki.streaming.table_columns import TableColumns, check_numeric, choose_columns
from softki.streaming.tables import TablePart, Target, naming, table_source


def dataset_source(
    dataset: Any, target: Target, noise: str | None, columns: Sequence[str] | None
) -> Source:
    """Rows of a `pyarrow.dataset.Dataset`; one with a filter is read from its start."""
    chosen = choose_columns(Path("dataset"), dataset.schema.names, target, noise, columns)
    check_numeric("dataset", dataset.schema, chosen.all)
    files = [Path(name) for name in getattr(dataset, "files", [])]
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # of a filter or a projection
        return table_source([_ScanPart(dataset, dataset.schema, chosen)], chosen, target, files)
    parts: list[Part] = []
    for fragment in fragments:
        _check_fragment(fragment, chosen)
        if not hasattr(fragment, "split_by_row_group"):
            parts.append(_ScanPart(fragment, dataset.schema, chosen))
            continue
        start = 0
        for piece in fragment.split_by_row_group():
            count = piece.row_groups[0].num_rows
            parts.append(_ScanPart(piece, dataset.schema, chosen, start, count))
            start += count
    return table_source(parts, chosen, target, files)


class _ScanPart(TablePart):
    """A piece of a data set, or all of it."""

    def __init__(
        self,
        piece: Any,
        schema: Any,
        chosen: TableColumns,
        first_row: int = 0,
        count: int | None = None,
    ) -> None:
        super().__init__(Path(getattr(piece, "path", "dataset")), chosen, first_row, count)
        self._piece, self._schema = piece, schema

    def _batches(self) -> Iterator[Any]:
        # A fragment knows only its own columns; a data set takes no schema.
        schema = {"schema": self._schema} if hasattr(self._piece, "physical_schema") else {}
        yield from self._piece.to_batches(
            columns=self._chosen.all,
            batch_size=self._size,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
            **schema,
        )


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
