"""How one column of a table becomes numbers."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from softki.data.arrow import pa
from softki.data.column_kinds import KINDS, categories_of, kind_of, numbers_of
from softki.data.text_hints import text_hint
from softki.exceptions import InvalidInputError

# A text column with more different values than this is refused.
MAX_CATEGORIES = 50


class EncodedColumn(NamedTuple):
    """Numbers (n, k), and which rows were missing or of an unknown category, (n,)."""

    values: np.ndarray
    absent: np.ndarray
    unknown: np.ndarray


@dataclass(frozen=True)
class ColumnEncoding:
    """How one column becomes numbers.

    Attributes:
        name: of the column.
        kind: number, boolean, category, date, time or duration.
        fill: what a missing value is replaced by: the median, or the most frequent category.
        categories: of a category column, in the order of their columns.

    Example:
        >>> city = ColumnEncoding.of(pa.array(["Oslo", "Paris", "Oslo"]), "city")
        >>> city.names, city.fill
        (['city=Oslo', 'city=Paris'], 'Oslo')
    """

    name: str
    kind: str
    fill: float | str | None = None
    categories: tuple[str, ...] = ()

    @classmethod
    def of(cls, column: Any, name: str, hint: str = "") -> Self:
        """The encoding of columns like this one, which has a value at least.

        The hint says what text may have been meant as, should there be too many categories; by
        default, that is looked for here.
        """
        kind = kind_of(column, name)
        if kind == "category":
            return cls.of_categories(categories_of(column), name, hint)
        return cls.of_numbers(numbers_of(column, kind), name, kind)

    @classmethod
    def of_numbers(cls, numbers: np.ndarray, name: str, kind: str) -> Self:
        """That of a column with these numbers, or with more, of which these are a sample."""
        fill = float(np.median(numbers[np.isfinite(numbers)]))
        return cls(name, kind, round(fill) if kind == "boolean" else fill)

    @classmethod
    def of_categories(cls, counts: Counter[str], name: str, hint: str) -> Self:
        """That of a column of text, in which each category occurs so often."""
        if len(counts) > MAX_CATEGORIES:
            raise too_many_categories(name, str(len(counts)), hint or text_hint(counts))
        most_frequent = min(counts, key=lambda category: (-counts[category], category))
        return cls(name, "category", most_frequent, tuple(sorted(counts)))

    @property
    def names(self) -> list[str]:
        """The encoded columns."""
        if self.kind != "category":
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, column: Any, impute: bool) -> EncodedColumn:
        """The numbers of a column; what is missing is filled in, or NaN."""
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
        """How many values of a later column are not the one that a constant column had."""
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
    """The error for a column of so many categories; the hint says what they may have been."""
    advice = f"leave it out (--drop {name}), or group them"
    return InvalidInputError(
        f"column {name!r} holds text with {count} different values, and at most "
        f"{MAX_CATEGORIES} are one-hot encoded: "
        + (f"{hint}; mend that, or leave it out (--drop {name})" if hint else advice)
    )


def constant_value(column: Any, name: str) -> str | None:
    """The only value that a column has once it is encoded, in words; None if it has several."""
    kind = kind_of(column, name)
    if kind == "category":
        categories = categories_of(column)
        return repr(*categories) if len(categories) == 1 else None
    numbers = numbers_of(column, kind)
    numbers = numbers[np.isfinite(numbers)]
    constant = len(numbers) > 0 and numbers.min() == numbers.max()
    return f"{numbers[0]:g}" if constant else None


def is_rounded(column: Any) -> bool:
    """Whether the values of a column differ, by so little that they are one once encoded."""
    types, kind = pa.types, column.type
    exact = types.is_integer(kind) or types.is_decimal(kind) or types.is_temporal(kind)
    return exact and len(column.drop_null().unique()) > 1


def is_present(column: Any, name: str) -> np.ndarray:
    """Whether each row has a value that is neither null nor NaN nor infinite, (n,)."""
    kind = kind_of(column, name)
    if kind == "category":
        return np.asarray(column.cast(pa.string()).is_valid())
    return np.isfinite(numbers_of(column, kind))


def _parsed(column: Any, kind: str) -> Any:
    """Text as what its values were in the fit, if all of it can be read so; else as it is."""
    for wanted in KINDS[kind].csv_types:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return column.cast(pa.string()).cast(wanted)
    return column
