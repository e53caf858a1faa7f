from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from softki.bench.cells import METRICS
from softki.bench.datasets import load
from softki.bench.markdown import Cell, Table
from softki.bench.paper import PaperValue, paper_value
from softki.bench.record import Record
from softki.bench.results import Results
from softki.bench.tables import MD22, TABLES, UCI, make_table, paired
from softki.data import split_indices
from softki.exceptions import InvalidInputError, SoftKIWarning

VERSIONS = {"softki": "0.1.0", "torch": "2.11.0"}


def record(data: str = "pol", method: str = "softki", seed: int = 0, **fields: Any) -> Record:
    split = fields.pop("split", "90/10")
    known = {"rows": 13_500, "columns": 26, "device": "NVIDIA H200", "versions": VERSIONS}
    return Record(data, method, seed, split, **{**known, **fields})


def runs(data: str, method: str, values: Iterable[float], **fields: Any) -> list[Record]:
    """One run a seed, with the value as RMSE, NLL and all the rest."""
    return [
        record(data, method, seed, **{**dict.fromkeys(METRICS, value), **fields})
        for seed, value in enumerate(values)
    ]


def cell(table: Table, data: str, column: str, method: str | None = None) -> Cell:
    """The cell of a data set (and of a method, where each has a row) in a column."""
    [row] = [
        row
        for row in table.rows
        if row[0].value == data and (method is None or row[3].value == method)
    ]
    return row[table.header.index(column)]


# Records and the file of results.


def test_a_record_survives_its_line() -> None:
    first = record(settings={"epochs": 5}, rmse=0.1, facts={"lengthscale": [1.0, 2.0]})
    assert Record.from_json(first.to_json()) == first
    assert "\n" not in first.to_json()


def test_what_is_not_finite_or_not_of_json_becomes_plain() -> None:
    facts = {
        "lengthscale": np.array([1.0, np.inf]),
        "noise": torch.tensor(2.0),
        "pair": (1, float("nan")),
    }
    made = record(seed=np.int64(3), rmse=math.nan, nll=-math.inf, facts=facts)
    assert made.rmse is None
    assert made.nll is None
    read = json.loads(made.to_json(), parse_constant=pytest.fail)
    assert read["seed"] == 3
    assert read["facts"] == {"lengthscale": [1.0, None], "noise": 2.0, "pair": [1, None]}
    assert Record.from_json('{"data": "a", "method": "b", "seed": 0, "split": "", "rmse": NaN}')


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rmse": "0.1"}, "rmse must be a number, got '0.1'"),
        ({"seed": 0.5}, "seed must be a whole number, got 0.5"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"rows": [1]}, "rows must be a whole number"),
        ({"data": 3}, "data must be text"),
        ({"device": 0}, "device must be text"),
        ({"settings": "epochs=5"}, "settings must be an object"),
        ({"facts": []}, "facts must be an object"),
        ({"versions": {"torch": 2.11}}, "the version of torch must be text, got 2.11"),
    ],
)
def test_a_field_of_another_kind_is_named(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    line = json.dumps({**json.loads(record(rmse=0.1).to_json()), **changes})
    path = tmp_path / "results.jsonl"
    path.write_text(record().to_json() + "\n" + line + "\n")
    with pytest.raises(InvalidInputError, match=f"line 2 of .* cannot be used.*{message}"):
        Results(path)


def test_whole_numbers_are_numbers() -> None:
    assert Record.from_json(record(rmse=1, fit_seconds=2).to_json()).rmse == 1


def test_unknown_fields_are_left_out_and_missing_ones_named() -> None:
    line = json.dumps({**json.loads(record().to_json()), "weather": "fine", "settings": None})
    assert Record.from_json(line) == record()
    with pytest.raises(InvalidInputError, match="it lacks seed, split"):
        Record.from_json('{"data": "pol", "method": "svgp"}')
    with pytest.raises(InvalidInputError, match="an object is needed"):
        Record.from_json("[1]")
    with pytest.raises(InvalidInputError, match="did you mean 'failed'"):
        record(status="fail")


def test_the_key_has_the_settings_whatever_their_order() -> None:
    assert record(settings={"a": 1, "b": (2,)}).key == record(settings={"b": [2], "a": 1}).key
    assert record(settings={"a": 1}).key != record().key
    assert record(rmse=0.1, device="NVIDIA A100").key == record().key
    assert record(device="2 CPU threads").key != record().key
    assert record().replace(seed=1).key == record(seed=1).key


def test_results_come_back_in_order_and_the_later_of_a_key_wins(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "results.jsonl"
    results = Results(path)
    assert not list(results)
    for made in (record(rmse=0.3), record(seed=1), record(rmse=0.2)):
        results.append(made)
    for those in (results, Results(path)):
        assert [(r.seed, r.rmse) for r in those] == [(1, None), (0, 0.2)]
        assert len(those) == 2
        assert those.done(record().key)
        assert not those.done(record(seed=2).key)
    assert len(path.read_text().splitlines()) == 3


LINE = record(seed=1).to_json().encode()


@pytest.mark.parametrize(
    "torn", [LINE[:1], LINE[: len(LINE) // 2], LINE[:-1], '{"data": "é'.encode()[:-1], b"\0\0\0"]
)
def test_a_torn_last_line_is_passed_over_and_mended(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).append(record())
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with pytest.warns(SoftKIWarning, match="cut short"):
        results = Results(path)
    assert [r.seed for r in results] == [0]
    results.append(record(seed=2))
    assert path.read_bytes() == whole + record(seed=2).to_json().encode() + b"\n"
    assert [r.seed for r in Results(path)] == [0, 2]


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(record().to_json() + "\n\n" + record(seed=1).to_json())
    results = Results(path)
    results.append(record(seed=2))
    assert [r.seed for r in Results(path)] == [0, 1, 2]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(record().to_json() + "\n{}\n" + record(seed=1).to_json() + "\n")
    with pytest.raises(InvalidInputError, match=r"line 2 of .*results\.jsonl cannot be used"):
        Results(path)
    with pytest.raises(InvalidInputError, match="cannot read"):
        Results(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=r"cannot (read|write)"):
        Results(tmp_path / "file" / "results.jsonl").append(record())


# The paper.


def test_numbers_of_the_paper() -> None:
    assert paper_value("uci", "kin40k", "svgp", "nll") == PaperValue(-0.082, 0.007)
    assert paper_value("md22", "dw-nanotube", "exact", "seconds_per_epoch") == (298.096, 1.27, "")
    assert paper_value("sgpr_qr", "slice", "sgpr_qr", "rmse") == (0.513, 0.001, "")
    assert paper_value("ski", "elevators", "simplex", "nll") == (1.6, 0.02, "")
    assert paper_value("uci", "buzz", "sgpr", "rmse") == (None, None, "out of memory")
    assert str(paper_value("uci", "keggdirected", "exact", "nll")) == "unstable"
    assert str(paper_value("objective", "bike", "softki_mll", "rmse")) == "unstable"
    assert str(paper_value("ricker", "ricker", "ski", "rmse")) == "0.006"
    assert str(paper_value("uci", "slice", "sgpr", "rmse")) == "0.520 ± 0.001"
    assert paper_value("uci", "pol", "vnngp", "rmse") is None


def test_every_cell_of_the_papers_main_tables_is_there() -> None:
    for table, names in (("uci", UCI), ("md22", MD22)):
        for data in names:
            for method in ("exact", "softki", "sgpr", "svgp"):
                for metric in ("rmse", "nll", "seconds_per_epoch"):
                    value = paper_value(table, data, method, metric)
                    assert value is not None
                    assert (value.mean is None) == bool(value.note)


# Tables.


PAIRED = ("paired-rmse", "paired-nll")


@pytest.mark.parametrize("name", [name for name in TABLES if name not in PAIRED])
def test_every_table_from_a_file(name: str, tmp_path: Path) -> None:
    spec = TABLES[name]
    results = Results(tmp_path / "results.jsonl")
    methods = [m for m in spec.methods or ("softki", "svgp") if m != "simplex"]
    for i, method in enumerate(methods):
        values = (0.25 + i, 0.5 + i)
        for made in runs(spec.data[-1], method, values, split=spec.split, peak_memory=10**9):
            results.append(made)
    table = make_table(name, Results(tmp_path / "results.jsonl"))
    assert {row[0].value for row in table.rows} == set(spec.data)
    last = [row for row in table.rows if row[0].value == spec.data[-1]]
    assert "0.375 ± 0.177" in [c.value for row in last for c in row]
    for row in table.rows[: len(spec.data) - 1]:  # the other data sets are said to lack runs
        assert {c.value for c in row[4:]} <= {"not run", "", "–"}
        assert any(c.value == "not run" for c in row)
    for shown in (table.text(), table.markdown()):
        for word in ("over 2 seeds", "Device: NVIDIA H200.", "softki 0.1.0, torch 2.11.0."):
            assert word in shown
    lines = table.markdown().splitlines()
    body = [line for line in lines if line.startswith("|")]
    assert len(body) == len(table.rows) + 2
    assert len({len(line) for line in body}) == 1  # the source is aligned
    assert {line.count("|") for line in body} == {len(table.header) + 1}


@pytest.mark.parametrize("name", [name for name in TABLES if name not in PAIRED])
def test_without_runs_all_data_sets_still_have_a_row(name: str) -> None:
    table = make_table(name, [], missing=[TABLES[name].data[0]])
    assert [row[0].value for row in table.rows] == list(TABLES[name].data)
    for row in table.rows:
        said = "no data here" if row[0].value == TABLES[name].data[0] else "not run"
        assert any(c.value == said for c in row)
    assert "No runs here" in table.text()


def test_the_registry_knows_the_data_sets() -> None:
    from softki.bench.registry import REGISTRY

    for spec in TABLES.values():
        assert set(spec.data) <= set(REGISTRY)


def test_a_cell_has_mean_and_deviation_over_seeds_and_the_paper() -> None:
    table = make_table("uci-rmse", runs("pol", "softki", (0.06, 0.063, 0.066)))
    assert cell(table, "pol", "softki") == Cell("0.063 ± 0.003", "0.075 ± 0.002")
    assert cell(table, "pol", "n").value == "13,500"
    assert cell(table, "pol", "d").value == "26"
    assert cell(table, "pol", "svgp") == Cell("not run", "0.122 ± 0.002")
    assert cell(table, "song", "exact") == Cell("not run", "out of memory")
    assert cell(table, "song", "n").value == "270,000"  # as the registry has it
    assert "0.063 ± 0.003 (0.075 ± 0.002)" in table.text()


@pytest.mark.parametrize(
    ("name", "data", "n", "d"),
    [
        ("small-rmse", "energy", "691", "8"),
        ("molecules-rmse", "c10/inverse", "2,277", "496"),
        ("md22-rmse", "dw-nanotube/inverse", "4,528", "68,265"),
        ("md22-nll", "at-at", "18,000", "180"),
        ("summary", "large_d", "9,000", "1,000"),
        ("ski", "protein", "20,324", "9"),
    ],
)
def test_sizes_of_what_was_not_run_are_those_of_the_registry(
    name: str, data: str, n: str, d: str
) -> None:
    table = make_table(name, [])
    assert (cell(table, data, "n").value, cell(table, data, "d").value) == (n, d)
    assert not any(c.value == "–" for row in table.rows for c in row[1:3])


def test_sizes_that_nobody_knows_are_left_open() -> None:
    table = make_table("summary", [record("my_data", rows=None), record("pol", split="1/2")])
    assert cell(table, "my_data", "n").value == "–"
    assert cell(table, "pol (1/2)", "n").value == "13,500"  # of the run
    table = make_table("summary", [record("pol", split="1/2", rows=None)])
    assert cell(table, "pol (1/2)", "d").value == "–"


def test_one_seed_has_no_deviation_and_small_errors_keep_two_digits() -> None:
    table = make_table("uci-rmse", runs("bike", "softki", [0.00312]))
    assert cell(table, "bike", "softki").value == "0.0031"
    assert "One seed;" in table.text()


def test_fewer_seeds_than_the_most_are_said() -> None:
    results = runs("pol", "softki", (0.1, 0.2, 0.3)) + runs("pol", "svgp", (0.1, 0.3))
    table = make_table("uci-rmse", [*results, *runs("bike", "sgpr", [0.5])])
    assert cell(table, "pol", "softki").value == "0.200 ± 0.100"
    assert cell(table, "pol", "svgp").value == "0.200 ± 0.141, 2 seeds"
    assert cell(table, "bike", "sgpr").value == "0.500, 1 seed"


def test_the_best_approximate_method_is_marked_and_never_the_exact_one() -> None:
    results = [
        *runs("pol", "exact", [0.01]),
        *runs("pol", "softki", [0.06]),
        *runs("pol", "svgp", [0.08]),
        *runs("pol", "softki_paper", [0.07]),
    ]
    table = make_table("uci-rmse", results)
    assert [c.best for c in table.rows[UCI.index("pol")][3:]] == [False, True, False, False, False]
    assert "**0.060** (0.075 ± 0.002)" in table.markdown()
    assert "0.060* (0.075 ± 0.002)" in table.text()
    assert "Bold: the best" in table.markdown()
    assert "*: the best" in table.text()
    # The paper's own number goes with both ways to run its method.
    assert cell(table, "pol", "softki_paper") == Cell("0.070", "0.075 ± 0.002")


def test_ties_as_written_are_all_marked() -> None:
    results = [
        *runs("pol", "softki", [0.0631]),
        *runs("pol", "svgp", [0.0634]),
        *runs("pol", "sgpr", [0.0636]),
    ]
    table = make_table("uci-rmse", results)
    assert [cell(table, "pol", m).best for m in ("softki", "svgp", "sgpr")] == [True, True, False]


def test_where_there_is_nothing_to_compare_nothing_is_marked() -> None:
    table = make_table("uci-rmse", runs("pol", "softki", [0.1]) + runs("pol", "exact", [0.2]))
    assert not any(c.best for row in table.rows for c in row)
    assert "Bold" not in table.markdown()


def test_the_best_coverage_is_the_closest_to_its_level() -> None:
    results = [
        *runs("pol", "softki", [0.94]),
        *runs("pol", "svgp", [0.99]),
        *runs("pol", "sgpr", [0.96]),
    ]
    table = make_table("uci-coverage", results)
    assert [cell(table, "pol", m).best for m in ("softki", "svgp", "sgpr")] == [True, False, True]


def test_runs_without_figures_say_why() -> None:
    reason = "NotPSDError: the matrix is not positive definite\nafter a jitter of 1e-6 | 1e-4"
    results = [
        record("pol", "sgpr", status="failed", error=reason),
        record("pol", "exact", status="out of memory", error="CUDA out of memory, 3 GiB"),
        record("pol", "ski", status="refused", error="ski takes at most 4 columns"),
        record("pol", "svgp", rmse=math.nan),
        record("pol", "vnngp", status="failed"),
    ]
    table = make_table("uci-rmse", results)
    failed = cell(table, "pol", "sgpr")
    assert failed.value == "failed: NotPSDError: the matrix is not positive…"
    assert failed.notes == ("failed: " + reason.replace("\n", " "),)
    assert cell(table, "pol", "exact") == Cell("out of memory", "0.035 ± 0.001")
    assert cell(table, "pol", "ski").value == "refused: ski takes at most 4 columns"
    assert cell(table, "pol", "svgp").value == "not finite"
    assert cell(table, "pol", "vnngp").value == "failed"
    assert r"1e-6 \| 1e-4" in table.markdown()  # does not end a cell
    assert "No run has figures" in make_table("uci-rmse", results[:3]).text()
    # A method may have no epochs: that is no failure.
    seconds = make_table("uci-seconds", [record("pol", "svgp", rmse=0.1), results[1]])
    assert cell(seconds, "pol", "svgp").value == "–"
    assert cell(seconds, "pol", "exact").value == "out of memory"


def test_a_seed_that_failed_among_others_is_a_footnote() -> None:
    results = runs("pol", "softki", (0.1, 0.3))
    results.append(record(seed=2, status="out of memory"))
    results.append(record(seed=3, rmse=math.inf))
    found = cell(make_table("uci-rmse", results), "pol", "softki")
    assert found.value.startswith("0.200")
    assert found.notes == ("seed 2: out of memory", "seed 3: not finite")


def test_settings_are_footnotes_which_cells_share() -> None:
    results = [
        *runs("pol", "svgp", [0.2], settings={"epochs": 5}),
        *runs("bike", "svgp", [0.2], settings={"epochs": 5}),
        *runs("bike", "softki", [0.2], settings={"n_points": 64, "solver": "cg"}),
    ]
    text = make_table("uci-rmse", results).text()
    assert text.count("¹") == 2  # at the cell and below; bike is above pol
    assert text.count("²") == 3  # at both cells and below
    assert "\n¹ n_points=64, solver=cg\n² epochs=5\n" in text


def test_settings_of_a_table_of_seconds_stand_below_it() -> None:
    few = {"epochs": 3, "least_steps": 1}
    results = [
        *runs("pol", "svgp", [0.2], settings=few),
        *runs("bike", "svgp", [0.3], settings=few),
        *runs("pol", "exact", [0.4], settings={"epochs": 3}),
        *runs("bike", "exact", [0.5], settings={"epochs": 1}),
        *runs("pol", "softki", [0.1]),
    ]
    table = make_table("uci-seconds", results)
    assert cell(table, "pol", "svgp").value == "0.200"
    assert not any(c.notes for row in table.rows for c in row)
    assert (
        "Settings: svgp with epochs=3, least_steps=1; exact with epochs=1 or with epochs=3."
        in table.remarks
    )
    assert "Settings" not in make_table("uci-seconds", runs("pol", "svgp", [0.2])).text()
    assert cell(make_table("uci-rmse", results), "pol", "exact").notes == ("epochs=3",)


def test_default_settings_are_shown_before_others_if_they_have_figures() -> None:
    short = runs("pol", "svgp", (0.4, 0.4, 0.4), settings={"epochs": 5})
    found = cell(make_table("uci-rmse", short + runs("pol", "svgp", [0.2])), "pol", "svgp")
    assert found.value == "0.200, 1 seed"
    assert found.notes == ("run with epochs=5, too, which is not shown",)
    failed = [record("pol", "svgp", status="out of memory")]
    found = cell(make_table("uci-rmse", failed + short), "pol", "svgp")
    assert found.value == "0.400 ± 0.000"
    assert found.notes == ("epochs=5", "run with the default settings, too, which is not shown")


def test_another_device_or_version_is_said() -> None:
    results = runs("pol", "softki", (0.1, 0.2))
    results += runs("pol", "svgp", [0.3], device="2 CPU threads", versions={"torch": "2.4.0"})
    table = make_table("uci-seconds", results)
    assert cell(table, "pol", "svgp").notes == ("on 2 CPU threads",)
    assert cell(table, "pol", "softki").notes == ()
    assert "Devices: NVIDIA H200, 2 CPU threads." in table.text()
    assert "torch 2.11.0 and 2.4.0" in table.text()


def test_splits_are_not_mixed() -> None:
    results = runs("protein", "softki", [0.6]) + runs("protein", "softki", [0.7], split="4/9")
    assert cell(make_table("uci-rmse", results), "protein", "softki").value == "0.600"
    table = make_table("ski", results)
    assert cell(table, "protein", "softki RMSE") == Cell("0.700", "0.652 ± 0.012")
    assert cell(table, "protein", "simplex RMSE") == Cell("", "0.571 ± 0.003")
    assert cell(table, "houseelectric", "skip NLL") == Cell("not run", "out of memory")
    assert cell(table, "elevators", "n").value == "7,377"  # ⌊4/9 of 16,599⌋
    summary = make_table("summary", results)
    assert cell(summary, "protein (4/9)", "RMSE").value == "0.700"
    assert cell(summary, "protein", "RMSE").value == "0.600"


def test_variants_of_a_data_set_follow_it() -> None:
    results = runs("aspirin/inverse", "softki", [0.1], columns=210)
    table = make_table("molecules-rmse", results)
    assert [row[0].value for row in table.rows[:3]] == ["aspirin", "aspirin/inverse", "azobenzene"]
    assert cell(table, "aspirin/inverse", "d").value == "210"
    seconds = make_table("md22-seconds", runs("dha/inverse", "softki", [0.1]))
    assert [row[0].value for row in seconds.rows[1:4]] == ["dha", "dha/inverse", "stachyose"]


def test_remarks_say_what_the_numbers_are() -> None:
    assert (
        "exact, sgpr, ski and skip is one step on all rows" in make_table("uci-seconds", []).text()
    )
    assert "may have shared the machine" in make_table("summary", []).text()
    ricker = make_table("ricker", []).text()
    found = re.search(r"Times ([\d.]+), the wavelet's standard deviation", ricker)
    assert found
    y = load("ricker").y
    for seed in range(3):
        assert y[split_indices(len(y), seed)[0]].std() == pytest.approx(float(found[1]), rel=0.03)


def test_both_objectives_have_both_figures_and_each_its_best() -> None:
    results = [
        *runs("pol", "softki_mll", [0.1], nll=2.0),
        *runs("pol", "softki_hutchinson", [0.2], nll=-1.0),
    ]
    table = make_table("objectives", results)
    assert cell(table, "pol", "softki_mll RMSE") == Cell("0.100", "0.075 ± 0.002", best=True)
    assert cell(table, "pol", "softki_hutchinson NLL") == Cell("-1.000", "-0.783 ± 0.033", True)
    assert not cell(table, "pol", "softki_mll NLL").best


def test_the_summary_has_all_methods_on_all_data() -> None:
    results = [
        *runs("pol", "softki", (0.1, 0.2), fit_seconds=12.34, peak_memory=2.5e9),
        *runs("pol", "my_method", [0.3], peak_memory=math.nan),
        *runs("my_data", "svgp", [0.4], fit_seconds=1234.5),
        record("bike", "svgp", status="out of memory"),
    ]
    table = make_table("summary", results)
    assert cell(table, "pol", "RMSE", "softki") == Cell("0.150 ± 0.071", best=True)
    assert cell(table, "pol", "fit, seconds", "softki").value == "12.3"
    assert cell(table, "pol", "memory, GB", "softki").value == "2.50"
    assert cell(table, "pol", "memory, GB", "my_method").value == "–"
    assert cell(table, "pol", "RMSE", "svgp").value == "not run"
    assert cell(table, "my_data", "fit, seconds", "svgp").value == "1234"
    assert cell(table, "my_data", "RMSE", "my_method, softki").value == "not run"
    assert cell(table, "bike", "RMSE", "svgp").value == "out of memory"
    assert cell(table, "bike", "fit, seconds", "svgp").value == "–"
    assert cell(table, "song", "RMSE", "all").value == "not run"


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'uci-rmse'"):
        make_table("uci-rsme", [])


# Paired differences.


def test_paired_differences_are_on_the_same_seeds() -> None:
    results = [
        *runs("pol", "softki", (0.1, 0.2, 0.3)),
        *runs("pol", "svgp", (0.2, 0.4, 0.6, 9.0)),
        *runs("bike", "softki", [0.5]),
        *runs("bike", "svgp", [0.25]),
        *runs("song", "softki", [0.5]),  # nothing to compare with
        record("pol", "svgp", seed=4, status="failed", rmse=0.1),
        record("pol", "softki", seed=4, rmse=0.1),
    ]
    pol, bike = paired(results, "rmse", "softki", "svgp")
    assert (pol.data, pol.seeds) == ("pol", 3)
    assert pol.mean == pytest.approx(-0.2)
    assert pol.std_error == pytest.approx(0.1 / math.sqrt(3))
    assert tuple(bike) == ("bike", 0.25, None, 1)
    assert paired(results, "rmse", "softki", "svgp", split="4/9") == []
    with pytest.raises(InvalidInputError, match="unknown metric"):
        paired(results, "accuracy", "softki", "svgp")


def test_a_table_of_paired_differences() -> None:
    results = [
        *runs("pol", "exact", (0.05, 0.07, 0.06)),
        *runs("pol", "softki", (0.06, 0.09, 0.09, 5.0)),
        *runs("pol", "extra_trees", [0.04]),
        *runs("bike", "exact", [0.003], settings={"epochs": 5}),
        *runs("bike", "svgp", [0.00301], settings={"epochs": 3}),
        *runs("protein", "exact", (0.5, 0.6), split="4/9"),
        *runs("protein", "sgpr", (0.5, 0.6), split="4/9"),
        *runs("protein", "sgpr", (0.5, 0.6)),  # of another split
        *runs("song", "softki", [0.8]),  # nothing to compare with
        *runs("slice", "exact", [0.1]),
        record("slice", "svgp", status="failed", rmse=0.1),
    ]
    table = make_table("paired-rmse", results)
    # Known data in its order; a method that was not compared has a column if it is a main one.
    assert table.header == ("data", "n", "d", "softki", "sgpr", "svgp", "extra_trees")
    assert [row[0].value for row in table.rows] == ["protein (4/9)", "bike", "pol"]
    assert cell(table, "pol", "softki") == Cell("+0.0200 ± 0.0058", "3")
    assert cell(table, "pol", "extra_trees") == Cell("-0.0100", "1")
    assert cell(table, "pol", "sgpr") == Cell("–")
    assert cell(table, "bike", "svgp") == Cell("+0.000010", "1", notes=("epochs=3",))
    assert cell(table, "bike", "data").notes == ("exact with epochs=5",)
    assert cell(table, "protein (4/9)", "sgpr") == Cell("+0.0000 ± 0.0000", "2")
    text = table.text()
    assert "+0.0200 ± 0.0058 (3)" in text
    for words in ("minus that of exact", "standard error", "in parentheses, how many", "H200"):
        assert words in text
    assert "standard deviation" not in text


def test_paired_tables_have_their_metric_and_may_be_empty() -> None:
    results = [*runs("pol", "exact", [1.0], nll=-1.0), *runs("pol", "softki", [1.5], nll=-0.75)]
    assert cell(make_table("paired-nll", results), "pol", "softki").value == "+0.2500"
    assert cell(make_table("paired-rmse", results), "pol", "softki").value == "+0.5000"
    empty = make_table("paired-nll", runs("pol", "softki", [1.0]), missing=["pol"])
    assert not empty.rows
    assert "No runs here that share a seed with exact." in empty.text()
    assert empty.markdown().count("\n|") == 2
