"""The encoding of tables as the numbers of a model, which is kept for later tables.

| column                    | becomes                                                   |
|---------------------------|-----------------------------------------------------------|
| numbers, decimals         | float64                                                   |
| booleans                  | 0 and 1                                                   |
| text, dictionaries        | one column of 0 and 1 for each category: `city=Paris`, …  |
| dates, timestamps         | days since 1970-01-01, in UTC                             |
| times of day, durations   | seconds                                                   |
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any, Literal, Self, get_args

import numpy as np

from softki.data.arrow import pa
from softki.data.column_encoding import ColumnEncoding
from softki.data.column_kinds import categories_of, is_present
from softki.data.encoder_survey import EncoderSurvey, columns_with_values
from softki.exceptions import InvalidInputError, SoftKIWarning
from softki.files.container import unseal
from softki.validation.parameters import check_choice
from softki.validation.tables import validated

Missing = Literal["refuse", "drop", "impute"]

# Unknown categories that a message names.
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows as numbers.

    Attributes:
        values: numbers (n, d); a row that is not complete holds NaN.
        complete: mask (n,) of the rows in which nothing is missing, or all that was is filled in.
        missing: number of missing values, by column of the table.
        unseen: counts of (column, category) in complete rows, for categories that the encoder does
            not know.
        changed: number of values that differ from that of the fit, by column that was constant.
    """

    values: np.ndarray
    complete: np.ndarray
    missing: Counter[str]
    unseen: Counter[tuple[str, str]]
    changed: Counter[str]


@dataclass(frozen=True)
class TableEncoder:
    """Turns tables into the numbers that a model was fitted to.

    Tables are `pyarrow` tables or record batches, or pandas or polars frames.

    Attributes:
        columns: encodings of the columns; other columns of a table are ignored.
        missing: treatment of rows with missing values (null, NaN or infinite): `refuse` for an
            error, `drop`, or `impute` (medians and most frequent categories of the rows that the
            encoder was made of).
        left_out: columns that are not used, with the reason.
        constants: encodings of columns that were left out as they had one value.

    Example:
        >>> table = pa.table({"size": [120.0, 80.0, 95.0], "city": ["Oslo", "Paris", "Oslo"]})
        >>> encoder = TableEncoder.of(table)
        >>> encoder.transform(table.slice(0, 2)).to_pydict()
        {'size': [120.0, 80.0], 'city=Oslo': [1.0, 0.0], 'city=Paris': [0.0, 1.0]}
    """

    columns: tuple[ColumnEncoding, ...]
    missing: Missing = "refuse"
    left_out: Mapping[str, str] = field(default_factory=dict)
    constants: tuple[ColumnEncoding, ...] = ()

    def __post_init__(self) -> None:
        """Check the choice and the names."""
        check_choice("missing", self.missing, get_args(Missing))
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise InvalidInputError(
                f"two columns are called {twice[0]!r} once categories are encoded: rename one"
            )

    @classmethod
    def of(cls, table: Any, missing: Missing = "refuse") -> Self:
        """The encoder for tables like this one.

        A column that holds no value or only one, or the index of a pandas frame, is left out.
        Rows that `missing` drops are not looked at.
        """
        table = _as_arrow(table)
        survey = EncoderSurvey(table.schema, table.column_names)
        if missing == "drop":
            complete = np.ones(len(table), dtype=bool)
            for name in columns_with_values(table, table.column_names, complete):
                complete &= is_present(table.column(name), name)
            table = table.filter(pa.array(complete))
        survey.add(table)
        return cls.of_survey(survey, missing)

    @classmethod
    def of_survey(cls, survey: EncoderSurvey, missing: Missing) -> Self:
        """The encoder of the rows that a survey has looked at."""
        if missing == "drop" and not survey.rows:
            raise InvalidInputError("no row is complete, so that dropping the others leaves none")
        columns, left_out, constants = survey.encodings()
        return cls(columns, missing, left_out, constants)

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Self:
        """The encoder for columns that are all numbers."""
        return cls(tuple(ColumnEncoding(name, "number") for name in names))

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """The encoder of the model in a file, which `softki fit` or `save` wrote."""
        return cls.from_metadata(unseal(path).document, path)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: str | PathLike[str]) -> Self:
        """The encoder in the document of a model file; errors name the path."""
        if "encoder" in metadata["extra"]:
            return cls.from_json(metadata["extra"]["encoder"])
        if metadata["columns"] is None:
            raise InvalidInputError(
                f"{path}: the model has no column names: fit it to a data frame, or by softki fit"
            )
        return cls.of_numbers(metadata["columns"])

    @property
    def inputs(self) -> list[str]:
        """The columns of a table that are used."""
        return [column.name for column in self.columns]

    @property
    def names(self) -> list[str]:
        """The encoded columns."""
        return [name for column in self.columns for name in column.names]

    def transform(self, table: Any) -> Any:
        """The encoded table, a `pyarrow.Table` of float64.

        Rows with missing values are refused, dropped or filled in, as `missing` says. A category
        that the encoder does not know becomes zeros, with a warning; there is one, too, where a
        column that was left out as constant has other values.
        """
        encoded = self.encode(table)
        if self.missing == "refuse" and not encoded.complete.all():
            count = int((~encoded.complete).sum())
            raise InvalidInputError(
                f"{missing_message(encoded.missing, count)}: remove or fill in such rows, or use "
                "with_missing('drop') or with_missing('impute')"
            )
        for message in self.warnings(encoded.unseen, encoded.changed):
            warnings.warn(message, SoftKIWarning, stacklevel=2)
        rows = encoded.values[encoded.complete]
        return pa.table({name: rows[:, j] for j, name in enumerate(self.names)})

    def encode(self, table: Any) -> Encoded:
        """All rows as numbers, also those that are not complete."""
        table = _as_arrow(table)
        impute = self.missing == "impute"
        parts = {c.name: c.encode(_column(table, c.name), impute) for c in self.columns}
        values = np.empty((len(table), len(self.names)), order="F")
        np.concatenate([part.values for part in parts.values()], axis=1, out=values)
        complete = np.asarray(~np.isnan(values).any(1))
        missing = Counter({name: int(part.absent.sum()) for name, part in parts.items()})
        unseen: Counter[tuple[str, str]] = Counter()
        for name, part in parts.items():
            if (rows := part.unknown & complete).any():
                counts = categories_of(table.column(name).filter(pa.array(rows)))
                unseen.update({(name, category): count for category, count in counts.items()})
        changed = Counter(
            {
                constant.name: constant.differing(table.column(constant.name))
                for constant in self.constants
                if constant.name in table.schema.names
            }
        )
        return Encoded(values, complete, +missing, unseen, +changed)

    def warnings(
        self, unseen: Mapping[tuple[str, str], int], changed: Mapping[str, int]
    ) -> list[str]:
        """One sentence for each column with values that the fit did not see.

        Args:
            unseen: counts of the categories that are not known, see `Encoded`.
            changed: number of new values, by column that was constant.
        """
        by_column: dict[str, Counter[str]] = {}
        for (name, category), count in unseen.items():
            by_column.setdefault(name, Counter())[category] = count
        return [
            *(f"column {name!r}: {_unseen(counts)}" for name, counts in by_column.items()),
            *(
                f"column {name!r} {self.left_out[name]} in the fit, so that the model does not use "
                f"it, and {count} {'value is' if count == 1 else 'values are'} different here"
                for name, count in changed.items()
            ),
        ]

    def with_missing(self, missing: Missing) -> Self:
        """This encoder with another choice for missing values."""
        if missing == "impute" and any(column.fill is None for column in self.columns):
            raise InvalidInputError(
                "missing='impute' needs the medians of the training rows, and a model that was "
                "not fitted by softki fit does not have them"
            )
        return replace(self, missing=missing)

    def to_json(self) -> dict[str, Any]:
        """The encoder as a JSON document."""
        return {
            "columns": [asdict(column) for column in self.columns],
            "missing": self.missing,
            "left_out": dict(self.left_out),
            "constants": [asdict(column) for column in self.constants],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The encoder that `to_json` described."""

        def encodings(columns: Sequence[Mapping[str, Any]]) -> tuple[ColumnEncoding, ...]:
            return tuple(
                ColumnEncoding(**{**column, "categories": tuple(column["categories"])})
                for column in columns
            )

        return cls(
            encodings(document["columns"]),
            document["missing"],
            dict(document["left_out"]),
            encodings(document.get("constants", ())),  # files of softki 0.1.0 may not have them
        )


def missing_message(missing: Mapping[str, int], rows: int) -> str:
    """A message about rows with missing values, and the columns that miss them.

    Example:
        >>> missing_message({"age": 3, "city": 1}, 4)
        '4 rows have missing values (age 3, city 1)'
    """
    where = ", ".join(f"{name} {count}" for name, count in missing.items())
    return f"{rows} {'row has' if rows == 1 else 'rows have'} missing values ({where})"


def _unseen(counts: Counter[str]) -> str:
    """The sentence about categories that the fit did not see.

    Example:
        >>> _unseen(Counter(Rome=1))
        "1 value is of a category that the fit did not see ('Rome') and becomes zeros"
    """
    total = counts.total()
    some = ", ".join(repr(category) for category, _ in counts.most_common(_SHOWN))
    some += ", …" if len(counts) > _SHOWN else ""
    if total == 1:
        return f"1 value is of a category that the fit did not see ({some}) and becomes zeros"
    return f"{total} values are of categories that the fit did not see ({some}) and become zeros"


def _column(table: Any, name: str) -> Any:
    if name not in table.schema.names:
        raise InvalidInputError(f"the table has no column {name!r}")
    return table.column(name)


def _as_arrow(table: Any) -> Any:
    return validated(table) if isinstance(table, pa.Table | pa.RecordBatch) else pa.table(table)
