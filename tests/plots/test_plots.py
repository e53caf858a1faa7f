"""The numbers behind the pictures, and the errors of whoever asks for one."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest, norm
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from softki import InvalidInputError, InvalidTypeError, SoftKIError, SoftKIRegressor
from softki.data import robot_arm
from softki.plots import (
    CalibrationDisplay,
    PointsDisplay,
    PredictionDisplay,
    RelevanceDisplay,
    ResidualDisplay,
    SliceDisplay,
    TrainingDisplay,
)

matplotlib.use("Agg")

from matplotlib import pyplot as plt

OF_PREDICTIONS = [PredictionDisplay, ResidualDisplay, CalibrationDisplay]
Table = tuple[pd.DataFrame, pd.Series]


class Known(BaseEstimator):
    """Predicts mean 3x and standard deviation 2, which it need not learn."""

    def fit(self, X: Any, y: Any) -> Known:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any, return_std: bool = False) -> Any:
        mean = 3 * np.asarray(X)[:, 0]
        return (mean, np.full(len(mean), 2.0)) if return_std else mean


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def table() -> Table:
    x, y = robot_arm(800, noise=0.1, joints=3)
    return pd.DataFrame(x, columns=["shoulder", "elbow", "wrist"]), pd.Series(y, name="reach")


@pytest.fixture(scope="module")
def model(table: Table) -> SoftKIRegressor:
    X, y = table
    return SoftKIRegressor(points=32, steps=50, random_state=0).fit(X[:600], y[:600])


@pytest.fixture(scope="module")
def two_targets() -> tuple[SoftKIRegressor, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2))
    y = np.column_stack([X[:, 0], 100 * np.sin(X[:, 1])]) + 0.1 * rng.normal(size=(300, 2))
    return SoftKIRegressor(points=16, steps=50, random_state=0).fit(X, y), X, y


@pytest.fixture(scope="module")
def untrained() -> SoftKIRegressor:
    """Points as k-means left them, in columns of very different scales."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)) * [1, 10, 100, 1000] + [5, 0, -7, 1000]
    return SoftKIRegressor(points=32, steps=0, random_state=0).fit(X, X[:, 0])


def training_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(400, 4)) * [1, 10, 100, 1000] + [5, 0, -7, 1000]


class TestPrediction:
    def test_numbers_are_those_of_the_estimator(self, model: SoftKIRegressor, table: Table) -> None:
        X, y = table
        display = PredictionDisplay.from_estimator(model, X[600:], y[600:])
        mean, std = model.predict(X[600:], return_std=True)
        np.testing.assert_array_equal(display.y_true, y[600:])
        np.testing.assert_array_equal(display.y_pred, mean)
        np.testing.assert_array_equal(display.y_std, std)
        assert display.ax_.get_xlabel() == "observed reach"
        assert display.ax_.get_ylabel() == "predicted reach"

    def test_error_bars_are_the_central_interval(self) -> None:
        y_true, y_pred, y_std = np.array([0.0, 0.0]), np.array([0.1, 9.0]), np.array([1.0, 2.0])
        display = PredictionDisplay(y_true, y_pred, y_std).plot(level=0.9)
        ends = [
            container[2][0].get_segments()[0][:, 1]
            for container in (display.inside_, display.outside_)
        ]
        z = norm.ppf(0.95)
        np.testing.assert_allclose(ends, [[0.1 - z, 0.1 + z], [9 - 2 * z, 9 + 2 * z]])

    def test_of_many_rows_a_sample_is_drawn_and_all_are_counted(self) -> None:
        y_true = np.zeros(1000)
        y_true[:200] = 5.0
        display = PredictionDisplay(y_true, np.zeros(1000), np.ones(1000)).plot(max_rows=100)
        drawn = [len(artist[0].get_xdata()) for artist in (display.inside_, display.outside_)]
        assert sum(drawn) == 100
        assert min(drawn) > 0
        labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
        assert labels == ["in the 95% interval: 80.0%", "outside: 20.0%"]

    def test_the_sample_is_that_of_the_seed(self) -> None:
        values = np.random.default_rng(0).normal(size=500)
        display = PredictionDisplay(values, values, np.ones(500))

        def drawn(seed: int) -> list[float]:
            artist = display.plot(max_rows=50, random_state=seed).inside_
            return list(artist[0].get_xdata())

        assert drawn(0) == drawn(0)
        assert drawn(0) != drawn(1)


class TestResidual:
    def test_rows_are_judged_by_their_own_interval(self) -> None:
        y_pred = np.arange(40.0)
        y_std = np.where(np.arange(40) % 2 == 0, 1.0, 3.0)
        display = ResidualDisplay(y_pred + 2.5, y_pred, y_std).plot()
        np.testing.assert_array_equal(display.outside_.get_xdata(), y_pred[::2])
        np.testing.assert_array_equal(display.inside_.get_xdata(), y_pred[1::2])
        np.testing.assert_array_equal(display.inside_.get_ydata(), 2.5)

    def test_the_band_follows_the_predicted_std(self) -> None:
        y_pred = np.linspace(0, 1, 2000)
        y_std = 1 + y_pred
        display = ResidualDisplay(y_pred, y_pred, y_std).plot(level=0.5)
        x, edge = display.band_.get_paths()[0].vertices.T
        assert (x.min(), x.max()) == (0, 1)
        # Groups are 1/20 wide; the ends have the width of their group.
        np.testing.assert_allclose(np.abs(edge), norm.ppf(0.75) * (1 + x), rtol=0.03)

    def test_a_single_row_can_be_drawn(self) -> None:
        display = ResidualDisplay(np.array([1.0]), np.array([0.0]), np.array([1.0])).plot()
        assert len(display.inside_.get_xdata()) == 1


class TestCalibration:
    def test_coverage_is_the_share_of_rows_inside(
        self, model: SoftKIRegressor, table: Table
    ) -> None:
        X, y = table
        display = CalibrationDisplay.from_estimator(model, X[600:], y[600:])
        mean, std = model.predict(X[600:], return_std=True)
        for level, share in zip(display.levels[::10], display.coverage[::10], strict=True):
            low, high = norm.interval(level, mean, std)
            assert share == pytest.approx(((y[600:] >= low) & (y[600:] <= high)).mean())
        np.testing.assert_allclose(display.pit, norm.cdf(y[600:], mean, std), atol=1e-12)

    def test_pit_of_the_true_distribution_is_uniform(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2000, 1))
        y = 3 * X[:, 0] + 2 * rng.normal(size=2000)
        display = CalibrationDisplay.from_estimator(Known(), X, y)
        assert kstest(display.pit, "uniform").pvalue > 0.05
        # Three standard deviations of a share of 2,000 rows.
        assert np.abs(display.coverage - display.levels).max() < 3 * math.sqrt(0.25 / 2000)

    @pytest.mark.parametrize(("spread", "sign"), [(1.0, 1), (4.0, -1)])
    def test_wide_bars_cover_too_much_and_narrow_ones_too_little(
        self, spread: float, sign: int
    ) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2000, 1))
        y = 3 * X[:, 0] + spread * rng.normal(size=2000)
        display = CalibrationDisplay.from_estimator(Known(), X, y)
        assert sign * (display.coverage[49] - 0.5) > 0.1

    def test_the_band_holds_what_chance_gives(self) -> None:
        pit = np.full(100, 0.5)
        display = CalibrationDisplay(np.array([0.3, 0.5]), np.array([0.3, 0.5]), pit).plot()
        vertices = display.ax_.collections[0].get_paths()[0].vertices
        low, high = (end(vertices[vertices[:, 0] == 0.5, 1]) for end in (np.min, np.max))
        coverages = np.random.default_rng(0).binomial(100, 0.5, 100_000) / 100
        # The rows are whole, so the interval holds a little more than 95%.
        assert 0.95 <= ((coverages >= low) & (coverages <= high)).mean() < 0.97

    def test_the_histogram_is_a_density(self) -> None:
        pit = np.random.default_rng(0).uniform(size=300)
        display = CalibrationDisplay(np.array([0.5]), np.array([0.5]), pit).plot(bins=8)
        values, edges, _ = display.histogram_.get_data()
        assert len(values) == 8
        assert np.sum(values * np.diff(edges)) == pytest.approx(1)


class TestTraining:
    def test_curves_are_those_of_the_report(self, model: SoftKIRegressor) -> None:
        report = model.fit_report_
        display = TrainingDisplay.from_estimator(model)
        rmse, nll = (line.get_ydata() for line in display.lines_)
        np.testing.assert_array_equal(rmse, [figures.rmse for figures in report.history])
        np.testing.assert_array_equal(nll, [figures.calibration.nll for figures in report.history])
        best = min(report.history, key=lambda figures: figures.score)
        assert display.best_step == report.best_step == best.step
        label = display.axes_[1].get_legend().get_texts()[0].get_text()
        assert label.startswith(f"best, step {report.best_step}:")

    def test_several_targets_are_standardised_and_say_so(
        self, two_targets: tuple[SoftKIRegressor, np.ndarray, np.ndarray]
    ) -> None:
        display = TrainingDisplay.from_estimator(two_targets[0])
        assert display.ax_.get_ylabel() == "held-out RMSE, standardised"

    def test_without_held_out_rows_there_is_no_curve(self, table: Table) -> None:
        X, y = table
        fitted = SoftKIRegressor(points=8, steps=5, held_out=0).fit(X[:100], y[:100])
        with pytest.raises(InvalidInputError, match="fit held out no rows"):
            TrainingDisplay.from_estimator(fitted)


class TestRelevance:
    def test_bars_are_sorted_and_named(self, model: SoftKIRegressor) -> None:
        display = RelevanceDisplay.from_estimator(model)
        widths = [bar.get_width() for bar in display.bars_]
        labels = [label.get_text() for label in display.ax_.get_yticklabels()]
        expected = dict(zip(model.feature_names_in_, model.feature_relevance_, strict=True))
        assert widths == sorted(widths, reverse=True)
        assert dict(zip(labels, widths, strict=True)) == pytest.approx(expected)
        # The largest is on top: the first bar is the highest on an inverted axis.
        assert display.ax_.yaxis_inverted()

    def test_of_many_columns_the_most_relevant_are_drawn(self) -> None:
        relevance = np.arange(30.0) / 435
        names = [f"x{k}" for k in range(30)]
        display = RelevanceDisplay(relevance, names).plot(max_features=2)
        assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["x29", "x28"]
        assert display.ax_.get_xlabel() == "relevance; 2 of 30 columns, 13% of the sum"


class TestPoints:
    def test_points_before_training_are_among_the_rows(self, untrained: SoftKIRegressor) -> None:
        display = PointsDisplay.from_estimator(untrained, training_rows())
        assert display.points.shape == (32, 2)
        assert (display.points >= display.rows.min(0)).all()
        assert (display.points <= display.rows.max(0)).all()
        # They fill the cloud of rows, rather than sit at its centre.
        assert (display.points.std(0) > 0.4 * display.rows.std(0)).all()

    def test_the_axes_are_the_principal_ones(self, untrained: SoftKIRegressor) -> None:
        rows = training_rows()
        rows[:, 1] = 10 * rows[:, 0]
        display = PointsDisplay.from_estimator(untrained, rows)
        standardised = np.asarray(untrained.x_standardizer_.transform(torch.from_numpy(rows)))
        values = np.linalg.eigvalsh(np.cov(standardised.T))[::-1]
        np.testing.assert_allclose(display.rows.var(0, ddof=1), values[:2])
        share = values[0] / values.sum()
        assert display.axis_names[0] == f"first principal axis ({share:.0%} of the variance)"

    @pytest.mark.parametrize("columns", [1, 2])
    def test_few_columns_are_drawn_in_their_units(self, columns: int) -> None:
        X = 1000 + 50 * np.random.default_rng(0).uniform(size=(200, columns))
        fitted = SoftKIRegressor(points=10, steps=0, random_state=0).fit(X, X[:, 0])
        display = PointsDisplay.from_estimator(fitted, X)
        np.testing.assert_array_equal(display.rows, X)
        assert (display.points >= X.min(0)).all()
        assert (display.points <= X.max(0)).all()
        assert len(display.points_.get_xdata()) == 10
        assert display.ax_.get_xlabel() == "x0"
        assert display.ax_.get_ylabel() == ("rows" if columns == 1 else "x1")

    def test_rows_that_are_all_the_same_have_no_axes(self, untrained: SoftKIRegressor) -> None:
        with pytest.raises(InvalidInputError, match="no principal axes"):
            PointsDisplay.from_estimator(untrained, np.ones((5, 4)))


class TestSlices:
    def test_curves_are_those_of_predict(self, model: SoftKIRegressor, table: Table) -> None:
        X, _ = table
        display = SliceDisplay.from_estimator(model, X, "elbow", draws=2)
        (part,) = display.slices
        rows = pd.DataFrame({name: X[name].median() for name in X}, index=range(len(part.grid)))
        rows["elbow"] = part.grid
        mean, f_std = model.predict(rows, return_std=True, of="f")
        np.testing.assert_allclose(part.mean, mean)
        np.testing.assert_allclose(part.f_std, f_std)
        np.testing.assert_allclose(part.y_std, model.predict(rows, return_std=True)[1])
        np.testing.assert_allclose(part.draws, model.sample_functions(2)(rows))
        np.testing.assert_array_equal(display.means_[0].get_ydata(), part.mean)

    def test_a_slice_goes_a_little_beyond_the_data(
        self, model: SoftKIRegressor, table: Table
    ) -> None:
        X, _ = table
        (part,) = SliceDisplay.from_estimator(model, X, 2).slices
        low, high = X["wrist"].min(), X["wrist"].max()
        assert (part.low, part.high) == (low, high)
        assert part.grid[0] == pytest.approx(low - 0.1 * (high - low))
        assert part.grid[-1] == pytest.approx(high + 0.1 * (high - low))

    def test_the_other_columns_may_stay_at_a_row(
        self, model: SoftKIRegressor, table: Table
    ) -> None:
        X, _ = table
        row = X.iloc[[7]]
        (part,) = SliceDisplay.from_estimator(model, X, 1, at=row).slices
        at_row = np.interp(row["elbow"].item(), part.grid, part.mean)
        # Between grid points the curve is a chord.
        assert at_row == pytest.approx(model.predict(row).item(), abs=1e-3)

    def test_several_features_share_a_figure(self, model: SoftKIRegressor, table: Table) -> None:
        display = SliceDisplay.from_estimator(model, table[0], ["wrist", 0], draws=0)
        assert [ax.get_xlabel() for ax in display.axes_] == ["wrist", "shoulder"]
        assert display.draws_ == [[], []]
        assert len(display.figure_.axes) == 2

    def test_spare_panels_are_removed(self, untrained: SoftKIRegressor) -> None:
        display = SliceDisplay.from_estimator(untrained, training_rows(), range(4))
        assert len(display.figure_.axes) == 4
        assert [bool(ax.get_ylabel()) for ax in display.axes_] == [True, False, False, True]

    def test_bands_are_as_wide_as_the_level(self, model: SoftKIRegressor, table: Table) -> None:
        display = SliceDisplay.from_estimator(model, table[0], level=0.5)
        (part,), (band,) = display.slices, display.y_bands_
        vertices = band.get_paths()[0].vertices
        assert vertices[:, 1].max() == pytest.approx(
            (part.mean + norm.ppf(0.75) * part.y_std).max()
        )

    @pytest.mark.parametrize("target", [0, 1])
    def test_of_several_targets_one_is_drawn(
        self, two_targets: tuple[SoftKIRegressor, np.ndarray, np.ndarray], target: int
    ) -> None:
        fitted, X, _ = two_targets
        display = SliceDisplay.from_estimator(fitted, X, 1, target=target, draws=2)
        (part,) = display.slices
        rows = np.column_stack([np.full(len(part.grid), np.median(X[:, 0])), part.grid])
        np.testing.assert_allclose(part.mean, fitted.predict(rows)[:, target])
        np.testing.assert_allclose(part.draws, fitted.sample_functions(2)(rows)[:, target])
        assert display.ax_.get_ylabel() == f"y{target}"

    def test_bad_features_are_refused_with_the_nearest_names(
        self, model: SoftKIRegressor, table: Table
    ) -> None:
        def draw(features: Any, **options: Any) -> None:
            SliceDisplay.from_estimator(model, table[0], features, **options)

        with pytest.raises(InvalidInputError, match=r"unknown feature 'elbo'.*mean 'elbow'\?"):
            draw("elbo")
        with pytest.raises(InvalidInputError, match="is one of: shoulder, elbow, wrist"):
            draw("temperature")
        with pytest.raises(InvalidInputError, match="no feature 3: X has 3, the first is 0"):
            draw([0, 3])
        with pytest.raises(InvalidInputError, match="whole number"):
            draw(-1)
        with pytest.raises(InvalidInputError, match="features is empty"):
            draw([])
        with pytest.raises(InvalidInputError, match="one row of 3 numbers"):
            draw(0, at=[1.0, 2.0])
        with pytest.raises(InvalidInputError, match="at contains NaN"):
            draw(0, at=[1.0, 2.0, np.nan])
        with pytest.raises(InvalidInputError, match="draws must be a whole number"):
            draw(0, draws=-1)

    def test_a_constant_column_has_no_slice(self, model: SoftKIRegressor, table: Table) -> None:
        X = table[0].assign(elbow=0.5)
        with pytest.raises(InvalidInputError, match="'elbow' is constant in X"):
            SliceDisplay.from_estimator(model, X, "elbow")


def draw_all(model: Any, X: Any, y: Any) -> Iterator[Any]:
    """Each display once, as functions of ax, with the number of its panels."""
    for display in OF_PREDICTIONS:
        panels = 2 if display is CalibrationDisplay else 1
        yield panels, lambda ax, display=display: display.from_estimator(model, X, y, ax=ax)
    yield 2, lambda ax: TrainingDisplay.from_estimator(model, ax=ax)
    yield 1, lambda ax: RelevanceDisplay.from_estimator(model, ax=ax)
    yield 1, lambda ax: PointsDisplay.from_estimator(model, X, ax=ax)
    yield 1, lambda ax: SliceDisplay.from_estimator(model, X, ax=ax)


class TestAllDisplays:
    def test_given_axes_are_drawn_on(self, model: SoftKIRegressor, table: Table) -> None:
        for panels, draw in draw_all(model, *table):
            figure, axes = plt.subplots(1, panels)
            display = draw(axes)
            assert display.ax_ is np.ravel(axes)[0]
            assert display.figure_ is figure
            assert len(plt.get_fignums()) == 1
            assert all(ax.has_data() for ax in np.ravel(axes))
            plt.close(figure)

    def test_plot_draws_again(self, model: SoftKIRegressor, table: Table) -> None:
        for _, draw in draw_all(model, *table):
            display = draw(None)
            first = display.figure_
            assert display.plot() is display
            assert display.figure_ is not first
            plt.close("all")

    def test_wrong_axes_are_refused(self, model: SoftKIRegressor, table: Table) -> None:
        X, y = table
        figure, axes = plt.subplots(1, 3)
        with pytest.raises(InvalidTypeError, match=r"holds 3 axes.*2 panel.*subplots\(1, 2\)"):
            CalibrationDisplay.from_estimator(model, X, y, ax=axes)
        with pytest.raises(InvalidTypeError, match="must be matplotlib axes, got Figure"):
            PredictionDisplay.from_estimator(model, X, y, ax=figure)

    def test_an_estimator_must_be_fitted(self, table: Table) -> None:
        for _, draw in draw_all(SoftKIRegressor(), *table):
            with pytest.raises(NotFittedError):
                draw(None)

    def test_no_figure_is_left_by_an_error(self, model: SoftKIRegressor, table: Table) -> None:
        X, y = table
        for options in ({"level": 1.5}, {"max_rows": 0}, {"target": 1}):
            with pytest.raises(InvalidInputError, match=next(iter(options))):
                PredictionDisplay.from_estimator(model, X, y, **options)
            with pytest.raises(InvalidInputError, match=next(iter(options))):
                ResidualDisplay.from_estimator(model, X, y, **options)
        with pytest.raises(InvalidInputError, match="bins"):
            CalibrationDisplay.from_estimator(model, X, y, bins=0)
        with pytest.raises(InvalidInputError, match="max_features"):
            RelevanceDisplay.from_estimator(model, max_features=0)
        with pytest.raises(InvalidInputError, match="level"):
            SliceDisplay.from_estimator(model, X, level=-1)
        assert plt.get_fignums() == []

    def test_other_estimators_are_refused_where_softki_is_needed(self, table: Table) -> None:
        X, y = table
        other = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
        for panels, draw in draw_all(other, X, y):
            del panels
            with pytest.raises(InvalidTypeError, match="SoftKIRegressor"):
                draw(None)

    def test_without_matplotlib_the_error_says_what_to_install(
        self, model: SoftKIRegressor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        importer = builtins.__import__

        def refuse(name: str, *args: Any, **options: Any) -> Any:
            if name.startswith("matplotlib"):
                raise ImportError(name)
            return importer(name, *args, **options)

        monkeypatch.setattr(builtins, "__import__", refuse)
        with pytest.raises(SoftKIError, match=r"pip install 'softki\[plot\]'"):
            RelevanceDisplay.from_estimator(model)


@pytest.mark.parametrize("display", OF_PREDICTIONS)
class TestDisplaysOfPredictions:
    def test_wrong_y_is_refused(self, model: SoftKIRegressor, table: Table, display: Any) -> None:
        X, y = table
        with pytest.raises(InvalidInputError, match=r"y has the shape \(799,\).*\(800,\)"):
            display.from_estimator(model, X, y[1:])
        with pytest.raises(InvalidInputError, match=r"y has the shape \(800, 1\)"):
            display.from_estimator(model, X, y.to_frame())
        with pytest.raises(InvalidInputError, match="y contains NaN in row 3"):
            display.from_estimator(model, X, y.where(y.index != 3))
        with pytest.raises(InvalidInputError, match="no target 1: the estimator has 1"):
            display.from_estimator(model, X, y, target=1)

    def test_of_several_targets_one_is_drawn(
        self, two_targets: tuple[SoftKIRegressor, np.ndarray, np.ndarray], display: Any
    ) -> None:
        fitted, X, y = two_targets
        drawn = display.from_estimator(fitted, X, y, target=1)
        mean, std = fitted.predict(X, return_std=True)
        expected = norm.cdf(y[:, 1], mean[:, 1], std[:, 1])
        pit = (
            drawn.pit
            if display is CalibrationDisplay
            else norm.cdf(drawn.y_true, drawn.y_pred, drawn.y_std)
        )
        np.testing.assert_allclose(pit, expected, atol=1e-12)
        assert drawn.target_name == "y1"

    def test_tensors_and_pipelines_are_taken(self, table: Table, display: Any) -> None:
        X, y = torch.tensor(table[0].to_numpy()), torch.tensor(table[1].to_numpy())
        fitted = SoftKIRegressor(points=8, steps=5, random_state=0).fit(X, y)
        assert display.from_estimator(fitted, X, y).target_name == "y"
        pipeline = make_pipeline(StandardScaler(), SoftKIRegressor(points=8, steps=5))
        pipeline.fit(*table)
        assert display.from_estimator(pipeline, *table).target_name == "reach"
