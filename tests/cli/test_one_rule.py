"""A table and its file give one model, whatever they are fitted by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import softki
from softki.cli.app import run

COLUMNS = ["c", "a", "b", "y"]


def table(dtype: str) -> pa.Table:
    x = np.random.default_rng(0).standard_normal((1100, 3)).astype(dtype)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    return pa.table(dict(zip(COLUMNS, [*x.T, y], strict=True)))


@pytest.mark.parametrize(
    ("name", "dtype"), [("t.parquet", "float32"), ("t.feather", "float64"), ("t.csv", "float64")]
)
def test_frame_file_and_command_give_the_same_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = table(dtype)
    if name == "t.csv":
        pa.csv.write_csv(rows, name)
    elif name == "t.parquet":
        pq.write_table(rows, name, row_group_size=300)
    else:
        pa.feather.write_feather(rows, name, chunksize=700)
    settings = ["--points", "8", "--steps", "10", "--seed", "3"]
    assert run(["fit", name, "--target", "y", "-o", "m.softki", "-q", *settings]) == 0
    x = rows.drop_columns(["y"])
    expected = None
    for data, y in ((x.to_pandas(), rows["y"].to_pandas()), (name, "y")):
        model = softki.SoftKIRegressor(points=8, steps=10, random_state=3).fit(data, y)
        assert not model.fit_report_.is_streamed
        predicted = np.column_stack(model.predict(x, return_std=True))
        np.testing.assert_array_equal(predicted, predicted if expected is None else expected)
        expected = predicted
    by_command = softki.load("m.softki").predict(x, return_std=True)
    np.testing.assert_array_equal(np.column_stack(by_command), expected)
