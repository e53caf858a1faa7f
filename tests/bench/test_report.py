"""The page of results that benchmarks/report.py writes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from softki.bench.record import Record
from softki.bench.results import Results
from softki.bench.tables import TABLES

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "report.py"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, in a folder with some runs and no data."""
    spec = importlib.util.spec_from_file_location("report", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("SOFTKI_DATA", str(tmp_path))
    (tmp_path / "docs").mkdir()
    runs = Results(tmp_path / module.RUNS)
    for method, figure in (("exact", 0.25), ("softki", 0.5)):
        runs.append(
            Record("pol", method, 0, "90/10", rmse=figure, nll=figure, seconds_per_epoch=7.5)
        )
    return module


def sections(page: str) -> dict[str, str]:
    """What stands below every heading."""
    _, *parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def written(report: Any) -> str:
    report.main()
    page: str = (report.ROOT / "docs" / "results.md").read_text()
    return page


def test_every_table_has_a_section_with_its_command(report: Any) -> None:
    page = written(report)
    found = sections(page)
    assert list(found) == list(TABLES)
    for name, body in found.items():
        assert f"softki bench table {name} --results benchmarks/results/bench.jsonl\n" in body
    assert "+0.2500 (1)" in found["paired-rmse"]
    assert "7.50" in found["uci-seconds"]
    assert "no data here" in found["md22-rmse"]
    assert "bench-seconds" not in page


def test_seconds_are_those_of_runs_on_their_own(report: Any) -> None:
    alone = Record("pol", "softki", 0, "90/10", settings={"epochs": 2}, seconds_per_epoch=1.25)
    Results(report.ROOT / report.SECONDS).append(alone)
    page = written(report)
    found = sections(page)
    for name in ("uci-seconds", "md22-seconds"):
        assert f"table {name} --results benchmarks/results/bench-seconds.jsonl\n" in found[name]
    assert "1.25" in found["uci-seconds"]
    assert "7.50" not in found["uci-seconds"]
    assert "Settings: softki with epochs=2." in found["uci-seconds"]
    assert "¹" not in found["uci-seconds"]
    assert "bench-seconds" not in found["summary"]
    for link in re.findall(r"\]\(((?!http)[^)#]+)\)", page):
        if link != "benchmarks.md":
            assert (report.ROOT / "docs" / link).exists(), link


def test_figures_that_were_made_are_shown(report: Any) -> None:
    folder = report.ROOT / report.IMAGES
    folder.mkdir(parents=True)
    (folder / "ricker.png").touch()
    found = sections(written(report))
    assert "![ricker](images/bench/ricker.png)" in found["ricker"]
    assert "solvers" not in found
