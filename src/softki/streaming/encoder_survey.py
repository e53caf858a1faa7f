"""An encoder from one pass over a table that does not fit into memory.

Categories are counted, and columns are found that are constant or hold no values. Medians, which
missing numbers are filled in with, are those of a random sample of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from softki.data.arrow import pa
from softki.data.column_encoding import MAX_CATEGORIES, ColumnEncoding, too_many_categories
from softki.data.column_kinds import categories_of, kind_of, numbers_of
from softki.data.encoding import (
    CONSTANT,
    INDEX,
    INDEX_NAMES,
    NO_VALUES,
    ROUNDED,
    Missing,
    TableEncoder,
)
from softki.data.text_hints import are_numbers, first_text, stray_text, text_hint
from softki.streaming.blocks import Block, RawRows
from softki.streaming.sampling import LowestRows

# Different texts of a column that are counted: beyond, there are too many in any case.
_MOST_TEXTS = 20 * MAX_CATEGORIES

# Where a row of a batch is, in words.
Place = Callable[[int], str]


class NumberSurvey:
    """Whether numbers, dates or booleans differ; missing ones do not count.

    Attributes:
        kind: of the column.
        lowest, highest: of its numbers.
        varies: whether its values differ, even if the numbers do not.

    Example:
        >>> survey = NumberSurvey("number")
        >>> for values in ([1.0, None], [1.0, 1.0]):
        ...     _ = survey.add(pa.array(values))
        >>> survey.has_values, survey.constant, survey.varies
        (True, '1', False)
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.lowest, self.highest = np.inf, -np.inf
        self._value: Any = None
        self.varies = False

    def add(self, column: Any) -> np.ndarray:
        """Look at more values; their numbers, of which NaN and infinite ones are missing."""
        numbers = numbers_of(column, self.kind)
        finite = numbers if np.isfinite(numbers.sum()) else numbers[np.isfinite(numbers)]
        if len(finite):
            self.lowest = min(self.lowest, float(finite.min()))
            self.highest = max(self.highest, float(finite.max()))
            if self.lowest == self.highest:
                self._compare(column.drop_null())
        return numbers

    def _compare(self, column: Any) -> None:
        """Values that are one number in float64 may differ all the same."""
        types, kind = pa.types, column.type
        if not (types.is_integer(kind) or types.is_decimal(kind) or types.is_temporal(kind)):
            return
        ends = pa.compute.min_max(column)
        low, high = ends["min"], ends["max"]
        self._value = low if self._value is None else self._value
        self.varies |= low != high or low != self._value

    @property
    def has_values(self) -> bool:
        """Whether there is any."""
        return self.lowest <= self.highest

    @property
    def constant(self) -> str | None:
        """The only value, in words; None if there are several."""
        return f"{self.lowest:g}" if self.lowest == self.highest else None


class TextSurvey:
    """The categories of a column, and how often each occurs.

    Rows that are kept from the fit count only for the hint, which says what the texts may have
    been meant as.

    Example:
        >>> survey = TextSurvey("city")
        >>> survey.add(pa.array(["Oslo", "Rome", None, "Oslo"]), "row {}".format)
        >>> dict(survey.counts), survey.constant, survey.hint
        ({'Oslo': 2, 'Rome': 1}, None, '')
    """

    kind, varies = "category", False

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self._every: Counter[str] = Counter()
        self._places: dict[str, str] = {}
        self._has_too_many = False

    def add(self, column: Any, place: Place, is_fitted: bool = True) -> None:
        """Look at more values; raises if too many are different."""
        texts = column.cast(pa.string())
        if self._has_too_many:
            self._refuse_stray(texts, place)
            return
        found = categories_of(texts)
        for text in found.keys() - self._places.keys():
            self._places[text] = place(texts.index(text).as_py())
        self._every += found
        if is_fitted:
            self.counts += found
        if len(self._every) > _MOST_TEXTS:
            # The one text that makes text of numbers may come later, and is worth to know.
            self._has_too_many = True
            if not are_numbers(list(self._every)):
                self.check_count()

    def check_count(self) -> None:
        """Raise if there were too many to be counted."""
        if self._has_too_many:
            raise too_many_categories(self.name, f"more than {_MOST_TEXTS}", self.hint)

    def _refuse_stray(self, texts: Any, place: Place) -> None:
        row = first_text(texts)
        if row is not None:
            hint = f"it would be numbers but for {texts[row].as_py()[:50]!r} in {place(row)}"
            raise too_many_categories(self.name, f"more than {_MOST_TEXTS}", hint)

    @property
    def has_values(self) -> bool:
        """Whether there is any."""
        return bool(self.counts)

    @property
    def constant(self) -> str | None:
        """The only value, in words; None if there are several."""
        return repr(*self.counts) if len(self.counts) == 1 else None

    @property
    def hint(self) -> str:
        """What the texts may have been meant as, and which one is in the way."""
        if not self._every:
            return ""
        stray = stray_text(self._every)
        return text_hint(self._every, "" if stray is None else f" in {self._places[stray]}")


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
            self._sample.add(Block(self.rows, RawRows(np.column_stack(numbers), none)))
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
