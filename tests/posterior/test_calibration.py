from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from softki.metrics import coverage, gaussian_nll, rmse
from softki.posterior.calibration import (
    ROW_WEIGHTS,
    Calibration,
    HeldOutRows,
    calibrate,
    calibrate_row_weights,
)

UNIT = 1e-4


def of_zero(residual: torch.Tensor, noise: float, scale: torch.Tensor | None = None) -> HeldOutRows:
    """Rows at which the mean is zero, so that it cannot be shrunk."""
    return HeldOutRows(residual, torch.zeros_like(residual), noise, scale)


def with_variance(
    unseen: HeldOutRows, variance: Callable[[float], torch.Tensor]
) -> dict[float, tuple[HeldOutRows, torch.Tensor]]:
    """Predictions whose mean is the same whatever rows count."""
    return {weight: (unseen, variance(weight)) for weight in ROW_WEIGHTS}


def simulated(n: int, a: float, b: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Residuals and variances that are too small for anything to be shrunk."""
    generator = torch.Generator().manual_seed(seed)
    variance = UNIT * 10 ** (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 2)
    residual = (a * variance + b).sqrt() * torch.randn(n, generator=generator, dtype=torch.float64)
    return residual[:, None], variance


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.1), (16.0, 0.3), (200.0, 0.5), (0.2, 0.3)])
def test_finds_scale_and_noise(a: float, b: float) -> None:
    residual, variance = simulated(20_000, a, b * UNIT)
    found = calibrate(of_zero(residual, 0.1 * UNIT), variance)
    assert found.scale == pytest.approx(a, rel=0.3)
    assert found.noise_variance == pytest.approx(b * UNIT, rel=0.3)
    predictive = found.scale * variance + found.noise_variance
    assert coverage(residual, predictive[:, None]) == pytest.approx(0.95, abs=0.01)
    assert found.nll == pytest.approx(float(gaussian_nll(residual, predictive[:, None])), abs=1e-3)


def test_is_no_worse_than_the_models_own_variance() -> None:
    for seed in range(10):
        residual, variance = simulated(500, 3.0, 0.05 * UNIT, seed)
        own = float(gaussian_nll(residual, (variance + 0.1 * UNIT)[:, None]))
        assert calibrate(of_zero(residual, 0.1 * UNIT), variance).nll <= own + 1e-9


@pytest.mark.parametrize("spread", [1e-3, 3.0])  # f is kept in the first, and shrunk in the second
def test_no_other_factors_are_better(spread: float) -> None:
    generator = torch.Generator().manual_seed(0)
    y, mean, error = torch.randn(3, 200, 2, generator=generator, dtype=torch.float64)
    v = spread * torch.rand(200, generator=generator, dtype=torch.float64)
    scale = 0.5 + torch.rand(200, generator=generator, dtype=torch.float64)
    unseen = HeldOutRows(y, y + 0.3 * error + spread * mean, 0.1, scale)
    found = calibrate(unseen, v)
    assert found.target_variance == 1

    def loss(fitted: Calibration) -> float:
        prior = math.log(fitted.scale) ** 2 + math.log(fitted.noise_variance / 0.1) ** 2
        nll = float(gaussian_nll(*fitted.residual_and_variance(unseen, v)))
        assert fitted is not found or fitted.nll == pytest.approx(nll, rel=1e-5)
        return nll + prior / (2 * y.numel())

    for factor in (0.99, 1.01):
        assert loss(found) < loss(found._replace(scale=factor * found.scale))
        assert loss(found) < loss(found._replace(noise_variance=factor * found.noise_variance))


def test_few_rows_are_held_back() -> None:
    """With 6 rows the factors stay nearer to 1 than with 6000 of the same size."""
    residual, variance = torch.full((6, 1), 3.0), torch.full((6,), 0.01)
    few = calibrate(of_zero(residual, 0.1), variance)
    many = calibrate(of_zero(residual.repeat(1000, 1), 0.1), variance.repeat(1000))
    assert few.scale * 0.01 + few.noise_variance < many.scale * 0.01 + many.noise_variance
    assert many.scale * 0.01 + many.noise_variance == pytest.approx(9.0, rel=0.01)


def test_bounds_hold_for_absurd_residuals() -> None:
    perfect = calibrate(of_zero(torch.zeros(1000, 1), 1.0), torch.ones(1000))
    assert 1e-6 <= perfect.scale < 1
    wild = calibrate(of_zero(torch.full((1000, 1), 1e9), 1.0), torch.ones(1000))
    assert 1e-6 <= wild.scale <= 1.001e6
    assert 1 < wild.noise_variance <= 1.001e6
    assert math.isfinite(wild.nll)


def test_known_row_noise_counts() -> None:
    scale = torch.tensor([0.5, 2.0]).repeat(10_000)
    residual = (scale * torch.randn(20_000, generator=torch.Generator().manual_seed(0)))[:, None]
    found = calibrate(of_zero(residual, 0.3, scale), torch.zeros(20_000))
    assert found.noise_variance == pytest.approx(1.0, rel=0.05)


def test_several_targets_share_the_factors() -> None:
    residual, variance = simulated(5000, 4.0, 0.1 * UNIT)
    both = calibrate(of_zero(torch.cat([residual, residual], 1), 0.1 * UNIT), variance)
    assert both.scale == pytest.approx(
        calibrate(of_zero(residual, 0.1 * UNIT), variance).scale, rel=0.02
    )


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
    shape = UNIT * 10 ** (2 * torch.rand(20_000, generator=generator, dtype=torch.float64) - 2)

    def variance(weight: float) -> torch.Tensor:
        return 1 / (1 / shape + 100 / UNIT * weight)

    for weight in (1.0, 0.03, 0.001):
        noise = torch.randn(20_000, generator=generator, dtype=torch.float64)
        residual = (2 * variance(weight) + 0.001 * UNIT).sqrt() * noise
        unseen = of_zero(residual[:, None], 0.001 * UNIT)
        found = calibrate_row_weights(with_variance(unseen, variance))
        assert found.row_weight == weight
        assert found.scale == pytest.approx(2, rel=0.1)


def test_rows_count_fully_where_it_makes_no_difference() -> None:
    residual, variance = simulated(100, 1.0, 0.1 * UNIT)
    unseen = of_zero(residual, 0.1 * UNIT)
    found = calibrate_row_weights(with_variance(unseen, lambda weight: variance))
    assert (found.row_weight, found.mean_row_weight) == (1.0, 1.0)


def test_the_mean_has_a_weight_of_its_own() -> None:
    """Means of heavier rows follow their noise; those of lighter ones are drawn to zero."""
    generator = torch.Generator().manual_seed(0)
    f, noise, error = torch.randn(3, 5000, 1, generator=generator, dtype=torch.float64)
    variance = torch.full((5000,), 1e-4, dtype=torch.float64)
    predictions = {}
    for weight in ROW_WEIGHTS:
        kept = weight / (weight + 0.001)
        mean = kept * f + 0.1 * weight**0.5 * error
        predictions[weight] = HeldOutRows(f + 0.1 * noise, mean, 0.01), variance
    least = min(ROW_WEIGHTS, key=lambda w: rmse(f - predictions[w][0].mean))
    found = calibrate_row_weights(predictions)
    assert least == 0.1
    assert (found.row_weight, found.mean_row_weight) == (1.0, least)


def test_a_mean_that_is_wild_where_it_is_uncertain_is_shrunk_before_it_is_judged() -> None:
    """The variance is right, but f is known to be no larger than 1: NLL and RMSE fall."""
    generator = torch.Generator().manual_seed(0)
    variance = torch.tensor([0.01, 30.0], dtype=torch.float64).repeat(5000)
    f = torch.randn(10_000, generator=generator, dtype=torch.float64)
    error = torch.randn(10_000, generator=generator, dtype=torch.float64)
    mean = f + variance.sqrt() * error
    y = f + 0.1 * torch.randn(10_000, generator=generator, dtype=torch.float64)
    unseen = HeldOutRows(y[:, None], mean[:, None], 0.01)
    found = calibrate(unseen, variance)
    residual, total = found.residual_and_variance(unseen, variance)
    assert rmse(residual[::2]) == pytest.approx(0.02**0.5, rel=0.05)  # where it is certain
    assert rmse(residual[1::2]) < 1.1  # not √30
    assert float(total[1::2].max()) < 1.1
    assert found.nll == pytest.approx(float(gaussian_nll(residual, total)))
    own = Calibration(1.0, 0.01, math.nan)
    assert found.nll <= float(gaussian_nll(*own.residual_and_variance(unseen, variance)))


def test_a_mean_that_is_right_where_it_is_uncertain_is_not_shrunk() -> None:
    """Such variances are too large: held-out rows show that the mean is not to be touched."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(5000, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(5000, generator=generator, dtype=torch.float64)
    variance = torch.full((5000,), 4.0, dtype=torch.float64)
    unseen = HeldOutRows((f + noise)[:, None], f[:, None], 0.01)
    for found in (
        calibrate(unseen, variance),
        calibrate_row_weights(with_variance(unseen, lambda w: variance)),
    ):
        residual, _ = found.residual_and_variance(unseen, variance)
        assert rmse(residual) == pytest.approx(0.1, rel=0.05)


def test_widening_leaves_the_mean() -> None:
    """τ² grows with a, so that α is the one that the residuals were judged by."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(40, generator=generator, dtype=torch.float64)
    variance = torch.tensor([0.01, 30.0], dtype=torch.float64).repeat(20)
    mean = f + variance.sqrt() * torch.randn(40, generator=generator, dtype=torch.float64)
    unseen = HeldOutRows(f[:, None], mean[:, None], 0.01)
    narrow, wide = (
        calibrate(unseen, variance),
        calibrate_row_weights(with_variance(unseen, lambda w: variance)),
    )
    assert wide.scale > 1.05 * narrow.scale
    torch.testing.assert_close(
        wide.residual_and_variance(unseen, variance)[0],
        narrow.residual_and_variance(unseen, variance)[0],
    )
