"""`softki fit` to tables that are streamed, in several files, and to damaged ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch

import softki
import softki.cli.fit
import softki.estimator.rows
from softki.cli.app import run
from softki.cli.survey import rows_to_test
from softki.data import file_sets, scans
from softki.data.encoding import TableEncoder
from softki.streaming import blocks as rows
from softki.streaming.source import Source

from house_prices import SMALL, as_subprocess, assert_same_figures, houses

N = 3000
TABLE = houses(N, 0).drop_columns(["id", "tax"])
LINE = "--target price -o m.softki"


@pytest.fixture(autouse=True)
def _always_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also small tables, in small blocks."""
    monkeypatch.setattr(softki.estimator.rows, "IN_MEMORY_BYTES", -1)
    monkeypatch.setattr(scans, "CSV_BYTES", 20_000)
    monkeypatch.setattr(file_sets, "BATCH_ROWS", 700)
    monkeypatch.setattr(rows, "_BLOCK_ROWS", 300)
    torch.set_num_threads(1)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs a command in an empty folder: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def command(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([*line.split(), *(SMALL if line.startswith("fit") else ())])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def parquet(name: str, table: pa.Table = TABLE, group: int = 450) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    pq.write_table(table, name, row_group_size=group)


def one_parquet() -> str:
    parquet("t.parquet")
    return "t.parquet"


def folder_of_parquet() -> str:
    for k in range(3):
        parquet(f"parts/{k}.parquet", TABLE.slice(1000 * k, 1000))
    Path("parts/_SUCCESS").touch()
    return "parts"


def csv_files() -> str:
    pa.csv.write_csv(TABLE.slice(0, 1700), "a.csv")
    with pa.CompressedOutputStream("b.csv.gz", "gzip") as sink:
        pa.csv.write_csv(TABLE.slice(1700), sink)
    return "a.csv b.csv.gz"


def folder_of_csv() -> str:
    Path("texts").mkdir()
    for k in range(3):
        pa.csv.write_csv(TABLE.slice(1000 * k, 1000), f"texts/{k}.csv")
    return "texts"


def arrow_file() -> str:
    pa.feather.write_feather(TABLE, "t.arrow", chunksize=800)
    return "t.arrow"


TABLES = [one_parquet, folder_of_parquet, csv_files, folder_of_csv, arrow_file]


@pytest.mark.parametrize("make", TABLES)
def test_every_format_gives_the_same_model(cli: Any, make: Callable[[], str]) -> None:
    """The encoder is that of the table in memory, and so are the statistics of its rows."""
    data = make()
    code, _, err = cli(f"fit {data} {LINE}")
    assert code == 0, err
    assert "3000 rows were read in batches, anew in every pass\n" in err
    encoder = TableEncoder.from_file("m.softki")
    assert encoder == TableEncoder.of(TABLE.drop_columns(["price"]))
    model = softki.load("m.softki")
    assert model.fit_report_.is_streamed
    assert model.fit_report_.rows == N
    encoded = encoder.transform(TABLE)
    x = np.column_stack([np.asarray(column) for column in encoded.columns])
    np.testing.assert_allclose(model.x_standardizer_.mean, x.mean(0), rtol=1e-9)
    np.testing.assert_allclose(model.x_standardizer_.scale, x.std(0), rtol=1e-9)
    assert model.score(encoded, np.asarray(TABLE["price"])) > 0.9
    code, out, _ = cli(f"predict m.softki {data} --no-std")
    assert code == 0
    np.testing.assert_allclose(np.array(out.split()[1:], float), model.predict(encoded), rtol=1e-9)
    assert cli(f"evaluate m.softki {data}")[0] == 0
    name = data.split()[0] + (" and 1 more" if " " in data else "")
    assert f"3000 rows of {name}\n" in cli("info m.softki")[1]


def test_several_files_in_memory_are_one_table(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softki.estimator.rows, "IN_MEMORY_BYTES", 1 << 28)
    models = []
    for data in (one_parquet(), folder_of_parquet(), csv_files()):
        assert cli(f"fit {data} {LINE} -q")[0] == 0
        models.append(softki.load("m.softki"))
        assert not models[-1].fit_report_.is_streamed
    x = TableEncoder.from_file("m.softki").transform(TABLE.slice(0, 100))
    for model in models[1:]:
        np.testing.assert_allclose(model.predict(x), models[0].predict(x), rtol=1e-4)


def test_large_tables_are_streamed(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the size of the encoded rows, whatever the file is: a number takes eight bytes."""
    one_parquet(), csv_files()
    size = 8 * N * (3 + 3 + 1)  # size, garden, date; three cities; the target
    for data in ("t.parquet", "a.csv b.csv.gz"):
        for limit, streamed in ((size - 1, True), (size, False)):
            monkeypatch.setattr(softki.estimator.rows, "IN_MEMORY_BYTES", limit)
            code, _, err = cli(f"fit {data} {LINE}")
            assert code == 0
            assert ("rows were read in batches" in err) == streamed
            assert softki.load("m.softki").fit_report_.is_streamed == streamed


def test_test_rows_are_kept_from_everything(cli: Any) -> None:
    """A category, a second value and extremes that only test rows have stay unknown."""
    tested = rows_to_test(0.25, 7, 0, N)
    size = np.where(tested, 1e6, np.asarray(TABLE["size"]))
    size[[np.flatnonzero(tested)[0], np.flatnonzero(~tested)[0]]] = np.nan
    city = np.where(tested & (np.arange(N) > 100), "Bonn", np.asarray(TABLE["city"]))
    planet = np.where(tested, "Mars", "Earth")
    columns = {"size": size, "city": city, "planet": planet, "price": TABLE["price"]}
    parquet("leak.parquet", pa.table(columns))
    code, out, err = cli(f"fit leak.parquet {LINE} --missing impute --test 0.25 --seed 7 --json")
    assert code == 0, err
    encoder = TableEncoder.from_file("m.softki")
    assert encoder.names == ["size", "city=Oslo", "city=Paris", "city=Rome"]
    assert encoder.columns[0].fill == np.nanmedian(size[~tested])
    assert dict(encoder.left_out) == {"planet": "is constant ('Earth')"}
    result = json.loads(out)
    assert result["rows"] == int((~tested).sum())
    assert result["test"]["price"]["rows"] == int(tested.sum())
    assert result["dropped_rows"] == 0
    count = int((city == "Bonn").sum())
    assert result["warnings"][0].startswith(f"test rows: column 'city': {count} values are of cat")
    assert "test rows: column 'planet' is constant ('Earth') in the fit" in result["warnings"][1]
    parquet("test.parquet", pa.table(columns).filter(pa.array(tested)))
    _, out, _ = cli("evaluate m.softki test.parquet --json")
    assert_same_figures(result["test"]["price"], json.loads(out)["targets"]["price"])
    mean = softki.load("m.softki").x_standardizer_.mean[0]
    filled = np.where(np.isnan(size), encoder.columns[0].fill, size)
    assert float(mean) == pytest.approx(filled[~tested].mean())


def test_known_noise_and_several_targets(cli: Any) -> None:
    noise = np.random.default_rng(0).uniform(0.5, 2, N)
    table = TABLE.append_column("v", pa.array(noise)).append_column("twice", TABLE["price"])
    parquet("t.parquet", table)
    line = "fit t.parquet -o m.softki --target price --target twice --noise-variance v --json"
    code, out, err = cli(f"{line} --columns size,city --test 0.2")
    assert code == 0, err
    figures = json.loads(out)["test"]
    assert figures["price"]["nll"] == pytest.approx(figures["twice"]["nll"])
    tested = rows_to_test(0.2, 0, 0, N)
    parquet("test.parquet", table.filter(pa.array(tested)))
    _, out, _ = cli("evaluate m.softki test.parquet --json")
    assert_same_figures(figures["price"], json.loads(out)["targets"]["price"])
    assert softki.load("m.softki").noise_unit_ == pytest.approx(noise[~tested].mean())
    parquet("t.parquet", table.set_column(table.column_names.index("v"), "v", pa.array(noise - 1)))
    code, _, err = cli(line)
    assert code == 1
    row = int((noise <= 1).argmax())
    assert "t.parquet: the known noise variance 'v' must be positive, got -0." in err
    assert err.endswith(f" in row {row + 1}\n")


def gaps() -> pa.Table:
    """Rows with missing inputs and targets, and a column without values."""
    size, city = TABLE["size"].to_pylist(), TABLE["city"].to_pylist()
    price = TABLE["price"].to_pylist()
    size[2345], city[2345], city[50], price[7], price[2999] = None, None, None, None, np.nan
    columns = {"size": size, "city": city, "none": pa.nulls(N, pa.float64()), "price": price}
    return pa.table(columns)


def test_missing_values_are_refused_with_their_place(cli: Any) -> None:
    parquet("parts/1.parquet", gaps().slice(0, 2000))
    parquet("parts/2.parquet", gaps().slice(2000))
    code, _, err = cli(f"fit parts {LINE}")
    assert code == 1
    assert err.startswith(
        "error: parts: values are missing (size 1, city 2, price 2), that of 'size' first in row "
        "346 of parts/2.parquet: --missing drop leaves such rows out, --missing impute"
    )


def test_missing_values_are_dropped_or_imputed(cli: Any) -> None:
    parquet("t.parquet", gaps())
    code, _, err = cli(f"fit t.parquet {LINE} --missing drop")
    assert code == 0
    assert "column 'none': left out, it holds no values\n" in err
    assert "4 of 3000 rows are left out, as values are missing\n" in err
    known = gaps().filter(pa.array(np.isfinite(np.asarray(gaps()["price"], dtype=float))))
    inputs = known.drop_columns(["price"])
    assert TableEncoder.from_file("m.softki") == TableEncoder.of(inputs, "drop")
    code, _, err = cli(f"fit t.parquet {LINE} --missing impute")
    assert code == 0
    assert "column 'size': a number, 1 missing filled in with " in err
    assert "column 'city': 3 categories, one-hot encoded, 2 missing filled in with " in err
    assert "2 of 3000 rows are left out, as values are missing\n" in err
    assert TableEncoder.from_file("m.softki") == TableEncoder.of(inputs, "impute")
    assert softki.load("m.softki").fit_report_.rows == N - 2


def test_the_text_that_makes_text_of_numbers_is_named_however_late(cli: Any) -> None:
    lines = [f"{i / 2},{i % 7},{i}" for i in range(N)]
    lines[2500] = "?,1,15"
    Path("stray.csv").write_text("\n".join(["a,b,y", *lines]))
    code, _, err = cli("fit stray.csv --target y -o m.softki")
    assert code == 1
    assert "stray.csv: column 'a' holds text with more than 1000 different values, and at" in err
    assert "it would be numbers but for '?' in line 2502; mend that, or leave it out" in err
    lines[2500], lines[20] = "1,1,1", "3,none,20"
    Path("stray.csv").write_text("\n".join(["a,b,y", *lines]))
    code, _, err = cli("fit stray.csv --target y -o m.softki")
    assert code == 0
    assert "column 'b': 8 categories, one-hot encoded; it would be numbers but for 'none' in" in err


# Bad files: one line that names the file, and the model of an earlier fit stays as it was.


def wrong_column() -> pa.Table:
    return TABLE.set_column(0, "size", TABLE["city"])


def missing_value() -> pa.Table:
    size = TABLE["size"].to_pylist()
    size[2900] = float("nan")
    return TABLE.set_column(0, "size", pa.array(size))


def truncated() -> str:
    one_parquet()
    content = Path("t.parquet").read_bytes()
    Path("t.parquet").write_bytes(content[: len(content) // 2])
    return "t.parquet"


def damaged_row_group() -> str:
    """The footer is there, and the last row group is not what it was."""
    one_parquet()
    content = Path("t.parquet").read_bytes()
    column = pq.read_metadata("t.parquet").row_group(6).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    Path("t.parquet").write_bytes(content[:start] + b"z" * 2000 + content[start + 2000 :])
    return "t.parquet"


def with_second(table: pa.Table) -> Callable[[], str]:
    def make() -> str:
        parquet("parts/1.parquet")
        parquet("parts/2.parquet", table)
        return "parts"

    return make


def with_stray(name: str) -> Callable[[], str]:
    def make() -> str:
        folder_of_parquet()
        Path("parts", name).write_text("size,price\n1,2\n")
        return "parts"

    return make


def nothing(kind: str) -> Callable[[], str]:
    def make() -> str:
        Path("empty").mkdir()
        if kind == "rows":
            parquet("empty/1.parquet", TABLE.slice(0, 0))
        return "empty"

    return make


def text_in_csv(file: str) -> Callable[[], str]:
    def make() -> str:
        for name in ("1.csv", "2.csv"):
            Path(name).write_text(
                "a,b,price\n"
                + "".join(f"{i % 9},{i % 5},{i}\n" for i in range(2500))
                + ("1,x,2\n" if name == file else "")
            )
        return "1.csv 2.csv"

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (truncated, "t.parquet: cannot be read"),
        (damaged_row_group, "t.parquet: cannot be read"),
        (with_second(TABLE.drop_columns(["city"])), "parts/2.parquet: has no column 'city', which"),
        (with_second(TABLE.append_column("e", TABLE["size"])), "parts/1.parquet: has no column 'e"),
        (with_second(wrong_column()), "parts/2.parquet: column 'size' holds categories (string),"),
        (with_second(missing_value()), "'size' first in row 2901 of parts/2.parquet: --missing"),
        (text_in_csv("2.csv"), "2.csv: column 'b', line 2502: 'x' is not a number: mend it, or"),
        (nothing("files"), "empty: has no Parquet, CSV or Arrow files"),
        (nothing("rows"), "empty: has no rows"),
        (with_stray("notes.txt"), "parts/notes.txt: is no table, in a folder that is read as one"),
        (with_stray("extra.csv"), "parts/extra.csv: is not of the format of 0.parquet"),
        (lambda: "no.parquet", "no.parquet: no such file"),
        (lambda: f"{one_parquet()} t.parquet", "t.parquet: is given twice"),
    ],
)
def test_bad_files_are_one_line_and_leave_the_model_as_it_was(
    cli: Any, make: Callable[[], str], message: str
) -> None:
    Path("m.softki").write_text("an earlier fit")
    data = make()
    before = sorted(Path().rglob("*"))
    code, out, err = cli(f"fit {data} {LINE}")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert Path("m.softki").read_text() == "an earlier fit"
    assert sorted(Path().rglob("*")) == before


def test_text_in_the_first_of_several_files_makes_text_of_all(cli: Any) -> None:
    code, _, err = cli(f"fit {text_in_csv('1.csv')()} {LINE}")
    assert code == 0
    assert "column 'b': 6 categories, one-hot encoded; it would be numbers but for 'x' in" in err
    assert "in line 2502 of 1.csv\n" in err


def test_a_file_without_rows_beside_others_does_no_harm(cli: Any) -> None:
    parquet("parts/0.parquet", TABLE.slice(0, 0))
    parquet("parts/1.parquet")
    assert cli(f"fit parts {LINE}")[0] == 0
    assert softki.load("m.softki").fit_report_.rows == N
    assert cli("predict m.softki parts -o out.parquet")[0] == 0
    assert pq.read_metadata("out.parquet").num_rows == N


@pytest.mark.parametrize("when", ["survey", "training"])
def test_a_file_that_changes_during_the_fit(
    cli: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    folder_of_parquet()
    Path("m.softki").write_text("an earlier fit")

    def touch() -> None:
        os.utime("parts/1.parquet", ns=(1, 1))

    if when == "training":
        read = Source._read

        def changing(self: Source, part: Any) -> Any:
            touch()
            return read(self, part)

        monkeypatch.setattr(Source, "_read", changing)
    else:
        from softki.cli.survey import Survey

        monkeypatch.setattr(Survey, "_check_noise", lambda *_: touch())
    code, _, err = cli(f"fit parts {LINE} -q")
    assert code == 1
    assert err == (
        "error: parts/1.parquet: changed while it was read: fit again, to a file that stays as it "
        "is\n"
    )
    assert Path("m.softki").read_text() == "an earlier fit"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_process_that_is_refused_a_file_has_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    failed = as_subprocess(tmp_path, "fit", "t.parquet", *LINE.split())
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: t.parquet: cannot be read")
    assert failed.stderr.count("\n") == 1
