from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softki.batches import Batch
from softki.exceptions import InvalidInputError
from softki.streaming import Source, StreamedRows, blocks, minibatches, open_source
from softki.streaming.arrays import array_source
from softki.streaming.blocks import RawRows
from softki.streaming.minibatches import ShuffledRows, StreamedMinibatches
from softki.streaming.prefetch import ahead
from softki.streaming.shards import TrainingShard, consecutive_shards, even_shards, shares

N = 6000
X = np.arange(float(N))[:, None]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 300)


def arrays() -> Source:
    return open_source(X, y=-X[:, 0])


def sequence(size: int = 250) -> Source:
    return open_source([(X[k : k + size], -X[k : k + size, 0]) for k in range(0, N, size)])


def shuffled(
    source: Source,
    size: int,
    seed: int = 0,
    held_out: Sequence[int] = (),
    shards: list[range] | None = None,
    rank: int = 0,
) -> ShuffledRows:
    """The rows of one process, by default of the only one."""
    shards = [range(len(source))] if shards is None else shards
    return ShuffledRows(TrainingShard(source, np.array(held_out, int), shards, rank), size, seed)


def as_batches(chunks: Iterable[Sequence[RawRows]]) -> Generator[Batch, None, None]:
    for pieces in chunks:
        yield Batch(*RawRows.join(pieces).as_tensors())


def epoch_of(rows: ShuffledRows, epoch: int = 0, start: int = 0) -> list[list[int]]:
    """The positions of the rows of each batch of an epoch, from one on."""
    nothing = Batch(torch.empty(0, 1), torch.empty(0, 1))
    batches = StreamedMinibatches(rows, as_batches, nothing)
    found = []
    for step in range(start, rows.batches_per_epoch):
        x, y, _ = batches.batch(epoch * rows.batches_per_epoch + step)
        assert torch.equal(x, -y)
        found.append(x[:, 0].int().tolist())
    batches.close()
    return found


@pytest.fixture
def buffer_rows(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A buffer of 1,000 rows, or of as many as the parameter says."""
    monkeypatch.setattr(minibatches, "_BUFFER_ROWS", getattr(request, "param", 1000))


@pytest.mark.parametrize("make", [arrays, sequence])
@pytest.mark.parametrize("buffer_rows", [1, 900, 10**6], indirect=True)
@pytest.mark.parametrize("size", [1, 100, 1500])
def test_every_training_row_comes_once_an_epoch(
    make: Callable[[], Source], buffer_rows: None, size: int
) -> None:
    held_out = np.random.default_rng(0).choice(N, 1500, replace=False).tolist()
    batches = shuffled(make(), size, held_out=held_out)
    assert batches.batches_per_epoch == 4500 // size
    for epoch in range(2):
        found = epoch_of(batches, epoch)
        assert [len(batch) for batch in found] == [size] * (4500 // size)
        assert sorted(chain(*found)) == sorted(set(range(N)) - set(held_out))


def test_the_rest_of_an_epoch_is_dropped_and_differs() -> None:
    batches = shuffled(arrays(), 1700)
    dropped = [set(range(N)) - set(chain(*epoch_of(batches, epoch))) for epoch in range(3)]
    assert [len(rest) for rest in dropped] == [900] * 3
    assert dropped[0] != dropped[1] != dropped[2]


@pytest.mark.usefixtures("buffer_rows")
def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    epochs = [
        epoch_of(shuffled(arrays(), 100, seed), epoch)
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert epochs[0] == epochs[3]
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.usefixtures("buffer_rows")
@pytest.mark.parametrize("start", [0, 1, 7, 33, 59, 60, 100])
def test_from_any_step_on_the_batches_are_the_same(start: int) -> None:
    batches = shuffled(arrays(), 100)
    assert epoch_of(batches, 3, start) == epoch_of(batches, 3)[start:]


@pytest.mark.parametrize("buffer_rows", [1500], indirect=True)
@pytest.mark.usefixtures("buffer_rows")
def test_rows_far_apart_share_a_batch() -> None:
    """Random access mixes the whole source; a sequence, what the buffer holds."""
    spread = {}
    for make in (arrays, sequence):
        found = epoch_of(shuffled(make(), 100))
        spread[make] = np.mean([np.std(batch) for batch in found[5:-5]])
    assert spread[arrays] > 0.7 * N / np.sqrt(12)
    assert spread[sequence] > 0.7 * 1000 / np.sqrt(12)


def test_a_sequence_is_read_once_an_epoch() -> None:
    class Counted:
        passes = 0

        def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            self.passes += 1
            yield from [(X[k : k + 100], -X[k : k + 100, 0]) for k in range(0, N, 100)]

    counted = Counted()
    batches = shuffled(open_source(counted), 100)
    before = counted.passes
    assert len(epoch_of(batches)) == 60
    assert counted.passes == before + 1


@pytest.mark.parametrize("make", [arrays, sequence])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("buffer_rows", [300], indirect=True)
@pytest.mark.usefixtures("buffer_rows")
def test_processes_share_every_batch(make: Callable[[], Source], world: int) -> None:
    shards, held_out = even_shards(N, world), range(500)  # all in the first shard
    found = [epoch_of(shuffled(make(), 40, 0, held_out, shards, rank), 1) for rank in range(world)]
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


@pytest.mark.usefixtures("buffer_rows")
def test_a_process_with_few_rows_or_none_does_as_many_batches() -> None:
    found = []
    for rank, part in enumerate((X[:5990], X[:0], X[5990:])):
        source = array_source(part, -part[:, 0], may_be_empty=True)
        source.start_at((0, 5990, 5990)[rank])
        batches = shuffled(source, 100, shards=consecutive_shards([5990, 0, 10]), rank=rank)
        found.append(epoch_of(batches))
        assert epoch_of(batches, 0, 31) == found[-1][31:]
        assert len(epoch_of(batches, 1)) == 60
    assert [len(batches) for batches in found] == [60] * 3
    assert all(sum(map(len, parts)) == 100 for parts in zip(*found, strict=True))
    assert sorted(chain(*chain(*found))) == list(range(N))
    assert not any(found[1])
    assert 5 < sum(map(bool, found[2])) <= 10


def test_shards_of_few_blocks() -> None:
    source = open_source([(X, -X[:, 0])])
    found = [epoch_of(shuffled(source, 50, shards=even_shards(N, 4), rank=r)) for r in range(4)]
    assert sorted(chain(*chain(*found))) == list(range(N))


def test_batches_larger_than_all_rows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="a batch of 6001 rows is more than the 6000 train"):
        shuffled(arrays(), 6001, shards=even_shards(N, 3))


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("softki-prefetch")]


def endless(log: list[str]) -> Iterator[int]:
    try:
        k = 0
        while True:
            yield k
            k += 1
    finally:
        log.append("closed")


def test_items_made_ahead_are_the_same_and_end() -> None:
    items = ahead(range(100))
    assert list(items) == list(range(100))
    assert list(items) == []
    assert not threads()


def test_one_item_is_made_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for k in range(100):
            made.append(k)
            yield k

    with closing(ahead(items())) as made_ahead:
        next(made_ahead)
        deadline = time.monotonic() + 5
        while len(made) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert made == [0, 1]  # one in use, and the next
    assert not threads()


def test_errors_come_where_the_item_would_have() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InvalidInputError("t.parquet: cannot be read")

    made_ahead = ahead(items())
    assert next(made_ahead) == 1
    with pytest.raises(InvalidInputError, match="cannot be read"):
        next(made_ahead)
    assert list(made_ahead) == []
    assert not threads()


def test_what_is_no_longer_used_ends_its_thread() -> None:
    log: list[str] = []
    for value in ahead(endless(log)):
        if value == 3:
            break
    closed = ahead(endless(log))
    next(closed)
    closed.close()
    deleted = ahead(endless(log))
    next(deleted)
    del deleted
    cycle: dict[str, object] = {"ahead": ahead(endless(log))}
    next(cycle["ahead"])  # type: ignore[call-overload]
    cycle["self"] = cycle
    del cycle
    gc.collect()
    assert not threads()
    assert log == ["closed"] * 4


@pytest.mark.parametrize("buffer_rows", [1200], indirect=True)
@pytest.mark.usefixtures("buffer_rows")
def test_minibatches_by_step() -> None:
    source = open_source(X, y=-X[:, 0])
    data = StreamedRows.open(source, dtype=torch.float64)
    batches = data.minibatches(size=500, seed=3)
    some = [batches.batch(step).x for step in range(25)]
    again = data.minibatches(size=500, seed=3)
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
        "chunks = iter(StreamedRows.open(open_source(x, y=x[:, 0])).chunks(8))\n"
        "next(chunks)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""


def test_batches_may_have_other_precisions() -> None:
    """Rows in float64 keep their digits beside those in float32."""
    x = np.linspace(0.0, 1.0, N)[:, None]
    source = open_source([(x[:9].astype(np.float32), x[:9, 0]), (x[9:], x[9:, 0])])
    batches = StreamedMinibatches(shuffled(source, N), as_batches, Batch(*torch.empty(2, 0, 1)))
    found, y, _ = batches.batch(0)
    batches.close()
    exact = y[:, 0] > x[8, 0]
    assert torch.equal(found[exact, 0], y[exact, 0])
