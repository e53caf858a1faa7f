"""The encoding of one column of a table as numbers."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from softki.data.arrow import pa
from softki.data.column_kinds import KINDS, is_present, kind_of, numbers_of
from softki.exceptions import InvalidInputError

# A text column with more different values than this is refused.
MAX_CATEGORIES = 50


class EncodedColumn(NamedTuple):
    """Numbers (n, k), and masks (n,) of the rows that are missing or of an unknown category."""

    values: np.ndarray
    absent: np.ndarray
    unknown: np.ndarray


@dataclass(frozen=True)
class ColumnEncoding:
    """The encoding of one column as numbers.

    Attributes:
        name: name of the column.
        kind: number, boolean, category, date, time or duration.
        fill: value for a missing one: the median, or the most frequent category.
        categories: categories of a column of text, in the order of their encoded columns.

    Example:
        >>> city = ColumnEncoding.of_categories(Counter(Oslo=2, Paris=1), "city", hint="")
        >>> city.names, city.fill
        (['city=Oslo', 'city=Paris'], 'Oslo')
    """

    name: str
    kind: str
    fill: float | str | None = None
    categories: tuple[str, ...] = ()

    @classmethod
    def of_numbers(cls, numbers: np.ndarray, name: str, kind: str) -> Self:
        """The encoding of a column with these numbers, or with more of which they are a sample."""
        fill = float(np.median(numbers[np.isfinite(numbers)]))
        return cls(name, kind, round(fill) if kind == "boolean" else fill)

    @classmethod
    def of_categories(cls, counts: Counter[str], name: str, hint: str) -> Self:
        """The encoding of a column of text, given how often each category occurs.

        The hint says what the text may have been meant as, should there be too many categories.
        """
        if len(counts) > MAX_CATEGORIES:
            raise too_many_categories(name, str(len(counts)), hint)
        most_frequent = min(counts, key=lambda category: (-counts[category], category))
        return cls(name, "category", most_frequent, tuple(sorted(counts)))

    @property
    def names(self) -> list[str]:
        """The encoded columns."""
        if self.kind != "category":
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, column: Any, impute: bool) -> EncodedColumn:
        """The numbers of a column, where missing values are filled in or NaN."""
        kind = kind_of(column, self.name)
        # A CSV file cannot say that its numbers are durations, in seconds.
        as_fitted = kind in (self.kind, "null") or (self.kind, kind) == ("duration", "number")
        if not as_fitted:
            raise InvalidInputError(
                f"column {self.name!r} holds {KINDS[kind].plural} ({column.type}), and held "
                f"{KINDS[self.kind].plural} in the fit"
            )
        if self.kind == "category":
            return self._one_hot(column.cast(pa.string()), impute)
        values = np.array(numbers_of(column, kind))
        absent = ~np.isfinite(values)
        values[absent] = self.fill if impute else np.nan
        return EncodedColumn(values[:, None], absent, np.zeros_like(absent))

    def differing(self, column: Any) -> int:
        """The number of values in a later column that differ from the one of a constant column."""
        if kind_of(column, self.name) == "category" and self.kind != "category":
            column = _parsed(column, self.kind)
        if kind_of(column, self.name) not in (self.kind, "null"):
            return int(is_present(column, self.name).sum())
        encoded = self.encode(column, impute=False)
        if self.kind == "category":
            return int(encoded.unknown.sum())
        # A number may have been rounded to single precision in one of the files.
        tolerance = 1e-6 if self.kind == "number" else 0.0
        same = np.isclose(encoded.values[:, 0], float(self.fill or 0), rtol=tolerance, atol=0.0)
        return int((~same & ~encoded.absent).sum())

    def _one_hot(self, text: Any, impute: bool) -> EncodedColumn:
        absent = ~np.asarray(text.is_valid())
        if impute:
            text = text.fill_null(self.fill)
        codes = pa.compute.index_in(text, pa.array(self.categories, pa.string()))
        known = np.asarray(codes.is_valid())
        values = np.zeros((len(text), len(self.categories)))
        values[known, np.asarray(codes.drop_null())] = 1.0
        if not impute:
            values[absent] = np.nan
        return EncodedColumn(values, absent, ~known & ~absent)

    def __str__(self) -> str:
        if self.kind == "category":
            return f"{len(self.categories)} categories, one-hot encoded"
        return KINDS[self.kind].note


def too_many_categories(name: str, count: str, hint: str) -> InvalidInputError:
    """The error for a column with that many categories; the hint says what they may have been."""
    advice = f"leave it out (--drop {name}), or group them"
    return InvalidInputError(
        f"column {name!r} holds text with {count} different values, and at most "
        f"{MAX_CATEGORIES} are one-hot encoded: "
        + (f"{hint}; mend that, or leave it out (--drop {name})" if hint else advice)
    )


def _parsed(column: Any, kind: str) -> Any:
    """Text as values of a kind, if all of it can be read as such; else unchanged."""
    for wanted in KINDS[kind].csv_types:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return column.cast(pa.string()).cast(wanted)
    return column
