from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import gpytorch
import numpy as np
import pytest
import torch

from softki import SoftKI, fit
from softki.data import robot_arm, split_indices
from softki.exceptions import InvalidInputError, NumericalError
from softki.kernels import Matern32
from softki.metrics import coverage, gaussian_nll, rmse
from softki.settings import FitSettings
from softki.solvers import Solver

from dense import F64

SMALL = FitSettings(points=30, steps=40, batch_size=64)


def surface(n: int = 500, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=g)
    return x, torch.sin(x[:, 0]) * x[:, 1] + 0.1 * torch.randn(n, generator=g)


def test_predicts_with_honest_error_bars() -> None:
    x, y = robot_arm(6000, seed=1)
    train, test = split_indices(len(x))
    x, y = torch.from_numpy(x), torch.from_numpy((y - y.mean()) / y.std())
    result = fit(x[train], y[train], settings=FitSettings(points=128, steps=250))
    mean, variance = result.posterior.predict(x[test])
    residual, total = y[test] - mean[:, 0], variance + result.posterior.noise_variance
    assert rmse(residual) < 0.25
    assert float(gaussian_nll(residual, total)) < -0.1
    assert coverage(residual, total) == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("temperature", ["none", "one", "per_dimension"])
def test_precisions_and_temperatures(dtype: torch.dtype, temperature: str) -> None:
    x, y = surface()
    result = fit(x, y, settings=replace(SMALL, dtype=dtype, temperature=temperature))
    assert result.report.precision == str(dtype).removeprefix("torch.")
    assert rmse(y[:, None] - result.posterior.predict(x)[0]) < 0.4 * y.std()
    shape = {"none": None, "one": (), "per_dimension": (2,)}[temperature]
    fitted = result.model.temperature
    assert (None if fitted is None else tuple(fitted.shape)) == shape


def test_initial_points_are_divided_by_the_initial_temperature() -> None:
    x, y = surface()
    untrained = fit(x, y, settings=replace(SMALL, steps=0)).model
    assert untrained.temperature.tolist() == pytest.approx([0.2 * math.sqrt(2)] * 2)
    centres = (untrained.points * untrained.temperature).detach().float()
    assert torch.cdist(centres, x).min(1).values.max() < 0.5
    assert float(centres.std()) == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize("solver", get_args(Solver))
def test_solvers_give_the_same_posterior(solver: Solver) -> None:
    x, y = surface()
    mean, variance = (
        torch.stack(parts)
        for parts in zip(
            *(
                fit(x, y, settings=replace(SMALL, solver=each, dtype=F64)).posterior.predict(x)
                for each in ("qr", solver)
            ),
            strict=True,
        )
    )
    torch.testing.assert_close(mean[0], mean[1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(variance[0], variance[1], rtol=2e-2, atol=1e-5)


def test_a_solver_that_fails_says_so_and_is_not_replaced() -> None:
    x, y = surface()
    model = SoftKI(torch.zeros(3, 2), Matern32(2), jitter=0.0)
    with pytest.raises(NumericalError, match="kernel matrix K is not positive definite"):
        fit(x, y, settings=replace(SMALL, steps=0, held_out=0.0), model=model)


def test_several_targets_and_known_noise() -> None:
    x, y = surface(800)
    noise_variance = torch.where(torch.arange(800) % 2 == 0, 0.01, 4.0)
    g = torch.Generator().manual_seed(5)
    noisy = y + noise_variance.sqrt() * torch.randn(800, generator=g)
    targets = torch.stack([noisy, -2 * noisy], 1)
    result = fit(x, targets, noise_variance, settings=SMALL)
    mean, variance = result.posterior.predict(x)
    assert mean.shape == (800, 2)
    assert variance.shape == (800,)
    torch.testing.assert_close(mean[:, 1], -2 * mean[:, 0], rtol=1e-6, atol=1e-6)
    ignorant = fit(x, noisy, settings=SMALL).posterior.predict(x)[0][:, 0]
    assert rmse(y - mean[:, 0]) < rmse(y - ignorant)


def test_numpy_input_and_a_composed_gpytorch_kernel() -> None:
    x, y = (part.numpy() for part in surface())
    kernels = gpytorch.kernels
    kernel = kernels.ScaleKernel(kernels.RBFKernel() + kernels.MaternKernel(nu=0.5))
    result = fit(x.astype(np.float64), y, settings=replace(SMALL, kernel=kernel))
    assert (
        rmse(torch.from_numpy(y)[:, None] - result.posterior.predict(torch.from_numpy(x))[0]) < 0.4
    )


class TestSmallAndDegenerateData:
    def test_one_row(self) -> None:
        result = fit(torch.zeros(1, 3), torch.tensor([2.0]), settings=SMALL)
        mean, variance = result.posterior.predict(torch.randn(4, 3))
        assert result.report.points == 1
        assert bool(mean.isfinite().all())
        assert bool((variance >= 0).all())
        assert 0 < float(mean[0]) <= 2.0

    @pytest.mark.parametrize("n", [2, 10, 29])
    def test_fewer_rows_than_points(self, n: int) -> None:
        x, y = surface(n)
        result = fit(x, y, settings=SMALL)
        assert result.report.points == n
        assert result.report.rows == n
        assert bool(result.posterior.predict(x)[0].isfinite().all())

    def test_constant_columns_change_nothing(self) -> None:
        x, y = surface()
        with_constant = torch.cat([x, torch.zeros(len(x), 1)], 1)
        result = fit(with_constant, y, settings=SMALL)
        assert rmse(y[:, None] - result.posterior.predict(with_constant)[0]) < 0.4
        all_constant = fit(torch.zeros(50, 2), y[:50], settings=SMALL)
        assert all_constant.report.points == 1
        mean = all_constant.posterior.predict(torch.zeros(1, 2))[0]
        assert float(mean) == pytest.approx(float(y[:50].mean()), abs=0.1)

    def test_constant_target(self) -> None:
        x, _ = surface()
        result = fit(x, torch.zeros(len(x)), settings=SMALL)
        mean, variance = result.posterior.predict(x)
        assert mean.abs().max() < 1e-6
        assert float((variance + result.posterior.noise_variance).max()) < 0.1

    def test_repeated_rows_and_more_points_than_distinct_rows(self) -> None:
        x, y = surface(8)
        x, y = x.repeat(40, 1), y.repeat(40)
        result = fit(x, y, settings=SMALL)
        assert result.report.points == 8
        assert rmse(y[:, None] - result.posterior.predict(x)[0]) < 0.2

    def test_one_column(self) -> None:
        x = torch.linspace(-2, 2, 300)[:, None]
        result = fit(x, torch.sin(3 * x), settings=replace(SMALL, steps=200))
        assert rmse(torch.sin(3 * x) - result.posterior.predict(x)[0]) < 0.05

    def test_a_wide_table(self) -> None:
        x = torch.randn(200, 700, generator=torch.Generator().manual_seed(0))
        y = x[:, :350].sum(1) / math.sqrt(350)
        result = fit(x, y, settings=SMALL)
        assert bool(result.posterior.predict(x)[0].isfinite().all())


class TestErrors:
    x, y = surface(20)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((x[0], y), r"x must be a table of shape \(n, d\).*got \(2,\)"),
            ((x[:0], y[:0]), r"with rows and columns, got \(0, 2\)"),
            (
                (x, y[:5]),
                r"y must have the shape \(20,\) or \(20, targets\) to match x, got \(5,\)",
            ),
            ((torch.full((20, 2), math.nan), y), "x has 40 values that are NaN.*row 0, column 0"),
            (
                (x, torch.where(torch.arange(20) == 7, math.inf, y)),
                "y has 1 value.*row 7, column 0",
            ),
            ((x, y, torch.ones(3)), r"noise_variance must have the shape \(20,\), got \(3,\)"),
            ((x, y, -torch.ones(20)), "noise_variance must be positive, got -1.0 in row 0"),
            ((x, y, torch.full((20,), math.nan)), "noise_variance has 20 values that are NaN"),
        ],
    )
    def test_data(self, arguments: tuple[torch.Tensor, ...], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            fit(*arguments, settings=SMALL)

    def test_a_value_too_large_for_the_precision_is_found(self) -> None:
        x = self.x.double().clone()
        x[4, 1] = 1e200
        with pytest.raises(InvalidInputError, match=r"x has 1 value .* row 4, column 1"):
            fit(x, self.y, settings=SMALL)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
    def test_cuda_that_is_absent(self) -> None:
        with pytest.raises(InvalidInputError, match="torch finds no CUDA device"):
            fit(self.x, self.y, settings=SMALL, device="cuda")

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ({"kernel": "matern-32"}, "unknown kernel 'matern-32', did you mean 'matern32'"),
            ({"objective": "mll"}, "unknown objective 'mll'"),
            ({"solver": "qrs"}, "unknown solver 'qrs', did you mean 'qr'"),
            ({"temperature": "two"}, "unknown temperature 'two'"),
            ({"schedule": "cosinus"}, "unknown schedule 'cosinus', did you mean 'cosine'"),
            ({"points": 0}, "points must be at least 1, got 0"),
            ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
            ({"steps": -1}, "steps must be at least 0, got -1"),
            ({"held_out": 1.0}, "held_out must be at least 0 and below 1, got 1.0"),
            ({"patience": 0}, "patience must be at least 1, got 0"),
            ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
            ({"dtype": torch.float16}, r"dtype must be torch\.float32 or torch\.float64"),
        ],
    )
    def test_settings(self, setting: dict[str, object], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            FitSettings(**setting)  # type: ignore[arg-type]


def test_pol_reaches_the_papers_error(data_folder) -> None:  # type: ignore[no-untyped-def]
    """The paper: RMSE 0.075, NLL −0.71. Here with fewer steps than the default."""
    table = np.loadtxt(data_folder / "uci" / "pol.csv.gz", delimiter=",")
    train, test = split_indices(len(table))
    table = (table - table[train].mean(0)) / table[train].std(0)
    x, y = torch.from_numpy(table[:, :-1]), torch.from_numpy(table[:, -1])
    result = fit(x[train], y[train], settings=FitSettings(steps=400))
    mean, variance = result.posterior.predict(x[test])
    residual, total = y[test] - mean[:, 0], variance + result.posterior.noise_variance
    assert rmse(residual) < 0.075
    assert float(gaussian_nll(residual, total)) < -1.0
    assert result.report.fallbacks.total() == result.report.skipped.total() == 0
