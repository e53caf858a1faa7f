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

from softki.bench import runner
from softki.bench.commands import main
from softki.bench.datasets import Table
from softki.bench.memory import PeakMemory
from softki.bench.method import Method
from softki.bench.methods import METHODS
from softki.bench.record import Record
from softki.bench.results import Results
from softki.bench.runner import Plan, run_all, run_one


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
        self.mean, self.std = y.mean(), y.std()
        self.facts = {"epochs": self.settings["epochs"], "training_seconds": 2.0}

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = np.nan if self.settings["how"] == "nan" else self.mean
        return np.full(len(X), mean), np.full(len(X), self.std)


@pytest.fixture(autouse=True)
def guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "guess", Guess)


def table(n: int = 200) -> Table:
    rng = np.random.default_rng(0)
    X = 5 + 3 * rng.standard_normal((n, 3))
    return Table(X, 100 + 10 * rng.standard_normal(n), "noise")


def one(**settings: Any) -> Record:
    return run_one(table(), Record("noise", "guess", 0, "90/10", settings), "cpu", limit=0.5)


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
    monkeypatch.setattr(runner, "load", lambda *_: table())
    results = Results(tmp_path / "runs.jsonl")
    plan = Plan([select_one("robot_arm")], ["guess"], seeds=range(2), settings={"epochs": 2})
    assert [r.seed for r in run_all(plan, results)] == [0, 1]
    assert list(run_all(plan, Results(tmp_path / "runs.jsonl"))) == []
    assert len(list(run_all(plan, results, force=True))) == 2
    longer = Plan([select_one("robot_arm")], ["guess"], settings={"epochs": 3, "unknown": 1})
    assert [r.settings for r in run_all(longer, results)] == [{"epochs": 3}]


def select_one(name: str) -> Any:
    from softki.bench.registry import select

    return select(name)[0]


def test_the_commands_from_run_to_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTKI_DATA", str(tmp_path))
    folder = tmp_path / "uci"
    folder.mkdir()
    rng = np.random.default_rng(0)
    np.savetxt(folder / "pol.csv.gz", rng.standard_normal((100, 27)), delimiter=",")
    results = str(tmp_path / "runs.jsonl")
    command = ["run", "--data", "pol,bike", "--methods", "guess", "--results", results]
    assert main([*command, "--device", "cpu", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    assert "bike: no data here" in printed
    assert printed.count("RMSE") == 2
    lines = [json.loads(line) for line in Path(results).read_text().splitlines()]
    assert [(line["data"], line["seed"]) for line in lines] == [("pol", 0), ("pol", 1)]
    assert main(["table", "summary", "--results", results, "--text"]) == 0
    assert "pol" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "houseelectric" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run", "--data", "poll"], "did you mean 'pol'"),
        (["run", "--data", "pol", "--methods", "svpg"], "did you mean 'svgp'"),
        (["run", "--data", "pol", "--set", "epochs"], "--set wants NAME=VALUE"),
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
