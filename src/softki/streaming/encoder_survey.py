"""An encoder from one pass over a table that does not fit into memory.

Categories are counted, and columns are found that are constant or hold no values. Medians, which
missing numbers are filled in with, are those of a random sample of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softki.data.column_encoding import ColumnEncoding
from softki.data.column_kinds import kind_of
from softki.data.column_survey import NumberSurvey, Place, TextSurvey
from softki.data.encoding import (
    CONSTANT,
    INDEX,
    INDEX_NAMES,
    NO_VALUES,
    ROUNDED,
    Missing,
    TableEncoder,
)
from softki.streaming.rows import Block, Rows
from softki.streaming.sample import LowestRows

# Rows and numbers of the sample whose medians are taken, at most.
_SAMPLE_ROWS, _SAMPLE_NUMBERS = 1 << 16, 1 << 23


class EncoderSurvey:
    """What an encoder has to know of the columns of a table, a batch of rows at a time.

    Args:
        schema: of the table; batches may have other types of the same kinds.
        names: of the columns to encode.

    Example:
        >>> from softki.data.arrow import pa
        >>> table = pa.table({"size": [120.0, 80.0, 95.0], "city": ["Oslo", "Rome", "Oslo"]})
        >>> survey = EncoderSurvey(table.schema, ["size", "city"])
        >>> for batch in table.to_batches(max_chunksize=2):
        ...     survey.add(batch, "row {}".format)
        >>> survey.encoder("refuse") == TableEncoder.of(table)
        True
    """

    def __init__(self, schema: Any, names: Sequence[str]) -> None:
        self.columns: dict[str, NumberSurvey | TextSurvey] = {}
        for name in names:
            kind = kind_of(schema.field(name), name)
            self.columns[name] = TextSurvey(name) if kind == "category" else NumberSurvey(kind)
        width = sum(isinstance(column, NumberSurvey) for column in self.columns.values())
        capacity = min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // max(1, width))
        self._sample = LowestRows(max(1, capacity), seed=0)
        self.rows = 0

    def add(self, batch: Any, place: Place) -> None:
        """Look at more rows; the place says in words where a row of the batch is."""
        numbers = []
        for name, column in self.columns.items():
            if isinstance(column, TextSurvey):
                column.add(batch.column(name), place)
            else:
                numbers.append(column.add(batch.column(name)))
        if numbers and len(batch):
            none = np.empty((len(batch), 0))
            self._sample.add(Block(self.rows, Rows(np.column_stack(numbers), none)))
        self.rows += len(batch)

    def add_unfitted(self, batch: Any, place: Place) -> None:
        """Look at rows that are kept from the fit, for hints only."""
        for name, column in self.columns.items():
            if isinstance(column, TextSurvey):
                column.add(batch.column(name), place, is_fitted=False)

    @property
    def hints(self) -> dict[str, str]:
        """What columns of text may have been meant as."""
        texts = {n: c.hint for n, c in self.columns.items() if isinstance(c, TextSurvey)}
        return {name: hint for name, hint in texts.items() if hint}

    def encoder(self, missing: Missing) -> TableEncoder:
        """The encoder of the rows that were looked at."""
        left_out: dict[str, str] = {}
        columns, constants = [], []
        for name, column in self.columns.items():
            if not column.has_values:
                left_out[name] = NO_VALUES
            elif name in INDEX_NAMES:
                left_out[name] = INDEX
            elif column.constant is not None and column.varies:
                left_out[name] = ROUNDED.format(column.constant)
            elif column.constant is not None:
                left_out[name] = CONSTANT.format(column.constant)
                constants.append(self._encoding(name))
            else:
                columns.append(self._encoding(name))
        # Columns without values, and indices, come first, as `TableEncoder.of` finds them.
        order = sorted(left_out, key=lambda name: left_out[name] not in (NO_VALUES, INDEX))
        reasons = {name: left_out[name] for name in order}
        return TableEncoder(tuple(columns), missing, reasons, tuple(constants))

    def _encoding(self, name: str) -> ColumnEncoding:
        column = self.columns[name]
        if isinstance(column, TextSurvey):
            column.check_count()
            return ColumnEncoding.of_categories(column.counts, name, column.hint)
        return ColumnEncoding.of_numbers(self._sampled(name, column), name, column.kind)

    def _sampled(self, name: str, column: NumberSurvey) -> np.ndarray:
        """Numbers of a sample; the lowest, if the sample has none."""
        numbers = [n for n, c in self.columns.items() if isinstance(c, NumberSurvey)]
        values = self._sample.ordered()[1].x[:, numbers.index(name)]
        return values if np.isfinite(values).any() else np.array([column.lowest])
