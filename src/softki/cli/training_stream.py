"""A table to fit to that is read again and again, in batches: surveyed, encoded, and tested on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from softki.cli.columns import (
    MISSING_HELP,
    NO_COLUMN,
    ONE_ROW,
    ColumnChoice,
    check_parts,
    tell_columns,
    tell_dropped,
    tell_test_rows,
)
from softki.cli.console import Console
from softki.cli.options import about
from softki.cli.scoring import Scores, numbers_in, observed_moments
from softki.cli.stream_survey import StreamSurvey
from softki.cli.training_table import TrainingTable
from softki.data.arrow import pa
from softki.data.column_encoding import MAX_CATEGORIES
from softki.data.column_kinds import kind_of
from softki.data.encoding import Encoded, Missing, TableEncoder
from softki.data.readers import Batches
from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import InvalidInputError
from softki.parallel.processes import process_count
from softki.streaming import Source
from softki.streaming.blocks import block_rows
from softki.streaming.encoded import EncodedPart, TestRows
from softki.streaming.pieces import table_pieces
from softki.streaming.source import Files

# Bytes of encoded numbers, as they are estimated, up to which a table is read into memory.
IN_MEMORY_BYTES = 1 << 28
# How much smaller text usually is once it is gzipped.
_GZIP = 4


def training_rows(
    choice: ColumnChoice, missing: Missing, console: Console, test: float, seed: int
) -> TrainingTable | TrainingStream:
    """The chosen columns, split and encoded; what is missing is refused, dropped or filled in.

    Several processes read a stream, of which each takes its part.

    Args:
        choice: of the columns.
        missing: what becomes of rows with missing values.
        console: for notes, warnings and bars.
        test: share of the rows to test on.
        seed: which those are.
    """
    reader = choice.reader()
    if process_count() == 1 and estimated_bytes(reader) <= IN_MEMORY_BYTES:
        return TrainingTable.read(choice, reader, missing, console, test, seed)
    return TrainingStream(choice, reader, missing, console, test, seed)


def estimated_bytes(reader: Batches) -> float:
    """Memory that the columns would take as numbers in float64, should text have many categories.

    Where a file does not say how many rows it has, its size stands for that of plain numbers.
    """
    return sum(_bytes_of(file) for file in reader.files)


def _bytes_of(file: Batches) -> float:
    widths = [_width(field) for field in file.schema]
    if file.count is not None:
        return 8.0 * file.count * sum(widths)
    size = file.path.stat().st_size * (_GZIP if file.path.suffix.lower() == ".gz" else 1)
    return size * sum(widths) / len(widths)


def _width(field: Any) -> int:
    """Encoded columns that a column may become."""
    return MAX_CATEGORIES if kind_of(field, field.name) == "category" else 1


_ADVICE = "mend it, or leave the column out (--drop)"


class TrainingStream:
    """Rows to fit to and rows to test on, of which a batch is in memory at a time.

    Attributes:
        encoder: of the columns, which has seen only rows to fit to.
    """

    def __init__(
        self,
        choice: ColumnChoice,
        reader: Batches,
        missing: Missing,
        console: Console,
        test: float,
        seed: int,
    ) -> None:
        self._choice, self._reader, self._console = choice, reader, console
        self._test, self._files = TestRows(test, seed), Files(choice.data.paths)
        pieces = table_pieces(reader, reader.columns, _ADVICE)
        self._survey = StreamSurvey(choice, pieces, reader.schema, missing, self._test)
        try:
            with about(choice.data):
                numbers_in(reader.schema.empty_table(), choice.others)
            self._survey.run(console, reader.count)
        except InvalidInputError:
            self._files.check_unchanged()  # which may be all that is wrong
            raise
        self._files.check_unchanged()
        with about(choice.data):
            self.encoder = self._learned(missing)
        console.note(f"{self._survey.rows} rows are read in batches, anew in every pass")
        tell_columns(self.encoder, self._survey.missing, self._survey.encoder.hints, console)
        self._source = self._encoded_source()
        self._scores = Scores(len(choice.targets))

    @property
    def for_fit(self) -> tuple[Any, ...]:
        """What the estimator is fitted to."""
        return (self._source,)

    @property
    def dropped(self) -> int:
        """Rows that were left out, as something was missing; known after the fit and its test."""
        return self._survey.rows - len(self._source) - self._scores.rows

    def tested(self, estimator: SoftKIRegressor) -> list[dict[str, Any]] | None:
        """The figures of the fitted estimator on test rows, a target each."""
        if self._test.share:
            self._score(estimator)
        tell_dropped(self.dropped, self._survey.rows, self._console)
        if not self._test.share:
            return None
        return [{"rows": self._scores.rows, **figures} for figures in self._scores.figures()]

    def _learned(self, missing: Missing) -> TableEncoder:
        """The encoder, once it is clear that it has something to encode."""
        survey = self._survey
        if not survey.rows:
            raise InvalidInputError("has no rows")
        if not survey.with_target:
            raise InvalidInputError("no row has a target")
        check_parts(survey.known - survey.tested, survey.tested, self._test.share)
        if not survey.encoder.rows:
            raise InvalidInputError("no row is complete, so that dropping the others leaves none")
        encoder = survey.encoder.encoder(missing)
        if not encoder.columns:
            raise InvalidInputError(ONE_ROW if survey.encoder.rows == 1 else NO_COLUMN)
        if missing == "refuse":
            self._refuse_missing(encoder)
        return encoder

    def _refuse_missing(self, encoder: TableEncoder) -> None:
        needed = [*encoder.inputs, *self._choice.others]
        counts = {name: self._survey.missing[name] for name in needed if self._survey.missing[name]}
        if counts:
            where = ", ".join(f"{name} {count}" for name, count in counts.items())
            first = next(iter(counts))
            raise InvalidInputError(
                f"values are missing ({where}), that of {first!r} first in "
                f"{self._survey.places[first]}: {MISSING_HELP}"
            )

    def _encoded_source(self) -> Source:
        choice, survey = self._choice, self._survey
        columns = [*self.encoder.inputs, *choice.others]
        # Where no row is left out, blocks and their sizes are known before they are read.
        is_whole = survey.known == survey.rows and not survey.missing and not self._test.share
        parts = [
            EncodedPart(
                piece,
                start,
                count if is_whole else None,
                self.encoder,
                choice.targets,
                choice.noise,
                self._test,
            )
            for piece, start, count in zip(
                table_pieces(self._reader, columns, _ADVICE),
                survey.starts,
                survey.counts,
                strict=True,
            )
        ]
        return Source(
            parts,
            self.encoder.names,
            choice.targets,
            choice.noise,
            single_target=len(choice.targets) == 1,
            files=self._files,
        )

    def _score(self, estimator: SoftKIRegressor) -> None:
        """Predict the test rows, in one more pass."""
        choice, encoder = self._choice, self.encoder
        constants = [column.name for column in encoder.constants]
        pieces = table_pieces(self._reader, [*encoder.inputs, *constants, *choice.others], _ADVICE)
        unseen: dict[str, Counter[str]] = {}
        changed: Counter[str] = Counter()
        size = block_rows(len(encoder.names))
        for piece, start in zip(pieces, self._survey.starts, strict=True):
            position = start
            for batch in piece.batches(size):
                tested = self._test.mask(position, len(batch))
                position += len(batch)
                with about(piece.path):
                    encoded = self._add_scores(estimator, batch.filter(pa.array(tested)))
                changed += encoded.changed
                for name, counts in encoded.unseen.items():
                    unseen[name] = unseen.get(name, Counter()) + counts
        self._source.check_unchanged()
        tell_test_rows(encoder, unseen, changed, self._console)

    def _add_scores(self, estimator: SoftKIRegressor, batch: Any) -> Encoded:
        choice, encoded = self._choice, self.encoder.encode(batch)
        numbers = numbers_in(batch, choice.others)
        complete = encoded.complete & np.isfinite(numbers).all(1)
        y, noise = np.split(numbers[complete], [len(choice.targets)], axis=1)
        relative = noise[:, 0] / estimator.noise_unit_ if choice.noise else np.ones(len(y))
        self._scores.add(y, *observed_moments(estimator, encoded.table(complete), relative))
        return encoded
