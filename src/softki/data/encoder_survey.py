"""The survey of the columns of a table by which its encoder is made, from one pass over its rows.

Categories are counted, and columns are found that are constant or hold no values. Medians, with
which missing numbers are filled in, are those of all rows of a table of up to 65,536 rows, and of a
sample of a larger one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from softki.data.arrow import pa
from softki.data.column_encoding import MAX_CATEGORIES, ColumnEncoding, too_many_categories
from softki.data.column_kinds import categories_of, is_present, kind_of, numbers_of
from softki.data.text_hints import first_text, text_hint

# Columns that pandas writes for the index of a frame.
INDEX_NAMES = ("", "__index_level_0__")
# Reasons to leave a column out.
NO_VALUES, INDEX = "holds no values", "looks like the row index of a pandas frame"
CONSTANT, ROUNDED = "is constant ({})", "varies by less than float64 can tell ({})"
# Different texts of a column that are counted: beyond, there are too many in any case.
_MOST_TEXTS = 20 * MAX_CATEGORIES
# Rows and numbers of the sample whose medians are taken, at most.
_SAMPLE_ROWS, _SAMPLE_NUMBERS = 1 << 16, 1 << 23
# 2⁶⁴ over the golden ratio: its multiples modulo 2⁶⁴ are spread evenly, at any number of them.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# The place of a row of a batch, in words.
Place = Callable[[int], str]


class NumberSurvey:
    """The range of a column of numbers, dates or booleans; missing values do not count.

    Attributes:
        kind: kind of the column.
        lowest, highest: extremes of its numbers.
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
        """Look at more values, and return their numbers: NaN and infinite ones are missing."""
        numbers = numbers_of(column, self.kind)
        finite = numbers if np.isfinite(numbers.sum()) else numbers[np.isfinite(numbers)]
        if len(finite):
            self.lowest = min(self.lowest, float(finite.min()))
            self.highest = max(self.highest, float(finite.max()))
            if self.lowest == self.highest:
                self._compare(column.drop_null())
        return numbers

    def _compare(self, column: Any) -> None:
        """Compare values that are one number in float64, and may differ all the same."""
        types, kind = pa.types, column.type
        if not (types.is_integer(kind) or types.is_decimal(kind) or types.is_temporal(kind)):
            return
        ends = pa.compute.min_max(column)
        low, high = ends["min"], ends["max"]
        self._value = low if self._value is None else self._value
        self.varies |= low != high or low != self._value

    @property
    def has_values(self) -> bool:
        """True if any value is not missing."""
        return self.lowest <= self.highest

    @property
    def constant(self) -> str | None:
        """The only value, in words; None if there are several."""
        return f"{self.lowest:g}" if self.lowest == self.highest else None


class TextSurvey:
    """The categories of a column, and how often each occurs.

    Rows that are not fitted to count only for the hint, which says what the texts may have been
    meant as.

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
        self._where: str | None = None  # place of the first text that is no number
        self._has_too_many = False

    def add(self, column: Any, place: Place | None, fitted: Any = None) -> None:
        """Look at more values, of which a mask may say which are fitted to.

        Raises if too many are different: at once, unless all are numbers so far. The one text that
        makes text of numbers may come later, and the error should name it.
        """
        texts = column.cast(pa.string())
        if self._where is None and (row := first_text(texts)) is not None:
            self._where = "" if place is None else f" in {place(row)}"
            if self._has_too_many:
                hint = f"it would be numbers but for {texts[row].as_py()[:50]!r}{self._where}"
                raise too_many_categories(self.name, f"more than {_MOST_TEXTS}", hint)
        if self._has_too_many:
            return
        found = categories_of(texts)
        self._every += found
        self.counts += found if fitted is None else categories_of(texts.filter(fitted))
        self._has_too_many = len(self._every) > _MOST_TEXTS
        if self._where is not None:
            self.check_count()

    def check_count(self) -> None:
        """Raise if there were too many to be counted."""
        if self._has_too_many:
            raise too_many_categories(self.name, f"more than {_MOST_TEXTS}", self.hint)

    @property
    def has_values(self) -> bool:
        """True if any value is not missing."""
        return bool(self.counts)

    @property
    def constant(self) -> str | None:
        """The only value, in words; None if there are several."""
        return repr(*self.counts) if len(self.counts) == 1 else None

    @property
    def hint(self) -> str:
        """A hint of what the texts were meant as, and the one in the way; else empty."""
        return text_hint(self._every, self._where or "")


class _Sample:
    """Rows of numbers, spread evenly over all rows: a function of their number alone.

    Row i is kept where (i · 2⁶⁴/φ mod 2⁶⁴) lies below a limit, which is halved whenever more rows
    are kept than the capacity.
    """

    def __init__(self, width: int) -> None:
        self._capacity = max(1, min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // max(1, width)))
        self._limit = np.uint64(2**64 - 1)
        self._keys, self._numbers = np.empty(0, np.uint64), np.empty((0, width))

    def add(self, start: int, numbers: np.ndarray) -> None:
        """Look at more rows (n, c), whose first is row `start`."""
        keys = np.arange(start, start + len(numbers), dtype=np.uint64) * _GOLDEN
        chosen = keys <= self._limit
        self._keys = np.append(self._keys, keys[chosen])
        self._numbers = np.append(self._numbers, numbers[chosen], axis=0)
        while len(self._keys) > self._capacity:
            self._limit //= np.uint64(2)
            chosen = self._keys <= self._limit
            self._keys, self._numbers = self._keys[chosen], self._numbers[chosen]

    def column(self, number: int) -> np.ndarray:
        """The sampled numbers of a column."""
        return self._numbers[:, number]


class Encodings(NamedTuple):
    """Encodings of columns to use, reasons to leave others out, and encodings of constant ones."""

    columns: tuple[ColumnEncoding, ...]
    left_out: dict[str, str]
    constants: tuple[ColumnEncoding, ...]


class EncoderSurvey:
    """Categories, ranges and medians of the columns of a table, collected batch by batch.

    Args:
        schema: schema of the table.
        names: names of the columns to encode.

    Example:
        >>> table = pa.table({"size": [120.0, 80.0, 95.0], "city": ["Oslo", "Rome", "Oslo"]})
        >>> survey = EncoderSurvey(table.schema, ["size", "city"])
        >>> for batch in table.to_batches(max_chunksize=2):
        ...     survey.add(batch, "row {}".format)
        >>> [column.name for column in survey.encodings().columns]
        ['size', 'city']
    """

    def __init__(self, schema: Any, names: Sequence[str]) -> None:
        self.columns: dict[str, NumberSurvey | TextSurvey] = {}
        for name in names:
            kind = kind_of(schema.field(name), name)
            self.columns[name] = TextSurvey(name) if kind == "category" else NumberSurvey(kind)
        self._numbers = [n for n, c in self.columns.items() if isinstance(c, NumberSurvey)]
        self._sample = _Sample(len(self._numbers))
        self.rows = 0

    def add(self, batch: Any, place: Place | None = None, fitted: np.ndarray | None = None) -> None:
        """Look at more rows.

        Args:
            batch: record batch of the rows.
            place: function that says in words where a row of the batch is.
            fitted: mask (n,) of the rows to fit to; others are looked at for hints only.
        """
        mask = None if fitted is None or fitted.all() else pa.array(fitted)
        numbers = []
        for name, column in self.columns.items():
            values = batch.column(name)
            if isinstance(column, TextSurvey):
                column.add(values, place, mask)
            else:
                numbers.append(column.add(values if mask is None else values.filter(mask)))
        count = len(batch) if fitted is None else int(fitted.sum())
        if numbers:
            self._sample.add(self.rows, np.column_stack(numbers))
        self.rows += count

    @property
    def hints(self) -> dict[str, str]:
        """Hints of what columns of text may have been meant as, by column."""
        texts = {n: c.hint for n, c in self.columns.items() if isinstance(c, TextSurvey)}
        return {name: hint for name, hint in texts.items() if hint}

    def encodings(self) -> Encodings:
        """The encodings of the columns, by the rows that were looked at."""
        useless: dict[str, str] = {}
        constant: dict[str, str] = {}
        columns, constants = [], []
        for name, column in self.columns.items():
            if not column.has_values:
                useless[name] = NO_VALUES
            elif name in INDEX_NAMES:
                useless[name] = INDEX
            elif column.constant is not None and column.varies:
                constant[name] = ROUNDED.format(column.constant)
            elif column.constant is not None:
                constant[name] = CONSTANT.format(column.constant)
                constants.append(self._encoding(name))
            else:
                columns.append(self._encoding(name))
        return Encodings(tuple(columns), useless | constant, tuple(constants))

    def _encoding(self, name: str) -> ColumnEncoding:
        column = self.columns[name]
        if isinstance(column, TextSurvey):
            column.check_count()
            return ColumnEncoding.of_categories(column.counts, name, column.hint)
        sampled = self._sample.column(self._numbers.index(name))
        numbers = sampled if np.isfinite(sampled).any() else np.array([column.lowest])
        return ColumnEncoding.of_numbers(numbers, name, column.kind)


def columns_with_values(batch: Any, names: Sequence[str], rows: np.ndarray) -> list[str]:
    """The columns, but for indices, that have a value in any of the rows of a mask (n,).

    Only in these is a value missing: `drop` keeps the rows that have all of them.
    """
    return [
        name
        for name in names
        if name not in INDEX_NAMES and (is_present(batch.column(name), name) & rows).any()
    ]
