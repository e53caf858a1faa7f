"""The rows of a table that a model is fitted to and tested on: surveyed, split and encoded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from softki.cli.console import Console
from softki.cli.model_file import EncodedBatches
from softki.cli.options import UsageError, about
from softki.cli.scoring import ObservedRows, numbers_in, scores_of
from softki.cli.survey import Survey, placed_batches, rows_to_test
from softki.data.arrow import pa
from softki.data.column_kinds import KINDS
from softki.data.encoding import Missing, TableEncoder
from softki.data.file_sets import FileSet
from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import InvalidInputError
from softki.streaming import Source
from softki.streaming.blocks import RawRows
from softki.streaming.source import Files
from softki.streaming.tables import TableColumns, TablePart, matrix_of

_ADVICE = "mend it, or leave the column out (--drop)"
_MISSING_HELP = (
    "--missing drop leaves such rows out, --missing impute fills in inputs with medians and most "
    "frequent categories"
)
_ONE_ROW = "there is one row to fit to, and at least two are needed"
_NO_COLUMN = "no column is left that could tell rows apart"


class TrainingRows:
    """Rows to fit to and rows to test on, in files that are read a batch at a time.

    Args:
        data: files of the table.
        columns: columns of the table, and what they are for.
        missing: treatment of rows with missing values.
        console: console for notes, warnings and bars.
        test: share of the rows to test on.
        seed: seed that chooses these rows.

    Attributes:
        encoder: encoder of the columns, which has seen only rows to fit to.
        source: encoded rows to fit to.
    """

    def __init__(
        self,
        data: FileSet,
        columns: TableColumns,
        missing: Missing,
        console: Console,
        test: float,
        seed: int,
    ) -> None:
        self._data, self._columns, self._console, self._share = data, columns, console, test
        self._is_tested, self._files = partial(rows_to_test, test, seed), Files(data.paths)
        # In CSV files, targets and noise are numbers.
        types = dict.fromkeys(columns.others, KINDS["number"].csv_types)
        reader = data.read(columns.all, types, _ADVICE)
        self._parts = reader.parts
        self._survey = Survey(columns, self._parts, reader.schema, missing, self._is_tested)
        try:
            with about(data):
                numbers_in(reader.schema.empty_table(), columns.others)
            self._survey.run(console, reader.count)
        except InvalidInputError:
            self._files.check_unchanged()  # which may be all that is wrong
            raise
        self._files.check_unchanged()
        with about(data):
            self.encoder = self._learned(missing)
        self._tell_columns()
        self.source = self._encoded_source()
        self._tested = 0

    @property
    def dropped(self) -> int:
        """Rows that were left out, as something was missing; known after the fit and its test."""
        return self._survey.rows - len(self.source) - self._tested

    def tested(self, estimator: SoftKIRegressor) -> list[dict[str, Any]] | None:
        """The figures of the fitted estimator on test rows, a target each."""
        if estimator.fit_report_.is_streamed:
            self._console.note(f"{self._survey.rows} rows were read in batches, anew in every pass")
        figures = self._scores(estimator) if self._share else None
        if self.dropped:
            self._console.note(
                f"{self.dropped} of {self._survey.rows} rows are left out, as values are missing"
            )
        return figures

    def _learned(self, missing: Missing) -> TableEncoder:
        """The encoder, once it is clear that it has something to encode."""
        survey = self._survey
        if not survey.rows:
            raise InvalidInputError("has no rows")
        if not survey.with_target:
            raise InvalidInputError("no row has a target")
        if self._share and not 0 < survey.tested < survey.known:
            raise UsageError(
                f"--test {self._share:g} of {survey.known} rows leaves none to fit or none to test"
            )
        encoder = TableEncoder.of_survey(survey.encoder, missing)
        if not encoder.columns:
            raise InvalidInputError(_ONE_ROW if survey.encoder.rows == 1 else _NO_COLUMN)
        needed = [*encoder.inputs, *self._columns.others]
        counts = {name: survey.missing[name] for name in needed if survey.missing[name]}
        if missing == "refuse" and counts:
            where = ", ".join(f"{name} {count}" for name, count in counts.items())
            first = next(iter(counts))
            raise InvalidInputError(
                f"values are missing ({where}), that of {first!r} first in "
                f"{survey.places[first]}: {_MISSING_HELP}"
            )
        return encoder

    def _tell_columns(self) -> None:
        """Note the encoding of columns that are no plain numbers, or were filled in or left out."""
        encoder, survey = self.encoder, self._survey
        hints = survey.encoder.hints
        for column in encoder.columns:
            filled = survey.missing[column.name] if encoder.missing == "impute" else 0
            note = f"; {hints[column.name]}" if column.name in hints else ""
            if filled:
                fill = repr(column.fill) if isinstance(column.fill, str) else f"{column.fill:g}"
                note = f", {filled} missing filled in with {fill}{note}"
            if column.kind != "number" or filled:
                self._console.note(f"column {column.name!r}: {column}{note}")
        for name, reason in encoder.left_out.items():
            self._console.note(f"column {name!r}: left out, it {reason}")

    def _encoded_source(self) -> Source:
        chosen, survey = self._columns, self._survey
        columns = [*self.encoder.inputs, *chosen.others]
        # Where no row is left out, blocks and their sizes are known before they are read.
        is_whole = survey.known == survey.rows and not survey.missing and not self._share
        width = len(self.encoder.names) + len(chosen.targets)
        parts, start = [], 0
        for part, count in survey.counts.items():
            encoded = partial(self._encoded, start)
            parts.append(TablePart(part, columns, encoded, width, count if is_whole else None))
            start += count
        return Source(
            parts,
            self.encoder.names,
            chosen.targets,
            chosen.noise,
            single_target=len(chosen.targets) == 1,
            files=self._files,
        )

    def _encoded(self, start: int, batch: Any, row: int) -> RawRows:
        """The rows of a batch that are complete and no test rows, as numbers."""
        y, noise = matrix_of(batch, self._columns.targets), None
        x, chosen = self._inputs(batch)
        chosen &= ~self._is_tested(start + row, len(batch)) & np.isfinite(y).all(1)
        if self._columns.noise is not None:
            noise = matrix_of(batch, [self._columns.noise])[:, 0].astype(np.float64)
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

    def _scores(self, estimator: SoftKIRegressor) -> list[dict[str, Any]]:
        """The figures of the test rows, a target each, from one more pass over the table."""
        columns = self._columns
        batches = EncodedBatches(
            self.encoder, "test rows", self._test_batches(), None, self._console, columns.others
        )
        rows = ObservedRows(batches, columns.targets, columns.noise, estimator.noise_unit_)
        scores = scores_of(estimator, rows, self._data)
        self._files.check_unchanged()
        self._tested = scores.rows
        return [{"rows": scores.rows, **figures} for figures in scores.figures()]

    def _test_batches(self) -> Iterator[Any]:
        constants = [column.name for column in self.encoder.constants]
        columns = [*self.encoder.inputs, *constants, *self._columns.others]
        for rows in placed_batches(self._parts, columns):
            tested = self._is_tested(rows.position, len(rows.batch))
            yield rows.batch.filter(pa.array(tested))
