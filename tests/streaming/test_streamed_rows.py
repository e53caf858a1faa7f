from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from softki.batches import Batch
from softki.exceptions import InvalidInputError
from softki.parallel.processes import Processes
from softki.streaming import Source, StreamedRows, open_source
from softki.streaming.first_pass import FirstPass
from softki.streaming.streamed_rows import Chunks
from softki.training.standardize import RawBatch, Standardizer

N = 4000
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (N, 3))
Y = np.stack([X.sum(1), X[:, 0] ** 2], 1)
NOISE = RANDOM.uniform(0.5, 2.0, N)


def in_batches(size: int) -> Source:
    return open_source(
        [(X[k : k + size], Y[k : k + size], NOISE[k : k + size]) for k in range(0, N, size)]
    )


def in_parquet(folder: Path, row_group: int = 700) -> Source:
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "s": Y[:, 0], "q": Y[:, 1]})
    table = table.append_column("v", pa.array(NOISE))
    path = folder / f"{row_group}.parquet"
    if not path.exists():
        pq.write_table(table, path, row_group_size=row_group)
    return open_source(path, ["s", "q"], noise_variance="v")


def ids(rows: StreamedRows, batch: Batch) -> np.ndarray:
    """Which rows these are, by their first column."""
    values = rows.standardizer.x.inverse(batch.x)[:, 0].numpy()
    order = np.argsort(X[:, 0])
    nearest = np.clip(np.searchsorted(X[order, 0], values - 1e-9), 0, N - 1)
    np.testing.assert_allclose(X[order[nearest], 0], values, atol=1e-8)
    return np.asarray(order[nearest])


def test_batches_are_those_of_rows_in_memory(tmp_path: Path) -> None:
    rows = StreamedRows.open(in_parquet(tmp_path), seed=2, dtype=torch.float64)
    matrix, targets = torch.from_numpy(X), torch.from_numpy(Y)
    x_standardizer, y_standardizer = Standardizer.of(matrix), Standardizer.of(targets)
    torch.testing.assert_close(rows.standardizer.x.mean, x_standardizer.mean)
    torch.testing.assert_close(rows.standardizer.x.scale, x_standardizer.scale)
    torch.testing.assert_close(rows.standardizer.y.scale, y_standardizer.scale)
    scale = torch.from_numpy(np.sqrt(NOISE / NOISE.mean()))
    assert rows.held_out is not None
    for batch in (rows.held_out, rows.sample(50), rows.minibatches(64, 0).batch(5)):
        index = torch.from_numpy(ids(rows, batch))
        torch.testing.assert_close(batch.x, x_standardizer.transform(matrix[index]))
        torch.testing.assert_close(batch.y, y_standardizer.transform(targets[index]))
        torch.testing.assert_close(batch.noise_std, scale[index])
    assert rows.source.columns == ["a", "b", "c"]
    assert rows.standardizer.noise_unit == pytest.approx(NOISE.mean())
    assert (len(rows), rows.training_count) == (N, 3600)


def test_held_out_rows_are_apart_and_the_same_for_any_blocks(tmp_path: Path) -> None:
    first = None
    for source in (in_batches(N), in_batches(333), in_parquet(tmp_path), in_parquet(tmp_path, 64)):
        rows = StreamedRows.open(source, seed=7, dtype=torch.float64)
        assert rows.held_out is not None
        held_out, sample = ids(rows, rows.held_out), ids(rows, rows.sample(1000))
        chunks = [ids(rows, batch) for batch in Chunks(rows, 128)]
        assert [len(chunk) for chunk in chunks] == [128] * 28 + [16]
        training = np.concatenate(chunks)
        assert len(held_out) == 400
        np.testing.assert_array_equal(np.sort(np.concatenate([held_out, training])), np.arange(N))
        np.testing.assert_array_equal(training, np.sort(training))
        assert set(sample) <= set(training)
        batches = rows.minibatches(400, seed=0)
        epoch = np.concatenate([ids(rows, batches.batch(step)) for step in range(9)])
        np.testing.assert_array_equal(np.sort(epoch), training)
        first = first or (held_out.tolist(), sample.tolist())
        assert first == (held_out.tolist(), sample.tolist())
    other = StreamedRows.open(in_batches(N), seed=8, dtype=torch.float64)
    assert other.held_out is not None
    assert set(ids(other, other.held_out)) != set(first[0])  # type: ignore[index]


def test_chunks_can_be_iterated_again_and_left() -> None:
    rows = StreamedRows.open(in_batches(300))
    chunks = Chunks(rows, 100)
    assert [len(batch.x) for batch in chunks] == [100] * 36
    for _ in range(2):
        next(iter(chunks))
        assert sum(len(batch.x) for batch in chunks) == rows.training_count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_precision_is_the_one_asked_for(dtype: torch.dtype) -> None:
    rows = StreamedRows.open(in_batches(900), dtype=dtype)
    assert rows.held_out is not None
    for batch in (rows.held_out, rows.sample(9), rows.minibatches(9, 0).batch(0)):
        assert batch.noise_std is not None
        assert {batch.x.dtype, batch.y.dtype, batch.noise_std.dtype} == {dtype}


def test_few_rows_have_none_held_out() -> None:
    rows = StreamedRows.open(open_source(X[:20], y=Y[:20]))
    assert rows.held_out is None
    assert rows.training_count == 20
    assert len(rows.sample(100).x) == 20
    with pytest.raises(InvalidInputError, match="leaves no rows to train on"):
        StreamedRows.open(open_source(X[:20], y=Y[:20]), held_out_share=0.99)


@pytest.mark.parametrize("known", [True, False])
def test_processes_agree(tmp_path: Path, known: bool) -> None:
    """Where each reads its own rows, sums of what they found stand for all."""
    pa.csv.write_csv(pq.read_table(in_parquet(tmp_path).parts[0].name), tmp_path / "t.csv")

    def fresh() -> Source:
        if known:
            return in_parquet(tmp_path)
        return open_source(tmp_path / "t.csv", ["s", "q"], noise_variance="v")

    alone = StreamedRows.open(fresh(), seed=1, dtype=torch.float64)
    found: list[FirstPass] = []

    class Collecting(Processes):
        """Sees the first passes, one process after the other, and then adds them."""

        def gather(self, value: Any) -> list[Any]:
            return [value] * self.size

        def reduce(self, value: Any, add: Any) -> Any:
            found.append(value)
            return functools.reduce(add, found[:3]) if len(found) >= 3 else value

    for rank in range(3):
        StreamedRows.open(fresh(), 1, processes=Collecting(rank, 3))
    assert [first.x.count for first in found] == ([1333, 1333, 1334] if known else [])
    training = []
    for rank in range(3):
        processes = Collecting(rank, 3)
        shared = StreamedRows.open(fresh(), 1, dtype=torch.float64, processes=processes)
        assert shared.held_out is not None
        assert alone.held_out is not None
        torch.testing.assert_close(shared.held_out.x, alone.held_out.x)
        torch.testing.assert_close(shared.sample(99).y, alone.sample(99).y)
        torch.testing.assert_close(shared.standardizer.x.scale, alone.standardizer.x.scale)
        assert shared.training_count == alone.training_count
        training += [ids(shared, batch) for batch in Chunks(shared, 77)]
    expected = np.concatenate([ids(alone, batch) for batch in Chunks(alone, 77)])
    np.testing.assert_array_equal(np.concatenate(training), expected)


def test_a_file_that_changes_between_steps(tmp_path: Path) -> None:
    rows = StreamedRows.open(in_parquet(tmp_path))
    batches = rows.minibatches(100, 0)
    batches.batch(0)
    os.utime(tmp_path / "700.parquet", ns=(1, 1))
    with pytest.raises(InvalidInputError, match=r"700\.parquet: changed while it was read"):
        list(map(batches.batch, range(1, 1000)))
    with pytest.raises(InvalidInputError, match=r"700\.parquet: changed while it was read"):
        list(Chunks(rows, 100))


def test_arrays_need_no_pyarrow() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import numpy as np\n"
        "from softki.streaming import StreamedRows, open_source\n"
        "rows = StreamedRows.open(open_source(np.eye(700), y=np.ones(700)))\n"
        "assert len(list(rows.chunks(30))) == 1\n"
        "try:\n"
        "    open_source('t.csv', 'y')\n"
        "except Exception as error:\n"
        "    assert 'pip install' in str(error)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


_STREAM = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet, torch
from pathlib import Path
torch.set_num_threads(1)
from softki.streaming import StreamedRows, open_source

def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024

small = np.random.default_rng(0).standard_normal((2000, 9)).astype(np.float32)
kind, folder = sys.argv[1:]
# What libraries load when they are first used is not memory of rows.
pa.parquet.write_table(pa.table({"x": small[:, 0], "y": small[:, 1]}), f"{folder}/small.parquet")
for source in open_source(small, small[:, 0]), open_source(f"{folder}/small.parquet", "y"):
    list(StreamedRows.open(source).chunks(64))
before = resident()
if kind == "npy":
    source = open_source(f"{folder}/x.npy", y=f"{folder}/y.npy")
else:
    source = open_source(f"{folder}/{kind}.parquet", "y")
rows = StreamedRows.open(source)
batches = rows.minibatches(1000, 0)
for step in range(rows.training_count // 1000 + 5):
    batches.batch(step)
batches.close()
count = sum(len(batch.x) for batch in rows.chunks(512))
assert count == rows.training_count
print(resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("kind", "count", "limit"),
    [
        pytest.param("npy", 5_000_000, 150, marks=pytest.mark.slow),
        ("groups", 5_000_000, 150),
        pytest.param("one group", 8_000_000, 200, marks=pytest.mark.slow),
    ],
)
def test_memory_is_bounded(tmp_path: Path, kind: str, count: int, limit: float) -> None:
    """200 MB of rows, or 320 MB; a row group larger than memory costs buffers for its columns."""
    width = 9
    if kind == "npy":
        files = (tmp_path / "x.npy", (count, width)), (tmp_path / "y.npy", (count,))
        for path, shape in files:
            out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
            for start in range(0, count, 1 << 19):
                part = out[start : start + (1 << 19)]
                part[:] = RANDOM.standard_normal(part.shape, dtype=np.float32)
    else:
        names = [*"abcdefghi", "y"]
        schema = pa.schema([(name, pa.float32()) for name in names])
        group = 1 << 16 if kind == "groups" else count
        columns = [RANDOM.standard_normal(count, dtype=np.float32) for _ in names]
        table = pa.table(columns, schema=schema)
        pq.write_table(table, tmp_path / f"{kind}.parquet", row_group_size=group)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _STREAM, kind, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("source_dtype", [np.float32, np.float64, np.int64])
def test_rows_are_standardised_as_those_of_a_table(dtype: torch.dtype, source_dtype: type) -> None:
    """To the last bit, whatever is read at once."""
    x = (10 * X).astype(source_dtype)
    rows = StreamedRows.open(open_source([(x[:900], Y[:900]), (x[900:], Y[900:])]), dtype=dtype)
    expected = rows.standardizer(RawBatch(torch.from_numpy(x), torch.from_numpy(Y)))
    training = np.setdiff1d(np.arange(N), rows.held_out_index)
    start = 0
    for chunk in Chunks(rows, 1000):
        index = training[start : start + 1000]
        assert torch.equal(chunk.x, expected.x[index])
        assert torch.equal(chunk.y, expected.y[index])
        start += 1000
    assert rows.held_out is not None
    assert torch.equal(rows.held_out.x, expected.x[rows.held_out_index])


def test_numbers_that_stay_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(Source, "_check_values", lambda *arguments: looks.append(arguments))
    arrays, batches = open_source(X, Y), in_batches(1000)
    for source, expected in ((arrays, 1), (batches, 8)):
        looks.clear()
        for _ in range(2):
            assert sum(len(block.rows) for block in source.blocks()) == N
        assert len(looks) == expected


def test_a_missing_value_in_a_later_pass_is_refused() -> None:
    class Batches:
        passes = 0

        def __iter__(self) -> Any:
            type(self).passes += 1
            x = X.copy()
            if self.passes > 2:
                x[7, 1] = np.nan
            yield x, Y

    source = open_source(Batches())
    assert len(list(source.blocks())) == 1
    with pytest.raises(InvalidInputError, match="contains NaN in row 7, column 'x1'"):
        list(source.blocks())


def test_an_array_may_be_filled_anew_for_every_batch() -> None:
    class Refilled:
        def __iter__(self) -> Any:
            x, y = np.empty((1000, 3)), np.empty((1000, 2))
            for k in range(0, N, 1000):
                x[:], y[:] = X[k : k + 1000], Y[k : k + 1000]
                yield x, y

    blocks = list(open_source(Refilled()).blocks())
    np.testing.assert_array_equal(np.concatenate([block.rows.x for block in blocks]), X)
    np.testing.assert_array_equal(np.concatenate([block.rows.y for block in blocks]), Y)
