from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softki.data import encoder_survey
from softki.data.encoder_survey import EncoderSurvey
from softki.data.encoding import Missing, TableEncoder
from softki.exceptions import InvalidInputError

NUMBERS = st.one_of(
    st.none(), st.floats(-5, 5).map(lambda x: round(x, 1) + 0.0), st.just(float("nan"))
)
COLUMNS: dict[str, tuple[Any, Any]] = {
    "x": (NUMBERS, pa.float64()),
    "single": (NUMBERS, pa.float32()),
    "few": (st.sampled_from([None, 7]), pa.int64()),
    "close": (st.sampled_from([2**60, 2**60 + 1, None]), pa.int64()),
    "flag": (st.sampled_from([True, False, None]), pa.bool_()),
    "text": (st.sampled_from(["a", "b", "c", None]), pa.string()),
    "one": (st.sampled_from(["a", None]), pa.dictionary(pa.int32(), pa.string())),
    "day": (st.dates(datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)), pa.date32()),
    "cost": (st.sampled_from([Decimal("1.5"), Decimal("2.0")]), pa.decimal128(5, 2)),
    "none": (st.none(), pa.float64()),
    "__index_level_0__": (st.integers(0, 9), pa.int64()),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 12))
    return pa.table(
        {
            name: pa.array(
                draw(st.lists(values, min_size=count, max_size=count)), pa.string()
            ).dictionary_encode()
            if name == "one"
            else pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)
            for name, (values, kind) in COLUMNS.items()
        }
    )


def surveyed(table: pa.Table, size: int, missing: Missing = "refuse") -> TableEncoder:
    survey = EncoderSurvey(table.schema, table.column_names)
    for batch in table.to_batches(max_chunksize=size):
        survey.add(batch, lambda row: f"row {row}")
    return TableEncoder.of_survey(survey, missing)


@settings(deadline=None, max_examples=60)
@given(table=tables(), size=st.integers(1, 12))
def test_the_encoder_is_that_of_the_table_in_memory(table: pa.Table, size: int) -> None:
    encoder, expected = surveyed(table, size, "impute"), TableEncoder.of(table, "impute")
    assert encoder == expected
    assert list(encoder.left_out) == list(expected.left_out)


def test_medians_are_those_of_a_sample_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_survey, "_SAMPLE_ROWS", 2000)
    x = np.random.default_rng(0).normal(5, 1, 50_000)
    for size in (700, 50_000):  # whatever the batches are
        fill = surveyed(pa.table({"x": np.sort(x)}), size).columns[0].fill
        assert fill == pytest.approx(5, abs=0.1)
        assert fill == surveyed(pa.table({"x": np.sort(x)}), 1234).columns[0].fill
    late = np.full(50_000, np.nan)
    late[-2:] = 1.0, 2.0  # which the sample does not have
    assert surveyed(pa.table({"x": late}), 700).columns[0].fill == 1.0


def test_too_many_texts_are_refused_before_all_are_counted() -> None:
    table = pa.table({"id": [f"h{i}" for i in range(5000)]})
    with pytest.raises(InvalidInputError, match="'id' holds text with more than 1000 different"):
        surveyed(table, 700)
    with pytest.raises(InvalidInputError, match="'id' holds text with 60 different values, and"):
        surveyed(table.slice(0, 60), 7)
    numbers = [str(i) for i in range(5000)]
    with pytest.raises(InvalidInputError, match="more than 1000 different values, and at most 50"):
        surveyed(pa.table({"id": numbers}), 700)
    numbers[4000] = "n/k"
    with pytest.raises(InvalidInputError, match="it would be numbers but for 'n/k' in row 500; m"):
        surveyed(pa.table({"id": numbers}), 700)
