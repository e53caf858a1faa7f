from __future__ import annotations

import math

import pytest
import torch

from softki.calibration import calibrate, calibrate_row_weight
from softki.metrics import coverage, gaussian_nll, rmse


def simulated(n: int, a: float, b: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    variance = 10 ** (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 2)
    residual = (a * variance + b).sqrt() * torch.randn(n, generator=generator, dtype=torch.float64)
    return residual[:, None], variance


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.1), (16.0, 0.3), (200.0, 0.5), (0.2, 0.3)])
def test_finds_scale_and_noise(a: float, b: float) -> None:
    residual, variance = simulated(20_000, a, b)
    found = calibrate(residual, variance, noise_variance=0.1)
    assert found.scale == pytest.approx(a, rel=0.3)
    assert found.noise_variance == pytest.approx(b, rel=0.3)
    predictive = found.scale * variance + found.noise_variance
    assert coverage(residual, predictive[:, None]) == pytest.approx(0.95, abs=0.01)
    assert found.nll == pytest.approx(float(gaussian_nll(residual, predictive[:, None])))


def test_is_no_worse_than_the_models_own_variance() -> None:
    for seed in range(10):
        residual, variance = simulated(500, 3.0, 0.05, seed)
        own = float(gaussian_nll(residual, (variance + 0.1)[:, None]))
        assert calibrate(residual, variance, 0.1).nll <= own + 1e-9


def test_few_rows_are_held_back() -> None:
    """With 6 rows the factors stay nearer to 1 than with 6000 of the same size."""
    residual, variance = torch.full((6, 1), 3.0), torch.full((6,), 0.01)
    few = calibrate(residual, variance, 0.1)
    many = calibrate(residual.repeat(1000, 1), variance.repeat(1000), 0.1)
    assert few.scale * 0.01 + few.noise_variance < many.scale * 0.01 + many.noise_variance
    assert many.scale * 0.01 + many.noise_variance == pytest.approx(9.0, rel=0.01)


def test_bounds_hold_for_absurd_residuals() -> None:
    perfect = calibrate(torch.zeros(1000, 1), torch.ones(1000), 1.0)
    assert 1e-6 <= perfect.scale < 1
    wild = calibrate(torch.full((1000, 1), 1e9), torch.ones(1000), 1.0)
    assert 1 < wild.scale <= 1.001e6
    assert math.isfinite(wild.nll)


def test_known_row_noise_counts() -> None:
    scale = torch.tensor([0.5, 2.0]).repeat(10_000)
    residual = (scale * torch.randn(20_000, generator=torch.Generator().manual_seed(0)))[:, None]
    found = calibrate(residual, torch.zeros(20_000), 0.3, noise_scale=scale)
    assert found.noise_variance == pytest.approx(1.0, rel=0.05)


def test_several_targets_share_the_factors() -> None:
    residual, variance = simulated(5000, 4.0, 0.1)
    both = calibrate(torch.cat([residual, residual], 1), variance, 0.1)
    assert both.scale == pytest.approx(calibrate(residual, variance, 0.1).scale, rel=0.02)


def test_metrics() -> None:
    residual = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    variance = torch.tensor([1.0, 4.0, 0.25], dtype=torch.float64)
    normal = torch.distributions.Normal(0, variance.sqrt())
    assert float(gaussian_nll(residual, variance)) == pytest.approx(
        -float(normal.log_prob(residual).mean())
    )
    assert rmse(residual) == pytest.approx(math.sqrt(5.25 / 3))
    assert coverage(residual, variance) == pytest.approx(2 / 3)
    assert coverage(residual, variance, level=0.5) == pytest.approx(2 / 3)
    assert coverage(residual, variance, level=0.3) == pytest.approx(0)


def test_finds_how_much_a_row_counts() -> None:
    """The variances of two weights have different shapes, of which the residuals show one."""
    generator = torch.Generator().manual_seed(0)
    shape = 10 ** (2 * torch.rand(20_000, generator=generator, dtype=torch.float64) - 2)

    def variance(weight: float) -> torch.Tensor:
        return 1 / (1 / shape + 100 * weight)

    for weight in (1.0, 0.03, 0.001):
        noise = torch.randn(20_000, generator=generator, dtype=torch.float64)
        residual = (2 * variance(weight) + 0.001).sqrt() * noise
        found = calibrate_row_weight(residual[:, None], variance, 0.001)
        assert found.row_weight == weight
        assert found.scale == pytest.approx(2, rel=0.1)


def test_rows_count_fully_where_it_makes_no_difference() -> None:
    residual, variance = simulated(100, 1.0, 0.1)
    assert calibrate_row_weight(residual, lambda weight: variance, 0.1).row_weight == 1.0
