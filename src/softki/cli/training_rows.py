"""The rows of a table that a model is fitted to and tested on: surveyed, split and encoded."""

from __future__ import annotations

from collections import Counter
from functools import partial
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
from softki.cli.survey import Survey, TestRows, placed_batches
from softki.data.arrow import pa
from softki.data.encoding import Encoded, Missing, TableEncoder
from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import InvalidInputError
from softki.streaming import Source
from softki.streaming.blocks import RawRows
from softki.streaming.source import Files
from softki.streaming.tables import TablePart, matrix_of


class TrainingRows:
    """Rows to fit to and rows to test on, in files that are read a batch at a time.

    Args:
        choice: columns of the table, and what they are for.
        missing: treatment of rows with missing values.
        console: console for notes, warnings and bars.
        test: share of the rows to test on.
        seed: seed that chooses these rows.

    Attributes:
        encoder: encoder of the columns, which has seen only rows to fit to.
        source: encoded rows to fit to.
    """

    def __init__(
        self, choice: ColumnChoice, missing: Missing, console: Console, test: float, seed: int
    ) -> None:
        self._choice, self._console = choice, console
        self._test, self._files = TestRows(test, seed), Files(choice.data.paths)
        reader = choice.reader()
        self._parts = reader.parts
        self._survey = Survey(choice, self._parts, reader.schema, missing, self._test)
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
        tell_columns(self.encoder, self._survey.missing, self._survey.encoder.hints, console)
        self.source = self._encoded_source()
        self._scores = Scores(len(choice.targets))

    @property
    def dropped(self) -> int:
        """Rows that were left out, as something was missing; known after the fit and its test."""
        return self._survey.rows - len(self.source) - self._scores.rows

    def tested(self, estimator: SoftKIRegressor) -> list[dict[str, Any]] | None:
        """The figures of the fitted estimator on test rows, a target each."""
        if estimator.fit_report_.is_streamed:
            self._console.note(f"{self._survey.rows} rows were read in batches, anew in every pass")
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
        encoder = TableEncoder.of_survey(survey.encoder, missing)
        if not encoder.columns:
            raise InvalidInputError(ONE_ROW if survey.encoder.rows == 1 else NO_COLUMN)
        needed = [*encoder.inputs, *self._choice.others]
        counts = {name: survey.missing[name] for name in needed if survey.missing[name]}
        if missing == "refuse" and counts:
            where = ", ".join(f"{name} {count}" for name, count in counts.items())
            first = next(iter(counts))
            raise InvalidInputError(
                f"values are missing ({where}), that of {first!r} first in "
                f"{survey.places[first]}: {MISSING_HELP}"
            )
        return encoder

    def _encoded_source(self) -> Source:
        choice, survey = self._choice, self._survey
        columns = [*self.encoder.inputs, *choice.others]
        # Where no row is left out, blocks and their sizes are known before they are read.
        is_whole = survey.known == survey.rows and not survey.missing and not self._test.share
        width = len(self.encoder.names) + len(choice.targets)
        parts, start = [], 0
        for part, count in survey.counts.items():
            encoded = partial(self._encoded, start)
            parts.append(TablePart(part, columns, encoded, width, count if is_whole else None))
            start += count
        return Source(
            parts,
            self.encoder.names,
            choice.targets,
            choice.noise,
            single_target=len(choice.targets) == 1,
            files=self._files,
        )

    def _encoded(self, start: int, batch: Any, row: int) -> RawRows:
        """The rows of a batch that are complete and no test rows, as numbers."""
        y, noise = matrix_of(batch, self._choice.targets), None
        x, chosen = self._inputs(batch)
        chosen &= ~self._test.mask(start + row, len(batch)) & np.isfinite(y).all(1)
        if self._choice.noise is not None:
            noise = matrix_of(batch, [self._choice.noise])[:, 0].astype(np.float64)
            chosen &= np.isfinite(noise)
        rows = RawRows(x, y, noise)
        return rows if chosen.all() else rows.take(np.flatnonzero(chosen))

    def _inputs(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (n, d), and a mask (n,) of the rows that have all of them."""
        kept = np.dtype(np.float64)
        if all(column.kind == "number" for column in self.encoder.columns):
            numbers = matrix_of(batch, self.encoder.inputs)
            if np.isfinite(numbers.sum()):  # nothing is missing, and there is nothing to encode
                return numbers, np.ones(len(numbers), dtype=bool)
            kept = numbers.dtype  # single precision, if the table has that
        encoded = self.encoder.encode(batch)
        return np.ascontiguousarray(encoded.values, dtype=kept), encoded.complete

    def _score(self, estimator: SoftKIRegressor) -> None:
        """Predict the test rows, in one more pass."""
        constants = [column.name for column in self.encoder.constants]
        columns = [*self.encoder.inputs, *constants, *self._choice.others]
        unseen: dict[str, Counter[str]] = {}
        changed: Counter[str] = Counter()
        for rows in placed_batches(self._parts, columns):
            tested = self._test.mask(rows.position, len(rows.batch))
            with about(rows.part.path):
                encoded = self._add_scores(estimator, rows.batch.filter(pa.array(tested)))
            changed += encoded.changed
            for name, counts in encoded.unseen.items():
                unseen[name] = unseen.get(name, Counter()) + counts
        self._files.check_unchanged()
        tell_test_rows(self.encoder, unseen, changed, self._console)

    def _add_scores(self, estimator: SoftKIRegressor, batch: Any) -> Encoded:
        choice, encoded = self._choice, self.encoder.encode(batch)
        numbers = numbers_in(batch, choice.others)
        complete = encoded.complete & np.isfinite(numbers).all(1)
        y, noise = np.split(numbers[complete], [len(choice.targets)], axis=1)
        relative = noise[:, 0] / estimator.noise_unit_ if choice.noise else np.ones(len(y))
        self._scores.add(y, *observed_moments(estimator, encoded.table(complete), relative))
        return encoded
