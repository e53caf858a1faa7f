from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
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
import softki.plots
import softki.storage.estimator_file
from softki.cli import main
from softki.cli.app import run
from softki.cli.scoring import Scores
from softki.cli.survey import rows_to_test
from softki.data import file_sets, scans
from softki.data.datasets import split_indices
from softki.data.encoding import TableEncoder
from softki.data.file_sets import FileSet
from softki.training.trainer import Trainer

from house_prices import SMALL, as_subprocess, assert_same_figures, houses


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Fits this small are quicker without the waiting of one thread for another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, and a model that was fitted to one of them."""
    folder = tmp_path_factory.mktemp("cli")
    train, test = houses(400, 0), houses(150, 1)
    pq.write_table(train, folder / "train.parquet")
    pa.csv.write_csv(train, folder / "train.csv")
    pa.csv.write_csv(test, folder / "test.csv")
    pa.feather.write_feather(test, str(folder / "test.feather"))
    pq.write_table(test, folder / "test.parquet")
    arguments = ("--target", "price", "--drop", "id,tax", "-o", str(folder / "price.softki"))
    assert run(["fit", str(folder / "train.parquet"), *arguments, *SMALL, "--quiet"]) == 0
    return folder


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs a command in the folder: exit code, stdout and stderr."""
    monkeypatch.chdir(folder)

    def command(line: str, *more: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([*line.split(), *map(str, more)])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def table_in(path: Path) -> pa.Table:
    return pa.Table.from_batches(list(FileSet.of([path]).read()))


def spy_on(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, ...]]:
    """The positional arguments of all calls of a method, which still does its work."""
    calls: list[tuple[Any, ...]] = []
    method = getattr(owner, name)

    def spied(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return method(*arguments, **options)

    monkeypatch.setattr(owner, name, spied)
    return calls


# The whole road, as a user goes it.


def test_all_commands_one_after_the_other(cli: Any, folder: Path, tmp_path: Path) -> None:
    """A fit and its predictions in processes, as a user has them; the others in this one."""
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    options = ("--target", "price", "--drop", "id,tax", "-o", "p.softki", *SMALL)
    fitted = as_subprocess(tmp_path, "fit", "train.csv", *options)
    assert fitted.returncode == 0, fitted.stderr
    assert "column 'city': 3 categories, one-hot encoded" in fitted.stderr
    assert "column 'garden': 0 and 1" in fitted.stderr
    assert "column 'sold': days since 1970-01-01" in fitted.stderr
    assert "column 'planet': left out, it is constant ('Earth')" in fitted.stderr
    assert "held out" in fitted.stdout
    assert "\r" not in fitted.stderr  # no progress bar where there is no terminal

    options = ("-o", "out.parquet", "--quantiles", "0.05,0.95", "--keep", "id")
    predicted = as_subprocess(tmp_path, "predict", "p.softki", "test.csv", *options)
    assert predicted.returncode == 0, predicted.stderr
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["id", "price", "price_std", "price_q0.05", "price_q0.95"]
    assert table["id"].to_pylist() == houses(150, 1)["id"].to_pylist()

    model = tmp_path / "p.softki"
    _, out, _ = cli("evaluate", model, tmp_path / "test.csv", "--json")
    figures = json.loads(out)["targets"]["price"]
    error = np.asarray(table["price"]) - np.asarray(houses(150, 1)["price"])
    assert figures["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-9)
    assert figures["r2"] > 0.9

    assert "400 rows of train.csv" in cli("info", model)[1]
    code, _, err = cli("plot", model, "-k", "training", "-o", tmp_path / "curve.png")
    assert code == 0, err
    assert (tmp_path / "curve.png").exists()


def test_a_closed_pipe_ends_a_process_in_silence(folder: Path) -> None:
    many = pa.concat_tables([houses(150, 1)] * 200)
    pq.write_table(many, folder / "many.parquet")
    command = [sys.executable, "-m", "softki", "predict", "price.softki", "many.parquet"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b'"price","price_std"\n'
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


# Fit.


def test_the_model_is_the_one_that_python_fits(cli: Any, folder: Path) -> None:
    model = softki.load(folder / "price.softki")
    train = pq.read_table(folder / "train.parquet")
    encoder = TableEncoder.from_file(folder / "price.softki")
    assert list(model.feature_names_in_) == encoder.names
    assert encoder.names == ["size", "city=Oslo", "city=Paris", "city=Rome", "garden", "sold"]
    again = softki.SoftKIRegressor(points=16, steps=50, random_state=0)
    again.fit(encoder.transform(train), np.asarray(train["price"]))
    x = encoder.transform(pq.read_table(folder / "test.parquet"))
    np.testing.assert_array_equal(model.predict(x), again.predict(x))
    code, out, _ = cli("predict price.softki test.parquet --no-std")
    assert code == 0
    np.testing.assert_array_equal(np.array(out.split()[1:], dtype=float), model.predict(x))


def test_json_of_a_fit_with_test_rows_and_two_targets(cli: Any, folder: Path) -> None:
    code, out, err = cli(
        "fit train.csv --target price --target tax --columns size,city --test 0.25 --json "
        "--held-out 0.2 --seed 3 --kernel rbf --batch-size 0 -o two.softki",
        *SMALL,
    )
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["model"] == "two.softki"
    tested = int(rows_to_test(0.25, 3, 0, 400).sum())
    assert (result["rows"], result["points"], result["kernel"]) == (400 - tested, 16, "rbf")
    assert result["held_out"]["rows"] == pytest.approx(0.2 * (400 - tested), abs=0.5)
    assert result["held_out"]["units"] == "standardised"
    assert result["test"].keys() == {"price", "tax"}
    assert result["test"]["price"]["rows"] == tested
    assert result["test"]["tax"]["rmse"] == pytest.approx(result["test"]["price"]["rmse"] / 10)
    assert 0 < result["test"]["price"]["coverage"]["0.95"] <= 1
    assert sum(result["relevance"].values()) == pytest.approx(1)
    assert result["columns"] == {"size": "a number", "city": "3 categories, one-hot encoded"}
    assert result["warnings"] == []
    code, out, _ = cli("predict two.softki test.csv --quantiles 0.5")
    assert out.splitlines()[0] == '"price","price_std","price_q0.5","tax","tax_std","tax_q0.5"'
    code, out, _ = cli("evaluate two.softki test.csv")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["price", "tax"]
    code, out, _ = cli("info two.softki")
    assert "test of tax" in out


def test_an_interrupted_fit_is_saved(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer.step

    def interrupted(self: Trainer, *arguments: Any) -> Any:
        if self.report.steps == 5:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "step", interrupted)
    code, _, err = cli("fit train.csv --target price --columns size -o i.softki", *SMALL)
    assert code == 0
    assert "warning: training ended after 5 of 50 steps: interrupted; the best" in err
    assert "5 of 50 steps (interrupted)" in err
    assert cli("evaluate i.softki test.csv")[0] == 0


def test_an_interrupt_elsewhere_leaves_nothing(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("softki.storage.save", interrupted)
    code, _, err = cli("fit train.csv --target price --columns size -o gone.softki", *SMALL)
    assert code == 130
    assert err.endswith("error: interrupted\n")
    assert not (folder / "gone.softki").exists()


def test_known_noise_is_no_input(cli: Any, folder: Path) -> None:
    table = houses(200, 3)
    noise = np.random.default_rng(0).uniform(0.5, 2, 200)
    pq.write_table(table.append_column("variance", pa.array(noise)), folder / "noise.parquet")
    code, _, err = cli(
        "fit noise.parquet --target price --drop id,tax --noise-variance variance -o n.softki",
        *SMALL,
    )
    assert code == 0, err
    assert "variance" not in TableEncoder.from_file(folder / "n.softki").inputs
    code, out, _ = cli("info n.softki")
    assert "known by row from variance" in out


@pytest.fixture(scope="module")
def noisy(folder: Path) -> tuple[Path, pa.Table, np.ndarray]:
    """A model with known noise and test rows, its table, and which of the rows are tested."""
    rng = np.random.default_rng(1)
    x, variance = rng.uniform(0, 6, 300), 10 ** rng.uniform(-2, 1, 300)
    y = np.sin(x) + rng.normal(0, 0.3 * np.sqrt(variance))
    table = pa.table({"x": x, "y": y, "variance": variance})
    pq.write_table(table, folder / "noisy.parquet")
    options = ("--target", "y", "--noise-variance", "variance", "--test", "0.3", "--json")
    output = folder / "noisy.softki"
    assert run(["fit", str(folder / "noisy.parquet"), *options, "-o", str(output), *SMALL]) == 0
    return output, table, np.flatnonzero(rows_to_test(0.3, 0, 0, 300))


def moments_with_noise(
    path: Path, table: pa.Table, relative: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of y, by the spread of y and of f for average noise."""
    model = softki.load(path)
    mean, std = model.predict(table.select(["x"]), return_std=True)
    _, std_f = model.predict(table.select(["x"]), return_std=True, of="f")
    return mean, std_f**2 + relative * (std**2 - std_f**2)


def test_known_noise_counts_in_all_figures(
    cli: Any, folder: Path, noisy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table, tested = noisy
    pq.write_table(table.take(tested), folder / "tested.parquet")
    variance = np.asarray(table["variance"])
    relative = variance[tested] / np.delete(variance, tested).mean()
    mean, expected = moments_with_noise(path, table.take(tested), relative)
    error = np.asarray(table["y"])[tested] - mean
    nll = 0.5 * np.mean(np.log(2 * np.pi * expected) + error**2 / expected)
    _, out, err = cli("evaluate noisy.softki tested.parquet --json")
    assert err == ""
    figures = json.loads(out)["targets"]["y"]
    assert figures["nll"] == pytest.approx(nll, rel=1e-9)
    inside = np.mean(np.abs(error) < 0.6744898 * np.sqrt(expected))
    assert figures["coverage"]["0.5"] == pytest.approx(inside)
    in_the_fit = softki.storage.read_metadata(path)["extra"]["fit"]["test"]["y"]
    assert in_the_fit["rows"] == len(tested)
    assert_same_figures(in_the_fit, figures)
    drawn = spy_on(monkeypatch, softki.plots.ResidualDisplay, "from_predictions")
    assert cli("plot noisy.softki tested.parquet -k residuals -o r.png")[0] == 0
    np.testing.assert_allclose(drawn[0][2], np.sqrt(expected), rtol=1e-9)


def test_unknown_noise_is_taken_as_average_and_said(cli: Any, folder: Path, noisy: Any) -> None:
    path, table, tested = noisy
    pq.write_table(table.drop_columns(["variance"]), folder / "without.parquet")
    halves = pa.array([0.0, None, *[0.5] * 298])
    part = table.drop_columns(["variance"]).append_column("variance", halves)
    pa.csv.write_csv(part, folder / "part.csv")
    training = np.delete(np.asarray(table["variance"]), tested)
    for name, relative, message in (
        (
            "without.parquet",
            np.ones(300),
            "has no column 'variance', the known noise of the fit: the",
        ),
        (
            "part.csv",
            np.where(np.arange(300) < 2, 1, 0.5 / training.mean()),
            "'variance' is missing or not positive in 2 rows: their",
        ),
    ):
        mean, variance = moments_with_noise(path, table, relative)
        error = np.asarray(table["y"]) - mean
        nll = 0.5 * np.mean(np.log(2 * np.pi * variance) + error**2 / variance)
        _, out, err = cli(f"evaluate noisy.softki {name} --json")
        assert err == f"warning: {name}: {message} figures assume average noise\n"
        assert json.loads(out)["targets"]["y"]["nll"] == pytest.approx(nll, rel=1e-6)


def test_the_value_that_makes_text_of_numbers_is_named_with_its_line(
    cli: Any, folder: Path
) -> None:
    """Also where that row is tested on, and where the rows before it have no target."""
    rows = [f"{i / 2},{i % 7},{i if i > 3 else ''}" for i in range(300)]
    rows[15], rows[20] = "?,1,15", "3,none,20"
    (folder / "stray.csv").write_text("\n".join(["a,b,y", *rows]))
    code, _, err = cli("fit stray.csv --target y --missing drop -o s.softki", *SMALL)
    assert code == 1
    assert "one-hot encoded: it would be numbers but for '?' in line 17; mend that" in err
    options = "--drop a --missing drop --test 0.5 -o s.softki"
    code, _, err = cli(f"fit stray.csv --target y {options}", *SMALL)
    assert code == 0
    assert "categories, one-hot encoded; it would be numbers but for 'none' in line 22\n" in err
    pq.write_table(table_in(folder / "stray.csv"), folder / "stray.parquet")
    _, _, err = cli("fit stray.parquet --target y --missing drop -o s.softki", *SMALL)
    assert "but for '?' in row 16; mend that" in err


def test_one_row_is_too_few(cli: Any, folder: Path) -> None:
    (folder / "one.csv").write_text("a,y\n1,2\n")
    code, _, err = cli("fit one.csv --target y -o one.softki")
    assert (code, err) == (
        1,
        "error: one.csv: there is one row to fit to, and at least two are needed\n",
    )


def test_test_rows_teach_the_encoder_nothing(cli: Any, folder: Path) -> None:
    """A category, a second value and extremes that only test rows have stay unknown."""
    table = houses(200, 6).select(["size", "city", "planet", "price"])
    tested = rows_to_test(0.25, 0, 0, 200)
    size = np.where(tested, 1e6, np.asarray(table["size"]))
    size[np.flatnonzero(tested)[0]] = size[np.flatnonzero(~tested)[0]] = np.nan
    city = np.where(tested & (np.arange(200) > 100), "Bonn", np.asarray(table["city"]))
    planet = np.where(tested, "Mars", "Earth")
    columns = {"size": size, "city": city, "planet": planet, "price": table["price"]}
    pq.write_table(pa.table(columns), folder / "leak.parquet")
    code, _, err = cli(
        "fit leak.parquet --target price --missing impute --test 0.25 -o leak.softki", *SMALL
    )
    assert code == 0, err
    count = int((city == "Bonn").sum())
    assert f"warning: test rows: column 'city': {count} values are of categories" in err
    assert "warning: test rows: column 'planet' is constant ('Earth') in the fit, " in err
    encoder = TableEncoder.from_file(folder / "leak.softki")
    assert encoder.names == ["size", "city=Oslo", "city=Paris", "city=Rome"]
    assert encoder.columns[0].fill == np.nanmedian(size[~tested])
    assert dict(encoder.left_out) == {"planet": "is constant ('Earth')"}
    pq.write_table(pa.table(columns).filter(pa.array(tested)), folder / "leak_test.parquet")
    _, out, _ = cli("evaluate leak.softki leak_test.parquet --json")
    figures = json.loads(out)["targets"]["price"]
    summary = softki.storage.read_metadata(folder / "leak.softki")["extra"]["fit"]
    assert summary["rows"] == int((~tested).sum())
    assert summary["test"]["price"]["rows"] == int(tested.sum())
    assert_same_figures(summary["test"]["price"], figures)


def test_missing_values_in_test_rows_are_refused_or_dropped(cli: Any, folder: Path) -> None:
    (folder / "missing.csv").write_text(MISSING)
    line = "fit missing.csv --target price --test 0.5 -o m.softki"
    code, _, err = cli(line, *SMALL)
    assert code == 1
    assert "values are missing (size 1, city 2, price 1), that of 'size' first in line 5" in err
    code, out, _ = cli(line + " --missing drop --json", *SMALL)
    assert code == 0
    result = json.loads(out)
    assert result["rows"] + result["test"]["price"]["rows"] == 57
    assert result["dropped_rows"] == 3


def test_the_split_does_not_depend_on_rounding() -> None:
    for count in (10, 30, 100, 1000):
        for tenths in range(1, 10):
            training, test = split_indices(count, 0, 1 - tenths / 10)
            assert len(test) == count * tenths // 10
            assert sorted([*training, *test]) == list(range(count))
    for count in (*range(1, 300), 48827, 2049280):
        assert len(split_indices(count)[0]) == 9 * count // 10


MISSING = "size,city,empty,price\n" + "".join(
    f"{'' if i == 3 else i},{'' if i in (3, 4) else 'ab'[i % 2]},,{'nan' if i == 7 else 2 * i}\n"
    for i in range(60)
)


def test_missing_values_are_refused_unless_told_otherwise(cli: Any, folder: Path) -> None:
    (folder / "missing.csv").write_text(MISSING)
    line = "fit missing.csv --target price -o m.softki"
    code, _, err = cli(line, *SMALL)
    assert code == 1
    assert err.startswith(
        "error: missing.csv: values are missing (size 1, city 2, price 1), that of 'size' first in "
        "line 5: --missing drop"
    )
    code, _, err = cli(line + " --missing drop", *SMALL)
    assert code == 0
    assert "column 'empty': left out, it holds no values\n" in err
    assert "3 of 60 rows are left out, as values are missing\n57 rows, " in err
    code, _, err = cli("predict m.softki missing.csv -o m.parquet")
    assert code == 0
    assert "predicted 60 rows (2 without prediction)" in err
    table = pq.read_table(folder / "m.parquet")
    for name in ("price", "price_std"):
        assert [i for i, v in enumerate(table[name].to_pylist()) if v is None] == [3, 4]
    code, _, err = cli("evaluate m.softki missing.csv")
    assert "57 rows, 3 left out as values are missing" in err
    code, _, err = cli("evaluate m.softki missing.csv --missing refuse")
    assert code == 1
    assert "3 rows have missing values (size 1, city 2, price 1)" in err


def test_missing_values_are_imputed(cli: Any, folder: Path) -> None:
    (folder / "missing.csv").write_text(MISSING)
    code, _, err = cli("fit missing.csv --target price --missing impute -o m.softki", *SMALL)
    assert code == 0
    assert "column 'size': a number, 1 missing filled in with 30.5" in err
    assert "column 'city': 2 categories, one-hot encoded, 2 missing filled in with " in err
    assert "1 of 60 rows are left out" in err  # the one without a target
    (folder / "gaps.csv").write_text("size,city\n,a\n30.5,a\n")
    code, out, _ = cli("predict m.softki gaps.csv")
    filled, given = ([float(cell) for cell in row.split(",")] for row in out.splitlines()[1:])
    assert filled == pytest.approx(given, rel=1e-12)  # rows of a product may be rounded apart


# Predict.


@pytest.mark.parametrize("name", ["test.csv", "test.feather", "test.parquet"])
def test_every_format_gives_the_same_predictions_in_batches(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Batches are small here: each is predicted and written on its own, in order."""
    sizes: list[int] = []
    predict = softki.SoftKIRegressor.predict

    def counted(self: Any, X: Any, **options: Any) -> Any:
        sizes.append(len(X))
        return predict(self, X, **options)

    assert cli("predict price.softki test.csv -o whole.csv --quantiles 0.1")[0] == 0
    monkeypatch.setattr(file_sets, "BATCH_ROWS", 32)
    monkeypatch.setattr(scans, "CSV_BYTES", 1024)
    monkeypatch.setattr(softki.SoftKIRegressor, "predict", counted)
    for output in ("out.csv", "out.csv.gz", "out.parquet", "out.arrow"):
        sizes.clear()
        assert cli(f"predict price.softki {name} -o {output} --quantiles 0.1")[0] == 0
        assert len(sizes) > 4
        assert max(sizes) <= 32
        assert sum(sizes) == 150
        result, whole = (table_in(folder / file) for file in (output, "whole.csv"))
        assert result.column_names == ["price", "price_std", "price_q0.1"]
        for column in result.column_names:
            np.testing.assert_allclose(result[column], whole[column], rtol=1e-12)


def test_spread_of_f_and_quantiles(cli: Any, folder: Path) -> None:
    model = softki.load(folder / "price.softki")
    x = TableEncoder.from_file(folder / "price.softki").transform(
        pq.read_table(folder / "test.parquet")
    )
    for of in ("y", "f"):
        assert cli(f"predict price.softki test.csv --of {of} --quantiles 0.9 -o f.parquet")[0] == 0
        table = pq.read_table(folder / "f.parquet")
        _, std = model.predict(x, return_std=True, of=of)
        np.testing.assert_allclose(table["price_std"], std)
        quantile = model.predict_quantiles(x, [0.9], of=of)[:, 0]
        np.testing.assert_allclose(table["price_q0.9"], quantile)


def test_columns_are_kept_as_they_are(cli: Any, folder: Path) -> None:
    _, _, err = cli("predict price.softki test.csv --keep all --no-std -o all.parquet")
    assert "not kept, as the output has such a column: price\n" in err
    table = pq.read_table(folder / "all.parquet")
    inputs = ["id", "size", "city", "garden", "sold", "planet", "tax", "zero"]
    assert table.column_names == [*inputs, "price"]
    assert table["id"].to_pylist()[:2] == ["h0000", "h0001"]
    assert table["sold"].equals(houses(150, 1)["sold"])  # dates, not timestamps


def test_columns_with_the_names_of_predictions(cli: Any, folder: Path) -> None:
    """Only the names that the output has are taken, not all that look like them."""
    table = houses(150, 1)
    for name in ("price_std", "price_q0.7", "price_q0.25"):
        table = table.append_column(name, table["size"])
    pq.write_table(table, folder / "taken.parquet")
    _, _, err = cli("predict price.softki taken.parquet --keep all --quantiles 0.25 -o t.parquet")
    assert "not kept, as the output has such a column: price, price_std, price_q0.25\n" in err
    assert pq.read_schema(folder / "t.parquet").names[-4:] == [
        "price_q0.7",
        "price",
        "price_std",
        "price_q0.25",
    ]
    code, out, _ = cli("predict price.softki taken.parquet --keep price_std --no-std")
    assert (code, out.split()[0]) == (0, '"price_std","price"')
    code, out, _ = cli("predict price.softki test.csv --no-std --quantiles 0.1234561,0.1234562")
    assert (code, out.split()[0]) == (0, '"price","price_q0.1234561","price_q0.1234562"')


def test_targets_whose_predictions_would_have_the_same_name(cli: Any, folder: Path) -> None:
    table = houses(100, 2).select(["size", "price", "tax"]).rename_columns(["x", "y", "y_std"])
    pq.write_table(table, folder / "clash.parquet")
    assert cli("fit clash.parquet --target y --target y_std -o clash.softki -q", *SMALL)[0] == 0
    code, out, err = cli("predict clash.softki clash.parquet")
    assert (code, out) == (2, "")
    assert err.startswith("error: the output would have two columns 'y_std': ")
    code, out, _ = cli("predict clash.softki clash.parquet --no-std")
    assert (code, out.split()[0]) == (0, '"y","y_std"')


def test_the_model_file_is_read_once(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that encoder and estimator are those of the same model, should it be replaced."""
    readings = spy_on(monkeypatch, softki.storage.estimator_file, "unseal")
    assert cli("evaluate price.softki test.csv")[0] == 0
    assert len(readings) == 1


def test_durations_may_be_seconds_in_csv(cli: Any, folder: Path) -> None:
    seconds = np.random.default_rng(0).uniform(0, 5000, 100).round(3)
    lasted = pa.array((seconds * 1000).round().astype(int), pa.duration("ms"))
    pq.write_table(pa.table({"lasted": lasted, "y": np.sqrt(seconds)}), folder / "lasted.parquet")
    assert cli("fit lasted.parquet --target y -o lasted.softki -q", *SMALL)[0] == 0
    pa.csv.write_csv(pa.table({"lasted": seconds}), folder / "lasted.csv")
    code, from_csv, err = cli("predict lasted.softki lasted.csv")
    assert (code, err) == (0, "")
    assert from_csv == cli("predict lasted.softki lasted.parquet")[1]


def test_a_failing_batch_leaves_no_output(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "CSV_BYTES", 512)
    lines = (folder / "test.csv").read_text().splitlines()
    (folder / "late.csv").write_text(
        "\n".join([*lines, lines[1].replace("true", "perhaps").replace("false", "perhaps")])
    )
    before = sorted(folder.iterdir())
    code, _, err = cli("predict price.softki late.csv -o late_out.csv")
    assert code == 1
    assert err == "error: late.csv: column 'garden', line 152: 'perhaps' is not true or false\n"
    assert sorted(folder.iterdir()) == before


def test_unknown_categories_are_counted_over_all_batches(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sets, "BATCH_ROWS", 32)
    table = houses(150, 1)
    city = pa.array(["Bonn" if i % 2 else "Oslo" for i in range(150)]).dictionary_encode()
    pq.write_table(table.set_column(2, "city", city), folder / "bonn.parquet")
    code, out, err = cli("predict price.softki bonn.parquet -o b.csv --json")
    message = (
        "bonn.parquet: column 'city': 75 values are of categories that the fit did not see "
        "('Bonn') and become zeros"
    )
    assert (code, err) == (0, f"warning: {message}\n")
    assert json.loads(out)["warnings"] == [message]


@pytest.mark.parametrize(
    "command", ["predict price.softki mars.csv -o mars_out.csv", "evaluate price.softki mars.csv"]
)
def test_a_column_that_was_constant_and_is_no_longer(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(scans, "CSV_BYTES", 1024)
    text = (folder / "test.csv").read_text()
    (folder / "mars.csv").write_text(text.replace('"Earth"', '"Mars"', 70))
    code, _, err = cli(f"{command} --quiet")
    assert (code, err) == (
        0,
        "warning: mars.csv: column 'planet' is constant ('Earth') in the fit, so that the model "
        "does not use it, and 70 values are different here\n",
    )


def test_nothing_is_printed_before_the_first_batch_is_predicted(cli: Any, folder: Path) -> None:
    lines = (folder / "test.csv").read_text().splitlines()
    fields = lines[1].split(",")
    (folder / "gap.csv").write_text("\n".join([lines[0], ",".join([fields[0], "", *fields[2:]])]))
    code, out, err = cli("predict price.softki gap.csv")
    assert (code, out) == (1, "")
    assert "(size 1): with --missing drop such rows have no prediction" in err


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_inputs_and_predictions_beyond_all_bounds_are_refused(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    table = houses(5, 1)
    size = pa.array([1e308, *np.asarray(table["size"])[1:]])
    pq.write_table(table.set_column(1, "size", size), folder / "far.parquet")
    code, out, err = cli(f"{command} price.softki far.parquet")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: far.parquet: ")
    infinite = np.full(150, np.inf)
    monkeypatch.setattr(softki.SoftKIRegressor, "predict", lambda *_, **__: (infinite, infinite))
    code, out, err = cli(f"{command} price.softki test.csv")
    assert (code, out) == (1, "")
    assert err.startswith("error: test.csv: the predictions of 150 rows are not finite")


# Evaluate, info and plot.


def test_scores_do_not_depend_on_the_batches() -> None:
    rng = np.random.default_rng(0)
    y, mean = 1e6 + rng.normal(size=(2, 1000, 2))
    std = rng.uniform(0.5, 2, (1000, 2))
    whole, parts = Scores(2), Scores(2)
    whole.add(y, mean, std)
    for rows in np.array_split(np.arange(1000), 7):
        parts.add(y[rows], mean[rows], std[rows])
    parts.add(y[:0], mean[:0], std[:0])
    for t, (one, other) in enumerate(zip(whole.figures(), parts.figures(), strict=True)):
        error = (y - mean)[:, t]
        assert one["r2"] == pytest.approx(1 - np.sum(error**2) / np.sum((y - y.mean(0))[:, t] ** 2))
        assert one["mae"] == pytest.approx(np.abs(error).mean())
        assert_same_figures(one, other)
        inside = np.abs(error) < 1.959964 * std[:, t]
        assert one["coverage"]["0.95"] == pytest.approx(inside.mean())


def test_info_shows_columns_and_relevance(cli: Any) -> None:
    code, out, _ = cli("info price.softki")
    assert code == 0
    for text in ("400 rows of train.parquet", "16 points, kernel matern32", "city=Paris", "planet"):
        assert text in out
    code, out, _ = cli("info price.softki --json")
    assert json.loads(out)["extra"]["targets"] == ["price"]


def test_pictures(cli: Any, folder: Path) -> None:
    assert cli("plot price.softki test.csv -o pictures")[0] == 0
    kinds = ["calibration", "points", "prediction", "relevance", "residuals", "slice", "training"]
    pictures = sorted((folder / "pictures").iterdir())
    assert [picture.name for picture in pictures] == [f"{kind}.png" for kind in kinds]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    code, out, _ = cli("plot price.softki -k relevance -o r.svg --json")
    assert json.loads(out)["files"] == ["r.svg"]
    assert b"<svg" in (folder / "r.svg").read_bytes()[:500]
    code, _, err = cli("plot price.softki --kind points -o x.png")
    assert (code, err) == (2, "error: --kind points needs DATA\n")
    code, _, err = cli("plot price.softki test.csv -o x.png")
    assert code == 2
    assert "say which one with --kind" in err


def test_pictures_without_anything_to_show_are_left_out_with_a_note(cli: Any, folder: Path) -> None:
    options = "--columns size,city --held-out 0 -o all_rows.softki -q"
    assert cli(f"fit train.csv --target price {options}", *SMALL)[0] == 0
    pq.write_table(houses(1, 1), folder / "row.parquet")
    code, _, err = cli("plot all_rows.softki row.parquet -o left_out")
    assert code == 0
    for kind in ("training", "points", "slice"):
        assert f"{kind} is left out: " in err
        assert not (folder / "left_out" / f"{kind}.png").exists()
        code, _, why = cli(f"plot all_rows.softki row.parquet -k relevance -k {kind} -o failed")
        assert code == 1
        assert why.startswith(f"error: --kind {kind}: ")
    assert len(list((folder / "left_out").iterdir())) == 4
    assert not (folder / "failed").exists()  # not even the picture that could be drawn


def test_slices_are_along_the_most_relevant_numbers(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = softki.load(folder / "price.softki")
    monkeypatch.setattr("softki.cli.pictures._SLICES", 2)
    drawn = spy_on(monkeypatch, softki.plots.SliceDisplay, "from_estimator")
    assert cli("plot price.softki test.csv -k slice -o slice.png")[0] == 0
    names = list(model.feature_names_in_)
    relevance = dict(zip(names, model.feature_relevance_, strict=True))
    numbers = sorted(["size", "garden", "sold"], key=lambda name: relevance[name])
    assert [names[j] for j in drawn[0][2]] == [numbers[-1], numbers[-2]]


def test_pictures_of_a_large_table_show_a_random_sample(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softki.cli.pictures.MAX_ROWS", 40)
    monkeypatch.setattr(file_sets, "BATCH_ROWS", 32)
    drawn = spy_on(monkeypatch, softki.plots.PredictionDisplay, "from_predictions")
    assert cli("plot price.softki test.parquet -k prediction -o p.png")[0] == 0
    y, mean, _ = drawn[0]
    price = np.asarray(houses(150, 1)["price"])
    rows = np.array([np.flatnonzero(price == value).item() for value in y])
    assert len(set(rows)) == 40
    assert all(3 <= count <= 20 for count in np.histogram(rows, 5, (0, 150))[0])
    table = pq.read_table(folder / "test.parquet")
    x = TableEncoder.from_file(folder / "price.softki").transform(table)
    expected = softki.load(folder / "price.softki").predict(x)[rows]
    np.testing.assert_allclose(mean, expected, rtol=1e-9)


def test_without_matplotlib_nothing_is_made(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = cli("plot price.softki -k relevance -o nothing")
    assert (code, err) == (
        1,
        "error: pictures need the package matplotlib: pip install 'softki[plot]'\n",
    )
    assert not (folder / "nothing").exists()


def test_models_that_were_saved_from_python(cli: Any, folder: Path) -> None:
    table = houses(200, 4).select(["size", "garden"])
    numbers = pa.table({"size": table["size"], "garden": table["garden"].cast(pa.float64())})
    model = softki.SoftKIRegressor(points=8, steps=10, random_state=0)
    model.fit(numbers, np.asarray(table["size"])).save(folder / "python.softki")
    pq.write_table(numbers, folder / "numbers.parquet")
    code, out, err = cli("predict python.softki numbers.parquet --no-std")
    assert out.splitlines()[0] == '"y"'
    np.testing.assert_allclose(np.array(out.split()[1:], float), model.predict(numbers))
    code, _, err = cli("evaluate python.softki numbers.parquet")
    assert code == 1
    assert "does not name its target" in err
    code, out, _ = cli("info python.softki")
    assert "size, garden" in out
    best = model.fit_report_.best
    assert best is not None
    assert f"RMSE {best.rmse:.4g}, NLL {best.calibration.nll:.4g}, 200 rows\n" in out
    assert "noise      standard deviation " in out
    assert "most relevant" in out
    code, out, _ = cli("info python.softki --json")
    summary = json.loads(out)["extra"]["fit"]
    assert summary["held_out"]["rmse"] == best.rmse
    assert list(summary["relevance"].values()) == model.feature_relevance_.tolist()


# Errors: one line, and an exit code.


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("fit no.csv --target price -o x.softki", 1, "no.csv: no such file"),
        ("fit train.csv -o x.softki", 2, "Missing option '--target'"),
        ("fit train.csv --target prise -o x.softki", 2, "did you mean 'price'?"),
        ("fit train.csv --target price --drop nme -o x.softki", 2, "--drop: train.csv has no"),
        ("fit train.csv --target price --columns Size -o x.softki", 2, "did you mean 'size'?"),
        ("fit train.csv --target price --columns size --drop id -o x.softki", 2, "exclude each"),
        ("fit train.csv --target price --columns price -o x.softki", 2, "'price' is a target"),
        ("fit train.csv --target price --target price -o x.softki", 2, "given twice"),
        ("fit train.csv --target price --noise-variance price -o x.softki", 2, "is a target, it"),
        ("fit train.csv --target tax --noise-variance id --columns id -o x.softki", 2, "no input"),
        ("fit train.csv --target tax --drop tax -o x.softki", 2, "--drop: 'tax' is a target"),
        ("fit train.csv --target city --drop id -o x.softki", 1, "'city', line 2: "),
        ("fit train.parquet --target city --drop id -o x.softki", 1, "'city' holds categories"),
        ("fit train.parquet --target garden --drop id -o x.softki", 1, "'garden' holds booleans"),
        ("fit train.csv --target price -o x.softki", 1, "400 different values, and at most 50"),
        ("fit train.csv --target price --columns planet -o x.softki", 1, "no column is left"),
        ("fit train.csv --target price --kernel rbg -o x.softki", 2, "did you mean 'rbf'"),
        ("fit train.csv --target price --points 0 -o x.softki", 2, "'--points'"),
        ("fit train.csv --target price --missing fill -o x.softki", 2, "'fill' is not one of"),
        ("fit train.csv --target price --held-out 2 -o x.softki", 2, "held_out must be"),
        ("fit train.csv --target price --test 1 -o x.softki", 2, "--test must be"),
        ("fit train.csv --target price --test 1e-9 -o x.softki", 2, "none to test"),
        ("fit train.csv --target price --device gpu -o x.softki", 2, "unknown device 'gpu'"),
        ("fit train.csv --target price -o no/x.softki", 1, "there is no folder"),
        ("fit train.csv --target price -o .", 1, "is a folder"),
        ("fit train.csv --target price -o train.csv", 2, "is the file that is read"),
        ("fit train.csv --target price --noise-variance id -o x.softki", 1, "'h0000' is not"),
        ("fit train.csv --target price --drop id --noise-variance zero -o x.softki", 1, "positive"),
        ("fit train.parquet --target price --noise-variance city -o x.softki", 1, "'city' holds"),
        ("predict no.softki test.csv", 1, "there is no file no.softki"),
        ("predict train.csv test.csv", 1, "train.csv is not a softki model"),
        ("predict price.softki test.csv --quantiles 5,95", 2, "numbers between 0 and 1"),
        ("predict price.softki test.csv --quantiles x", 2, "numbers between 0 and 1"),
        ("predict price.softki test.csv --json", 2, "--json needs --output"),
        ("predict price.softki test.csv --keep ID", 2, "did you mean 'id'?"),
        ("predict price.softki test.csv --keep price", 2, "is a column of the predictions"),
        ("predict price.softki test.csv -o x.xlsx", 2, "the name must end in"),
        ("predict price.softki test.csv -o test.csv", 2, "is the file that is read"),
        ("predict price.softki test.csv --of g", 2, "'g' is not one of"),
        ("evaluate price.softki wide.parquet", 1, "has no column 'city', 'garden'"),
        ("predict price.softki kinds.parquet", 1, "'size' holds dates (date32[day]), and held"),
        ("info train.csv", 1, "train.csv is not a softki model"),
        ("plot price.softki test.csv --kind bar -o x.png", 2, "'bar' is not one of"),
        ("plot price.softki test.csv --target prce -o x", 2, "did you mean 'price'?"),
        ("plot price.softki test.csv -o x.gif", 2, "a file that ends in .png"),
        ("info price.softki --wrong", 2, "No such option: --wrong"),
        ("fot", 2, "No such command 'fot'"),
    ],
)
def test_errors_are_one_line(cli: Any, folder: Path, line: str, code: int, message: str) -> None:
    table = houses(20, 5)
    pq.write_table(table.select(["size", "price"]), folder / "wide.parquet")
    pq.write_table(table.set_column(1, "size", table["sold"]), folder / "kinds.parquet")
    before = sorted(folder.iterdir())
    result, _, err = cli(line)
    assert result == code
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


def test_debug_shows_the_traceback(cli: Any) -> None:
    code, _, err = cli("evaluate price.softki no.csv --debug")
    assert code == 1
    assert "Traceback" in err
    assert err.endswith("error: no.csv: no such file\n")


def test_unexpected_errors_are_one_line_too(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr("softki.storage.read_metadata", fails)
    code, _, err = cli("info price.softki")
    assert code == 1
    assert err == "error: unexpected ZeroDivisionError: a b (--debug shows where)\n"


def test_other_exits_are_not_taken_for_closed_pipes(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exits(*_: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("softki.storage.read_metadata", exits)
    with pytest.raises(SystemExit) as exit_:
        cli("info price.softki")
    assert exit_.value.code == 3


def test_help_and_version_import_nothing_heavy() -> None:
    """Each of these takes longer to import than all that help needs."""
    heavy = {"matplotlib", "numpy", "pyarrow", "scipy", "sklearn", "torch"}
    commands = [[], ["--version"], *([name, "--help"] for name in COMMANDS)]
    code = (
        "import sys; from softki.cli.app import run;"
        f"assert all(run(command) == 0 for command in {commands});"
        f"found = {heavy} & sys.modules.keys(); assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


COMMANDS = ("fit", "predict", "evaluate", "info", "plot")


def test_help_has_examples(cli: Any) -> None:
    for command in ("", *COMMANDS):
        code, out, _ = cli(f"{command} --help")
        assert code == 0
        assert f"\n    softki {command}".rstrip() in out
    assert cli("--version")[1] == f"softki {softki.__version__}\n"
    assert cli("")[1].startswith("Usage: softki")


@pytest.mark.parametrize("package", ["typer", "rich", "pyarrow"])
def test_a_missing_package_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    expected = f"error: the command line needs the package {package}: pip install 'softki[cli]'\n"
    assert capsys.readouterr().err == expected


def test_an_interrupt_while_starting_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("softki.cli.find_spec", interrupted)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 130
    assert capsys.readouterr().err == "error: interrupted\n"
