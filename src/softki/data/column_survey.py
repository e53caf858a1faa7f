"""What the encoding of a column has to know of it, a batch of rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from softki.data.arrow import pa
from softki.data.column_encoding import MAX_CATEGORIES, too_many_categories
from softki.data.column_kinds import categories_of, numbers_of
from softki.data.text_hints import are_numbers, first_text, stray_text, text_hint

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
