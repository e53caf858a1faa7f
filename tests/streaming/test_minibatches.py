from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softki.exceptions import InvalidInputError
from softki.streaming import Source, StreamedRows, open_source
from softki.streaming import blocks as rows
from softki.streaming.arrays import array_source
from softki.streaming.blocks import RawRows
from softki.streaming.layout import Shards, shares
from softki.streaming.minibatches import ShuffledBatches, StreamedMinibatches
from softki.streaming.prefetch import Prefetch
from softki.streaming.sampling import HeldOutPositions

N = 6000
X = np.arange(float(N))[:, None]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BLOCK_ROWS", 300)


def arrays() -> Source:
    return open_source(X, y=-X[:, 0])


def sequence(size: int = 250) -> Source:
    return open_source([(X[k : k + size], -X[k : k + size, 0]) for k in range(0, N, size)])


def positions(batches: Iterator[RawRows]) -> list[list[int]]:
    found = []
    for batch in batches:
        np.testing.assert_array_equal(batch.x, -batch.y)
        found.append(batch.x[:, 0].astype(int).tolist())
    return found


@pytest.mark.parametrize("make", [arrays, sequence])
@pytest.mark.parametrize("buffer_rows", [1, 900, 10**6])
@pytest.mark.parametrize("size", [1, 100, 1500])
def test_every_training_row_comes_once_an_epoch(make: object, buffer_rows: int, size: int) -> None:
    held_out = HeldOutPositions(np.random.default_rng(0).choice(N, 1500, replace=False))
    batches = ShuffledBatches(make(), size, 0, held_out, buffer_rows=buffer_rows)  # type: ignore[operator]
    assert batches.batches_per_epoch == 4500 // size
    for epoch in range(2):
        found = positions(batches.epoch(epoch))
        assert [len(batch) for batch in found] == [size] * (4500 // size)
        assert sorted(chain(*found)) == sorted(set(range(N)) - set(held_out.positions.tolist()))


def test_the_rest_of_an_epoch_is_dropped_and_differs() -> None:
    batches = ShuffledBatches(arrays(), 1700, 0)
    dropped = [set(range(N)) - set(chain(*positions(batches.epoch(e)))) for e in range(3)]
    assert [len(rest) for rest in dropped] == [900] * 3
    assert dropped[0] != dropped[1] != dropped[2]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    epochs = [
        positions(ShuffledBatches(arrays(), 100, seed, buffer_rows=1000).epoch(epoch))
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert epochs[0] == epochs[3]
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("start", [0, 1, 7, 33, 59, 60, 100])
def test_from_any_step_on_the_batches_are_the_same(start: int) -> None:
    batches = ShuffledBatches(arrays(), 100, 0, buffer_rows=1000)
    assert positions(batches.epoch(3, start)) == positions(batches.epoch(3))[start:]


def test_rows_far_apart_share_a_batch() -> None:
    """Random access mixes the whole source; a sequence, what the buffer holds."""
    spread = {}
    for make in (arrays, sequence):
        found = positions(ShuffledBatches(make(), 100, 0, buffer_rows=1500).epoch(0))
        spread[make] = np.mean([np.std(batch) for batch in found[5:-5]])
    assert spread[arrays] > 0.7 * N / np.sqrt(12)
    assert spread[sequence] > 0.7 * 1000 / np.sqrt(12)


def test_a_sequence_is_read_once_an_epoch() -> None:
    class Counted:
        passes = 0

        def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            self.passes += 1
            yield from [(X[k : k + 100], X[k : k + 100, 0]) for k in range(0, N, 100)]

    counted = Counted()
    batches = ShuffledBatches(open_source(counted), 100, 0)
    before = counted.passes
    assert len(list(batches.epoch(0))) == 60
    assert counted.passes == before + 1


@pytest.mark.parametrize("make", [arrays, sequence])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_processes_share_every_batch(make: object, world: int) -> None:
    held_out = HeldOutPositions(np.arange(500))  # all in the first stretch
    found = [
        positions(
            ShuffledBatches(
                make(),  # type: ignore[operator]
                40,
                0,
                held_out,
                shards=Shards.even(N, rank, world),
                buffer_rows=300,
            ).epoch(1)
        )
        for rank in range(world)
    ]
    assert {len(batches) for batches in found} == {5500 // 40}
    for parts in zip(*found, strict=True):
        assert sum(map(len, parts)) == 40
        assert max(abs(len(part) - 40 / world) for part in parts[1:] or parts) < 4
    everything = list(chain(*chain(*found)))
    assert len(everything) == len(set(everything)) == 5480
    assert min(everything) >= 500


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any), st.integers(1, 20))
def test_shares_of_batches_add_up(counts: list[int], size: int) -> None:
    total = sum(counts)
    given = [shares(np.array(counts), k) for k in (*range(0, total, size), total)]
    assert [int(each.sum()) for each in given] == [*range(0, total, size), total]
    assert given[-1].tolist() == counts
    for before, after in pairwise(given):
        assert (after >= before).all()
    for each in given:
        assert np.abs(each - np.array(counts) * each.sum() / total).max() < len(counts)


def test_a_process_with_few_rows_or_none_does_as_many_batches() -> None:
    found = []
    for rank, part in enumerate((X[:5990], X[:0], X[5990:])):
        source = array_source(part, -part[:, 0], may_be_empty=True)
        source.start_at((0, 5990, 5990)[rank])
        shards = Shards.of_counts([5990, 0, 10], rank)
        batches = ShuffledBatches(source, 100, 0, shards=shards, buffer_rows=1000)
        found.append(positions(batches.epoch(0)))
        assert positions(batches.epoch(0, 31)) == found[-1][31:]
        ahead = StreamedMinibatches(batches, torch.device("cpu"))
        again = [ahead.batch(step).x[:, 0].int().tolist() for step in range(70)]
        assert again[:60] == found[-1]
        ahead.close()
    assert [len(batches) for batches in found] == [60] * 3
    assert all(sum(map(len, parts)) == 100 for parts in zip(*found, strict=True))
    assert sorted(chain(*chain(*found))) == list(range(N))
    assert not any(found[1])
    assert 5 < sum(map(bool, found[2])) <= 10


def test_shards_of_few_groups() -> None:
    source = open_source([(X, -X[:, 0])])
    found = [
        positions(ShuffledBatches(source, 50, 0, shards=Shards.even(N, r, 4)).epoch(0))
        for r in range(4)
    ]
    assert sorted(chain(*chain(*found))) == list(range(N))


def test_batches_larger_than_all_rows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="a batch of 6001 rows is more than the 6000 train"):
        ShuffledBatches(arrays(), 6001, 0, shards=Shards.even(N, 0, 3))
    with pytest.raises(InvalidInputError, match="rank must be from 0 to 2, got 3"):
        Shards.even(N, 3, 3)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "softki-prefetch"]


def endless(log: list[str]) -> Iterator[int]:
    try:
        k = 0
        while True:
            yield k
            k += 1
    finally:
        log.append("closed")


def test_prefetch_gives_the_same_items_and_ends() -> None:
    ahead = Prefetch(iter(range(100)))
    assert list(ahead) == list(range(100))
    assert list(ahead) == []
    assert not threads()


def test_prefetch_runs_ahead_but_not_far() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for k in range(100):
            made.append(k)
            yield k

    with Prefetch(items(), depth=3) as ahead:
        next(ahead)
        deadline = time.monotonic() + 5
        while len(made) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(made) == 5  # one taken, three in the queue, one in hand
    assert not threads()


def test_errors_come_where_the_item_would_have() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InvalidInputError("t.parquet: cannot be read")

    ahead = Prefetch(items())
    assert next(ahead) == 1
    with pytest.raises(InvalidInputError, match="cannot be read"):
        next(ahead)
    assert list(ahead) == []
    assert not threads()


def test_what_is_no_longer_used_ends_its_thread() -> None:
    log: list[str] = []
    for value in Prefetch(endless(log)):
        if value == 3:
            break
    ahead = Prefetch(endless(log))
    next(ahead)
    ahead.close()
    ahead = Prefetch(endless(log))
    del ahead
    cycle: dict[str, object] = {"ahead": Prefetch(endless(log))}
    cycle["self"] = cycle
    del cycle
    gc.collect()
    assert not threads()
    assert log == ["closed"] * 4


def test_minibatches_by_step() -> None:
    source = open_source(X, y=-X[:, 0])
    data = StreamedRows.open(source, dtype=torch.float64)
    batches = data.minibatches(size=500, seed=3, buffer_rows=1200)
    some = [batches.batch(step).x for step in range(25)]
    again = data.minibatches(size=500, seed=3, buffer_rows=1200)
    for step in (3, 4, 11, 20, 2, 24):  # also with gaps, and back
        assert torch.equal(again.batch(step).x, some[step])
    epoch = torch.cat(some[:10]).ravel()
    assert len(epoch.unique()) == 5000
    assert not torch.equal(epoch, torch.cat(some[10:20]).ravel())
    batches.close()
    del again
    gc.collect()
    assert not threads()


def test_a_program_ends_with_batches_in_flight() -> None:
    code = (
        "import numpy as np\n"
        "from softki.streaming import StreamedRows, open_source\n"
        "x = np.random.default_rng(0).random((100_000, 3))\n"
        "batches = StreamedRows.open(open_source(x, y=x[:, 0])).minibatches(100, 0)\n"
        "batches.batch(0)\n"
        "chunks = iter(StreamedRows.open(open_source(x, y=x[:, 0])).chunks_of(100))\n"
        "next(chunks)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""
