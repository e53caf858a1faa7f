"""`SoftKIRegressor()` with nothing set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import make_friedman1

from softki import FitSettings, SoftKIRegressor, fit
from softki.bench.methods import make
from softki.estimator.defaults import Size, settings_for, shared_settings, sizes_for


def scores(model: SoftKIRegressor, X: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """RMSE, NLL, and the share within 95% intervals."""
    mean, std = model.predict(X, return_std=True)
    covered = np.mean(abs(y - mean) < 1.96 * std)
    return float(np.sqrt(np.mean((y - mean) ** 2))), nll_of(y, mean, std), float(covered)


def nll_of(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> float:
    return float(np.mean(((y - mean) / std) ** 2 / 2 + np.log(std)) + math.log(2 * math.pi) / 2)


def friedman(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Five columns that matter, and twenty that do not."""
    X, y = make_friedman1(n, n_features=25, noise=1.0, random_state=seed)
    return X, (y - y.mean()) / y.std()


def test_pure_noise_is_predicted_as_such() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1500, 5)), rng.standard_normal(1500)
    model = SoftKIRegressor(random_state=0).fit(X[:500], y[:500])
    error, nll, covered = scores(model, X[500:], y[500:])
    assert error == pytest.approx(1, abs=0.04)
    assert nll == pytest.approx(1.42, abs=0.04)
    assert covered == pytest.approx(0.95, abs=0.03)


@pytest.mark.slow
def test_irrelevant_columns_cost_little() -> None:
    """On average; of one seed, the 150 rows that are held out may choose the worse of two sizes."""
    X, y = friedman(3500)
    errors = np.empty((4, 2))
    for seed in range(4):
        for k, columns in enumerate((5, 25)):
            model = SoftKIRegressor(random_state=seed).fit(X[:1500, :columns], y[:1500])
            errors[seed, k] = scores(model, X[1500:, :columns], y[1500:])[0]
    few, many = errors.mean(0)
    assert many < 1.1 * few


def test_500_rows_are_not_overfitted() -> None:
    X, y = friedman(1500)
    X = X[:, :8]
    model = SoftKIRegressor(random_state=0).fit(X[:500], y[:500])
    _, nll, covered = scores(model, X[500:], y[500:])
    exact = make("exact")
    exact.fit(X[:500], y[:500])
    mean, std = exact.predict(X[500:])
    assert nll < nll_of(y[500:], mean, std) + 0.2
    assert covered == pytest.approx(0.95, abs=0.03)


def test_few_rows_are_cross_validated() -> None:
    X, y = friedman(300)
    report = SoftKIRegressor(steps=60, random_state=0).fit(X, y).fit_report_
    assert (report.folds, report.held_out_rows, report.judged_rows) == (5, 0, 300)
    assert "each held out once in 5 folds" in str(report)
    assert report.best is not None
    assert report.best.step == min(report.history, key=lambda figures: figures.score).step
    assert report.steps == report.best_step  # of the training on all rows
    many = SoftKIRegressor(points=8, steps=3, random_state=0).fit(*friedman(1001)).fit_report_
    assert (many.folds, many.held_out_rows) == (0, 100)
    own = SoftKIRegressor(points=8, steps=3, held_out=0.2, random_state=0).fit(X, y).fit_report_
    assert (own.folds, own.held_out_rows) == (0, 60)


def test_sizes_grow_with_the_rows_and_the_device() -> None:
    assert sizes_for(100, on_cuda=False) == [Size(25, 1024, 100, 5.0)]
    assert sizes_for(2000, on_cuda=False) == [Size(500, 1024, 600), Size(256, 4096, 600, 5.0)]
    assert sizes_for(10_000, on_cuda=False) == [Size(512, 1024, 600)]
    smooth = Size(256, 4096, 1200, max_lengthscale=5.0)
    assert sizes_for(10_000, on_cuda=True) == [Size(512, 1024, 1200), smooth]
    assert [size.points for size in sizes_for(20_000, on_cuda=True)] == [512, 2048]
    assert [size.points for size in sizes_for(50_000, on_cuda=True)] == [512, 2048, 4096]
    [large] = sizes_for(2_000_000, on_cuda=False)
    assert (large.points, large.batch_size) == (512, 2048)


def test_what_the_user_chooses_is_kept() -> None:
    X, y = friedman(1200)
    fitted = SoftKIRegressor(points=7, batch_size=100, steps=4, random_state=0).fit(X, y)
    settings = fitted.fit_.settings
    assert (settings.points, settings.batch_size, settings.steps) == (7, 100, 4)
    assert not fitted.fit_report_.trials  # there is one size
    for points in (100, 300, 600):
        parameters = SoftKIRegressor(points=points).get_params()
        shared = shared_settings(parameters)
        [settings] = settings_for(parameters, shared, 2500, torch.device("cpu"))
        assert settings.points == points
        assert (settings.batch_size, settings.max_lengthscale) == (1024, 3.0)
    with pytest.raises(ValueError, match="points must be a whole number or 'auto', got 'many'"):
        SoftKIRegressor(points="many").fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="held_out must be a number between 0 and 1 or 'auto'"):
        SoftKIRegressor(held_out="some").fit(X, y)  # type: ignore[arg-type]


def test_the_cap_on_lengthscales_reaches_the_kernel() -> None:
    X, y = friedman(200)
    settings = FitSettings(points=8, steps=2, max_lengthscale=2.5, held_out=0.0)
    assert fit(X, y, settings=settings).model.kernel.max_lengthscale == 2.5
    few = SoftKIRegressor(points=8, steps=2, random_state=0).fit(X, y)
    assert few.fit_.model.kernel.max_lengthscale == 5.0
    with pytest.raises(ValueError, match=r"max_lengthscale must be .*1.1"):
        FitSettings(max_lengthscale=1.0)
