"""Away from the data, f is as uncertain as before; within it, nothing changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from softki import FitSettings, SoftKIRegressor, fit, load
from softki.data import robot_arm
from softki.kernels.stationary import Matern32
from softki.model import SoftKI
from softki.posterior.extrapolation import WAVES, Edge, edge_of, waves
from softki.training.fit import Fit

F64 = torch.float64


@pytest.fixture(scope="module")
def sine() -> Fit:
    x = torch.rand(400, 1, generator=torch.Generator().manual_seed(0), dtype=F64) * 4 - 2
    y = torch.sin(2 * x)
    return fit(x, y / y.std(), settings=FitSettings(points=64, steps=150))


def test_within_the_data_nothing_changes(sine: Fit) -> None:
    x = torch.linspace(-1.9, 1.9, 100, dtype=F64)[:, None]
    plain = replace(sine.posterior, reach=None, width=None)
    for ours, before in zip(sine.posterior.predict(x), plain.predict(x), strict=True):
        assert torch.equal(ours, before)
    torch.testing.assert_close(sine.posterior.covariance(x), plain.covariance(x))


def test_far_away_the_std_is_that_of_the_target(sine: Fit) -> None:
    """An exact GP with the variance of the target says .999 at x = 5."""
    std = sine.posterior.variance(torch.tensor([[5.0], [-5.0], [1e6]], dtype=F64)).sqrt()
    assert bool(((std > 0.9) & (std < 1.3)).all())


def test_the_std_is_continuous_and_never_falls_on_the_way_out(sine: Fit) -> None:
    x = torch.linspace(2, 8, 60_001, dtype=F64)[:, None]
    std = sine.posterior.variance(x).sqrt()
    steps = [float(std[::every].diff().abs().max()) for every in (1, 10)]
    assert steps[0] < 0.2 * steps[1]  # ten times closer together, ten times less apart
    assert float(std[-1]) > float(std[0])


def test_variance_covariance_and_draws_agree(sine: Fit) -> None:
    posterior = sine.posterior
    near = float(posterior.edge.width * sine.model.temperature.detach()[0]) / 5
    x = torch.tensor([[0.5], [2.6], [3.0], [5.0], [5.0 + near]], dtype=F64)
    covariance = posterior.covariance(x)
    torch.testing.assert_close(covariance.diagonal(), posterior.variance(x))
    assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-10
    functions = posterior.sample_functions(20_000, torch.Generator().manual_seed(0))
    draws = functions(x)[:, :, 0]
    torch.testing.assert_close(torch.cov(draws), covariance, atol=0.05, rtol=0)
    torch.testing.assert_close(draws.mean(1), posterior.mean(x)[:, 0], atol=0.05, rtol=0)
    assert float(torch.corrcoef(draws[3:])[0, 1]) > 0.5  # neighbours outside


def test_draws_have_gradients_on_both_sides_of_the_edge(sine: Fit) -> None:
    functions = sine.posterior.sample_functions(2, torch.Generator().manual_seed(0))
    x = torch.tensor([[0.5], [3.0]], dtype=F64)
    step = 1e-6
    numerical = (functions(x + step) - functions(x - step)) / (2 * step)
    gradient = functions.gradient(x)[..., 0]
    assert bool(gradient.isfinite().all())
    torch.testing.assert_close(gradient, numerical, rtol=1e-3, atol=1e-4)


def test_waves_have_the_correlation_of_the_kernel() -> None:
    x = torch.linspace(0, 3, 30, dtype=F64)[:, None].expand(-1, 3)
    phi = waves(x, torch.tensor(2.0, dtype=F64))
    assert phi.shape == (30, WAVES)
    r = 3**0.5 * torch.cdist(x, x) / 2
    torch.testing.assert_close(phi @ phi.T, (1 + r) * torch.exp(-r), atol=0.15, rtol=0)
    torch.testing.assert_close(phi.square().sum(1), torch.ones(30, dtype=F64))


def test_inputs_three_times_as_large_are_covered() -> None:
    model = SoftKIRegressor(points=256, steps=100, random_state=0).fit(*robot_arm(3000))
    turned, y = robot_arm(2000, seed=1, turn=3)
    mean, std = model.predict(turned, return_std=True)
    assert np.mean(np.abs(y - mean) < 1.96 * std) > 0.87
    plain = replace(model.fit_.posterior, reach=None, width=None)
    model.fit_ = replace(model.fit_, posterior=plain)
    mean, std = model.predict(turned, return_std=True)
    assert np.mean(np.abs(y - mean) < 1.96 * std) < 0.75


def test_more_rows_widen_the_edge(sine: Fit) -> None:
    assert sine.posterior.edge is not None
    x = torch.linspace(4, 6, 50, dtype=F64)[:, None]
    wider = sine.with_rows(x, torch.zeros(50, dtype=F64)).posterior
    assert wider.edge is not None
    assert float(wider.edge.reach) > float(sine.posterior.edge.reach)


def test_rows_at_one_place_have_an_edge() -> None:
    same = fit(torch.zeros(50, 2), torch.randn(50), settings=FitSettings(points=4, steps=5))
    assert same.posterior.edge is not None
    assert float(same.posterior.edge.width) > 0
    assert bool(same.posterior.variance(torch.randn(5, 2)).isfinite().all())


def test_the_edge_is_in_the_file(tmp_path: Path) -> None:
    X = np.linspace(0, 6, 200)[:, None]
    model = SoftKIRegressor(points=16, steps=30, random_state=0).fit(X, np.sin(X[:, 0]))
    path = tmp_path / "model.softki"
    model.save(path)
    far = np.array([[-20.0], [3.0], [30.0]])
    for ours, again in zip(
        model.predict(far, return_std=True), load(path).predict(far, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(ours, again)


def test_the_edge_of_rows_is_where_their_distances_end() -> None:
    model = SoftKI(torch.tensor([[0.0], [1.0]]), Matern32(1))
    x = torch.tensor([[0.0]] * 99 + [[2.0]] * 99)
    edge = edge_of(model, x)  # second nearest: 1 and 2
    assert isinstance(edge, Edge)
    assert float(edge.reach) == pytest.approx(2.25, abs=0.3)
