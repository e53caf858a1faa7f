"""The pass over a table with which a fit begins: its encoder, and missing values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from softki.cli.columns import ColumnChoice
from softki.cli.console import Console
from softki.cli.options import about
from softki.cli.scoring import numbers_in
from softki.data.column_kinds import is_present
from softki.data.encoder_survey import EncoderSurvey, columns_with_values
from softki.data.encoding import Missing
from softki.data.scans import FilePart
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import block_rows
from softki.training.data import row_hash

# So that test rows are other rows than those that a fit with the same seed holds out.
_APART = 0x7E57


class TestRows:
    """A random share of the rows, chosen by the hash of their position among all rows.

    Example:
        >>> test = TestRows(0.25, seed=0)
        >>> round(float(test.mask(0, 10_000).mean()), 2)
        0.25
        >>> bool((test.mask(0, 100)[40:] == test.mask(40, 60)).all())
        True
    """

    __test__ = False  # pytest would take it for a test, by its name

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self._limit = np.uint64(share * 2.0**64)
        self._seed = seed ^ _APART

    def mask(self, position: int, count: int) -> np.ndarray:
        """A mask (count,) of the test rows among consecutive rows."""
        if not self.share:
            return np.zeros(count, dtype=bool)
        return np.asarray(row_hash(np.arange(position, position + count), self._seed) < self._limit)


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
        choice: columns of the table, and what they are for.
        parts: parts of the table.
        schema: schema of the table.
        missing: treatment of rows with missing values.
        test: rows that are kept from the fit.

    Attributes:
        encoder: what is known of the inputs.
        counts: number of rows of each part.
        missing: number of missing values, by column, in rows that have targets, or in all rows if
            missing values are refused.
        places: place of the first of them, by column.
        with_target: number of rows that have targets, and noise.
        known: number of these rows that are used, as far as is known.
        tested: number of the used rows that are kept from the fit.
    """

    def __init__(
        self,
        choice: ColumnChoice,
        parts: Sequence[FilePart],
        schema: Any,
        missing: Missing,
        test: TestRows,
    ) -> None:
        self._choice, self._parts, self._missing, self._test = choice, parts, missing, test
        self.encoder = EncoderSurvey(schema, choice.inputs)
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
        from tqdm.auto import tqdm

        columns = [*self._choice.inputs, *self._choice.others]
        needed = self._columns_with_values(columns) if self._missing == "drop" else []
        shown = console.shows_progress
        with tqdm(total=total, unit="row", unit_scale=True, disable=not shown, delay=1) as bar:
            for rows in placed_batches(self._parts, columns):
                self._look_at(rows, needed)
                bar.update(len(rows.batch))

    def _columns_with_values(self, columns: Sequence[str]) -> list[str]:
        """The inputs that have a value in any row of the fit; without one, none is missing."""
        found: set[str] = set()
        for rows in placed_batches(self._parts, columns):
            fitted = self._known(rows.batch) & ~self._tested(rows)
            left = [name for name in self._choice.inputs if name not in found]
            found.update(columns_with_values(rows.batch, left, fitted))
            if len(found) == len(self._choice.inputs):  # after the first rows, as a rule
                break
        return [name for name in self._choice.inputs if name in found]

    def _known(self, batch: Any) -> np.ndarray:
        return np.asarray(np.isfinite(numbers_in(batch, self._choice.others)).all(1))

    def _tested(self, rows: PlacedBatch) -> np.ndarray:
        return self._test.mask(rows.position, len(rows.batch))

    def _look_at(self, rows: PlacedBatch, needed: Sequence[str]) -> None:
        batch = rows.batch
        self._check_noise(rows)
        self.counts[rows.part] += len(batch)
        known = self._known(batch)
        self.with_target += int(known.sum())
        refuses = self._missing == "refuse"
        counted = np.ones(len(batch), dtype=bool) if refuses else known.copy()
        for name in [*self._choice.inputs, *(self._choice.others if refuses else [])]:
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
        name = self._choice.noise
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
        file = f" of {rows.part.path}" if len(self._choice.data.paths) > 1 else ""
        return f"{rows.part.place(rows.row + row)}{file}"
