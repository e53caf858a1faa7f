from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softki.exceptions import InvalidInputError
from softki.streaming import open_source
from softki.streaming.blocks import Block, RawRows
from softki.streaming.first_pass import FirstPass
from softki.streaming.sampling import LowestRows
from softki.streaming.shards import TrainingShard
from softki.training.data import held_out_count, row_hash
from softki.training.standardize import Moments, Standardizer

NAMES = ["a", "b", "c"]


def pieces(values: np.ndarray, cuts: list[int]) -> list[np.ndarray]:
    return np.split(values, sorted(cuts))


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 500), max_size=6),
    scale=st.sampled_from([1e-200, 1e-6, 1.0, 1e6, 1e200]),
    mean=st.sampled_from([0.0, 1.0, 1e5]),
    single=st.booleans(),
)
def test_moments_of_pieces_are_those_of_all(
    cuts: list[int], scale: float, mean: float, single: bool
) -> None:
    values = scale * (mean + np.random.default_rng(0).standard_normal((500, 3)))
    if single and 1e-10 < scale < 1e10:
        values = values.astype(np.float32)
    expected = Standardizer.of(torch.from_numpy(values))
    moments = Moments.none(3)
    for piece in pieces(values, cuts):
        moments = moments + Moments.of(torch.from_numpy(piece))
    found = moments.standardizer("X", NAMES)
    assert moments.count == 500
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-12, atol=1e-12 * scale)
    torch.testing.assert_close(found.scale, expected.scale, rtol=1e-9, atol=0)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 / 3, -1e-300])
def test_a_constant_column_keeps_the_scale_1(value: float) -> None:
    values = np.full((10_000, 1), value)
    moments = Moments.none(1)
    for piece in np.array_split(values, 7):
        moments = moments + Moments.of(torch.from_numpy(piece))
    standardizer = moments.standardizer("X", NAMES)
    assert float(standardizer.scale[0]) == 1.0
    assert float(standardizer.mean[0]) == pytest.approx(value, rel=1e-15)


def test_means_that_overflow_are_refused() -> None:
    values = torch.tensor([[1.0, 1.7e308], [2.0, -1.7e308]], dtype=torch.float64)
    with pytest.raises(InvalidInputError, match="X column 'b' has values so large"):
        (Moments.of(values[:1]) + Moments.of(values[1:])).standardizer("X", NAMES)


def test_the_hash_is_uniform_without_repeats_and_other_for_each_seed() -> None:
    positions = np.arange(1 << 17)
    hashes = row_hash(positions, 3)
    assert len(np.unique(hashes)) == len(positions)
    counts = np.bincount((hashes >> np.uint64(56)).astype(int), minlength=256)
    chi_squared = ((counts - 512) ** 2 / 512).sum()
    assert abs(chi_squared - 255) < 5 * np.sqrt(2 * 255)
    again = row_hash(positions, 4)
    uniform, other = hashes / 2.0**64, again / 2.0**64
    assert abs(np.corrcoef(uniform, other)[0, 1]) < 0.015
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < 0.015
    np.testing.assert_array_equal(row_hash(positions[500:600], 3), hashes[500:600])


@settings(max_examples=25, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 2000), max_size=8),
    capacity=st.sampled_from([1, 10, 300, 5000]),
    processes=st.integers(1, 3),
)
def test_the_sample_is_the_same_for_any_blocks(
    cuts: list[int], capacity: int, processes: int
) -> None:
    x = np.arange(2000.0)
    samples = [LowestRows(capacity, seed=5) for _ in range(processes)]
    for k, piece in enumerate(pieces(x, cuts)):
        if len(piece):
            rows = RawRows(piece[:, None], -piece[:, None], piece + 1)
            samples[k % processes].add(Block(int(piece[0]), rows))
    total = samples[0]
    for sample in samples[1:]:
        total = sample + total
    positions, rows = total.ordered()
    expected = np.argsort(row_hash(np.arange(2000), 5))[:capacity]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(rows.x[:, 0], expected)
    np.testing.assert_array_equal(rows.y[:, 0], -expected)
    assert rows.noise is not None
    np.testing.assert_array_equal(rows.noise, expected + 1)


def test_a_sample_keeps_no_more_than_it_needs() -> None:
    sample = LowestRows(100, seed=0)
    for start in range(0, 100_000, 1000):
        sample.add(Block(start, RawRows(np.zeros((1000, 2)), np.zeros((1000, 1)))))
        assert sum(len(kept[0]) for kept in sample._kept) <= 125


def test_how_many_rows_are_held_out() -> None:
    assert [held_out_count(n, 0.1) for n in (10, 40, 50, 1000, 100_000, 10**7)] == [
        0,
        0,
        5,
        100,
        10_000,
        10_000,
    ]
    with pytest.raises(InvalidInputError, match="leaves no rows to train on"):
        held_out_count(100, 0.999)


def test_held_out_rows_are_left_out_of_blocks() -> None:
    x = np.arange(10.0)[:, None]
    source = open_source([(x[k], x[k]) for k in map(slice, (0, 1, 3, 8), (1, 3, 8, 10))])
    shards = [range(0, 0), range(0, 1), range(1, 4), range(4, 10)]
    found = [
        TrainingShard(source, np.array([3, 8, 0, 9]), shards, rank) for rank in range(len(shards))
    ]
    assert found[0].counts.tolist() == [0, 0, 2, 4]
    kept = [[int(k) for rows in shard.read() for k in rows.x[:, 0]] for shard in found]
    assert kept == [[], [], [1, 2], [4, 5, 6, 7]]


def test_first_passes_of_processes_add() -> None:
    x = np.random.default_rng(0).standard_normal((3000, 3))
    source = open_source(x, y=x[:, :2], noise_variance=x[:, 0] ** 2 + 1)
    whole = FirstPass.over(source, 1)
    shards = [range(0, 0), range(0, 1000), range(1000, 2999), range(2999, 3000)]
    parts = [FirstPass.over(source, 1, source.between(shard)) for shard in shards]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    for name in ("x", "y", "noise"):
        np.testing.assert_allclose(getattr(total, name).mean, getattr(whole, name).mean, rtol=1e-12)
        np.testing.assert_allclose(getattr(total, name).root, getattr(whole, name).root, rtol=1e-12)
    np.testing.assert_array_equal(total.lowest.ordered()[0], whole.lowest.ordered()[0])
