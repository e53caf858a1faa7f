"""The pass over a table that a streamed fit begins with: what to encode, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from softki.cli.columns import ColumnChoice
from softki.cli.console import Console
from softki.cli.options import about
from softki.cli.scoring import numbers_in
from softki.data.arrow import pa
from softki.data.column_encoding import is_present
from softki.data.encoding import Missing
from softki.data.readers import row_place
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import block_rows
from softki.streaming.encoded import TestRows
from softki.streaming.encoder_survey import EncoderSurvey, Place
from softki.streaming.pieces import Piece


class _Stretch(NamedTuple):
    """Consecutive rows of a piece."""

    piece: int  # its number
    row: int  # of the first, in the file
    position: int  # of the first, among all rows
    batch: Any


class StreamSurvey:
    """What a pass over all rows finds; test rows teach the encoder nothing.

    Args:
        choice: of the columns.
        pieces: of the table, with these columns.
        schema: of the table.
        missing: what becomes of rows with missing values.
        test: rows that are kept from the fit.

    Attributes:
        encoder: what is known of the inputs.
        counts: rows of each piece.
        missing: values that are missing, by column, in rows that have targets, or in all rows if
            missing values are refused.
        places: where the first of them is, by column.
        with_target: rows that have targets, and noise.
        known: those of them that are used, as far as is known.
        tested: those of them that are kept from the fit.
    """

    def __init__(
        self,
        choice: ColumnChoice,
        pieces: Sequence[Piece],
        schema: Any,
        missing: Missing,
        test: TestRows,
    ) -> None:
        self._choice, self._pieces, self._missing, self._test = choice, pieces, missing, test
        self.encoder = EncoderSurvey(schema, choice.inputs)
        self.counts = [0] * len(pieces)
        self.missing: Counter[str] = Counter()
        self.places: dict[str, str] = {}
        self.with_target = self.known = self.tested = 0

    @property
    def rows(self) -> int:
        """All rows of the table."""
        return sum(self.counts)

    @property
    def starts(self) -> list[int]:
        """The position of the first row of each piece."""
        return (np.cumsum(self.counts) - self.counts).tolist()

    def run(self, console: Console, total: int | None) -> None:
        """Read all rows."""
        from tqdm.auto import tqdm

        needed = self._columns_with_values() if self._missing == "drop" else []
        shown = console.shows_progress
        with tqdm(total=total, unit="row", unit_scale=True, disable=not shown) as bar:
            for stretch in self._stretches():
                self._look_at(stretch, needed)
                bar.update(len(stretch.batch))

    def _stretches(self) -> Iterator[_Stretch]:
        position = 0
        size = block_rows(len(self._choice.inputs) + len(self._choice.others))
        for number, piece in enumerate(self._pieces):
            row = piece.first_row
            for batch in piece.batches(size):
                yield _Stretch(number, row, position, batch)
                row, position = row + len(batch), position + len(batch)

    def _columns_with_values(self) -> list[str]:
        """The inputs that have a value in any row of the fit; without one, none is missing."""
        left = list(self._choice.inputs)
        for stretch in self._stretches():
            batch = stretch.batch
            fitted = self._known(batch) & ~self._test.mask(stretch.position, len(batch))
            left = [n for n in left if not (is_present(batch.column(n), n) & fitted).any()]
            if not left:  # after the first rows, as a rule
                break
        return [name for name in self._choice.inputs if name not in left]

    def _known(self, batch: Any) -> np.ndarray:
        return np.asarray(np.isfinite(numbers_in(batch, self._choice.others)).all(1))

    def _look_at(self, stretch: _Stretch, needed: Sequence[str]) -> None:
        batch = stretch.batch
        known = self._known(batch)
        self.with_target += int(known.sum())
        self._check_noise(stretch)
        self.counts[stretch.piece] += len(batch)
        refuses = self._missing == "refuse"
        fitted = np.ones(len(batch), dtype=bool) if refuses else known.copy()
        for name in self._choice.inputs:
            present = is_present(batch.column(name), name)
            self._count_missing(name, ~present & fitted, stretch)
            if name in needed:
                known &= present
        if refuses:
            for name in self._choice.others:
                self._count_missing(name, ~is_present(batch.column(name), name), stretch)
        tested = self._test.mask(stretch.position, len(batch))
        self.known += int(known.sum())
        self.tested += int((known & tested).sum())
        fitted &= ~tested
        if needed:
            fitted &= known
        self._learn(stretch, fitted)

    def _learn(self, stretch: _Stretch, fitted: np.ndarray) -> None:
        with about(self._pieces[stretch.piece].path):
            for chosen, add in ((fitted, self.encoder.add), (~fitted, self.encoder.add_unfitted)):
                rows = np.flatnonzero(chosen)
                if len(rows):
                    all_rows = len(rows) == len(chosen)
                    part = stretch.batch if all_rows else stretch.batch.filter(pa.array(chosen))
                    add(part, self._placed(stretch, rows))

    def _placed(self, stretch: _Stretch, rows: np.ndarray) -> Place:
        return lambda row: self._place(stretch, int(rows[row]))

    def _count_missing(self, name: str, absent: np.ndarray, stretch: _Stretch) -> None:
        count = int(absent.sum())
        if count:
            self.missing[name] += count
            self.places.setdefault(name, self._place(stretch, int(absent.argmax())))

    def _check_noise(self, stretch: _Stretch) -> None:
        name = self._choice.noise
        if name is None:
            return
        noise = numbers_in(stretch.batch, [name])[:, 0]
        if (noise <= 0).any():
            row = int((noise <= 0).argmax())
            raise InvalidInputError(
                f"{self._pieces[stretch.piece].path}: the known noise variance {name!r} must be "
                f"positive, got {noise[row]:g} in {self._place(stretch, row)}"
            )

    def _place(self, stretch: _Stretch, row: int) -> str:
        """Where a row of a stretch is, in words."""
        path = self._pieces[stretch.piece].path
        file = f" of {path}" if len(self._choice.data.paths) > 1 else ""
        return f"{row_place(path, stretch.row + row)}{file}"
