from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import softki
from softki.data.column_encoding import MAX_CATEGORIES, ColumnEncoding
from softki.data.column_kinds import kind_of
from softki.data.encoding import TableEncoder
from softki.exceptions import InvalidInputError, SoftKIWarning

NOON = dt.datetime(1970, 1, 2, 12)


def encoded(values: Any, kind: pa.DataType | None = None) -> list[float]:
    """The numbers of a column that becomes one column."""
    column = pa.array(values, kind)
    table = ColumnEncoding("c", kind_of(column, "c")).encode(column, impute=False)
    return table.values[:, 0].tolist()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2], pa.int8(), [1, 2]),
        ([1, 2**63], pa.uint64(), [1, 2.0**63]),
        ([0.5, 2.0], pa.float32(), [0.5, 2]),
        ([Decimal("1.25"), Decimal("-3")], None, [1.25, -3]),
        ([True, False], None, [1, 0]),
        ([dt.date(1970, 1, 1), dt.date(1971, 1, 1)], pa.date32(), [0, 365]),
        ([dt.date(1969, 12, 31), dt.date(1970, 1, 3)], pa.date64(), [-1, 2]),
        ([NOON, NOON], pa.timestamp("s"), [1.5, 1.5]),
        ([NOON, NOON], pa.timestamp("ns"), [1.5, 1.5]),
        # An instant counts, wherever its clock is: noon in UTC is 14 o'clock in Cairo.
        ([NOON.replace(tzinfo=dt.UTC)] * 2, pa.timestamp("ms", "Africa/Cairo"), [1.5, 1.5]),
        ([dt.time(0, 1), dt.time(1, 0, 0, 500000)], pa.time64("us"), [60, 3600.5]),
        ([dt.time(0, 1), dt.time(1)], pa.time32("s"), [60, 3600]),
        ([dt.timedelta(days=1), dt.timedelta(milliseconds=5)], pa.duration("ms"), [86400, 0.005]),
    ],
)
def test_every_kind_of_column_becomes_numbers(
    values: list[Any], kind: pa.DataType | None, expected: list[float]
) -> None:
    assert encoded(values, kind) == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"], pa.large_string()),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.array(["b", "a", "b"], pa.string_view()),
    ],
    ids=lambda column: str(column.type),
)
def test_text_and_dictionaries_are_one_hot_encoded(column: pa.Array) -> None:
    table = pa.table({"c": column})
    result = TableEncoder.of(table).transform(table)
    assert result.to_pydict() == {"c=a": [0, 1, 0], "c=b": [1, 0, 1]}


def test_dictionaries_of_numbers_are_categories() -> None:
    table = pa.table({"c": pa.array([30, 7, 30]).dictionary_encode()})
    assert TableEncoder.of(table).names == ["c=30", "c=7"]


TABLE = pa.table(
    {
        "size": [1.0, 2.0, None, 4.0, float("inf")],
        "city": ["Oslo", None, "Oslo", "Rome", "Rome"],
        "open": [True, False, True, None, True],
    }
)


def test_missing_values_are_refused_with_counts() -> None:
    with pytest.raises(
        InvalidInputError, match=r"4 rows have missing values \(size 2, city 1, open 1\): remove"
    ):
        TableEncoder.of(TABLE).transform(TABLE)


def test_missing_values_are_dropped() -> None:
    """Only complete rows tell which categories there are, and only theirs may be unknown."""
    table = pa.table({"size": [1.0, 2.0, None, 3.0], "city": ["a", "b", "c", None]})
    encoder = TableEncoder.of(table, "drop")
    assert encoder.names == ["size", "city=a", "city=b"]
    assert encoder.transform(table).to_pydict() == {
        "size": [1.0, 2.0],
        "city=a": [1.0, 0.0],
        "city=b": [0.0, 1.0],
    }
    with pytest.raises(InvalidInputError, match="no row is complete"):
        TableEncoder.of(pa.table({"a": [1.0, None], "b": [None, 1.0]}), "drop")


def test_missing_values_are_imputed_from_the_rows_of_the_fit() -> None:
    encoder = TableEncoder.of(TABLE, "impute")
    assert [column.fill for column in encoder.columns] == [2.0, "Oslo", 1]
    table = pa.table({"size": pa.nulls(1), "city": pa.nulls(1), "open": pa.nulls(1)})
    assert encoder.transform(table).to_pydict() == {
        "size": [2.0],
        "city=Oslo": [1.0],
        "city=Rome": [0.0],
        "open": [1.0],
    }
    assert encoder.encode(TABLE).missing == {"size": 2, "city": 1, "open": 1}
    with pytest.raises(InvalidInputError, match="needs the medians"):
        TableEncoder.of_numbers(["a"]).with_missing("impute")


def test_useless_columns_are_left_out_with_a_reason() -> None:
    table = pa.table(
        {
            "": [0, 1, 2],
            "size": [1.0, 2.0, 3.0],
            "none": pa.nulls(3),
            "nan": [np.nan] * 3,
            "one": [7, 7, None],
            "word": ["a", "a", "a"],
            "large": pa.array([2**64 - 1, 2**64 - 2, 2**64 - 1], pa.uint64()),
        }
    )
    encoder = TableEncoder.of(table, "impute")
    assert encoder.names == ["size"]
    assert dict(encoder.left_out) == {
        "": "looks like the row index of a pandas frame",
        "none": "holds no values",
        "nan": "holds no values",
        "one": "is constant (7)",
        "word": "is constant ('a')",
        "large": "varies by less than float64 can tell (1.84467e+19)",
    }
    assert [column.name for column in encoder.constants] == ["one", "word"]
    empty_name = pa.table({"": pa.nulls(2), "a": [1, 2]})
    assert TableEncoder.of(empty_name).left_out == {"": "holds no values"}


CONSTANT = {
    "x": [1.0, 2.0, 3.0],
    "number": pa.array([0.1] * 3, pa.float32()),
    "word": ["EU"] * 3,
    "flag": [True] * 3,
    "day": [dt.date(2020, 1, 31)] * 3,
}


@pytest.mark.parametrize(
    ("later", "changed"),
    [
        (CONSTANT, {}),
        ({"x": CONSTANT["x"]}, {}),
        # As a CSV file carries them along, and a value that is missing.
        ({"number": ["0.1", "0.10", None], "flag": ["true"] * 3, "day": ["2020-01-31"] * 3}, {}),
        ({"number": [0.1, 0.2, 0.3], "word": ["US", "EU", "US"]}, {"number": 2, "word": 2}),
        ({"flag": [True, False, None], "day": [dt.date(2020, 1, 30)] * 3}, {"flag": 1, "day": 3}),
        (
            {"day": ["2020-01-31", "2020-01-30", "2020-01-31"], "word": [1, 2, 3]},
            {"word": 3, "day": 1},
        ),
    ],
)
def test_columns_that_were_constant_are_watched(
    later: dict[str, Any], changed: dict[str, int]
) -> None:
    encoder = TableEncoder.of(pa.table(CONSTANT))
    encoder = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert encoder.names == ["x"]
    assert encoder.encode(pa.table({"x": CONSTANT["x"]} | later)).changed == changed


def test_another_value_of_a_constant_column_warns_unless_the_file_is_older() -> None:
    encoder = TableEncoder.of(pa.table(CONSTANT))
    later = pa.table(CONSTANT | {"word": ["EU", "US", "US"]})
    message = r"column 'word' is constant \('EU'\) in the fit, .*, and 2 values are different here"
    with pytest.warns(SoftKIWarning, match=message):
        encoder.transform(later)
    older = {key: value for key, value in encoder.to_json().items() if key != "constants"}
    assert len(TableEncoder.from_json(older).transform(later)) == 3


def test_unknown_categories_become_zeros_with_a_warning() -> None:
    encoder = TableEncoder.of(pa.table({"c": ["a", "b"]}))
    later = pa.table({"c": ["b", "x", "y", "x"]})
    message = r"'c': 3 values are of categories that the fit did not see \('x', 'y'\)"
    with pytest.warns(SoftKIWarning, match=message):
        result = encoder.transform(later)
    assert result.to_pydict() == {"c=a": [0, 0, 0, 0], "c=b": [1, 0, 0, 0]}


def test_other_columns_and_orders_do_not_matter_but_kinds_do() -> None:
    encoder = TableEncoder.of(
        pa.table({"n": [1, 2], "c": ["a", "b"], "d": [NOON.date(), dt.date(2020, 1, 1)]})
    )
    later = pa.table({"d": [NOON, NOON], "new": [1, 2], "c": ["a", "b"], "n": [0.5, 2.0]})
    assert encoder.transform(later).column_names == ["n", "c=a", "c=b", "d"]
    with pytest.raises(InvalidInputError, match="the table has no column 'c'"):
        encoder.transform(later.drop_columns(["c"]))
    wrong = later.set_column(3, "n", pa.array(["1", "2"]))
    with pytest.raises(
        InvalidInputError, match=r"'n' holds categories \(string\), and held numbers in the fit"
    ):
        encoder.transform(wrong)


def test_numbers_are_taken_for_durations_but_not_the_reverse() -> None:
    durations = pa.table({"d": pa.array([90_000, 1500, None], pa.duration("ms"))})
    seconds = pa.table({"d": [90, 1.5, None]})
    encoder = TableEncoder.of(durations, "impute")
    assert encoder.transform(seconds).to_pydict() == {"d": [90.0, 1.5, 45.75]}
    assert encoder.transform(durations).equals(encoder.transform(seconds))
    with pytest.raises(InvalidInputError, match=r"'d' holds durations .* and held numbers"):
        TableEncoder.of(seconds, "impute").transform(durations)


def test_too_many_categories_and_types_without_numbers() -> None:
    many = pa.table({"name": [f"n{i}" for i in range(MAX_CATEGORIES + 1)]})
    with pytest.raises(InvalidInputError, match=r"'name' holds text with 51 .*--drop name"):
        TableEncoder.of(many)
    assert len(TableEncoder.of(many.slice(1)).names) == MAX_CATEGORIES
    with pytest.raises(InvalidInputError, match=r"'l' has the type list<.*--drop l"):
        TableEncoder.of(pa.table({"l": [[1], [2]]}))
    with pytest.raises(InvalidInputError, match="two columns are called 'c=a'"):
        TableEncoder.of(pa.table({"c": ["a", "b"], "c=a": [1, 2]}))


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (["?", *map(str, range(60))], "it would be numbers but for '?'; mend that"),
        ([f"{i}.5" for i in range(60)] + ["1,234.5"], "it would be numbers but for '1,234.5'"),
        ([f"{i},234.5" for i in range(60)], "its values look like numbers ('0,234.5')"),
        ([f"0,{i}" for i in range(60)], "its values look like numbers ('0,0')"),
        ([f"${i}" for i in range(60)], "its values look like numbers ('$0')"),
        ([f"{i}%" for i in range(60)], "its values look like numbers ('0%')"),
        ([f"01/02/{1950 + i}" for i in range(60)], "its values look like dates"),
        ([f"1.2.{1950 + i}" for i in range(60)], "its values look like dates"),
        ([f"h{i}" for i in range(60)], "leave it out (--drop c), or group them"),
        ([f"{i}-{i}-{i}-{i}" for i in range(60)], "leave it out (--drop c), or group them"),
    ],
)
def test_what_text_with_too_many_values_may_have_been_meant_as(
    values: list[str], hint: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        TableEncoder.of(pa.table({"c": values}))
    assert f"are one-hot encoded: {hint}" in str(error.value)


def test_json_brings_back_the_same_encoder() -> None:
    encoder = TableEncoder.of(TABLE, "impute")
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert again.transform(TABLE).equals(encoder.transform(TABLE))


def test_frames_of_pandas_and_polars_are_taken() -> None:
    content = {"size": [1.0, 2.0], "city": ["Oslo", "Rome"]}
    expected = TableEncoder.of(pa.table(content)).transform(pa.table(content))
    for frame in (pd.DataFrame(content, index=[5, 9]), pl.DataFrame(content)):
        encoder = TableEncoder.of(frame)
        assert encoder.transform(frame).to_pydict() == expected.to_pydict()


def test_the_encoder_of_a_saved_estimator(tmp_path: Path) -> None:
    X = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0) ** 0.5})
    model = softki.SoftKIRegressor(points=8, steps=5, random_state=0).fit(X, X["a"])
    model.save(tmp_path / "m.softki")
    assert TableEncoder.from_file(tmp_path / "m.softki").names == ["a", "b"]
    model.fit(X.to_numpy(), X["a"]).save(tmp_path / "m.softki")
    with pytest.raises(InvalidInputError, match=r"m\.softki: the model has no column names"):
        TableEncoder.from_file(tmp_path / "m.softki")
