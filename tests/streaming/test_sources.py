from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch

from softki.data import scans
from softki.exceptions import InvalidInputError
from softki.streaming import Source, open_source
from softki.streaming import blocks as rows
from softki.streaming.blocks import RawRows

N = 5000
X = np.random.default_rng(0).standard_normal((N, 3))
Y = X.sum(1)
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y})


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BLOCK_ROWS", 300)
    monkeypatch.setattr(scans, "CSV_BYTES", 20_000)


class Batches:
    def __init__(self, size: int = 700) -> None:
        self.size, self.passes = size, 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        self.passes += 1
        for start in range(0, N, self.size):
            yield X[start : start + self.size], Y[start : start + self.size]


def parquet(path: Path, table: pa.Table = TABLE, group: int = 450) -> Path:
    pq.write_table(table, path, row_group_size=group)
    return path


def folder_of_parquet(folder: Path) -> Path:
    for k, start in enumerate(range(0, N, 1500)):
        parquet(folder / f"part-{k}.parquet", TABLE.slice(start, 1500), 450 + 100 * k)
    (folder / "_SUCCESS").touch()
    return folder


def csv_files(folder: Path) -> list[Path]:
    pa.csv.write_csv(TABLE.slice(0, 3000), folder / "1.csv")
    pa.csv.write_csv(TABLE.slice(3000), folder / "2.csv")
    (folder / "2.csv.gz").write_bytes(gzip.compress((folder / "2.csv").read_bytes()))
    return [folder / "1.csv", folder / "2.csv.gz"]


def npy_files(folder: Path, x: np.ndarray = X) -> Source:
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", Y)
    return open_source(folder / "x.npy", y=str(folder / "y.npy"))


SOURCES: dict[str, Callable[[Path], Source]] = {
    "parquet": lambda folder: open_source(parquet(folder / "t.parquet"), "y"),
    "one row group": lambda folder: open_source(parquet(folder / "t.pq", group=N), "y"),
    "folder": lambda folder: open_source(folder_of_parquet(folder), "y"),
    "csv": lambda folder: open_source(csv_files(folder), "y"),
    "dataset": lambda folder: open_source(ds.dataset(str(parquet(folder / "t.parquet"))), "y"),
    "filtered dataset": lambda folder: open_source(
        ds.dataset(str(parquet(folder / "t.parquet"))).filter(ds.field("a") > -100), "y"
    ),
    "csv dataset": lambda folder: open_source(
        ds.dataset([str(csv_files(folder)[0]), str(folder / "2.csv")], format="csv"),
        "y",
    ),
    "npy": npy_files,
    "fortran npy": lambda folder: npy_files(folder, np.asfortranarray(X)),
    "memmap": lambda folder: open_source(
        np.memmap(_raw(folder), mode="r", shape=X.shape, dtype=np.float64), y=Y
    ),
    "tensors": lambda folder: open_source(torch.from_numpy(X), y=torch.from_numpy(Y)),
    "iterable": lambda folder: open_source(Batches()),
    "list": lambda folder: open_source([(X[:2000], Y[:2000]), (X[2000:], Y[2000:])]),
}


def _raw(folder: Path) -> Path:
    X.tofile(folder / "x.raw")
    return folder / "x.raw"


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    return SOURCES[request.param](tmp_path)


def test_all_rows_come_in_order_in_every_pass(source: Source) -> None:
    for _ in range(2):
        blocks = list(source.blocks())
        every = RawRows.join([block.rows for block in blocks])
        np.testing.assert_array_equal(every.x, X)
        np.testing.assert_array_equal(every.y[:, 0], Y)
        starts = np.cumsum([0] + [len(block.rows) for block in blocks])
        assert [block.position for block in blocks] == starts[:-1].tolist()
    assert len(source) == N
    assert len(source.columns) == 3
    assert source.single_target


def test_blocks_in_any_order_have_their_own_rows(source: Source) -> None:
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(len(source.layout)), 2))
    for number, block in zip(order, source.blocks(order.tolist()), strict=True):
        assert block.position == source.layout.position[number]
        np.testing.assert_array_equal(block.rows.x, X[block.positions])
        np.testing.assert_array_equal(block.rows.y[:, 0], Y[block.positions])


@pytest.mark.parametrize("shard", [range(0, N), range(777, 3210), range(40, 41), range(9, 9)])
def test_a_shard_of_rows(source: Source, shard: range) -> None:
    found = np.concatenate([np.empty(0)] + [block.positions for block in source.between(shard)])
    np.testing.assert_array_equal(found, np.array(shard))


def test_blocks_in_sequence_are_read_in_one_go() -> None:
    batches = Batches()
    source = open_source(batches)
    assert len(source.layout) == 8
    before = batches.passes
    list(source.blocks(range(2, 8)))
    assert batches.passes == before + 1


def test_types_are_kept_or_become_float64(tmp_path: Path) -> None:
    table = pa.table(
        {
            "f": pa.array([1.5, 2.5], pa.float32()),
            "i": pa.array([1, 2], pa.int8()),
            "b": [True, False],
            "y": pa.array([1.0, 2.0], pa.float32()),
        }
    )
    path = parquet(tmp_path / "t.parquet", table)
    block = next(open_source(path, "y", columns=["f"]).blocks())
    assert block.rows.x.dtype == block.rows.y.dtype == np.float32
    block = next(open_source(path, ["y"], noise_variance="f").blocks())
    np.testing.assert_array_equal(block.rows.x, [[1.0, 1.0], [2.0, 0.0]])
    assert block.rows.x.dtype == np.float64
    assert block.rows.noise is not None
    assert block.rows.noise.tolist() == [1.5, 2.5]


def test_a_partitioned_dataset_has_the_columns_of_its_folders(tmp_path: Path) -> None:
    table = TABLE.append_column("k", pa.array(np.arange(N) % 3, pa.int32()))
    pq.write_to_dataset(table, tmp_path, partition_cols=["k"])
    source = open_source(ds.dataset(str(tmp_path), partitioning="hive"), "y")
    assert source.columns == ["a", "b", "c", "k"]
    x = np.concatenate([block.rows.x for block in source.blocks()])
    assert np.bincount(x[:, 3].astype(int)).tolist() == [1667, 1667, 1666]
    with pytest.raises(InvalidInputError, match="has no Parquet, CSV or Arrow files"):
        open_source(tmp_path, "y")


def with_value(value: Any, row: int, column: str = "b") -> pa.Table:
    values = TABLE[column].to_pylist()
    values[row] = value
    index = TABLE.column_names.index(column)
    return TABLE.set_column(index, column, pa.array(values))


@pytest.mark.parametrize("value", [None, np.nan, np.inf])
@pytest.mark.parametrize("column", ["b", "y"])
def test_the_place_of_a_missing_value(tmp_path: Path, value: float | None, column: str) -> None:
    parquet(tmp_path / "1.parquet")
    parquet(tmp_path / "2.parquet", with_value(value, 1234, column))
    kind = "infinity" if value == np.inf else "NaN"
    with pytest.raises(
        InvalidInputError, match=rf"2\.parquet contains {kind} in row 1234, column '{column}': "
    ):
        list(open_source(tmp_path, "y").blocks())
    pa.csv.write_csv(with_value(value, 1234, column), tmp_path / "t.csv")
    with pytest.raises(
        InvalidInputError, match=rf"t\.csv contains {kind} in row 1234, column '{column}'"
    ):
        list(open_source(tmp_path / "t.csv", "y").blocks())


def test_large_numbers_are_no_missing_values() -> None:
    x = np.full((10, 1), 3e38, dtype=np.float32)
    assert len(next(open_source(x, y=np.zeros(10)).blocks()).rows) == 10


def text_column() -> pa.Table:
    return TABLE.set_column(1, "b", pa.array(["x"] * N))


def test_bad_files_of_a_folder_are_named(tmp_path: Path) -> None:
    parquet(tmp_path / "1.parquet")
    second = tmp_path / "2.parquet"
    for table, message in (
        (TABLE.drop_columns(["b"]), "has no column 'b'"),
        (TABLE.append_column("e", TABLE["a"]), "has a column 'e' that 1.parquet has not"),
        (TABLE.set_column(1, "b", pa.array(np.arange(N))), "'b' has the type int64, and in 1.parq"),
        (text_column(), "'b' holds no numbers but has the type string: encode it .* `softki fit`"),
    ):
        parquet(second, table)
        with pytest.raises(InvalidInputError, match=rf"2\.parquet: .*{message}"):
            open_source(tmp_path, "y")
    second.touch()
    second.write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"2\.parquet: is empty"):
        open_source(tmp_path, "y")


def test_bad_files_of_a_dataset_are_named(tmp_path: Path) -> None:
    parquet(tmp_path / "1.parquet")
    for table, message in (
        (TABLE.drop_columns(["b"]), "has no column 'b'"),
        (text_column(), "'b' holds no numbers"),
    ):
        parquet(tmp_path / "2.parquet", table)
        with pytest.raises(InvalidInputError, match=rf"2\.parquet: .*{message}"):
            open_source(ds.dataset(str(tmp_path), schema=TABLE.schema), "y")


def test_a_truncated_file_and_a_damaged_row_group(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInputError, match=r"t\.parquet: cannot be read"):
        open_source(path, "y")
    # The footer is there, and of the last row group only a part.
    group = pq.read_metadata(parquet(path)).row_group(10)
    start = group.column(0).dictionary_page_offset or group.column(0).data_page_offset
    footer = whole[-8 - int.from_bytes(whole[-8:-4], "little") :]
    for damaged in (
        whole[: start + 40] + footer,
        whole[:start] + b"z" * 2000 + whole[start + 2000 :],
    ):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInputError, match=r"t\.parquet: cannot be read") as error:
            list(open_source(path, "y").blocks())
        assert "\n" not in str(error.value)
    np.save(tmp_path / "x.npy", X)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-100])
    with pytest.raises(InvalidInputError, match=r"x\.npy: cannot be read"):
        open_source(tmp_path / "x.npy", y=Y)


@pytest.mark.parametrize("name", ["parquet", "csv", "npy", "dataset", "folder"])
def test_a_file_that_changes_is_named(tmp_path: Path, name: str) -> None:
    source = SOURCES[name](tmp_path)
    source.check_unchanged()
    blocks = source.blocks()
    next(blocks)
    path = source.parts[-1].file
    assert path is not None
    os.utime(path, ns=(1, 1))
    with pytest.raises(InvalidInputError, match=f"{path.name}: changed while it was read"):
        list(blocks)
    with pytest.raises(InvalidInputError, match=f"{path.name}: changed while it was read"):
        source.check_unchanged()
    path.unlink()
    with pytest.raises(InvalidInputError, match=f"{path.name}: was removed while it was read"):
        source.check_unchanged()


def test_a_file_that_is_cut_while_it_is_read_is_said_to_have_changed(tmp_path: Path) -> None:
    source = open_source(parquet(tmp_path / "t.parquet"), "y")
    blocks = source.blocks()
    next(blocks)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInputError, match=r"t\.parquet: changed while it was read"):
        list(blocks)


def test_text_in_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "1,2\n" * 5000 + "1,big\n")
    with pytest.raises(InvalidInputError, match="'y', line 5002: 'big' is not a number: encode it"):
        list(open_source(path, "y").blocks())
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(InvalidInputError, match=r"e\.csv: is empty"):
        open_source([path, tmp_path / "e.csv"], "y")
    (tmp_path / "e.csv").write_text("a,y\n")
    with pytest.raises(InvalidInputError, match=r"e\.csv: has no rows"):
        list(open_source(tmp_path / "e.csv", "y").blocks())


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    empty = parquet(tmp_path / "0.parquet", TABLE.slice(0, 0))
    with pytest.raises(InvalidInputError, match=r"0\.parquet: has no rows"):
        open_source(empty, "y")
    parquet(tmp_path / "1.parquet")  # beside others it does no harm
    assert len(open_source(tmp_path, "y")) == N


def test_one_shot_iterators_are_refused() -> None:
    for once in (iter(Batches()), (batch for batch in Batches()), map(tuple, Batches())):
        with pytest.raises(InvalidInputError, match=r"only once.*__iter__ that starts anew"):
            open_source(once)


def test_batches_that_differ_between_passes_are_refused() -> None:
    class Shuffled:
        def __init__(self) -> None:
            self.random = np.random.default_rng(0)

        def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            order = self.random.permutation(N)
            for part in np.split(order, 5):
                yield X[part], Y[part]

    source = open_source(Shuffled())
    list(source.blocks())
    with pytest.raises(InvalidInputError, match="batch 0 is not the one of the first pass"):
        list(source.blocks())

    class Shrinking(Batches):
        def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for k, batch in enumerate(super().__iter__()):
                if self.passes < 3 or k < 2:
                    yield batch

    source = open_source(Shrinking())
    list(source.blocks())
    with pytest.raises(InvalidInputError, match="gave 0 rows where it had 700 before"):
        list(source.blocks())


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        ([], {}, "the iterable is empty"),
        ([X], {}, r"must be a pair \(X, y\)"),
        ([(X, Y[:-1])], {}, "batch 0 has X of shape"),
        ([(X, Y), (X[:, :2], Y)], {}, r"\(rows, 3\)"),
        ([(X, Y), (X, Y, Y**2)], {}, "some rows have a known noise variance and others"),
        ([(TABLE, Y), (TABLE.select(["b", "a", "c", "y"]), Y)], {}, r"batch 1 has the columns"),
        ([(X, Y, Y)], {}, "noise variance 'noise' must be positive, got"),
        ([(X, Y)], {"columns": ["a"]}, "columns has 1 names, and X has 3 columns"),
        ([(X, np.array(["a"] * N))], {}, "y of batch 0 holds text"),
        (X, {}, "y is missing"),
        (X, {"y": Y[:-1]}, f"X has {N} rows and y has {N - 1}"),
        (X, {"y": list(Y)}, "must be an array or a .npy file"),
        (X[:, 0], {"y": Y}, "X must have the shape"),
        (X[:0], {"y": Y[:0]}, "has no rows"),
        (TABLE, {"y": "y"}, "is in memory already"),
        (3, {}, "of the type int cannot be read"),
        ("no.npy", {}, "no.npy: y is missing"),
        ("no.npy", {"y": Y}, "no.npy: cannot be read: No such file"),
        ("no.parquet", {"y": "y"}, "no.parquet: no such file"),
        ("t.parquet", {"y": Y}, "y must be the name of a column, or a list of names where"),
        (["x.npy", "z.npy"], {}, "x.npy: one .npy file is read at a time"),
        ([(X, Y)], {"y": Y}, "are in the batches"),
        (X, {"y": "y"}, "both must be .npy files"),
    ],
)
def test_what_cannot_be_read(data: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(open_source(data, **arguments).blocks())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "y must name the column to predict, such as 'b', 'c', 'y'"),
        ({"y": "Y"}, "has no column 'Y': did you mean 'y'"),
        ({"y": "y", "columns": ["a", "y"]}, "column 'y' has more than one use"),
        ({"y": "y", "columns": []}, "has no columns for the inputs"),
        ({"y": "y", "noise_variance": Y}, "noise_variance must be the name of a column where"),
    ],
)
def test_columns_that_cannot_be_used(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    path = parquet(tmp_path / "t.parquet")
    for data in (path, ds.dataset(str(path))):
        with pytest.raises(InvalidInputError, match=message):
            open_source(data, **arguments)
