"""The runner and its commands, on small data and quick methods."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from softki.bench import commands, runner
from softki.bench.commands import main
from softki.bench.datasets import Observations
from softki.bench.download import DownloadError
from softki.bench.memory import PeakMemory
from softki.bench.method import Method
from softki.bench.methods import METHODS, make
from softki.bench.record import Record
from softki.bench.registry import DataSet, select
from softki.bench.results import Results
from softki.bench.runner import Plan, run_all, run_one
from softki.data import split_indices
from softki.exceptions import InvalidInputError
from softki.training.trainer import Trainer

given: list[tuple[np.ndarray, np.ndarray]] = []  # what `Guess` has seen


class Guess(Method):
    """Predicts the mean of the training target, and can misbehave."""

    name = "guess"
    defaults = {"how": "well", "epochs": 4}  # noqa: RUF012

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        how = self.settings["how"]
        if how == "breaks":
            raise RuntimeError("the matrix is singular\nand more")
        if how == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory")
        if how == "slow":
            time.sleep(5)
        given.append((X, y))
        self.mean, self.std = y.mean(), y.std()
        self.facts = {"epochs": self.settings["epochs"], "training_seconds": 2.0}

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        given.append((X, np.empty(0)))
        mean = np.nan if self.settings["how"] == "nan" else self.mean
        return np.full(len(X), mean), np.full(len(X), self.std)


@pytest.fixture(autouse=True)
def guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "guess", Guess)
    given.clear()


def observations(n: int = 200) -> Observations:
    rng = np.random.default_rng(0)
    X = 5 + 3 * rng.standard_normal((n, 3))
    return Observations(X, 100 + 10 * rng.standard_normal(n), "noise")


def one(**settings: Any) -> Record:
    return run_one(observations(), Record("noise", "guess", 0, "90/10", settings), "cpu", limit=0.5)


def test_figures_are_in_units_of_the_training_target() -> None:
    record = one()
    assert record.status == "ok"
    assert (record.rows, record.test_rows, record.columns) == (180, 20, 3)
    assert record.rmse == pytest.approx(1, abs=0.4)
    assert record.nll == pytest.approx(1.42, abs=0.4)
    assert record.coverage is not None
    assert record.coverage > 0.8
    assert record.seconds_per_epoch == 0.5
    assert record.facts["settings"] == {"how": "well", "epochs": 4}


@pytest.mark.parametrize(
    ("how", "status", "error"),
    [
        ("breaks", "failed", "RuntimeError: the matrix is singular"),
        ("memory", "out of memory", "CUDA out of memory"),
        ("nan", "failed", "FloatingPointError: predictions are not finite"),
        ("slow", "failed", "TimeoutError: not done after 0.5 s"),
    ],
)
def test_what_goes_wrong_is_a_row_that_says_so(how: str, status: str, error: str) -> None:
    record = one(how=how)
    assert (record.status, record.error) == (status, error)
    assert record.rmse is None


def test_too_many_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guess, "max_columns", 2)
    record = one()
    assert record.status == "refused"
    assert record.error == "guess takes at most 2 columns, not 3"


def test_nothing_is_run_twice_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "load", lambda *_: observations())
    results = Results(tmp_path / "runs.jsonl")
    plan = Plan(select("robot_arm"), ["guess"], seeds=range(2), settings={"epochs": 2})
    assert [r.seed for r in run_all(plan, results)] == [0, 1]
    assert list(run_all(plan, Results(tmp_path / "runs.jsonl"))) == []
    assert len(list(run_all(plan, results, force=True))) == 2
    longer = Plan(select("robot_arm"), ["guess"], settings={"epochs": 3})
    assert [r.settings for r in run_all(longer, results)] == [{"epochs": 3}]


@pytest.mark.parametrize(
    ("status", "error", "again"),
    [
        ("ok", None, False),
        ("out of memory", "CUDA out of memory", False),
        ("failed", "RuntimeError: the matrix is singular", False),
        ("failed", "TimeoutError: not done after 60 s", True),
        ("refused", "ski takes at most 4 columns, not 8", False),
    ],
)
def test_what_another_run_may_change_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, error: str | None, again: bool
) -> None:
    monkeypatch.setattr(runner, "load", lambda *_: observations())
    results = Results(tmp_path / "runs.jsonl")
    results.append(Record("robot_arm", "guess", 0, "90/10", status=status, error=error))
    plan = Plan(select("robot_arm"), ["guess"])
    assert len(list(run_all(plan, results))) == again
    assert len(list(run_all(plan, results, force=True))) == 1


def test_a_device_of_another_kind_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "load", lambda *_: observations())
    results = Results(tmp_path / "runs.jsonl")
    results.append(Record("robot_arm", "guess", 0, "90/10", device="NVIDIA H200"))
    plan = Plan(select("robot_arm"), ["guess"])
    assert [r.device_kind for r in run_all(plan, results)] == ["cpu"]
    assert sorted(r.device_kind for r in Results(results.path)) == ["cpu", "cuda"]


def test_a_method_that_cannot_use_a_gpu_is_recorded_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Guess, "cpu_only", True)
    plan = Plan(select("robot_arm"), ["guess"], device="cuda")
    [blank] = plan.runs_on(plan.data[0])
    record = run_one(observations(), blank, plan.device)
    assert record.status == "ok"
    assert (record.device_kind, record.peak_memory) == ("cpu", None)
    assert "CPU" in (record.device or "")
    assert record.key == blank.key


def test_results_that_cannot_be_written_are_found_before_any_work(tmp_path: Path) -> None:
    results = Results(tmp_path / "folder" / "runs.jsonl")
    (tmp_path / "folder").touch()  # a file in its way
    with pytest.raises(InvalidInputError, match="cannot write"):
        list(run_all(Plan(select("robot_arm"), ["guess"]), results))
    assert not given


# What the methods are given.


@pytest.mark.parametrize(("split", "sizes"), [("90/10", (180, 20)), ("4/9", (88, 88))])
def test_a_method_sees_the_training_rows_and_no_others(split: str, sizes: tuple[int, int]) -> None:
    data = observations()
    record = run_one(data, Record("noise", "guess", 3, split), "cpu")
    assert (record.rows, record.test_rows) == sizes
    train, test = runner.SPLITS[split](200, 3)
    assert not set(train) & set(test)
    (X, y), (X_test, _) = given
    mean, std = data.X[train].mean(0), data.X[train].std(0)
    np.testing.assert_allclose(X, (data.X[train] - mean) / std, atol=1e-12)
    np.testing.assert_allclose(X_test, (data.X[test] - mean) / std, atol=1e-12)
    np.testing.assert_allclose(y, (data.y[train] - data.y[train].mean()) / data.y[train].std())
    np.testing.assert_allclose([*X.mean(0), y.mean()], 0, atol=1e-12)
    np.testing.assert_allclose([*X.std(0), y.std()], 1)
    assert abs(X_test.mean(0)).max() > 1e-3  # the test rows had no part in it


def test_the_test_target_has_no_part_in_the_scaling() -> None:
    data = observations()
    test = split_indices(200, 0)[1]
    far = data.y.copy()
    far[test] += 1000
    one_run, other = (
        run_one(Observations(data.X, y, "noise"), Record("noise", "guess", 0, "90/10"), "cpu")
        for y in (data.y, far)
    )
    np.testing.assert_array_equal(given[0][1], given[2][1])
    assert one_run.rmse is not None
    assert other.rmse is not None
    assert other.rmse > 50 * one_run.rmse


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("softki_paper", "stabilised"),
        ("softki_mll", "exact"),
        ("softki_hutchinson", "hutchinson"),
    ],
)
def test_each_variant_of_softki_has_its_objective(name: str, objective: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    method: Any = make(name, points=8, epochs=1, batch_size=30)
    method.fit(X, np.sin(X[:, 0]))
    assert method.result.settings.objective == objective
    assert method.result.report.objective == objective


@pytest.mark.parametrize("name", ["softki", "softki_paper", "softki_hutchinson"])
def test_an_interrupted_fit_is_no_result(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(trainer: Trainer, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "step", step)
    results = folder / "runs.jsonl"
    command = ["run", "--data", "pol", "--methods", name, "--set", "points=8"]
    assert main([*command, "--device", "cpu", "--results", str(results)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert len(Results(results)) == 0


# The commands.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that has pol, or what looks like it."""
    monkeypatch.setenv("SOFTKI_DATA", str(tmp_path))
    (tmp_path / "uci").mkdir()
    rng = np.random.default_rng(0)
    values = rng.standard_normal((100, 27))
    np.savetxt(tmp_path / "uci" / "pol.csv.gz", values, delimiter=",")
    return tmp_path


def test_the_commands_from_run_to_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = str(folder / "runs.jsonl")
    command = ["run", "--data", "pol,bike,aspirin", "--methods", " guess, guess"]
    command += ["--results", results, "--device", "cpu", "--seeds", "2"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "bike: no data here (softki bench download bike)" in printed
    assert "aspirin: no data here (https://figshare" in printed
    assert printed.count("RMSE") == 2
    assert main(command) == 0
    assert f"all 2 runs are in {results} (--force runs them again)" in capsys.readouterr().out
    lines = [json.loads(line) for line in Path(results).read_text().splitlines()]
    assert [(line["data"], line["seed"]) for line in lines] == [("pol", 0), ("pol", 1)]
    assert main(["table", "summary", "--results", results, "--text"]) == 0
    assert "pol" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "houseelectric" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["list", "table", "figure"])
def test_the_folder_says_what_data_is_here(
    command: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, here, elsewhere = tmp_path / "runs.jsonl", folder, tmp_path / "elsewhere"
    facts = {"lengthscale": [1.0]}
    Results(results).append(Record("bike", "svgp", 0, "90/10", rmse=0.1, facts=facts))
    said = []
    for place in (here, elsewhere):
        options = ["--folder", str(place)]
        if command == "figure":
            options += ["lengthscales", "--results", str(results), "-o", str(tmp_path)]
        elif command == "table":
            options += ["uci-rmse", "--results", str(results), "--text"]
        assert main([command, *options]) == 0
        printed = capsys.readouterr().out
        if command == "figure":
            figure = json.loads((tmp_path / "lengthscales.json").read_text())
            assert "data_folder" not in figure["settings"]
            said.append(figure["data"]["absent"]["pol"])
        else:
            [line] = [line for line in printed.splitlines() if line.strip().startswith("pol ")]
            said.append("no data here" if "no data here" in line else "not run")
    assert said == ["not run", "no data here"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run", "--data", "poll"], "did you mean 'pol'"),
        (["run", "--data", "pol", "--methods", "svpg"], "did you mean 'svgp'"),
        (["run", "--data", "pol", "--set", "step=5"], "did you mean 'steps'"),
        (["run", "--data", "pol", "--methods", "softki", "--set", "epochs=5"], "'epochs'"),
        (["run", "--data", "pol", "--set", "steps=many"], "steps must be a whole number"),
        (["run", "--data", "pol", "--set", "steps=2.5"], "steps must be a whole number"),
        (["run", "--data", "pol", "--set", "held_out=NaN"], "held_out must be a number"),
        (["run", "--data", "pol", "--set", "solver=3"], "unknown solver 3"),
        (["table", "uci-rmse", "--results", "none.jsonl"], "no results file none.jsonl"),
        (["figure", "lengthscales", "--results", "none.jsonl"], "no results file none.jsonl"),
        (["table", "uci-rsme"], "did you mean 'uci-rmse'"),
        (["figure", "rickr"], "did you mean 'ricker'"),
        (["download", "poll"], "did you mean 'pol'"),
    ],
)
def test_mistakes_are_named(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if command[0] == "figure":
        command = [*command, "-o", str(tmp_path)]
    assert main(command) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--seeds", "0"), ("--seeds", "1.5"), ("--seeds", "-1"), ("--limit", "0"), ("--set", "epochs")]
    + [("--limit", value) for value in ("nan", "inf", "soon", "-3")],
)
def test_values_that_cannot_be_are_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--data", "pol", f"{option}={value}"])
    assert f"argument {option}: must be " in capsys.readouterr().err


def test_a_setting_goes_to_the_methods_that_have_it() -> None:
    plan = Plan(select("pol"), ["guess", "extra_trees"], settings={"epochs": 3, "trees": None})
    assert plan.settings_of("guess") == {"epochs": 3}
    assert plan.settings_of("extra_trees") == {"trees": None}


def test_data_that_cannot_be_read_does_not_stop_the_rest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "uci" / "bike.csv.gz").write_bytes(b"no table")
    results = str(folder / "runs.jsonl")
    command = ["run", "--data", "bike,pol", "--methods", "guess", "--device", "cpu"]
    assert main([*command, "--results", results]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("bike: cannot read")
    assert printed.out.count("RMSE") == 1
    assert main([*command, "--results", results]) == 1
    assert "all" not in capsys.readouterr().out


def test_a_download_that_fails_does_not_stop_the_rest(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetch(dataset: DataSet, *_: Any) -> Path:
        asked.append(dataset.name)
        raise DownloadError("cannot reach it")

    monkeypatch.setattr(commands, "fetch", fetch)
    assert main(["download", "bike,pol,song"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "bike: cannot reach it\nsong: cannot reach it\n"
    assert printed.out == "pol: already there\n"
    results = str(folder / "runs.jsonl")
    command = ["run", "--data", "bike,pol", "--methods", "guess", "--device", "cpu"]
    assert main([*command, "--results", results, "--download"]) == 1
    assert asked == ["bike", "song", "bike"]
    assert len(Results(results)) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_a_download_shows_how_far_it_is_in_a_terminal(
    folder: Path,
    terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(dataset: DataSet, folder: Path | None, progress: Any) -> Path:
        if progress is not None:
            progress(512, 1024)
            progress(1024, 1024)
        return Path("bike.csv.gz")

    monkeypatch.setattr(commands, "fetch", fetch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert main(["download", "bike"]) == 0
    assert ("100%" in capsys.readouterr().err) == terminal


def test_the_runner_needs_neither_pyarrow_nor_typer() -> None:
    code = (
        "import sys\n"
        "for name in ('pyarrow', 'typer', 'rich', 'pandas', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "from softki.bench.commands import main\n"
        "sys.exit(main(['list']))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_peak_memory_counts_what_was_freed_too() -> None:
    peak = PeakMemory(torch.device("cpu"))
    if peak.bytes() is None:
        pytest.skip("the system does not tell")
    torch.ones(1 << 25)
    assert (peak.bytes() or 0) > 100 << 20
