"""The figures of the benchmark: the numbers behind them, the files, and the gaps."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.utils.interpolation import Interpolation

from softki.bench.datasets import Observations
from softki.bench.figures import FIGURES, make_figure, ricker, solvers
from softki.bench.figures._posterior_means import SOLVERS
from softki.bench.figures.interpolation import cubic_weights, lattice_points
from softki.bench.method import Method
from softki.bench.record import Record
from softki.bench.results import Results
from softki.bench.runner import run_one
from softki.exceptions import InvalidInputError, NumericalError, SoftKIError
from softki.solvers import solve
from softki.statistics import Features, SquareRootStatistics

import dense

TINY: dict[str, dict[str, Any]] = {
    "interpolation": {"rows": 40, "points": 6, "lattice": 6, "steps": 2},
    "ricker": {"rows": 100, "points": 8, "lattice": 8, "epochs": 2, "resolution": 8},
    "solvers": {"points": 12, "epochs": 2, "batch_size": 64},
}
TINY["error_surfaces"] = TINY["ricker"]
TINY["temperatures"] = {"sets": "pol,kin40k,bike"}


class Nothing(Method):
    """Predicts the mean of the target, and has no points."""

    name = "nothing"

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        pass

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(X)), np.ones(len(X))


def sines(name: str) -> Observations:
    X = np.random.default_rng(0).normal(size=(200, 3))
    return Observations(X, np.sin(X).sum(1), name)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of two of the three sets of the figure `solvers`."""

    monkeypatch.setattr(solvers, "is_available", lambda name, folder: name != "keggdirected")
    monkeypatch.setattr(solvers, "load", lambda name, folder: sines(name))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    written = Results(path)
    for data in ("kin40k", "pol"):
        for seed in range(2):
            facts = {
                "kernel_lengthscale": [0.5 + seed, 2.0],
                "temperature": [0.3, 0.4 + seed],
                "lengthscale": [0.3 * (0.5 + seed), 2 * (0.4 + seed)],
            }
            written.append(Record(data, "softki", seed, "90/10", facts=facts))
            written.append(Record(data, "svgp", seed, "90/10", facts={"lengthscale": [1.0, 30.0]}))
    return path


def axes_of(figure: Any) -> dict[str, Any]:
    """The panels that have a title, by its first line."""
    return {ax.get_title().split("\n")[0]: ax for ax in figure.axes if ax.get_title()}


def words_in(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


@pytest.mark.parametrize("name", FIGURES)
def test_data_and_picture_are_written_and_drawn_again(
    name: str, tmp_path: Path, results: Path, tables: None
) -> None:
    paths = make_figure(name, tmp_path / "new", results=results, **TINY.get(name, {}))
    assert paths == [tmp_path / "new" / f"{name}.json", tmp_path / "new" / f"{name}.png"]
    again = make_figure(name, tmp_path / "again", data=paths[0])
    assert json.loads(again[0].read_text())["data"] == json.loads(paths[0].read_text())["data"]
    assert png_size(again[1]) == png_size(paths[1])
    assert {path.name for path in (tmp_path / "new").iterdir()} == {path.name for path in paths}


@pytest.mark.parametrize("name", ["interpolation", "ricker", "solvers"])
def test_a_seed_gives_the_same_data_again(name: str, tables: None) -> None:
    first, second = (FIGURES[name].compute(seed=1, **TINY[name]) for _ in range(2))
    assert first == second


def test_one_figure_is_drawn_from_the_data_of_another_with_the_same(tmp_path: Path) -> None:
    fitted = {"mean": np.eye(4).tolist(), "rmse": 0.1, "points": None}
    content = {"axis": [0.0, 1.0, 2.0, 3.0], "truth": np.zeros((4, 4)).tolist()}
    data = {"figure": "ricker", "data": {**content, "methods": {"ski": fitted}}}
    (tmp_path / "ricker.json").write_text(json.dumps(data))
    make_figure("error_surfaces", tmp_path, data=tmp_path / "ricker.json")
    with pytest.raises(InvalidInputError, match="not the data of the figure solvers but of ricker"):
        make_figure("solvers", tmp_path, data=tmp_path / "ricker.json")


@pytest.mark.parametrize("content", [None, "no JSON", "[1]", '{"figure": "ricker"}'])
def test_what_is_not_the_data_of_a_figure_is_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"data\.json"):
        make_figure("ricker", tmp_path, data=path)


def test_a_mistaken_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'ricker'"):
        make_figure("rickert", tmp_path)
    with pytest.raises(InvalidInputError, match="did you mean 'epochs'"):
        make_figure("ricker", tmp_path, epoch=3)
    with pytest.raises(InvalidInputError, match="is made of a results file"):
        make_figure("temperatures", tmp_path)


def test_where_nothing_can_be_drawn_the_data_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(SoftKIError, match=r"softki\[plot\]"):
            make_figure("interpolation", tmp_path, **TINY["interpolation"])
    (path,) = tmp_path.iterdir()
    assert make_figure("interpolation", tmp_path, data=path)[0] == path


def test_cubic_weights_are_those_of_ski() -> None:
    axes = [np.linspace(-2, 2, 9), np.linspace(0, 3, 10)]
    x = np.random.default_rng(0).uniform([-1.4, 0.4], [1.4, 2.6], (20, 2))
    weights = cubic_weights(x, axes)
    assert ((np.abs(weights) > 1e-12).sum(1) <= 16).all()
    np.testing.assert_allclose(weights.sum(1), 1)
    grid = lattice_points(axes)
    for function in (lambda p: p[:, 0] * p[:, 1], lambda p: p[:, 0] ** 2 - p[:, 1] ** 2):
        np.testing.assert_allclose(weights @ function(grid), function(x), atol=1e-12)
    index, values = Interpolation().interpolate([torch.tensor(a) for a in axes], torch.tensor(x))
    expected = np.zeros_like(weights)
    np.put_along_axis(expected, index.numpy(), values.numpy(), 1)
    np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_interpolation_weights_of_both_kinds_sum_to_one() -> None:
    data = FIGURES["interpolation"].compute(**TINY["interpolation"])
    for kind in ("lattice", "soft"):
        weights = np.array(data[kind]["weights"])
        assert weights.shape == (len(data["shown"]), len(data[kind]["points"]))
        np.testing.assert_allclose(weights.sum(1), 1)
    assert (np.array(data["soft"]["weights"]) > 0).all()


def test_softki_learns_the_wavelet_on_points_inside_the_plane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ricker, "make", lambda name, device, seed, **settings: Nothing())
    data = ricker.compute(rows=500, points=64, epochs=60, resolution=20)
    fitted, error = data["methods"]["softki"], ricker.absolute_errors(data)["softki"]
    assert fitted["rmse"] < 0.02
    assert np.sqrt(np.mean(error**2)) < 0.03
    assert np.array(fitted["points"]).shape == (64, 2)
    assert np.abs(np.median(fitted["points"], axis=0)).max() < 2
    assert data["methods"]["ski"]["rmse"] > 5 * fitted["rmse"]
    assert data["methods"]["ski"]["points"] is None


@pytest.mark.parametrize("points", [None, [[0.0, 0.0], [1.0, 1.0], [0.5, 0.2]]])
def test_points_are_drawn_where_a_method_has_them(
    points: list[list[float]] | None,
) -> None:
    fitted = {"mean": np.eye(4).tolist(), "rmse": 0.1, "points": points}
    data = {"axis": [0, 1, 2, 3], "truth": np.zeros((4, 4)).tolist(), "methods": {"sgpr": fitted}}
    (title, panel), *_ = axes_of(ricker.draw(data)).items()
    assert title == ("SGPR" if points is None else "SGPR, 3 points")
    assert len(panel.lines) == (points is not None)


def test_solvers_agree_where_the_system_is_well_conditioned() -> None:
    p = dense.problem(n=60, m=8)
    statistics = SquareRootStatistics.from_block(Features(p.S, p.Y))
    noise_variance = torch.tensor(0.5, dtype=torch.float64)
    expected = solve(p.K, statistics, noise_variance).mean
    for name, solve_mean in SOLVERS.items():
        mean = solve_mean(p.K, statistics, noise_variance)
        tolerance = 10 * float(name.removeprefix("CG ")) if "CG" in name else 1e-9
        assert mean.converged
        assert dense.relative_error(mean.value, expected) < tolerance, name


def test_failures_are_gaps_and_counted(tables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fails_at_first(*arguments: Any) -> Any:
        calls.append(arguments[0].dtype)
        if len(calls) == 1:
            raise NumericalError("Ĉ is not positive definite")
        return SOLVERS["QR"](*arguments)

    def never_converges(*arguments: Any) -> Any:
        return SOLVERS["QR"](*arguments)._replace(converged=False)

    monkeypatch.setitem(SOLVERS, "Cholesky", fails_at_first)
    monkeypatch.setitem(SOLVERS, "CG 1e-4", never_converges)
    data = solvers.compute(**{**TINY["solvers"], "epochs": 3})
    assert data["panels"]["keggdirected"] is None
    panel = data["panels"]["protein"]
    assert (panel["rows"], panel["test_rows"]) == (180, 20)
    assert panel["rmse"]["float32"]["Cholesky"][0] is None
    for precision, curves in panel["rmse"].items():
        assert all(len(curve) == 3 for curve in curves.values())
        assert panel["unconverged"][precision]["CG 1e-4"] == 3
        np.testing.assert_allclose(curves["direct"], curves["QR"], rtol=1e-2)
    assert calls[:2] == [torch.float32, torch.float64]
    drawn = axes_of(solvers.draw(data))
    labels = drawn["protein, float32"].get_legend_handles_labels()[1]
    assert {"Cholesky (1 failed)", "CG 1e-4 (3 not converged)", "QR"} <= set(labels)
    assert words_in(drawn["keggdirected, float64"]) == ["no data here"]


def test_training_is_seen_after_every_epoch(tables: None) -> None:
    data = solvers.compute(**{**TINY["solvers"], "epochs": 4}, sets="protein")
    curve = data["panels"]["protein"]["rmse"]["float64"]["QR"]
    assert len(set(curve)) == 4
    shorter = solvers.compute(**{**TINY["solvers"], "epochs": 2}, sets="protein")
    assert curve[:2] == shorter["panels"]["protein"]["rmse"]["float64"]["QR"]


def test_the_solvers_are_compared_on_the_training_of_softki_paper(tables: None) -> None:
    settings = TINY["solvers"]
    panel = solvers.compute(**settings, seed=3, sets="protein")["panels"]["protein"]
    figure = panel["rmse"]["float64"]["QR"][-1]
    blank = Record("protein", "softki_paper", 3, "90/10", settings=settings)
    # Trained alike to the last digit of float32; another rate or epoch makes 3%.
    assert run_one(sines("protein"), blank, "cpu").rmse == pytest.approx(figure, rel=1e-5)


def test_without_any_data_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTKI_DATA", str(tmp_path))
    with pytest.raises(
        InvalidInputError, match=r"protein, keggdirected, .* SOFTKI_DATA .*download"
    ):
        make_figure("solvers", tmp_path)


def test_histograms_pool_seeds_and_leave_out_what_does_not_belong(results: Path) -> None:
    more = Results(results)
    facts = {"lengthscale": [9.0]}
    more.append(Record("pol", "softki", 5, "90/10", status="failed", facts=facts))
    more.append(Record("pol", "softki", 5, "4/9", facts=facts))
    more.append(Record("pol", "extra_trees", 0, "90/10"))
    more.append(Record("bike", "exact", 0, "90/10", facts={"lengthscale": [None, 0.0, 4.0]}))
    more.append(Record("song", "exact", 0, "90/10", facts={"lengthscale": [None, "1.0"]}))
    panels = FIGURES["lengthscales"].compute(results)["panels"]
    assert len(panels) == 12
    assert panels["pol"] == {"softki": [0.5, 2.0, 1.5, 2.0], "svgp": [1.0, 30.0, 1.0, 30.0]}
    assert panels["bike"] == {"exact": [4.0]}
    assert panels["song"] == {}
    panels = FIGURES["temperatures"].compute(results, sets="pol,bike")["panels"]
    assert panels == {"pol": {"softki": [0.3, 0.4, 0.3, 1.4]}, "bike": {}}


def test_the_lengthscales_are_the_kernels_own_and_the_axis_says_so(results: Path) -> None:
    data = FIGURES["lengthscales"].compute(results, sets="pol")
    assert data["panels"]["pol"]["softki"] == [0.5, 2.0, 1.5, 2.0]
    label = FIGURES["lengthscales"].draw(data).get_supxlabel()
    assert "of the kernel, in units of x/T for SoftKI" in " ".join(label.split())
    assert max(map(len, label.splitlines())) <= 30  # as wide as the one panel


def test_a_histogram_of_one_value() -> None:
    data = {"label": "temperature", "panels": {"pol": {"softki": [0.3]}}, "absent": {}}
    drawn = axes_of(FIGURES["temperatures"].draw(data))
    heights = drawn["pol"].patches[0].get_data().values
    assert np.count_nonzero(heights) == 1


def test_a_panel_without_runs_says_why(results: Path, tmp_path: Path) -> None:
    (tmp_path / "bike.csv.gz").touch()
    Results(results).append(Record("slice", "svgp", 0, "90/10", status="out of memory"))
    data = FIGURES["temperatures"].compute(
        results, sets="pol,bike,song,slice", data_folder=tmp_path
    )
    drawn = axes_of(FIGURES["temperatures"].draw(data))
    said = {name: words_in(ax) for name, ax in drawn.items()}
    assert said == {
        "pol": [],
        "bike": ["not run"],
        "song": ["no data here"],
        "slice": ["not a fact of its runs"],
    }


def test_results_without_the_fact_are_an_error_that_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no temperature of a run on 3droad, .*bench run"):
        make_figure("temperatures", tmp_path, results=tmp_path / "none.jsonl")
