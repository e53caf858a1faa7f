"""What a scikit-learn user relies on, and the statements of the estimator's docstrings."""

from __future__ import annotations

import pickle
import signal
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from softki import InvalidInputError, InvalidTypeError, SoftKIRegressor, TrainingWarning
from softki.estimator import prediction
from softki.likelihood import log_marginal_likelihood

NAMES = ["width", "height", "depth"]


def table(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different scales; y in thousands, with noise of standard deviation 200."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3))
    y = 5000 + 1000 * (np.sin(2 * z[:, 0]) + z[:, 1]) + 200 * rng.standard_normal(n)
    return z * [1e-3, 1.0, 1e4] + [1.0, 50.0, -1e6], y


def small(**parameters: Any) -> SoftKIRegressor:
    """A model that is quick to fit: few points and steps, and no cross-validation."""
    quick = {"points": 24, "steps": 80, "held_out": 0.1, "random_state": 0}
    return SoftKIRegressor(**quick | parameters)


@pytest.fixture(scope="module")
def fitted() -> SoftKIRegressor:
    return small(held_out="auto").fit(*table())


@pytest.fixture(scope="module")
def two_targets() -> SoftKIRegressor:
    X, y = table()
    return small(held_out="auto").fit(X, np.column_stack([y, -3 * y + 7]))


# With few steps, and in `make slow` with none of the defaults changed.
@parametrize_with_checks([SoftKIRegressor(steps=15)])
def test_scikit_learn(estimator: SoftKIRegressor, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Can't check dok sparse matrix", UserWarning)
        check(estimator)


@pytest.mark.slow
def test_scikit_learn_with_the_defaults() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Can't check dok sparse matrix", UserWarning)
        check_estimator(SoftKIRegressor(), on_skip=None)


def test_a_dozen_parameters_or_so() -> None:
    assert len(SoftKIRegressor().get_params()) == 13


class TestPredictions:
    def test_are_good_and_in_the_units_of_the_target(self) -> None:
        model = small(steps=200).fit(*table(2000))
        X, y = table(1000, seed=1)
        mean, std = model.predict(X, return_std=True)
        assert mean.dtype == std.dtype == np.float64
        assert model.score(X, y) > 0.9
        assert 180 < np.sqrt(np.mean((mean - y) ** 2)) < 300
        assert 0.9 < np.mean(np.abs(mean - y) < 1.96 * std) < 0.99

    def test_std_of_y_is_that_of_f_with_the_noise(self, fitted: SoftKIRegressor) -> None:
        X, _ = table(50, seed=1)
        _, of_y = fitted.predict(X, return_std=True)
        _, of_f = fitted.predict(X, return_std=True, of="f")
        noise = fitted.fit_report_.calibration.noise_variance
        np.testing.assert_allclose(of_y**2, of_f**2 + noise, rtol=1e-9)
        assert np.sqrt(noise) == pytest.approx(200, rel=0.5)

    @pytest.mark.parametrize("of", ["y", "f"])
    def test_std_covariance_quantiles_and_draws_agree(
        self, fitted: SoftKIRegressor, of: Any
    ) -> None:
        X, _ = table(4, seed=1)
        mean, std = fitted.predict(X, return_std=True, of=of)
        same, cov = fitted.predict(X, return_cov=True, of=of)
        np.testing.assert_allclose(same, mean, rtol=1e-12)
        np.testing.assert_allclose(np.sqrt(cov.diagonal()), std, rtol=1e-9)
        low, middle, high = fitted.predict_quantiles(X, [0.15865525, 0.5, 0.84134475], of=of).T
        np.testing.assert_allclose(middle, mean, rtol=1e-9)
        np.testing.assert_allclose((high - low) / 2, std, rtol=1e-6)
        draws = fitted.sample_y(X, 20_000, random_state=1, of=of)
        assert draws.shape == (4, 20_000)
        np.testing.assert_allclose(draws.mean(1), mean, atol=5 * std.max() / 20_000**0.5)
        np.testing.assert_allclose(np.cov(draws), cov, atol=0.05 * cov.max())

    def test_draws_are_functions(self, fitted: SoftKIRegressor) -> None:
        X, _ = table(30, seed=1)
        functions = fitted.sample_functions(5, random_state=3)
        whole = functions(X)
        assert whole.shape == (30, 5)
        np.testing.assert_allclose(functions(X[10:20]), whole[10:20], rtol=1e-9)
        assert not np.allclose(fitted.sample_functions(5, random_state=4)(X), whole)
        np.testing.assert_allclose(fitted.sample_y(X, 5, random_state=3, of="f"), whole)

    def test_draws_outlive_a_refit(self) -> None:
        X, y = table(60)
        model = small(steps=5).fit(X, y)
        functions = model.sample_functions(2)
        before = functions(X)
        model.fit(X, y + 1e6)
        np.testing.assert_array_equal(functions(X), before)

    def test_gradient_is_that_of_the_mean(self, fitted: SoftKIRegressor) -> None:
        X, _ = table(5, seed=1)
        gradient = fitted.predict_gradient(X)
        assert gradient.shape == (5, 3)
        for k, unit in enumerate([1e-3, 1.0, 1e4]):
            step = 1e-4 * unit * np.eye(3)[k]
            slope = (fitted.predict(X + step) - fitted.predict(X - step)) / (2e-4 * unit)
            np.testing.assert_allclose(gradient[:, k], slope, rtol=1e-3, atol=1e-2 / unit)

    def test_do_not_depend_on_blocks(
        self, fitted: SoftKIRegressor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, _ = table(50, seed=1)
        whole = fitted.predict(X, return_std=True)
        monkeypatch.setattr(prediction, "_BLOCK", 7)
        for left, right in zip(whole, fitted.predict(X, return_std=True), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-9)

    def test_do_not_depend_on_the_units(self) -> None:
        X, y = table()
        plain = small().fit(X, y)
        scaled = small().fit(X * 16 + 8, y / 4)
        X_new, _ = table(50, seed=1)
        for left, right in zip(
            plain.predict(X_new, return_std=True),
            scaled.predict(X_new * 16 + 8, return_std=True),
            strict=True,
        ):
            np.testing.assert_allclose(left, 4 * right, rtol=1e-2)


class TestSeveralTargets:
    def test_shapes(self, two_targets: SoftKIRegressor) -> None:
        X, _ = table(6, seed=1)
        mean, std = two_targets.predict(X, return_std=True)
        assert mean.shape == std.shape == (6, 2)
        assert two_targets.predict(X, return_cov=True)[1].shape == (6, 6, 2)
        assert two_targets.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (6, 3, 2)
        assert two_targets.sample_y(X, 4).shape == (6, 2, 4)
        assert two_targets.sample_functions(4)(X).shape == (6, 2, 4)
        assert two_targets.predict_gradient(X).shape == (6, 2, 3)

    def test_each_is_in_its_own_units(self, two_targets: SoftKIRegressor) -> None:
        X, _ = table(6, seed=1)
        mean, std = two_targets.predict(X, return_std=True)
        np.testing.assert_allclose(mean[:, 1], -3 * mean[:, 0] + 7, rtol=1e-4)
        np.testing.assert_allclose(std[:, 1], 3 * std[:, 0], rtol=1e-6)
        covariance = two_targets.predict(X, return_cov=True)[1]
        np.testing.assert_allclose(covariance[:, :, 1], 9 * covariance[:, :, 0], rtol=1e-6)
        quantiles = two_targets.predict_quantiles(X, [0.5])
        np.testing.assert_allclose(quantiles[:, 0], mean, rtol=1e-9)
        gradient = two_targets.predict_gradient(X)
        np.testing.assert_allclose(gradient[:, 1], -3 * gradient[:, 0], rtol=1e-3)

    def test_one_column_stays_a_column(self) -> None:
        X, y = table(60)
        model = small(steps=5).fit(X, y[:, None])
        assert model.predict(X).shape == (60, 1)
        assert model.sample_y(X, 3).shape == (60, 1, 3)

    def test_draws_have_the_noise_of_their_target(self, two_targets: SoftKIRegressor) -> None:
        X, _ = table(2, seed=1)
        std = two_targets.predict(X, return_std=True)[1]
        draws = two_targets.sample_y(X, 20_000)
        np.testing.assert_allclose(draws.std(2), std, rtol=0.03)

    def test_log_marginal_likelihood_sums_over_targets(self) -> None:
        X, y = table(60)
        one = small(held_out=0.0).fit(X, y)
        both = small(held_out=0.0).fit(X, np.column_stack([y, 1000 * y]))
        core, statistics = both.fit_.model, both.fit_.statistics
        with torch.no_grad():
            inside = log_marginal_likelihood(core.kernel_matrix(), statistics, core.noise_variance)
        units = 60 * (2 * np.log(y.std()) + np.log(1000))
        assert both.log_marginal_likelihood() == pytest.approx(float(inside) - units)
        assert one.log_marginal_likelihood() < 0

    def test_the_report_says_its_units(
        self, fitted: SoftKIRegressor, two_targets: SoftKIRegressor
    ) -> None:
        assert two_targets.fit_report_.units == "standardised"
        assert fitted.fit_report_.units == "the target's"


class TestTables:
    @pytest.mark.parametrize(
        "make",
        [
            lambda X: pd.DataFrame(X, columns=NAMES),
            lambda X: pl.DataFrame(X, schema=NAMES),
            lambda X: pa.table(dict(zip(NAMES, X.T, strict=True))),
        ],
        ids=["pandas", "polars", "pyarrow"],
    )
    def test_frames_give_what_arrays_give(self, make: Any) -> None:
        X, y = table(100)
        frame = make(X)
        model = small(steps=10).fit(frame, y)
        assert list(model.feature_names_in_) == NAMES
        expected = small(steps=10).fit(X, y).predict(X)
        np.testing.assert_array_equal(model.predict(frame), expected)
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            model.predict(X)

    def test_frames_as_targets(self) -> None:
        X, y = table(100)
        expected = small(steps=10).fit(X, y).predict(X)
        for target in (pd.Series(y), pl.Series(y), y.tolist()):
            np.testing.assert_array_equal(small(steps=10).fit(X, target).predict(X), expected)
        frame = pd.DataFrame({"a": y, "b": 2 * y})
        assert small(steps=10).fit(X, frame).predict(X).shape == (100, 2)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_torch_in_torch_out(self, fitted: SoftKIRegressor, dtype: torch.dtype) -> None:
        X, _ = table(20, seed=1)
        mean, std = fitted.predict(torch.tensor(X, dtype=dtype), return_std=True)
        assert mean.dtype == std.dtype == dtype
        expected = fitted.predict(torch.tensor(X, dtype=dtype).numpy())
        np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-6)

    def test_short_floats_do_not_overflow(self) -> None:
        X, y = table(60)
        model = small(steps=5).fit(X[:, :2], 100 * y)
        result = model.predict(torch.tensor(X[:, :2]).half())
        assert result.dtype == torch.float64
        assert bool(result.isfinite().all())

    def test_record_batches_and_read_only_arrays(self) -> None:
        X, y = table(60)
        batch = pa.record_batch({"a": X[:, 0], "b": X[:, 1] > 50})
        with pytest.raises(InvalidInputError, match="X contains NaN in row 1, column 'a'"):
            small().fit(pa.record_batch({"a": pa.array([1.0, None])}), y[:2])
        X.flags.writeable = False
        model = small(steps=5).fit(batch, y)
        assert list(model.feature_names_in_) == ["a", "b"]
        assert model.predict(batch).shape == (60,)
        with pytest.raises(InvalidInputError, match="Column 0 is 'b'"):
            model.predict(batch.select(["b", "a"]))
        assert small(steps=5).fit(X, y).predict(X).shape == (60,)

    def test_a_default_device_changes_nothing(self) -> None:
        X, y = table(60)
        torch.set_default_device("meta")
        try:
            predicted = small(steps=5).fit(X, y).predict(X)
        finally:
            torch.set_default_device(None)
        np.testing.assert_array_equal(predicted, small(steps=5).fit(X, y).predict(X))

    def test_whole_numbers_and_booleans(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.integers(0, 5, (100, 2))
        y = X[:, 0] + (X[:, 1] > 2)
        assert small().fit(X, y).score(X, y) > 0.9
        assert small(steps=5).fit(X > 2, y).predict(X > 2).shape == (100,)
        out = small(steps=5).fit(torch.tensor(X), torch.tensor(y)).predict(torch.tensor(X))
        assert out.dtype == torch.float64

    def test_huge_offsets_and_scales(self) -> None:
        X, y = table(300)
        # 2⁻³⁰ and 2⁶⁰ change no digit of the standardised values
        model = small(steps=20).fit(X * 2.0**60, y * 2.0**-30)
        expected = small(steps=20).fit(X, y).predict(X)
        np.testing.assert_allclose(model.predict(X * 2.0**60) * 2.0**30, expected, rtol=1e-9)
        assert np.isfinite(small(steps=5).fit(X * 1e200, y * 1e-200).predict(X * 1e200)).all()


class TestSmallData:
    @pytest.mark.parametrize("rows", [1, 2, 5, 30])
    def test_few_rows(self, rows: int) -> None:
        X, y = table(rows)
        model = SoftKIRegressor(random_state=0).fit(X, y)
        assert model.fit_report_.points <= max(1, rows // 4)
        mean, std = model.predict(X, return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()

    def test_steps_shrink_with_the_rows(self) -> None:
        """check_estimator makes some eighty fits of a few rows with the default of 600 steps."""
        model = SoftKIRegressor(random_state=0, held_out=0.0).fit(*table(20))
        assert model.fit_report_.planned_steps == 50
        model = SoftKIRegressor(random_state=0, held_out=0.0).fit(*table(80))
        assert model.fit_report_.planned_steps == 80

    def test_constant_columns_and_targets(self) -> None:
        X, y = table(100)
        X[:, 1] = 0.1
        assert np.isfinite(small(steps=20).fit(X, y).predict(X)).all()
        flat = small(steps=20).fit(X, np.full(100, 42.0))
        np.testing.assert_allclose(flat.predict(X), 42.0, rtol=1e-6)


class TestPartialFit:
    def test_adds_rows_as_one_posterior_of_all(self) -> None:
        X, y = table(600)
        model = small(held_out=0.0).fit(X[:300], y[:300])
        before = model.predict(X[300:], return_std=True, of="f")
        points = model.fit_.model.points.detach().clone()
        model.partial_fit(X[300:450], y[300:450]).partial_fit(X[450:], y[450:])
        assert torch.equal(model.fit_.model.points, points)
        assert model.fit_report_.rows == 600
        mean, std = model.predict(X[300:], return_std=True, of="f")
        assert (std < before[1]).all()
        assert np.mean((mean - y[300:]) ** 2) < np.mean((before[0] - y[300:]) ** 2)
        together = small(held_out=0.0).fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
        np.testing.assert_allclose(together.predict(X), model.predict(X), rtol=1e-8)

    def test_the_first_call_fits(self) -> None:
        X, y = table(100)
        first = small(steps=10).partial_fit(X, y)
        np.testing.assert_array_equal(first.predict(X), small(steps=10).fit(X, y).predict(X))

    def test_one_far_row_gives_no_warning(self) -> None:
        X, y = table(100)
        model = small(steps=10).fit(X, y)
        model.partial_fit(X[:1] * 100, y[:1])
        assert model.fit_report_.rows == 101

    def test_targets_must_keep_their_shape(self) -> None:
        X, y = table(100)
        model = small(steps=5).fit(X, y)
        with pytest.raises(InvalidInputError, match="y had the shape"):
            model.partial_fit(X, np.column_stack([y, y]))


class TestKnownNoise:
    def test_noisy_rows_count_less(self) -> None:
        X, y = table(400)
        rng = np.random.default_rng(1)
        bad = rng.random(400) < 0.5
        y = y + bad * 5000 * rng.standard_normal(400)
        noise = np.where(bad, 5000.0**2, 200.0**2)
        X_new, y_new = table(1000, seed=1)
        plain = small().fit(X, y).score(X_new, y_new)
        assert small().fit(X, y, noise_variance=noise).score(X_new, y_new) > plain + 0.05

    def test_it_is_given_at_every_call_or_at_none(self) -> None:
        X, y = table(60)
        model = small(steps=5).fit(X, y)
        with pytest.raises(InvalidInputError, match="at every call, or at none"):
            model.partial_fit(X, y, noise_variance=np.ones(60))

    def test_only_ratios_matter(self) -> None:
        X, y = table(100)
        noise = np.linspace(1, 3, 100)
        expected = small(steps=20).fit(X, y, noise_variance=noise)
        scaled = small(steps=20).fit(X, y, noise_variance=1024 * noise)
        np.testing.assert_allclose(scaled.predict(X), expected.predict(X), rtol=1e-9)
        for model, unit in ((expected, 1), (scaled, 1024)):
            model.partial_fit(X, y, noise_variance=unit * noise)
        np.testing.assert_allclose(scaled.predict(X), expected.predict(X), rtol=1e-9)


class TestLikelihood:
    def test_log_marginal_likelihood_is_that_of_the_dense_gaussian(self) -> None:
        X, y = table(60)
        model = small(dtype="float64", held_out=0.0).fit(X, y)
        core = model.fit_.model
        with torch.no_grad():
            S = core.weights(model.x_standardizer_.transform(torch.tensor(X)))
            covariance = S @ core.kernel_matrix() @ S.T + core.noise_variance * torch.eye(60)
        scale = float(model.y_standardizer_.scale)
        dense = torch.distributions.MultivariateNormal(
            torch.full((60,), y.mean(), dtype=torch.float64), scale**2 * covariance
        ).log_prob(torch.tensor(y))
        assert model.log_marginal_likelihood() == pytest.approx(float(dense), rel=1e-6)
        assert model.fit_report_.log_marginal_likelihood == pytest.approx(float(dense), rel=1e-6)


class TestReport:
    def test_in_the_units_of_the_target(self, fitted: SoftKIRegressor) -> None:
        report, inside = fitted.fit_report_, fitted.fit_.report
        scale = float(fitted.y_standardizer_.scale)
        assert report.history[-1].rmse == pytest.approx(scale * inside.history[-1].rmse)
        assert report.history[-1].nll == pytest.approx(inside.history[-1].nll + np.log(scale))
        assert 150 < min(figures.rmse for figures in report.history) < 450

    def test_reads_as_a_table(self, fitted: SoftKIRegressor) -> None:
        text = str(fitted.fit_report_)
        for word in ("400 rows", "24 points", "qr solver", "float32 on", "stabilised", "of 80"):
            assert word in text
        assert "fallbacks    none" in text
        assert text.count("best") == 2  # in the line of steps, and in the held-out curve
        html = fitted.fit_report_._repr_html_()
        assert html.count("<table>") == html.count("</table>") == 2
        assert "qr solver" in html

    def test_progress_shows_the_held_out_rmse(self, capfd: pytest.CaptureFixture[str]) -> None:
        model = small(verbose=True, held_out=0.1).fit(*table(200))
        shown = capfd.readouterr().err
        best = min(figures.rmse for figures in model.fit_report_.history)
        assert f"held-out RMSE {best:.4g}" in shown
        assert "80/80" in shown
        small(steps=5).fit(*table(60))
        assert capfd.readouterr().err == ""

    def test_interruption_keeps_the_best_so_far(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from softki.training.trainer import Trainer

        step = Trainer.step

        def interrupted(self: Trainer, *arguments: Any) -> Any:
            if self.report.steps == 30:
                signal.raise_signal(signal.SIGINT)
            return step(self, *arguments)

        monkeypatch.setattr(Trainer, "step", interrupted)
        X, y = table()
        # Python leaves the signal ignored in a process that was started in the background.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.warns(TrainingWarning, match="interrupted"):
                model = small().fit(X, y)
        finally:
            signal.signal(signal.SIGINT, before)
        assert model.n_iter_ == 30
        assert model.score(X, y) > 0.3


class TestRelevance:
    def test_irrelevant_columns_come_last(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1500, 8)) * np.logspace(-3, 3, 8)
        z = X / np.logspace(-3, 3, 8)
        y = np.sin(2 * z[:, 5]) + z[:, 2] + z[:, 6] ** 2 + 0.1 * rng.standard_normal(1500)
        model = small(points=64, steps=200).fit(X, y)
        assert model.feature_relevance_.sum() == pytest.approx(1)
        assert set(np.argsort(model.feature_relevance_)[-3:]) == {2, 5, 6}
        assert model.feature_relevance_[[2, 5, 6]].min() > 0.1
        assert model.feature_relevance_[[0, 1, 3, 4, 7]].max() < 0.05

    def test_a_constant_function_has_equal_shares(self) -> None:
        X, _ = table(50)
        np.testing.assert_allclose(small(steps=5).fit(X, np.ones(50)).feature_relevance_, 1 / 3)


class TestScikitLearn:
    def test_pipeline_search_and_cross_validation(self) -> None:
        X, y = table(120)
        pipeline = make_pipeline(PolynomialFeatures(2), small(steps=20))
        assert cross_val_predict(pipeline, X, y, cv=2).shape == (120,)
        search = GridSearchCV(small(steps=20), {"kernel": ["rbf", "matern52"]}, cv=2).fit(X, y)
        assert search.best_params_["kernel"] in ("rbf", "matern52")
        logged = TransformedTargetRegressor(small(steps=50), func=np.log, inverse_func=np.exp)
        assert logged.fit(X, np.abs(y) + 1).predict(X).min() > 0

    def test_clone_pickle_and_joblib(self, fitted: SoftKIRegressor, tmp_path: Any) -> None:
        X, _ = table(20, seed=1)
        assert not hasattr(clone(fitted), "fit_")
        expected = fitted.predict(X, return_std=True)
        joblib.dump(fitted, tmp_path / "model.joblib")
        for again in (
            pickle.loads(pickle.dumps(fitted)),
            joblib.load(tmp_path / "model.joblib"),
        ):
            for left, right in zip(again.predict(X, return_std=True), expected, strict=True):
                np.testing.assert_array_equal(left, right)

    def test_a_seed_decides(self) -> None:
        X, y = table(100)
        predictions = [small(steps=10, random_state=s).fit(X, y).predict(X) for s in (1, 1, 2)]
        np.testing.assert_array_equal(predictions[0], predictions[1])
        assert not np.array_equal(predictions[0], predictions[2])

    def test_gpytorch_kernels(self) -> None:
        X, y = table(200)
        model = small(kernel=ScaleKernel(RBFKernel(ard_num_dims=3))).fit(X, y)
        assert model.score(X, y) > 0.5
        assert model.feature_relevance_[:2].sum() > 0.8
        assert not np.allclose(clone(model).fit(X[:100], y[:100]).predict(X), model.predict(X))

    def test_the_kernel_that_was_given_is_not_trained(self) -> None:
        kernel = ScaleKernel(RBFKernel(ard_num_dims=3))
        before = {name: p.clone() for name, p in kernel.named_parameters()}
        small(kernel=kernel, steps=10).fit(*table(100))
        assert all(torch.equal(p, before[name]) for name, p in kernel.named_parameters())


def with_value(value: Any) -> np.ndarray:
    X, _ = table(10)
    X[7, 1] = value
    return X


X10, Y10 = table(10)


class TestErrors:
    """Each bad input: one message that names the column or parameter and says what to do."""

    @pytest.mark.parametrize(
        ("X", "y", "message"),
        [
            (with_value(np.nan), Y10, r"^X contains NaN in row 7, column 1: .*SimpleImputer"),
            (with_value(np.inf), Y10, r"^X contains infinity in row 7, column 1"),
            (
                pd.DataFrame(with_value(np.nan), columns=NAMES),
                Y10,
                r"^X contains NaN in row 7, column 'height'",
            ),
            (
                pl.DataFrame({"a": [1.0] * 9 + [None], "b": [2.0] * 10}),
                Y10,
                r"^X contains NaN in row 9, column 'a'",
            ),
            (
                pd.DataFrame({"a": Y10, "city": ["Rome"] * 10}),
                Y10,
                r"^X column 'city' holds text: encode it first, .*OneHotEncoder",
            ),
            (
                pd.DataFrame({"city": pd.Categorical(["Rome"] * 10)}),
                Y10,
                r"^X column 'city' holds categories: encode it first, .*OneHotEncoder",
            ),
            (
                pa.table({"city": pa.array(["Rome"] * 10).dictionary_encode()}),
                Y10,
                r"^X column 'city' holds categories: encode it first, .*OneHotEncoder",
            ),
            (
                pl.DataFrame({"city": pl.Series(["Rome"] * 10, dtype=pl.Categorical)}),
                Y10,
                r"^X column 'city' holds categories: encode it first, .*OneHotEncoder",
            ),
            (
                pd.DataFrame({"when": pd.date_range("2020-01-01", periods=10)}),
                Y10,
                r"^X column 'when' holds dates: turn it into numbers",
            ),
            (
                pd.DataFrame({"when": pd.date_range("2020-01-01", periods=10, tz="UTC")}),
                Y10,
                r"^X column 'when' holds dates: turn it into numbers",
            ),
            (X10, pd.Series(pd.Categorical([1, 2] * 5)), r"^y holds categories: softki is for"),
            (np.array([["a"]] * 10), Y10, r"^X column 0 holds text"),
            (np.array([[{}]] * 10), Y10, r"^X column 0 has the type object"),
            (np.array([[10**400]] * 10, dtype=object), Y10, r"beyond 1e308, too large for float64"),
            (
                np.array([[1.7e308, 1.0], [-1.7e308, 2.0]] * 5),
                Y10,
                r"^X column 0 has values so large that their mean overflows",
            ),
            (X10[:, 0], Y10, r"^Expected 2D array, got 1D array .*Reshape your data"),
            (X10[:0], Y10[:0], r"^Found array with 0 sample"),
            (X10[:, :0], Y10, r"^Found array with 0 feature"),
            (X10 + 1j, Y10, r"^Complex data not supported"),
            (X10, None, r"requires y to be passed"),
            (None, Y10, r"^X is None"),
            (pl.DataFrame({"a": Y10}).lazy(), Y10, r"^X is not computed yet: pass X.collect\(\)"),
            (pl.DataFrame({"p": [{"a": 1.0, "b": 2.0}] * 10}), Y10, r"^X column 'p' holds"),
            (np.ma.masked_equal(np.arange(10.0)[:, None], 3), Y10, r"^X contains NaN in row 3"),
            (
                pd.DataFrame({"t": pd.timedelta_range("1h", periods=10)}),
                Y10,
                r"^X column 't' holds durations",
            ),
            (X10, with_value(np.nan)[:, 1], r"^y contains NaN in row 7:"),
            (X10, np.array(["spam"] * 10), r"^y holds text: softki is for regression"),
            (X10, Y10[:9], r"^X has 10 rows and y has 9$"),
            (X10, Y10.reshape(10, 1, 1), r"^y must have the shape \(rows,\) or \(rows, targets\)"),
        ],
    )
    def test_of_the_data(self, X: Any, y: Any, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            small().fit(X, y)

    def test_whole_numbers_too_large_for_float32_are_fitted(self) -> None:
        """2⁶⁰ + 2¹⁶·i are all one number in float32; standardising in float64 tells them apart."""
        X = 2**60 + 2**16 * np.arange(200)[:, None]
        assert small().fit(X, np.arange(200.0)).score(X, np.arange(200.0)) > 0.95

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"kernel": "mattern32"}, r"unknown kernel 'mattern32', did you mean 'matern32'\?"),
            ({"objective": "exat"}, r"unknown objective 'exat', did you mean 'exact'\?"),
            ({"solver": "rq"}, r"unknown solver 'rq', did you mean 'qr'\?"),
            ({"dtype": "float16"}, r"unknown dtype 'float16'.*float32, float64"),
            ({"device": "gpu"}, r"unknown device 'gpu'.*'auto', 'cpu', 'cuda'"),
            ({"kernel": "RBF"}, r"unknown kernel 'RBF', did you mean 'rbf'\?"),
            ({"random_state": "a"}, r"random_state: 'a' cannot be used to seed"),
            ({"points": 0}, r"points must be a whole number, at least 1, got 0"),
            ({"points": "many"}, r"points must be a whole number"),
            ({"steps": 2.5}, r"steps must be a whole number"),
            ({"batch_size": 0}, r"batch_size must be a whole number"),
            ({"learning_rate": -1}, r"learning_rate must be a number"),
            ({"held_out": 1}, r"held_out must be a number, at least 0 and below 1"),
        ],
    )
    def test_of_the_parameters(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            small(**parameters).fit(X10, Y10)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
    def test_cuda_asked_for_and_absent(self) -> None:
        with pytest.raises(InvalidInputError, match=r"'cuda' was asked for.*use 'cpu'"):
            small(device="cuda").fit(X10, Y10)

    @pytest.mark.parametrize(
        ("noise", "message"),
        [
            (-np.ones(10), r"noise_variance must be positive, got -1.0 in row 0"),
            (np.zeros(10), r"noise_variance must be positive, got 0.0 in row 0"),
            (np.ones(9), r"noise_variance must have the shape \(10,\), got \(9,\)"),
            (np.full(10, np.nan), r"noise_variance contains NaN in row 0"),
            (["a"] * 10, r"noise_variance holds text: give numbers"),
        ],
    )
    def test_of_the_noise(self, noise: np.ndarray, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            small().fit(X10, Y10, noise_variance=noise)

    def test_sample_weight_and_other_arguments(self) -> None:
        with pytest.raises(InvalidTypeError, match=r"sample_weight is not .*noise_variance"):
            small().fit(X10, Y10, sample_weight=np.ones(10))
        with pytest.raises(TypeError, match=r"there is no argument 'weights'"):
            small().fit(X10, Y10, weights=np.ones(10))

    @pytest.mark.parametrize(
        "call",
        [
            lambda m: m.predict(X10),
            lambda m: m.predict_quantiles(X10),
            lambda m: m.sample_y(X10),
            lambda m: m.sample_functions(),
            lambda m: m.predict_gradient(X10),
            lambda m: m.log_marginal_likelihood(),
            lambda m: m.score(X10, Y10),
        ],
    )
    def test_before_fit(self, call: Any) -> None:
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            call(small())

    def test_attributes_before_fit(self) -> None:
        assert not hasattr(small(), "fit_report_")
        assert not hasattr(small(), "feature_relevance_")

    def test_a_failed_fit_leaves_the_old_one(self) -> None:
        X, y = table(60)
        model = small(steps=5).fit(X, y)
        expected = model.predict(X)
        with pytest.raises(InvalidInputError):
            model.fit(X[:, :2], np.full(60, np.nan))
        np.testing.assert_array_equal(model.predict(X), expected)
        with pytest.raises(InvalidInputError, match="leaves no rows to train on"):
            model.set_params(held_out=0.9999).fit(X[:, :2], y)
        np.testing.assert_array_equal(model.predict(X), expected)
        never = small()
        with pytest.raises(InvalidInputError):
            never.fit(X, y[:5])
        with pytest.raises(NotFittedError):
            never.predict(X)

    def test_other_columns_than_at_fit(self) -> None:
        X, y = table(60)
        frame = pd.DataFrame(X, columns=NAMES)
        model = small(steps=5).fit(frame, y)
        with pytest.raises(InvalidInputError, match=r"X has 2 features, but .* expecting 3 feat"):
            small(steps=5).fit(X, y).predict(X[:, :2])
        with pytest.raises(InvalidInputError, match=r"Column 0 is 'depth', and was 'width'"):
            model.predict(frame[NAMES[::-1]])
        with pytest.raises(InvalidInputError, match=r"unseen at fit time:\n- length"):
            model.predict(frame.rename(columns={"depth": "length"}))
        with pytest.raises(InvalidInputError, match=r"yet now missing:\n- depth"):
            model.predict(frame.drop(columns="depth"))

    def test_of_the_arguments_of_predictions(self, fitted: SoftKIRegressor) -> None:
        X, _ = table(5)
        with pytest.raises(InvalidInputError, match="return_std or return_cov, not both"):
            fitted.predict(X, return_std=True, return_cov=True)
        with pytest.raises(InvalidInputError, match="unknown of 'Y'"):
            fitted.predict(X, of="Y")  # type: ignore[arg-type]
        for levels in ([0.5, 1.0], [], [-0.1], 0.5):
            with pytest.raises(InvalidInputError, match="quantiles must be a list of numbers"):
                fitted.predict_quantiles(X, levels)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="n_samples must be a whole number"):
            fitted.sample_y(X, 0)
        with pytest.raises(InvalidInputError, match="X contains NaN in row 0"):
            fitted.predict(np.full((1, 3), np.nan))

    def test_far_away_is_finite_or_refused(self, fitted: SoftKIRegressor) -> None:
        X, _ = table(5)
        for scale in (1e3, 1e30, 1e140):
            assert np.isfinite(fitted.predict(X * scale, return_std=True)).all()
        X[3, 1] = 1e200
        with pytest.raises(InvalidInputError, match=r"standard deviations .* in column 1:"):
            fitted.predict(X)


class Narrow(SoftKIRegressor):
    """A subclass that offers fewer parameters."""

    def __init__(self, points: int = 8) -> None:
        super().__init__(points=points, steps=5, held_out=0.1, random_state=0)


def test_a_subclass_may_have_fewer_parameters() -> None:
    X, y = table(60)
    assert Narrow().fit(X, y).predict(X).shape == y.shape


def test_the_order_in_memory_does_not_matter() -> None:
    """Sums over rows are rounded by it, if the numbers are not put into one order first."""
    X, y = table(200)
    expected = small().fit(X, y).predict(X)
    columns_first = torch.tensor(X.T.copy()).T
    assert not columns_first.is_contiguous()
    for same in (np.asfortranarray(X), columns_first):
        assert (np.asarray(small().fit(same, y).predict(X)) == expected).all()


def test_few_rows_of_a_large_file_are_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cross-validation, which few rows get, is for rows in memory."""
    monkeypatch.setattr("softki.estimator.rows.IN_MEMORY_BYTES", 0)
    X, y = table(60)
    np.save(tmp_path / "x.npy", X)
    model = SoftKIRegressor(points=8, steps=5, random_state=0).fit(tmp_path / "x.npy", y)
    assert model.fit_report_.folds == 5
    assert not model.fit_report_.is_streamed


def test_noise_that_is_one_number_is_refused() -> None:
    X, y = table(60)
    with pytest.raises(InvalidInputError, match=r"noise_variance must have the shape \(60,\)"):
        small().fit(X, y, noise_variance=1.0)
