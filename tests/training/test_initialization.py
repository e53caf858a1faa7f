from __future__ import annotations

import pytest
import torch

from softki.training import initialization
from softki.training.initialization import initial_points, initial_temperature

from dense import F64


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def clusters(count: int, rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    centres = 10 * torch.randn(count, 2, generator=g)
    return centres, centres.repeat(rows, 1) + 0.01 * torch.randn(count * rows, 2, generator=g)


def test_points_are_cluster_centres() -> None:
    centres, x = clusters(8, 200)
    points = initial_points(x, 8, generator())
    nearest = torch.cdist(centres.double(), points).min(1).values
    assert (nearest < 0.05).float().mean() >= 0.7  # one k-means run may join two clusters


def test_never_more_points_than_distinct_rows() -> None:
    x = torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, 3.0]]).repeat(50, 1)
    points = initial_points(x, 10, generator())
    assert points.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert len(initial_points(torch.randn(5, 3), 10, generator())) == 5


def test_a_large_table_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    kmeans = initialization._sklearn_kmeans
    monkeypatch.setattr(
        initialization, "_sklearn_kmeans", lambda x, *rest: seen.append(len(x)) or kmeans(x, *rest)
    )
    points = initial_points(torch.randn(30_000, 2), 4, generator())
    assert seen == [10_000]
    assert points.shape == (4, 2)
    assert points.dtype == F64


def test_on_device_kmeans_lowers_the_same_criterion(monkeypatch: pytest.MonkeyPatch) -> None:
    _, x = clusters(16, 50)
    start = initialization._plus_plus(x, 16, generator())

    def inertia(centres: torch.Tensor) -> float:
        return float(torch.cdist(x, centres).min(1).values.square().mean())

    centres = initialization._lloyd(x, start)
    assert inertia(start) < inertia(x[torch.randperm(len(x), generator=generator())[:16]])
    assert inertia(centres) < 0.9 * inertia(start)
    assert inertia(centres) < 2 * inertia(
        torch.tensor(initialization._sklearn_kmeans(x.numpy(), 16, 0))
    )
    monkeypatch.setattr(initialization, "chunk_rows", lambda points, device: 37)
    torch.testing.assert_close(initialization._lloyd(x, start), centres)
    far = torch.cat([start, torch.full((1, 2), 1e3)])
    assert torch.equal(initialization._lloyd(x, far)[-1], far[-1])  # an empty cluster stays


@pytest.mark.parametrize("dimension", [1, 25, 900])
def test_the_first_weights_are_neither_flat_nor_one_hot(dimension: int) -> None:
    from softki.interpolation.weights import interpolation_weights

    x = torch.randn(2000, dimension, generator=generator())
    temperature = torch.tensor(initial_temperature(dimension))
    points = initial_points(x, 100, generator()).float() / temperature
    weights = interpolation_weights(x, points, temperature)
    effective = (1 / weights.square().sum(1)).mean()
    assert 5 < effective < 95


def test_same_seed_same_points() -> None:
    x = torch.randn(500, 3)
    assert torch.equal(initial_points(x, 20, generator()), initial_points(x, 20, generator()))
