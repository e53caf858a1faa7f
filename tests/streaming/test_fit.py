"""Fits to rows that are read from files, beside those of the same rows in memory."""

from __future__ import annotations

import copy
import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch

from softki import FitSettings, InvalidInputError, SoftKIRegressor, fit, fit_rows, statistics_of
from softki.batches import Data
from softki.data import robot_arm
from softki.estimator import rows as user_rows
from softki.features import WeightedBatches
from softki.statistics import GramStatistics
from softki.streaming import StreamedRows, blocks, open_source
from softki.training.data import InMemoryRows
from softki.training.initialization import initial_model, kmeans_rows
from softki.training.standardize import RawBatch

F64 = torch.float64
X, Y = robot_arm(6000)
NAMES = [f"angle{k}" for k in range(X.shape[1])]
NOISE = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
TABLE = pa.table({**{name: X[:, k] for k, name in enumerate(NAMES)}, "reach": Y})
SETTINGS = FitSettings(points=48, steps=12, dtype=F64)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 700)


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No source is small enough to be read into memory."""
    monkeypatch.setattr(user_rows, "IN_MEMORY_BYTES", 0)


def batches(noise: bool = False, size: int = 900) -> list[tuple[np.ndarray, ...]]:
    columns = (X, Y, NOISE) if noise else (X, Y)
    return [tuple(c[k : k + size] for c in columns) for k in range(0, len(X), size)]


@pytest.mark.parametrize("noise", [False, True])
def test_the_same_rows_give_the_same_fit(noise: bool) -> None:
    """With all rows in each step; what differs is the order of sums."""
    data = StreamedRows.open(open_source(batches(noise)), held_out_share=0.0, dtype=F64)
    x = data.standardizer.x.transform(torch.from_numpy(X))
    y = data.standardizer.y.transform(torch.from_numpy(Y)[:, None])
    settings = replace(SETTINGS, batch_size=None, held_out=0.0)
    start = initial_model(x, settings, torch.Generator().manual_seed(0))
    streamed = fit_rows(data, settings=settings, model=copy.deepcopy(start))
    known = torch.from_numpy(NOISE / NOISE.mean()) if noise else None
    in_memory = fit(x, y, known, settings=settings, model=copy.deepcopy(start))
    for name, value in in_memory.model.state_dict().items():
        torch.testing.assert_close(
            streamed.model.state_dict()[name], value, rtol=1e-8, atol=1e-8, msg=name
        )
    torch.testing.assert_close(
        streamed.report.log_marginal_likelihood,
        in_memory.report.log_marginal_likelihood,
        rtol=1e-8,
        atol=0,
    )
    for ours, expected in zip(
        streamed.posterior.predict(x[::7]), in_memory.posterior.predict(x[::7]), strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(streamed.posterior.edge, in_memory.posterior.edge)
    assert streamed.statistics.count == len(X)


def test_weights_of_batches_that_are_read_anew() -> None:
    """Any re-iterable serves, and gives the statistics of the rows at once."""
    data = Data(torch.randn(500, 3, dtype=F64), torch.randn(500, 2, dtype=F64))
    model = initial_model(data.x, SETTINGS, torch.Generator().manual_seed(0))

    class Anew:
        passes = 0

        def __iter__(self) -> Iterator[Any]:
            self.passes += 1
            yield from data.chunks(100, torch.arange(500))

    anew = Anew()
    with torch.no_grad():
        seen, whole = WeightedBatches(model, anew), WeightedBatches(model, [data.take(slice(None))])
        for _ in range(2):
            ours, expected = GramStatistics.from_blocks(seen), GramStatistics.from_blocks(whole)
            torch.testing.assert_close(ours.gram_matrix, expected.gram_matrix)
            torch.testing.assert_close(ours.cross_matrix, expected.cross_matrix)
    assert anew.passes == 2


@pytest.mark.usefixtures("streamed")
def test_minibatches_of_a_stream_learn_as_much() -> None:
    parameters: dict[str, Any] = {"points": 64, "steps": 120, "batch_size": 256}
    streamed = SoftKIRegressor(**parameters, random_state=0).fit(batches())
    in_memory = SoftKIRegressor(**parameters, random_state=0).fit(X, Y)
    for report in (streamed.fit_report_, in_memory.fit_report_):
        assert (report.rows, report.held_out_rows, report.dimension) == (6000, 600, 8)
        assert report.calibration is not None
    assert streamed.fit_report_.is_streamed
    assert "6000 rows × 8, 1 target(s), streamed, 600 rows held out" in str(streamed.fit_report_)
    assert not in_memory.fit_report_.is_streamed
    new_x, new_y = robot_arm(2000, seed=1)
    errors = [np.std(new_y - model.predict(new_x)) for model in (streamed, in_memory)]
    assert errors[0] < 1.15 * errors[1]
    assert errors[0] < 0.3 * new_y.std()
    mean, std = streamed.predict(new_x, return_std=True)
    assert 0.9 < np.mean(np.abs(new_y - mean) < 1.96 * std) < 0.99
    assert streamed.feature_relevance_.sum() == pytest.approx(1)
    np.testing.assert_allclose(streamed.feature_relevance_, in_memory.feature_relevance_, atol=0.05)


@pytest.mark.usefixtures("streamed")
def test_a_table_and_a_stream_follow_one_rule(tmp_path: Path) -> None:
    """Held-out rows and first points are the same, and errors within the spread over seeds."""
    data = StreamedRows.open(open_source(parquet(tmp_path), "reach"), seed=5, dtype=F64)
    in_memory = InMemoryRows.holding_out(
        Data(*data.standardizer(RawBatch(torch.from_numpy(X), torch.from_numpy(Y)[:, None]))),
        share=0.1,
        seed=5,
    )
    assert torch.equal(data.held_out_index, in_memory.held_out_index)
    for count in (kmeans_rows(48), len(X)):
        for ours, expected in zip(data.sample(count), in_memory.sample(count), strict=True):
            assert (ours is None) if expected is None else torch.equal(ours, expected)
    new_x, new_y = robot_arm(2000, seed=1)
    frame = pd.DataFrame(new_x, columns=NAMES)
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(3):
        streamed = quick(seed, steps=60).fit(tmp_path / "arm.parquet", "reach")
        table = quick(seed, steps=60).fit(pd.DataFrame(X, columns=NAMES), Y)
        assert torch.equal(streamed.fit_.held_out, table.fit_.held_out)
        for model in (streamed, table):
            error = float(np.sqrt(np.mean((model.predict(frame) - new_y) ** 2)))
            found[model.fit_report_.is_streamed].append(error)
    errors = np.array([found[True], found[False]])
    spread = errors.max(1) - errors.min(1)
    assert abs(errors[0].mean() - errors[1].mean()) < spread.max()


@pytest.mark.usefixtures("streamed")
def test_the_same_seed_gives_the_same_fit() -> None:
    ours, again = (quick(7).fit(batches()) for _ in range(2))
    np.testing.assert_array_equal(ours.predict(X[:50]), again.predict(X[:50]))
    assert torch.equal(ours.fit_.held_out, again.fit_.held_out)


def quick(random_state: int = 0, **parameters: Any) -> SoftKIRegressor:
    defaults = {"points": 32, "steps": 15, "batch_size": 256}
    return SoftKIRegressor(random_state=random_state, **(defaults | parameters))


def parquet(folder: Path) -> Path:
    pq.write_table(TABLE, folder / "arm.parquet", row_group_size=1000)
    return folder / "arm.parquet"


def parquet_folder(folder: Path) -> Path:
    for k in range(3):
        pq.write_table(TABLE.slice(2000 * k, 2000), folder / f"{k}.parquet")
    return folder


def csv_files(folder: Path) -> list[str]:
    pa.csv.write_csv(TABLE.slice(0, 3000), folder / "1.csv")
    pa.csv.write_csv(TABLE.slice(3000), folder / "2.csv")
    (folder / "2.csv.gz").write_bytes(gzip.compress((folder / "2.csv").read_bytes()))
    return [str(folder / "1.csv"), str(folder / "2.csv.gz")]


def arrow(folder: Path) -> Path:
    pa.feather.write_feather(TABLE, folder / "arm.arrow")
    return folder / "arm.arrow"


def npy(folder: Path) -> tuple[str, Path]:
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return str(folder / "x.npy"), folder / "y.npy"


def mapped(folder: Path) -> tuple[np.memmap, np.ndarray]:
    x, y = (np.load(path, mmap_mode="r") for path in npy(folder))
    return x, y


class Loader:
    def __iter__(self) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
        for x, y in batches():
            yield pd.DataFrame(x, columns=NAMES), y


KINDS: dict[str, tuple[Callable[[Path], tuple[Any, ...]], bool]] = {
    "parquet": (lambda folder: (parquet(folder), "reach"), True),
    "folder": (lambda folder: (str(parquet_folder(folder)), "reach"), True),
    "csv": (lambda folder: (csv_files(folder), "reach"), True),
    "arrow": (lambda folder: (arrow(folder), "reach"), True),
    "dataset": (lambda folder: (ds.dataset(parquet(folder)), "reach"), True),
    "npy": (npy, False),
    "memmap": (mapped, False),
    "memmap and array": (lambda folder: (mapped(folder)[0], Y), False),
    "batches": (lambda folder: (batches(),), False),
    "frames": (lambda folder: (Loader(),), True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same rows in the same order, and so the same statistics and held-out rows.

    Small ones are read into memory, and large ones in every pass.
    """
    make, named = KINDS[kind]
    data = make(tmp_path)
    small = quick(batch_size=None, steps=2, dtype="float64").fit(*data)
    monkeypatch.setattr(user_rows, "IN_MEMORY_BYTES", 0)
    model = quick(batch_size=None, steps=2, dtype="float64").fit(*data)
    assert (small.fit_report_.is_streamed, model.fit_report_.is_streamed) == (False, True)
    assert model.n_features_in_ == 8
    assert list(getattr(model, "feature_names_in_", [])) == (NAMES if named else [])
    assert model.predict(pd.DataFrame(X[:5], columns=NAMES) if named else X[:5]).shape == (5,)
    expected = quick(batch_size=None, steps=2, dtype="float64").fit(X, Y)
    for ours in (small, model):
        torch.testing.assert_close(ours.fit_.model.points, expected.fit_.model.points)
        assert torch.equal(ours.fit_.held_out, expected.fit_.held_out)


def test_noise_and_several_targets_by_name(tmp_path: Path) -> None:
    table = TABLE.append_column("twice", pa.array(2 * Y)).append_column("v", pa.array(NOISE))
    pq.write_table(table, tmp_path / "t.parquet")
    model = quick(steps=5).fit(tmp_path / "t.parquet", ["reach", "twice"], "v")
    assert list(model.feature_names_in_) == NAMES
    assert model.noise_unit_ == pytest.approx(NOISE.mean())
    mean = model.predict(pd.DataFrame(X[:9], columns=NAMES))
    np.testing.assert_allclose(mean[:, 1], 2 * mean[:, 0], rtol=1e-3, atol=1e-3)
    single = quick(steps=2).fit(parquet(tmp_path), ["reach"])
    assert single.predict(pd.DataFrame(X[:9], columns=NAMES)).shape == (9, 1)


def test_few_rows_are_fitted_as_a_table(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 900), tmp_path / "t.parquet", row_group_size=100)
    model = quick(points=8).fit(tmp_path / "t.parquet", "reach")
    table = quick(points=8).fit(TABLE.slice(0, 900).select(NAMES).to_pandas(), Y[:900])
    assert (model.fit_report_.folds, model.fit_report_.is_streamed) == (5, False)
    frame = pd.DataFrame(X[:9], columns=NAMES)
    np.testing.assert_array_equal(model.predict(frame), table.predict(frame))
    held_out = quick(held_out=0.2).fit(tmp_path / "t.parquet", "reach")
    assert not held_out.fit_report_.is_streamed
    assert held_out.fit_report_.held_out_rows == 180


@pytest.mark.usefixtures("streamed")
def test_more_rows_from_a_stream() -> None:
    first = quick(dtype="float64").fit(X[:3000], Y[:3000])
    whole = copy.deepcopy(first).partial_fit(X[3000:], Y[3000:])
    ours = copy.deepcopy(first).partial_fit([(X[3000:4000], Y[3000:4000]), (X[4000:], Y[4000:])])
    assert ours.fit_report_.rows == 6000
    np.testing.assert_allclose(ours.predict(X[:99]), whole.predict(X[:99]), rtol=1e-9)
    np.testing.assert_allclose(
        ours.predict(X[:99], return_std=True)[1], whole.predict(X[:99], return_std=True)[1]
    )
    streamed = quick().partial_fit(batches()).partial_fit(X[:500], Y[:500])
    assert streamed.fit_report_.rows == 6500
    for bad, message in (
        ([(X[:, :3], Y)], "X has 3 features, but SoftKIRegressor is expecting 8"),
        ([(X, np.stack([Y, Y], 1))], r"y had the shape \(rows,\) .* has \(rows, 2\) now"),
        (batches(noise=True), "noise_variance was not given at the first call"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            streamed.partial_fit(bad)
    assert streamed.fit_report_.rows == 6500


def test_more_rows_must_have_the_columns_of_the_fit(tmp_path: Path) -> None:
    model = quick().fit(parquet(tmp_path), "reach")
    before = model.fit_
    renamed = TABLE.rename_columns(["other", *TABLE.column_names[1:]])
    pq.write_table(renamed, tmp_path / "renamed.parquet")
    with pytest.raises(InvalidInputError, match="unseen at fit time:\n- other"):
        model.partial_fit(tmp_path / "renamed.parquet", "reach")
    turned = TABLE.select([*reversed(NAMES), "reach"])
    pq.write_table(turned, tmp_path / "turned.parquet")
    with pytest.raises(InvalidInputError, match="Column 0 is 'angle7', and was 'angle0'"):
        model.partial_fit(tmp_path / "turned.parquet", "reach")
    assert model.fit_ is before


@pytest.mark.usefixtures("streamed")
def test_a_saved_fit_says_that_rows_were_streamed(tmp_path: Path) -> None:
    from softki import load

    model = quick().fit(batches())
    model.save(tmp_path / "m.softki")
    assert load(tmp_path / "m.softki").fit_report_.is_streamed


def missing(folder: Path) -> Path:
    values = Y.copy()
    values[4321] = np.nan
    pq.write_table(TABLE.set_column(8, "reach", pa.array(values)), folder / "missing.parquet")
    return folder / "missing.parquet"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: (parquet(folder),), r"arm\.parquet: y must name the column to predict"),
        (lambda folder: (parquet(folder), Y), "y must be the name of a column, or a list of names"),
        (lambda folder: (parquet(folder), "raech"), "has no column 'raech': did you mean 'reach'"),
        (
            lambda folder: (parquet(folder), "reach", NOISE),
            "noise_variance must be the name of a column",
        ),
        (lambda folder: (folder / "no.csv", "reach"), r"no\.csv: no such file"),
        (lambda folder: (folder / "a.txt", "reach"), r"a\.txt: the name must end in one of"),
        (lambda folder: (npy(folder)[0],), r"x\.npy: y is missing"),
        (lambda folder: (npy(folder)[0], Y[:-1]), "X has 6000 rows and y has 5999"),
        (lambda folder: (npy(folder)[0], "reach"), "both must be .npy files"),
        (lambda folder: (iter(batches()),), "only once, and a fit needs several passes"),
        (lambda folder: ((b for b in batches()),), "only once, and a fit needs several passes"),
        (lambda folder: ((b for b in batches()), Y), "only once, and a fit needs several passes"),
        (lambda folder: (Loader(), None, NOISE), "are in the batches"),
        (lambda folder: (missing(folder), "reach"), r"missing\.parquet contains NaN in row"),
        (lambda folder: (X,), "requires y to be passed, but the target y is None"),
        (lambda folder: (X.tolist(),), "requires y to be passed, but the target y is None"),
    ],
)
def test_what_cannot_be_fitted(
    make: Callable[[Path], tuple[Any, ...]], message: str, tmp_path: Path
) -> None:
    model = quick()
    with pytest.raises(InvalidInputError, match=message):
        model.fit(*make(tmp_path))
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_fit_that_fails_leaves_the_earlier_one(tmp_path: Path) -> None:
    model = quick().fit(batches())
    before = dict(vars(model))
    with pytest.raises(InvalidInputError, match="contains NaN in row 4321"):
        model.fit(missing(tmp_path), "reach")
    assert vars(model) == before


def test_lists_of_numbers_are_tables() -> None:
    model = quick(held_out=0.2).fit(X[:60].tolist(), Y[:60].tolist())
    assert not model.fit_report_.is_streamed
    assert quick(held_out=0.2).fit(tuple(map(tuple, X[:60])), Y[:60]).fit_report_.rows == 60


def test_settings_that_do_not_go_with_a_stream() -> None:
    data = StreamedRows.open(open_source(batches()))
    with pytest.raises(InvalidInputError, match="folds are for rows in memory"):
        fit_rows(data, settings=FitSettings(folds=5))
    with pytest.raises(InvalidInputError, match=r"float32, and settings\.dtype is torch\.fl"):
        fit_rows(data, settings=SETTINGS)


def test_statistics_of_a_stream_are_of_its_training_rows() -> None:
    data = StreamedRows.open(open_source(batches()), dtype=F64)
    model = initial_model(data.inputs, SETTINGS, torch.Generator().manual_seed(0))
    assert statistics_of(model, data, SETTINGS).count == 5400


_FIT = """
import sys
import torch
from pathlib import Path
torch.set_num_threads(1)
import softki.estimator.rows
from softki import SoftKIRegressor
softki.estimator.rows.IN_MEMORY_BYTES = 0
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
model = SoftKIRegressor(points=16, steps=5, batch_size=256, random_state=0)
assert model.fit(sys.argv[1], "reach").fit_report_.is_streamed
print(peak())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """86 MB of rows more, in row groups of 4 MB, cost little."""
    peaks = []
    for count in (300_000, 1_500_000):
        x = np.random.default_rng(0).standard_normal((count, 8))
        table = pa.table({**{f"x{k}": x[:, k] for k in range(8)}, "reach": x[:, 0]})
        path = tmp_path / f"{count}.parquet"
        pq.write_table(table, path, row_group_size=1 << 16)
        done = subprocess.run(
            [sys.executable, "-c", _FIT, str(path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        peaks.append(float(done.stdout))
    assert peaks[1] < peaks[0] + 50
