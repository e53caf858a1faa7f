from __future__ import annotations

import pytest
import torch

from softki.batches import Data, Minibatches
from softki.exceptions import InvalidInputError


def numbered(n: int, noise: bool = False) -> Data:
    rows = torch.arange(n, dtype=torch.float32)[:, None]
    return Data(rows, -rows, rows[:, 0] + 1 if noise else None)


def test_chunks_cover_all_rows_in_order() -> None:
    data = numbered(10_000, noise=True)
    chunks = data.chunks(points=1024)
    assert [len(batch.x) for batch in chunks] == [2048, 2048, 2048, 2048, 1808]
    for part, whole in zip(
        zip(*chunks, strict=True), (data.x, data.y, data.noise_std), strict=True
    ):
        assert torch.equal(torch.cat(part), whole)
    index = torch.tensor([3, 1, 2])
    assert data.chunks(points=4, index=index)[0].x[:, 0].tolist() == [3.0, 1.0, 2.0]


def test_an_epoch_takes_every_row_once() -> None:
    batches = Minibatches(numbered(60), torch.arange(10, 50), size=10, seed=0)
    rows = torch.cat([batches.batch(step).x[:, 0] for step in range(8)]).tolist()
    first, second = rows[:40], rows[40:]
    assert sorted(first) == sorted(second) == list(range(10, 50))
    assert first != second


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    data, index = numbered(50), torch.arange(50)
    forward = [Minibatches(data, index, 7, seed=3).batch(step).x for step in range(20)]
    jumping = Minibatches(data, index, 7, seed=3)
    assert torch.equal(jumping.batch(17).x, forward[17])
    assert torch.equal(jumping.batch(2).x, forward[2])
    assert not torch.equal(Minibatches(data, index, 7, seed=4).batch(2).x, forward[2])


def test_data_checks_its_shapes() -> None:
    with pytest.raises(InvalidInputError, match=r"y of shape \(n, t\), got \(3, 1\) and \(3,\)"):
        Data(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(InvalidInputError, match=r"noise_std must have the shape \(3,\).*\(2,\)"):
        Data(torch.zeros(3, 1), torch.zeros(3, 1), torch.ones(2))
    with pytest.raises(InvalidInputError, match=r"noise_std must have the shape \(3,\).*\(3, 1\)"):
        Data(torch.zeros(3, 1), torch.zeros(3, 1), torch.ones(3, 1))
