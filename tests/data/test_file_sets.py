from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softki.data.file_sets import FileSet, TableReader
from softki.exceptions import InvalidInputError


def table_of(reader: TableReader) -> pa.Table:
    return pa.Table.from_batches(list(reader), reader.schema)


DAY = datetime.date(2024, 1, 31)


def test_types_of_one_kind_are_brought_together(tmp_path: Path) -> None:
    one = pa.table(
        {
            "n": pa.array([1, 2**60 + 1]),
            "t": pa.array(["a", "b"]).dictionary_encode(),
            "d": pa.array([DAY, DAY]),
            "none": pa.nulls(2),
            "same": pa.array([1, 2], pa.int8()),
        }
    )
    other = pa.table(
        {
            "n": [0.5],
            "t": pa.array(["c"], pa.large_string()),
            "d": [datetime.datetime(2024, 1, 31, 12, 0, 0, 1)],
            "none": [3.5],
            "same": pa.array([3], pa.int8()),
        }
    )
    pq.write_table(one, tmp_path / "1.parquet")
    pq.write_table(other, tmp_path / "2.parquet")
    reader = FileSet.of([tmp_path]).read()
    table = table_of(reader)
    assert table["n"].to_pylist() == [1.0, float(2**60), 0.5]
    assert table["t"].to_pylist() == ["a", "b", "c"]
    assert table["d"].to_pylist()[2] == datetime.datetime(2024, 1, 31, 12, 0, 0, 1)
    assert table["none"].to_pylist() == [None, None, 3.5]
    assert table["same"].type == pa.int8()
    assert reader.count == 3
    assert [(part.place(1), part.path.name) for part in reader.parts] == [
        ("row 2", "1.parquet"),
        ("row 2", "2.parquet"),
    ]


def test_a_column_of_a_csv_file_is_what_it_is_in_the_files_before(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("code,day,flag\nx7,2024-01-31,true\n")
    (tmp_path / "2.csv").write_text("flag,code,day\n,12,\n")
    reader = FileSet.of([tmp_path / "1.csv", tmp_path / "2.csv"]).read()
    assert reader.schema.types == [pa.string(), pa.date32(), pa.bool_()]
    assert table_of(reader).to_pylist() == [
        {"code": "x7", "day": DAY, "flag": True},
        {"code": "12", "day": None, "flag": None},
    ]
    assert reader.parts[1].place(0) == "line 2"
    (tmp_path / "2.csv").write_text("flag,code,day\nmaybe,12,\n")
    with pytest.raises(
        InvalidInputError, match=r"2\.csv: column 'flag', line 2: 'maybe' is not tr"
    ):
        table_of(FileSet.of([tmp_path]).read())


def test_columns_that_not_all_files_have(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,c\n3,4\n")
    files = FileSet.of([tmp_path])
    assert files.names == ["a", "b", "c"]
    assert table_of(files.read(["b"]))["b"].to_pylist() == [2.0, 3.0]
    with pytest.raises(InvalidInputError, match=r"1\.csv: has no column 'c', which other files"):
        table_of(files.read(["b", "c"]))
    with pytest.raises(InvalidInputError, match="has no column 'd'"):
        files.read(["d"])


def test_names(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("a\n1\n")
    several = FileSet.of([tmp_path / "1.csv", tmp_path / "2.csv"])
    assert str(several) == f"{tmp_path}/1.csv and 1 more"
    assert several.title == "1.csv and 1 more"
    assert FileSet.of([tmp_path]).title == tmp_path.name
    with pytest.raises(InvalidInputError, match="is given twice"):
        FileSet.of([tmp_path, tmp_path / "1.csv"])
