"""The pass over a table with which a fit begins: its encoder, and missing values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from softki.cli.console import Console
from softki.cli.options import about
from softki.cli.scoring import numbers_in
from softki.data.column_kinds import is_present
from softki.data.encoder_survey import EncoderSurvey, columns_with_values
from softki.data.encoding import Missing
from softki.data.scans import FilePart
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import block_rows
from softki.streaming.tables import TableColumns
from softki.training.data import row_hash

# So that test rows are other rows than those that a fit with the same seed holds out.
_APART = 0x7E57


def rows_to_test(share: float, seed: int, start: int, count: int) -> np.ndarray:
    """A mask (count,) of the test rows among consecutive rows, whose first is row `start`.

    A random share of the rows is chosen, by the hash of their position among all rows.

    Example:
        >>> round(float(rows_to_test(0.25, 0, 0, 10_000).mean()), 2)
        0.25
        >>> bool((rows_to_test(0.25, 0, 0, 100)[40:] == rows_to_test(0.25, 0, 40, 60)).all())
        True
    """
    if not share:
        return np.zeros(count, dtype=bool)
    hashes = row_hash(np.arange(start, start + count), seed ^ _APART)
    return np.asarray(hashes < np.uint64(share * 2.0**64))


class PlacedBatch(NamedTuple):
    """A record batch, and its place in the table.

    Attributes:
        part: part of the table.
        row: number of the first row in the part.
        position: number of the first row in the table.
        batch: record batch of the rows.
    """

    part: FilePart
    row: int
    position: int
    batch: Any


def placed_batches(parts: Sequence[FilePart], columns: Sequence[str]) -> Iterator[PlacedBatch]:
    """All rows of some columns, in order."""
    position = 0
    for part in parts:
        row = 0
        for batch in part.batches(block_rows(len(columns)), columns):
            yield PlacedBatch(part, row, position, batch)
            row, position = row + len(batch), position + len(batch)


class Survey:
    """The findings of a pass over all rows; test rows teach the encoder nothing.

    Args:
        columns: columns of the table, and what they are for.
        parts: parts of the table.
        schema: schema of the table.
        missing: treatment of rows with missing values.
        tested: function that gives the mask of the rows that are kept from the fit.

    Attributes:
        encoder: survey of the inputs in the rows to fit to.
        counts: number of rows of each part.
        missing: number of missing values, by column, in rows that have targets, or in all rows if
            missing values are refused.
        places: place of the first of them, by column.
        with_target: number of rows that have all targets, and noise where it is known.
        known: number of these rows that are used, as far as is known.
        tested: number of the used rows that are kept from the fit.
    """

    def __init__(
        self,
        columns: TableColumns,
        parts: Sequence[FilePart],
        schema: Any,
        missing: Missing,
        tested: Callable[[int, int], np.ndarray],
    ) -> None:
        self._columns, self._parts, self._missing, self._is_tested = columns, parts, missing, tested
        self._has_several = len({part.path for part in parts}) > 1
        self.encoder = EncoderSurvey(schema, columns.inputs)
        self.counts = dict.fromkeys(parts, 0)
        self.missing: Counter[str] = Counter()
        self.places: dict[str, str] = {}
        self.with_target = self.known = self.tested = 0

    @property
    def rows(self) -> int:
        """Number of all rows of the table."""
        return sum(self.counts.values())

    def run(self, console: Console, total: int | None) -> None:
        """Read all rows."""
        needed = self._columns_with_values() if self._missing == "drop" else []
        with console.bar(total, delay=1.0) as bar:
            for rows in placed_batches(self._parts, self._columns.all):
                self._look_at(rows, needed)
                bar.update(len(rows.batch))

    def _columns_with_values(self) -> list[str]:
        """The inputs that have a value in any row of the fit; without one, none is missing."""
        found: set[str] = set()
        for rows in placed_batches(self._parts, self._columns.all):
            fitted = self._known(rows.batch) & ~self._tested(rows)
            left = [name for name in self._columns.inputs if name not in found]
            found.update(columns_with_values(rows.batch, left, fitted))
            if len(found) == len(self._columns.inputs):  # after the first rows, as a rule
                break
        return [name for name in self._columns.inputs if name in found]

    def _known(self, batch: Any) -> np.ndarray:
        return np.asarray(np.isfinite(numbers_in(batch, self._columns.others)).all(1))

    def _tested(self, rows: PlacedBatch) -> np.ndarray:
        return self._is_tested(rows.position, len(rows.batch))

    def _look_at(self, rows: PlacedBatch, needed: Sequence[str]) -> None:
        batch = rows.batch
        self._check_noise(rows)
        self.counts[rows.part] += len(batch)
        known = self._known(batch)
        self.with_target += int(known.sum())
        refuses = self._missing == "refuse"
        counted = np.ones(len(batch), dtype=bool) if refuses else known.copy()
        for name in [*self._columns.inputs, *(self._columns.others if refuses else [])]:
            present = is_present(batch.column(name), name)
            self._count_missing(name, ~present & counted, rows)
            if name in needed:
                known &= present
        tested = self._tested(rows)
        self.known += int(known.sum())
        self.tested += int((known & tested).sum())
        with about(rows.part.path):
            self.encoder.add(batch, partial(self._place, rows), known & ~tested)

    def _count_missing(self, name: str, absent: np.ndarray, rows: PlacedBatch) -> None:
        count = int(absent.sum())
        if count:
            self.missing[name] += count
            self.places.setdefault(name, self._place(rows, int(absent.argmax())))

    def _check_noise(self, rows: PlacedBatch) -> None:
        name = self._columns.noise
        if name is None:
            return
        noise = numbers_in(rows.batch, [name])[:, 0]
        if (noise <= 0).any():
            row = int((noise <= 0).argmax())
            raise InvalidInputError(
                f"{rows.part.path}: the known noise variance {name!r} must be "
                f"positive, got {noise[row]:g} in {self._place(rows, row)}"
            )

    def _place(self, rows: PlacedBatch, row: int) -> str:
        """The place of a row of a batch, in words."""
        file = f" of {rows.part.path}" if self._has_several else ""
        return f"{rows.part.place(rows.row + row)}{file}"
