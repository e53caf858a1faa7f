from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, get_args

import gpytorch
import numpy as np
import pytest
import torch

from softki import SoftKI, fit, fit_rows
from softki.batches import Data
from softki.data import robot_arm, split_indices
from softki.exceptions import (
    InvalidInputError,
    InvalidTypeError,
    NumericalError,
    ScaleWarning,
    TrainingWarning,
)
from softki.kernels.stationary import Matern32
from softki.metrics import coverage, gaussian_nll, rmse
from softki.objective.exact_likelihood import exact
from softki.objective.hutchinson import Hutchinson
from softki.posterior.calibration import Calibration
from softki.solvers import Solver
from softki.training.data import InMemoryRows
from softki.training.inference import posterior_of, statistics_of
from softki.training.initialization import initial_model, set_initial_noise
from softki.training.report import Event
from softki.training.settings import FitSettings

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


def test_held_out_rows_leave_the_variance_as_it_suited_them() -> None:
    """It was found to be right with the training rows alone; the others only move the mean."""
    x, y = surface(800)
    result = fit(x, y, settings=replace(SMALL, held_out=0.5, dtype=F64))
    training = torch.ones(len(x), dtype=bool).index_fill(0, result.held_out, False)
    rows = Data(x[training].double(), y[training, None].double())
    calibration = result.report.calibration.for_more_rows(2.0)
    alone = statistics_of(result.model, rows, result.settings)
    judged = posterior_of(result.model, alone, result.settings, calibration)
    new = surface(300, seed=1)[0].double()
    ratio = result.posterior.predict(new)[1] / judged.predict(new)[1]
    assert ratio.mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("solver", get_args(Solver))
def test_rows_may_count_less_in_the_mean_than_in_the_variance(solver: Solver) -> None:
    """μ = (K⁻¹ + w′G/β²)⁻¹ w′V/β², and v as above, for two targets and known noise."""
    x, y = surface(300)
    settings = replace(SMALL, solver=solver, dtype=F64, held_out=0.0, steps=10, cg_tolerance=1e-8)
    result = fit(x, torch.stack([y, -2 * y], 1), 1 + x[:, 0].square(), settings=settings)
    model, statistics, report = result.model, result.statistics, result.report
    before = report.log_marginal_likelihood
    calibration = Calibration(2.0, 0.5, 0.0, row_weight=0.3, mean_row_weight=0.01)
    posterior = posterior_of(model, statistics, settings, calibration, report)
    assert report.log_marginal_likelihood == before  # that of rows that count fully
    with torch.no_grad():
        K, noise = model.kernel_matrix(), model.noise_variance
        G, V, S = statistics.gram, statistics.cross, model.weights(x[:20].double())
    mean_P, P = (torch.linalg.inv(torch.linalg.inv(K) + w * G / noise) for w in (0.01, 0.3))
    mean = S @ mean_P @ V * 0.01 / noise
    torch.testing.assert_close(posterior.mean(x[:20]), mean, rtol=1e-4, atol=1e-6)
    variance = 2 * (S @ P * S).sum(1)
    torch.testing.assert_close(posterior.variance(x[:20]), variance, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("folds", [0, 4])
def test_the_mean_of_a_fit_is_that_of_rows_that_count_less(folds: int) -> None:
    """Where β² is held far below the noise, held-out rows choose a larger one for the mean."""
    x, y = surface(700)
    y = y + torch.randn(700, generator=torch.Generator().manual_seed(2))
    y = (y - y.mean()) / y.std()
    model = SoftKI(x[:100].double() / 0.2, Matern32(2), torch.tensor(0.2), noise_variance=1e-3)
    settings = replace(SMALL, steps=0, folds=folds, dtype=F64)
    first = fit(x[:600], y[:600], settings=settings, model=model)
    weight = first.report.calibration.mean_row_weight
    assert weight < 1
    K, noise = model.kernel_matrix().detach(), model.noise_variance.detach() / weight
    for found in (first, first.with_rows(x[600:], y[600:])):
        G, V = found.statistics.gram, found.statistics.cross
        mean = torch.linalg.solve(torch.linalg.inv(K) + G / noise, V / noise)
        torch.testing.assert_close(found.posterior.mean_coefficients, mean, rtol=1e-6, atol=1e-8)


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


@pytest.mark.parametrize("solver", ["qr", "whitened"])
def test_rows_that_count_less_widen_the_variance_alone(solver: Solver) -> None:
    """v = a s(x)ᵀ(K⁻¹ + w G/β²)⁻¹ s(x), the mean that of rows that count fully; both times α."""
    x, y = surface(300)
    settings = replace(SMALL, solver=solver, dtype=torch.float64)
    result = fit(x, y, settings=settings)
    model, statistics = result.model, result.statistics
    plain, calibrated = (
        posterior_of(model, statistics, settings, calibration)
        for calibration in (None, Calibration(2.0, 0.5, 0.0, 0.01, target_variance=1.0))
    )
    x_new = surface(20, seed=1)[0]
    with torch.no_grad():
        K, noise = model.kernel_matrix(), model.noise_variance
        S = model.weights(x_new.double())
        P = torch.linalg.inv(torch.linalg.inv(K) + 0.01 * statistics.gram / noise)
    v = 2 * (S @ P * S).sum(1)
    share = (1 + v**2) ** -0.5
    torch.testing.assert_close(calibrated.mean(x_new)[:, 0], share * plain.mean(x_new)[:, 0])
    torch.testing.assert_close(calibrated.variance(x_new), share * v, rtol=1e-5, atol=1e-8)
    assert float(calibrated.noise_variance) == 0.5


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
            ((x[0], y), r"^Expected 2D array, got 1D array instead: x has the shape \(2,\)"),
            ((x[:0], y[:0]), r"^Found array with 0 sample.*x is empty"),
            (
                (x, y[:5]),
                r"^x has 20 rows and y has 5$",
            ),
            (
                (torch.full((20, 2), math.nan), y),
                "x contains NaN in row 0, column 0: missing values",
            ),
            (
                (x, torch.where(torch.arange(20) == 7, math.inf, y)),
                "y contains infinity in row 7, column 0: remove",
            ),
            ((x, y, torch.ones(3)), r"noise_variance must have the shape \(20,\), got \(3,\)"),
            ((x, y, -torch.ones(20)), "noise_variance must be positive, got -1.0 in row 0"),
            ((x, y, torch.full((20,), math.nan)), "noise_variance contains NaN in row 0"),
        ],
    )
    def test_data(self, arguments: tuple[torch.Tensor, ...], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            fit(*arguments, settings=SMALL)

    def test_a_value_too_large_for_the_precision_is_found(self) -> None:
        x = self.x.double().clone()
        x[4, 1] = 1e200
        with pytest.raises(
            InvalidInputError,
            match=r"x has values up to 1e\+200 in column 1, too large for torch.float32",
        ):
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
            ({"points": 0}, "points must be a whole number, at least 1, got 0"),
            ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
            ({"steps": -1}, "steps must be a whole number, at least 0, got -1"),
            ({"held_out": 1.0}, "held_out must be a number, at least 0 and below 1, got 1.0"),
            ({"patience": 0}, "patience must be a whole number, at least 1, got 0"),
            ({"learning_rate": 0.0}, "learning_rate must be a number, at least 1e-12, got 0.0"),
            (
                {"learning_rate": math.inf},
                "learning_rate must be a number, at least 1e-12, got inf",
            ),
            ({"held_out": None}, "held_out must be a number, at least 0 and below 1, got None"),
            ({"points": 2.5}, "points must be a whole number, at least 1, got 2.5"),
            ({"steps": None}, "steps must be a whole number, at least 0, got None"),
            ({"steps": True}, "steps must be a whole number, at least 0, got True"),
            ({"seed": 2**70}, "seed must be a number, at least 0 and below"),
            ({"seed": None}, "seed must be a whole number, at least 0, got None"),
            ({"dtype": torch.float16}, r"dtype must be torch\.float32 or torch\.float64"),
        ],
    )
    def test_settings(self, setting: dict[str, object], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            FitSettings(**setting)  # type: ignore[arg-type]


@pytest.mark.slow
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


class TestWhatUsersDo:
    x, y = surface(300)
    quick = replace(SMALL, steps=10)

    def test_more_rows_later_keep_the_calibration(self) -> None:
        x, y = surface(3000)
        settings = replace(SMALL, points=60, steps=100)
        first = fit(x[:1000], y[:1000], settings=settings)
        more = first.with_rows(x[1000:2000], y[1000:2000])
        assert more.statistics.count == 2000
        assert first.statistics.count == 1000
        assert (more.report.rows, first.report.rows) == (2000, 1000)
        assert more.report.log_marginal_likelihood != first.report.log_marginal_likelihood
        for columns in (x[:, :1], torch.cat([x, x], 1)):
            with pytest.raises(InvalidInputError, match=r"x must have the shape \(n, 2\)"):
                first.with_rows(columns, y)
        with torch.inference_mode():
            gradient = first.with_rows(x[:9], y[:9]).posterior.mean.gradient(x[:3])
        assert gradient.shape == (3, 1, 2)
        mean, variance = more.posterior.predict(x[2000:])
        residual, total = y[2000:, None] - mean, variance + more.posterior.noise_variance
        assert coverage(residual, total[:, None]) == pytest.approx(0.95, abs=0.03)
        assert rmse(residual) <= 1.02 * rmse(y[2000:, None] - first.posterior.mean(x[2000:]))
        half = surface(1000)[0][:500]
        assert torch.equal(more.posterior.points, first.posterior.points)
        assert more.posterior.noise_variance == first.posterior.noise_variance
        with pytest.raises(InvalidInputError, match="x has 500 rows and y has 3"):
            first.with_rows(half, y[:3])

    def test_known_row_noise_reaches_training_posterior_and_calibration(self) -> None:
        """With the true σᵢ², β² is found to be the 0.04 that was put in, and both groups fit."""
        g = torch.Generator().manual_seed(0)
        x = torch.randn(4000, 2, generator=g)
        sigma = torch.where(torch.arange(4000) % 2 == 0, 1.0, 3.0)
        y = torch.sin(x.sum(1)) + 0.2 * sigma * torch.randn(4000, generator=g)
        result = fit(x, y, sigma**2, settings=replace(SMALL, steps=120, batch_size=512))
        noise = float(result.posterior.noise_variance)
        assert noise == pytest.approx(0.04, rel=0.15)
        mean, variance = result.posterior.predict(x)
        for group in (1.0, 3.0):
            rows = sigma == group
            total = variance[rows] + noise * group**2
            assert coverage(y[rows] - mean[rows, 0], total) == pytest.approx(0.95, abs=0.02)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_grad_modes_do_not_matter(self, mode) -> None:  # type: ignore[no-untyped-def]
        expected = fit(self.x, self.y, settings=self.quick)
        with mode():
            result = fit(self.x.clone(), self.y.clone(), settings=self.quick)
            gradient = result.posterior.mean.gradient(self.x[:3])
        assert torch.equal(result.model.points, expected.model.points)
        torch.testing.assert_close(gradient, expected.posterior.mean.gradient(self.x[:3]))

    def test_global_state_is_left_alone(self) -> None:
        torch.manual_seed(0)
        state, threads = torch.get_rng_state(), torch.get_num_threads()
        torch.set_float32_matmul_precision("high")
        try:
            fit(self.x, self.y, settings=self.quick)
            assert torch.get_float32_matmul_precision() == "high"
        finally:
            torch.set_float32_matmul_precision("highest")
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == threads

    def test_a_global_default_device_does_not_matter(self) -> None:
        expected = fit(self.x, self.y, settings=self.quick)
        torch.set_default_device("meta")
        try:
            result = fit(self.x, self.y, settings=self.quick)
        finally:
            torch.set_default_device(None)
        assert torch.equal(result.model.points, expected.model.points)

    def test_predict_takes_what_fit_takes(self) -> None:
        posterior = fit(self.x.numpy(), self.y.numpy(), settings=self.quick).posterior
        mean, _ = posterior.predict(self.x)
        torch.testing.assert_close(posterior.predict(self.x.numpy())[0], mean)
        torch.testing.assert_close(posterior.mean(self.x.tolist()), mean)

    def test_frozen_parameters_stay(self) -> None:
        model = SoftKI(self.x[:30].clone(), Matern32(2), torch.ones(2), noise_variance=0.25)
        model.raw_noise_variance.requires_grad_(False)
        model.points.requires_grad_(False)
        points = model.points.clone()
        assert fit(self.x, self.y, settings=self.quick, model=model).model is model
        assert torch.equal(model.points, points)
        assert float(model.noise_variance) == pytest.approx(0.25)
        model.log_temperature.requires_grad_(False)
        fit(self.x, self.y, settings=self.quick, model=model)

    def test_an_objective_of_ones_own(self) -> None:
        hutchinson = Hutchinson(probes=4, max_iterations=1, preconditioner_rank=0)
        report = fit(self.x, self.y, settings=replace(self.quick, objective=hutchinson)).report
        assert report.objective == "Hutchinson"
        assert report.unconverged == 10
        again = fit(self.x, self.y, settings=replace(self.quick, objective=Hutchinson(probes=4)))
        twice = fit(self.x, self.y, settings=replace(self.quick, objective=Hutchinson(probes=4)))
        assert torch.equal(again.model.points, twice.model.points)
        own = replace(self.quick, objective=exact)
        assert fit(self.x, self.y, settings=own).report.objective == "exact"
        named = replace(self.quick, objective="hutchinson")
        assert fit(self.x, self.y, settings=named).report.unconverged == 0

    def test_data_that_is_not_standardised_gets_a_warning(self) -> None:
        with pytest.warns(
            ScaleWarning, match=r"y column 0 has mean .* and standard deviation 7\d\d"
        ):
            fit(self.x, 1000 * self.y, settings=self.quick)
        with pytest.warns(ScaleWarning, match=r"x column 1 has mean 50") as caught:
            fit(self.x + torch.tensor([0.0, 50.0]), self.y, settings=self.quick)
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("held_out", [0.0, 0.1])
    @pytest.mark.parametrize("learning_rate", [30.0, 1e6])
    def test_a_learning_rate_that_diverges_never_gives_nan(
        self, held_out: float, learning_rate: float
    ) -> None:
        settings = replace(SMALL, steps=100, held_out=held_out, learning_rate=learning_rate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)
            result = fit(self.x, self.y, settings=settings)
        mean, variance = result.posterior.predict(self.x)
        assert bool(mean.isfinite().all())
        assert bool(variance.isfinite().all())

    def test_a_posterior_that_is_not_finite_is_an_error(self) -> None:
        model = SoftKI(torch.full((3, 2), torch.inf, dtype=F64), Matern32(2))
        with pytest.raises(NumericalError, match=r"lower learning_rate|not positive definite"):
            fit(self.x, self.y, settings=replace(SMALL, steps=0, dtype=F64), model=model)

    def test_mismatched_models_kernels_and_devices(self) -> None:
        with pytest.raises(InvalidInputError, match="the model is for 3 columns, the data has 2"):
            fit(self.x, self.y, model=SoftKI(torch.zeros(2, 3), Matern32(3)))
        with pytest.raises(InvalidInputError, match="kernel is for 5 columns, the points have 2"):
            fit(self.x, self.y, settings=replace(self.quick, kernel=Matern32(5)))
        with pytest.raises(InvalidInputError, match="unknown device 'foo'"):
            fit(self.x, self.y, device="foo")
        with pytest.raises(InvalidInputError, match=r"unknown device 3\.5"):
            fit(self.x, self.y, device=3.5)  # type: ignore[arg-type]
        with pytest.raises(
            InvalidInputError, match="the kernel is for 3 columns, the points have 2"
        ):
            SoftKI(torch.zeros(2, 2), Matern32(3))
        with pytest.raises(InvalidInputError, match="probes must be a whole number, at least 1"):
            Hutchinson(probes=0)
        with pytest.raises(InvalidInputError, match=r"held_out=0\.999 of 300 rows leaves no rows"):
            fit(self.x, self.y, settings=replace(self.quick, held_out=0.999))
        batched = gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2]))
        with pytest.raises(InvalidInputError, match="batched, multi-task and derivative kernels"):
            fit(self.x, self.y, settings=replace(self.quick, kernel=batched))


class TestSeveralSettings:
    def test_the_best_on_held_out_rows_is_kept(self) -> None:
        x, y = surface(400)
        poor, good = replace(SMALL, points=2, steps=5), replace(SMALL, points=60)
        for settings in ([poor, good], [good, poor]):
            report = fit(x, y, settings=settings).report
            assert report.points == 60
            assert [trial.points for trial in report.trials] == [s.points for s in settings]
            assert "tried" in str(report)
        assert fit(x, y, settings=good).report.trials == []

    def test_no_more_is_tried_after_one_that_did_not_pay(self) -> None:
        x, y = surface(400)
        worse, best = replace(SMALL, points=2, steps=5), replace(SMALL, points=60)
        report = fit(x, y, settings=[SMALL, worse, best]).report
        assert [trial.points for trial in report.trials] == [30, 2]

    def test_an_interrupt_ends_them_all(self) -> None:
        x, y = surface(400)

        def interrupt(event: Event) -> None:
            if event.step == 10:
                raise KeyboardInterrupt

        settings = [SMALL, replace(SMALL, points=60)]
        with pytest.warns(TrainingWarning, match="10 of 40 steps: interrupted"):
            report = fit(x, y, settings=settings, callbacks=[interrupt]).report
        assert len(report.trials) == 1

    def test_what_cannot_be_compared_is_refused(self) -> None:
        x, y = surface(100)
        with pytest.raises(InvalidInputError, match="share held_out, seed and dtype"):
            fit(x, y, settings=[SMALL, replace(SMALL, seed=1)])
        model = SoftKI(torch.zeros(3, 2), Matern32(2))
        with pytest.raises(InvalidInputError, match="not with several"):
            fit(x, y, settings=[SMALL, SMALL], model=model)


class TestCrossValidation:
    folds = replace(SMALL, folds=4)

    def test_the_last_training_sees_all_rows(self) -> None:
        x, y = surface(200)
        result = fit(x, y, settings=self.folds)
        assert result.statistics.count == 200
        assert len(result.held_out) == 0
        assert result.report.steps == result.report.best_step

    def test_every_row_is_judged_by_a_training_without_it(self) -> None:
        """A target of noise alone would be known to a training with the row."""
        x, _ = surface(200)
        y = torch.randn(200, generator=torch.Generator().manual_seed(self.folds.seed))
        report = fit(x, y, settings=replace(self.folds, points=50, steps=60)).report
        assert report.best is not None
        # Of noise nothing can be known; trainings with all rows come to 0.93 of its deviation.
        assert report.best.rmse > 0.98 * float(y.std())

    def test_an_interrupt_in_a_fold_keeps_that_training(self) -> None:
        x, y = surface(200)

        def interrupt(event: Event) -> None:
            if event.step == 10:
                raise KeyboardInterrupt

        with pytest.warns(TrainingWarning, match="interrupted"):
            result = fit(x, y, settings=self.folds, callbacks=[interrupt])
        assert result.report.stopped == "interrupted"
        assert len(result.held_out) == 50
        assert result.report.calibration is not None
        assert rmse(y[:, None] - result.posterior.mean(x)) < 0.9

    def test_a_model_to_start_from_is_trained_in_place(self) -> None:
        x, y = surface(200)
        model = SoftKI(x[:20], Matern32(2), 1.0)
        assert fit(x, y, settings=self.folds, model=model).model is model
        assert not torch.equal(model.points, x[:20].double())

    def test_too_few_rows_for_folds_are_fitted_without(self) -> None:
        x, y = surface(19)
        report = fit(x, y, settings=self.folds).report
        assert (report.folds, report.calibration) == (0, None)

    def test_one_fold_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="at least 2"):
            replace(SMALL, folds=1)


class TestInitialNoise:
    def noise(self, y: torch.Tensor, x: torch.Tensor, kernel: object = "matern32") -> float:
        settings = replace(SMALL, kernel=kernel)  # type: ignore[arg-type]
        model = initial_model(x, settings, torch.Generator().manual_seed(0))
        set_initial_noise(model, Data(x, y[:, None]))
        return float(model.noise_variance.detach())

    def test_is_what_the_first_weights_cannot_explain(self) -> None:
        x, _ = surface(1000)
        assert self.noise(torch.randn(1000, generator=torch.Generator().manual_seed(1)), x) > 0.8
        assert self.noise(0.3 * x[:, 0], x) < 0.01

    def test_stays_without_an_output_scale_to_go_with(self) -> None:
        x, y = surface()
        kernel = gpytorch.kernels.RBFKernel() + gpytorch.kernels.RBFKernel()
        assert self.noise(y, x, kernel.double()) == pytest.approx(0.1)


class TestWhatIsNoArgument:
    """Each is refused at once, by the name of the argument."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"settings": []}, "settings must be FitSettings, or a list of them, got an empty"),
            ({"settings": {}}, "settings must be FitSettings, or a list of them, got dict"),
            ({"settings": (SMALL for _ in range(2))}, "settings must be .* got generator"),
            ({"settings": [SMALL, 3]}, "settings must be .* and has int"),
            ({"model": 3}, "model must be a SoftKI, got int"),
            ({"callbacks": print}, r"callbacks must be a list of functions .* such as \[print\]"),
            ({"callbacks": [3]}, "callbacks must be a list of functions"),
        ],
    )
    def test_of_a_fit(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidTypeError, match=message):
            fit(*surface(100), **arguments)

    def test_of_fit_rows(self) -> None:
        x, y = surface(200)
        with pytest.raises(InvalidTypeError, match="give tables and tensors to fit"):
            fit_rows(x)  # type: ignore[arg-type]
        rows = InMemoryRows.holding_out(Data(x, y[:, None]), 0.1, seed=3)
        with pytest.raises(InvalidInputError, match=r"seed=3, and settings.seed is 0"):
            fit_rows(rows, settings=SMALL)
        message = r"20 of 200 rows are held out, and settings.held_out=0.3 asks for 60"
        with pytest.raises(InvalidInputError, match=message):
            fit_rows(rows, settings=replace(SMALL, seed=3, held_out=0.3))
        result = fit_rows(rows, settings=replace(SMALL, seed=3))
        assert torch.equal(result.held_out, rows.held_out_index)
