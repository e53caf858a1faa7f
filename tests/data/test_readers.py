from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from softki.data import file_sets, scans
from softki.data.csv_types import DATES
from softki.data.file_sets import FileSet, TableReader
from softki.data.writers import written
from softki.exceptions import InvalidInputError

TABLE = pa.table({"a": np.arange(1000.0), "b": pa.array(["x", "y"] * 500), "a.b": [True] * 1000})


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sets, "BATCH_ROWS", 64)
    monkeypatch.setattr(scans, "CSV_BYTES", 1000)


def read_batches(path: Path, *arguments: Any, **types: Any) -> TableReader:
    return FileSet.of([path]).read(*arguments, **types)


def table_of(reader: TableReader) -> pa.Table:
    return pa.Table.from_batches(list(reader), reader.schema)


def file_with(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "name", ["t.csv", "t.CSV", "t.csv.gz", "t.parquet", "t.arrow", "t.feather"]
)
def test_what_is_written_is_read_in_order_and_in_batches(tmp_path: Path, name: str) -> None:
    with written(tmp_path / name, TABLE.schema) as write:
        for batch in TABLE.to_batches(300):
            write(batch)
    reader = read_batches(tmp_path / name, ["b", "a"])
    for _ in range(2):  # readers can be iterated again
        batches = list(reader)
        assert len(batches) > 5
        assert max(map(len, batches)) < 400
        table = pa.Table.from_batches(batches)
        assert table.column_names == ["b", "a"]
        assert table["a"].to_pylist() == TABLE["a"].to_pylist()
        assert table["b"].to_pylist() == TABLE["b"].to_pylist()
    assert table_of(reader).num_rows == 1000
    assert reader.schema.names == ["b", "a"]
    assert reader.count == (1000 if name == "t.parquet" else None)


def test_csv_gz_is_gzipped(tmp_path: Path) -> None:
    with written(tmp_path / "t.csv.gz", TABLE.schema) as write:
        write(TABLE.to_batches()[0])
    assert gzip.decompress((tmp_path / "t.csv.gz").read_bytes()).startswith(b'"a","b","a.b"\n0,')


def test_arrow_streams_and_compressed_feather_are_read(tmp_path: Path) -> None:
    with pa.ipc.new_stream(tmp_path / "s.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE)
    pa.feather.write_feather(TABLE, str(tmp_path / "c.feather"), compression="lz4")
    for name in ("s.arrow", "c.feather"):
        assert table_of(read_batches(tmp_path / name)).equals(TABLE)


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        ("1", "2.5", pa.float64()),
        ("1", "99999999999999999999", pa.float64()),
        ("1", "x", pa.string()),
        ("", "x", pa.string()),
        ("", "", pa.float64()),
        ("", "2020-01-31", pa.date32()),
        ("2020-01-31", "2020-01-31 10:00:00", pa.timestamp("s")),
        ("true", "FALSE", pa.bool_()),
        ("true", "maybe", pa.string()),
        ("2020-01-31", "2020-01-31 10:00:00.25", pa.timestamp("us")),
        ("2020-01-31T10:00:00Z", "2020-01-31T10:00:00+02:00", pa.timestamp("us", "UTC")),
        ("10:30", "10:30:15.5", pa.time64("us")),
        ("10:30", "noon", pa.string()),
        ("NA", "None", pa.float64()),
    ],
)
def test_the_type_of_a_csv_column_suits_the_whole_file(
    tmp_path: Path, early: str, late: str, kind: pa.DataType
) -> None:
    """The last row is far beyond the first block, from which pyarrow infers types."""
    path = file_with(tmp_path, "t.csv", "n,v\n" + f"1,{early}\n" * 500 + f"2,{late}\n")
    reader = read_batches(path)
    assert reader.schema.field("v").type == kind
    assert table_of(reader).num_rows == 501


def test_memory_does_not_grow_with_a_parquet_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sets, "BATCH_ROWS", 1 << 14)
    peaks = []
    for count in (300_000, 1_200_000):
        path = tmp_path / f"{count}.parquet"
        table = pa.table({"a": np.random.default_rng(0).random(count)})
        pq.write_table(table, path, row_group_size=count)
        del table
        reader, before, peak = read_batches(path), pa.total_allocated_bytes(), 0
        for _ in reader:
            peak = max(peak, pa.total_allocated_bytes() - before)
        peaks.append(peak)
    assert 0 < peaks[1] < 1.2 * peaks[0]


def test_types_can_be_prescribed(tmp_path: Path) -> None:
    path = file_with(tmp_path, "t.csv", "id\n007\n")
    assert table_of(read_batches(path, types={"id": [pa.string()]}))["id"].to_pylist() == ["007"]


def test_quoted_commas_newlines_and_byte_order_marks(tmp_path: Path) -> None:
    path = file_with(tmp_path, "t.csv", '\ufeffa,"b,c"\r\n1,"two\nlines"\r\n2,"x ""y"""\r\n')
    table = table_of(read_batches(path))
    assert table.column_names == ["a", "b,c"]
    assert table["b,c"].to_pylist() == ["two\nlines", 'x "y"']


LATE = "a,b\n" + "1,2\n" * 500


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", "a\n1\n", "the name must end in one of .csv, .csv.gz, .parquet"),
        ("t.csv", "", "is empty"),
        ("t.csv", "a,b\n", "has no rows"),
        ("t.csv", "a;b\n1;2\n", "has one column, 'a;b': columns must be separated by commas"),
        ("t.csv", "1,1,2.5\n3,4,5\n", "has no header: the first row '1,1,2.5' looks like data: "),
        ("t.csv", "a,a\n1,2\n", "has more than one column 'a': rename them"),
        ("t.csv", LATE + "1,2,3\n", "line 502 has 3 fields, and the header has 2"),
        ("t.csv", LATE + "1\n", "line 502 has 1 fields, and the header has 2"),
        (
            "t.csv",
            LATE.encode() + b"1,\xff\n",
            "column 'b', line 502: a field is not text in UTF-8",
        ),
        ("t.csv.gz", gzip.compress(LATE.encode(), mtime=0)[:-20], "cannot be read: "),
        ("t.csv.gz", "a,b\n1,2\n", "cannot be read: "),
        ("t.parquet", "not a parquet file", "cannot be read: Parquet magic bytes not found"),
        ("t.parquet", "", "is empty"),
        ("t.arrow", "not an arrow file", "cannot be read: "),
        ("t.feather", b"ARROW1 and then nonsense", "cannot be read: "),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = file_with(tmp_path, name, content)
    with pytest.raises(InvalidInputError) as error:
        table_of(read_batches(path))
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_prescribed_types_that_do_not_suit(tmp_path: Path) -> None:
    path = file_with(tmp_path, "t.csv", LATE + "1,big\n")
    with pytest.raises(InvalidInputError, match=r"column 'b', line 502: 'big' is not a number$"):
        table_of(read_batches(path, ["b"], {"b": [pa.float64()]}))
    with pytest.raises(InvalidInputError, match=r"column 'b', line 2: '2' is not a date$"):
        table_of(read_batches(path, ["b"], {"b": [pa.timestamp("us"), pa.timestamp("us", "UTC")]}))


@pytest.mark.parametrize("bad", ["31.12.2020", "2020-13-01"])
@pytest.mark.parametrize("good", ["2020-01-31", "2020-01-31 10:00:00.5", "2020-01-31T10:00:00Z"])
def test_the_line_of_a_bad_date(tmp_path: Path, good: str, bad: str) -> None:
    """It is the one where the type that suits the other rows fails."""
    path = file_with(tmp_path, "t.csv", "n,d\n" + f"1,{good}\n" * 300 + f"1,{bad}\n1,{good}\n")
    with pytest.raises(InvalidInputError, match=f"column 'd', line 302: '{bad}' is not a date$"):
        table_of(read_batches(path, types={"d": DATES}))


def test_the_header_that_pandas_writes_for_a_matrix(tmp_path: Path) -> None:
    path = file_with(tmp_path, "t.csv", "0,1,2\n5,6,7\n")
    assert FileSet.of([path]).names == ["0", "1", "2"]


@pytest.mark.parametrize("text", ["2019-03-06", "2019-03-06 10:00:00", "2.5", "true"])
def test_what_is_read_from_csv_is_written_as_it_was(tmp_path: Path, text: str) -> None:
    table = table_of(read_batches(file_with(tmp_path, "t.csv", f'"v"\n{text}\n')))
    with written(tmp_path / "again.csv", table.schema) as write:
        write(table.to_batches()[0])
    assert (tmp_path / "again.csv").read_text() == f'"v"\n{text}\n'


def test_damaged_parquet_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": np.random.default_rng(0).random(5000)}), path)
    content = bytearray(path.read_bytes())
    content[4:2000] = b"z" * 1996
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"t\.parquet: cannot be read"):
        table_of(read_batches(path))
    with pytest.raises(InvalidInputError, match=r"no\.csv: no such file"):
        table_of(read_batches(tmp_path / "no.csv"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidInputError, match=r"folder\.csv: has no Parquet, CSV or Arrow files"):
        read_batches(tmp_path / "folder.csv")


def test_a_missing_column_and_the_nearest_name(tmp_path: Path) -> None:
    path = file_with(tmp_path, "t.csv", "Price,size\n1,2\n")
    with pytest.raises(InvalidInputError, match="has no column 'price': did you mean 'Price'"):
        read_batches(path, ["price"])


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.arrow"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str) -> None:
    path = file_with(tmp_path, name, "before")

    def fails() -> None:
        with written(path, TABLE.schema) as write:
            write(TABLE.to_batches()[0])
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fails()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed_and_folders_refused(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("before")
    link.symlink_to(real)
    with written(link, TABLE.schema) as write:
        write(TABLE.to_batches()[0])
    assert link.is_symlink()
    assert real.read_text().startswith('"a"')
    for path, message in (
        (tmp_path / "no" / "t.csv", "there is no folder"),
        (tmp_path / "t.xlsx", "the name must end in"),
    ):
        with pytest.raises(InvalidInputError, match=message), written(path, TABLE.schema):
            pass
