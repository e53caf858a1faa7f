"""Fits of the estimator to damaged files: one error that names the file, and nothing else done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from softki import SoftKIRegressor
from softki.data import scans
from softki.estimator import rows as user_rows
from softki.exceptions import InvalidInputError
from softki.streaming import blocks as rows
from softki.streaming.source import Source

N = 4000
X = np.random.default_rng(0).standard_normal((N, 3))
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": np.sin(X[:, 0]) + X[:, 1]})


@pytest.fixture(autouse=True)
def _small_streamed_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(user_rows, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(rows, "_BLOCK_ROWS", 300)
    monkeypatch.setattr(scans, "CSV_BYTES", 20_000)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def quick() -> SoftKIRegressor:
    return SoftKIRegressor(points=8, steps=10, batch_size=128, random_state=0)


def two_files(folder: Path, second: pa.Table = TABLE) -> Path:
    pq.write_table(TABLE, folder / "1.parquet", row_group_size=450)
    pq.write_table(second, folder / "2.parquet", row_group_size=450)
    return folder


def with_value(value: Any) -> pa.Table:
    values = TABLE["b"].to_pylist()
    values[3456] = value
    return TABLE.set_column(1, "b", pa.array(values))


def truncated(folder: Path) -> Path:
    two_files(folder)
    content = (folder / "2.parquet").read_bytes()
    (folder / "2.parquet").write_bytes(content[: len(content) // 2])
    return folder


def damaged(folder: Path) -> Path:
    """The last row group is not what it was, and the footer is."""
    two_files(folder)
    path = folder / "2.parquet"
    content, column = path.read_bytes(), pq.read_metadata(path).row_group(8).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    path.write_bytes(content[:start] + b"z" * 2000 + content[start + 2000 :])
    return folder


def text_in_csv(folder: Path) -> list[Path]:
    pa.csv.write_csv(TABLE, folder / "1.csv")
    text = (folder / "1.csv").read_text()
    (folder / "2.csv").write_text(text + "1,none,2,3\n")
    return [folder / "1.csv", folder / "2.csv"]


def with_stray(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text("a,b,c,y\n1,2,3,4\n")
        return two_files(folder)

    return make


def with_folder(folder: Path) -> Path:
    (folder / "more.parquet").mkdir()
    return two_files(folder)


BAD: list[tuple[Callable[[Path], Any], str]] = [
    (truncated, r"2\.parquet: cannot be read"),
    (damaged, r"2\.parquet: cannot be read"),
    (lambda f: two_files(f, TABLE.drop_columns(["b"])), r"2\.parquet: has no column 'b'"),
    (
        lambda f: two_files(f, TABLE.set_column(1, "b", pa.array(np.arange(N)))),
        r"2\.parquet: column 'b' has the type int64, and in 1\.parquet it has double",
    ),
    (
        lambda f: two_files(f, with_value(np.nan)),
        r"2\.parquet contains NaN in row 3456, column 'b': .* remove such rows",
    ),
    (text_in_csv, r"2\.csv: column 'b', line 4002: 'none' is not a number: encode it"),
    (lambda f: f, "has no Parquet, CSV or Arrow files"),
    (with_stray("notes.txt"), r"notes\.txt: is no table, in a folder that is read as one"),
    (with_stray("3.csv"), r"3\.csv: is not of the format of 1\.parquet|1\.parquet: is not of"),
    (with_folder, r"more\.parquet: is a folder, in a folder that is read as one table"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_bad_file_is_named_and_an_earlier_fit_stays(
    tmp_path: Path, make: Callable[[Path], Any], message: str
) -> None:
    model = quick().fit(X, np.asarray(TABLE["y"]))
    before = dict(vars(model))
    with pytest.raises(InvalidInputError, match=message) as error:
        model.fit(make(tmp_path), "y")
    assert "\n" not in str(error.value)
    assert vars(model) == before


@pytest.mark.parametrize("when", [3, 30])
def test_a_file_that_changes_during_the_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """In the first pass, and later on."""
    read, count = Source._read, 0

    def changing(self: Source, part: Any) -> Any:
        nonlocal count
        count += 1
        if count == when:
            os.utime(tmp_path / "2.parquet", ns=(1, 1))
        return read(self, part)

    monkeypatch.setattr(Source, "_read", changing)
    model = quick()
    with pytest.raises(InvalidInputError, match=r"2\.parquet: changed while it was read: fit ag"):
        model.fit(two_files(tmp_path), "y")
    assert not hasattr(model, "fit_")


def test_a_parquet_file_without_rows_beside_others(tmp_path: Path) -> None:
    model = quick().fit(two_files(tmp_path, TABLE.slice(0, 0)), "y")
    assert model.fit_report_.rows == N


def test_a_folder_of_csv_files(tmp_path: Path) -> None:
    for k in range(2):
        pa.csv.write_csv(TABLE.slice(2000 * k, 2000), tmp_path / f"{k}.csv")
    assert quick().fit(tmp_path, "y").fit_report_.rows == N
