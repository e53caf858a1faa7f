from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from softki.batches import Data
from softki.exceptions import NumericalError, TrainingWarning
from softki.kernels.stationary import make_kernel
from softki.metrics import coverage
from softki.model import SoftKI
from softki.objective.exact_likelihood import Adjoint, exact
from softki.posterior.calibration import Calibration
from softki.training import trainer as adam
from softki.training import trainer as training
from softki.training.data import InMemoryRows, held_out_count
from softki.training.fit import fit
from softki.training.initialization import initial_model
from softki.training.report import Event, HeldOut
from softki.training.settings import FitSettings
from softki.training.trainer import Trainer

from dense import F64, relative_error

SMALL = FitSettings(points=20, steps=40, batch_size=64, patience=None)


def waves(n: int = 400, noise: float = 0.1, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=g)
    y = torch.sin(2 * x[:, 0]) + x[:, 1] ** 2 + noise * torch.randn(n, generator=g)
    return x, (y - y.mean()) / y.std()


def test_held_out_rows_are_a_share_that_is_disjoint_and_complete() -> None:
    data = Data(torch.randn(1000, 2), torch.randn(1000, 1))
    rows, other = (InMemoryRows.holding_out(data, 0.1, seed=seed) for seed in (0, 1))
    training, held_out = rows.training.tolist(), rows.held_out_index.tolist()
    assert (len(training), len(held_out)) == (900, 100)
    assert sorted([*training, *held_out]) == list(range(1000))
    assert held_out != other.held_out_index.tolist()
    assert held_out_count(10**6, 0.1) == 10_000
    assert held_out_count(40, 0.1) == 0
    assert held_out_count(1000, 0.0) == 0


@pytest.mark.parametrize("objective", ["exact", "hutchinson", "stabilised"])
@pytest.mark.parametrize("batch_size", [64, None])
def test_every_objective_learns(objective: str, batch_size: int | None) -> None:
    x, y = waves()
    settings = replace(SMALL, objective=objective, batch_size=batch_size, steps=60)
    report = fit(x, y, settings=settings).report
    assert min(figures.rmse for figures in report.history) < min(0.5, report.history[0].rmse)
    assert report.objective == objective
    assert report.fallbacks.total() == 0


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("batch_size", [64, None])
def test_same_seed_same_fit(batch_size: int | None) -> None:
    x, y = waves()
    settings = replace(SMALL, batch_size=batch_size, steps=6)

    def predict(seed: int) -> torch.Tensor:
        return fit(x, y, settings=replace(settings, seed=seed)).posterior.predict(x[:9].double())[0]

    assert torch.equal(predict(0), predict(0))
    assert not torch.equal(predict(0), predict(1))


def test_full_data_training_does_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = waves()
    settings = replace(SMALL, batch_size=None, dtype=F64, steps=15)

    def points() -> torch.Tensor:
        return fit(x, y, settings=settings).model.points.detach()

    whole = points()
    monkeypatch.setattr("softki.batches.chunk_rows", lambda points, device: 50)
    assert relative_error(points(), whole) < 1e-8


def test_events_tell_everything() -> None:
    x, y = waves()
    events: list[Event] = []
    report = fit(x, y, settings=SMALL, callbacks=[events.append]).report
    assert [event.step for event in events] == list(range(1, 41))
    assert all(event.steps == 40 for event in events)
    assert all(event.objective == "exact" and not event.fallback for event in events)
    assert all(math.isfinite(event.log_likelihood) for event in events)
    assert [event.held_out for event in events if event.held_out] == report.history
    assert report.history[-1].step == 40


def test_the_best_parameters_are_restored() -> None:
    """A learning rate that ruins the fit after it was good."""
    x, y = waves()
    states = {}
    model = initial_model(x, SMALL, torch.Generator().manual_seed(0))

    def remember(event: Event) -> None:
        states[event.step] = model.points.detach().clone()

    settings = replace(SMALL, learning_rate=0.8, schedule="constant", patience=None)
    report = fit(x, y, settings=settings, model=model, callbacks=[remember]).report
    best = min(report.history, key=lambda figures: figures.score)
    assert report.best_step == best.step < 40
    assert torch.equal(model.points, states[best.step])
    assert report.calibration.nll <= best.calibration.nll + 1e-3  # rows may count less, too


def test_error_bars_fit_the_posterior_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """During training a posterior of fewer rows is looked at, with a larger variance."""
    monkeypatch.setattr(training, "_EVALUATION_ROWS", 300)
    x, y = waves(6000)
    result = fit(x[:4000], y[:4000], settings=replace(SMALL, points=60, steps=100))
    during = min(result.report.history, key=lambda figures: figures.score).calibration
    calibration = result.report.calibration
    assert calibration.scale / calibration.row_weight > 2 * during.scale
    mean, variance = result.posterior.predict(x[4000:])
    total = (variance + result.posterior.noise_variance)[:, None]
    assert coverage(y[4000:, None] - mean, total) == pytest.approx(0.95, abs=0.03)


def test_the_score_counts_the_error_beside_the_likelihood() -> None:
    good = HeldOut(1, 0.1, 0.0, Calibration(1.0, 1.0, -1.0))
    worse_mean = replace(good, rmse=0.2, calibration=Calibration(1.0, 1.0, -1.5))
    assert good.score == pytest.approx(-1 + math.log(0.1))
    assert worse_mean.score > good.score  # although its NLL is less
    assert good.in_units(3.0).score - good.score == pytest.approx(2 * math.log(3.0))


def test_points_move_as_far_in_many_columns_as_in_few() -> None:
    settings = FitSettings(learning_rate=0.1)
    assert adam.point_rate(settings, 1) == adam.point_rate(settings, 20) == 0.1
    assert adam.point_rate(settings, 80) == pytest.approx(0.05)
    assert adam.point_rate(replace(settings, point_learning_rate=0.3), 80) == 0.3
    model = SoftKI(torch.zeros(4, 80), make_kernel("matern32", 80), 1.0)
    peaks = {
        id(parameter): group["peak"]
        for group in adam.make_adam(model, settings, torch.device("cpu")).param_groups
        for parameter in group["params"]
    }
    assert peaks.pop(id(model.points)) == pytest.approx(0.05)
    assert set(peaks.values()) == {0.1}
    assert len(peaks) == len(list(model.parameters())) - 1


def test_patience_ends_a_fit_that_no_longer_improves() -> None:
    x, y = waves()
    settings = replace(SMALL, steps=400, learning_rate=0.4, schedule="constant", patience=3)
    report = fit(x, y, settings=settings).report
    assert report.steps < 400
    assert report.stopped == "held-out rows no longer improved"
    assert report.steps - report.best_step == 3 * math.ceil(400 / 24)


def test_the_learning_rate_warms_up_and_decays() -> None:
    x, y = waves()
    rates = []
    settings = replace(SMALL, steps=100)
    model = initial_model(x, settings, torch.Generator().manual_seed(0))
    data = Data(x, y[:, None])
    report = fit(x, y, settings=replace(settings, steps=0)).report
    trainer = Trainer(model, InMemoryRows.holding_out(data, 0.1, 0), settings, report)
    trainer.callbacks = [lambda event: rates.append(trainer.optimizer.param_groups[0]["lr"])]
    trainer.run()
    assert max(rates) == pytest.approx(0.05)
    assert rates.index(max(rates)) in range(3, 7)
    assert rates[-1] < 1e-4


def broken_after(step: int, how: str):  # type: ignore[no-untyped-def]
    """The exact objective, broken from that step on."""
    calls = 0

    def objective(rows, K, noise_variance) -> Adjoint:  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls <= step:
            return exact(rows, K, noise_variance)
        if how == "raise":
            raise NumericalError("K broke")
        bad = torch.full_like(K, math.nan)
        return replace(exact(rows, K, noise_variance), kernel=lambda: bad)

    return objective


@pytest.mark.parametrize(("how", "reason"), [("raise", "K broke"), ("nan", "is not finite")])
def test_gradients_that_are_not_finite_never_reach_the_parameters(
    how: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = waves()
    monkeypatch.setattr(training, "exact", broken_after(20, how))
    events: list[Event] = []
    settings = replace(SMALL, objective="exact")
    message = rf"25 of 40 steps: 5 steps in a row.*{reason}"
    with pytest.warns(TrainingWarning, match=message) as caught:
        result = fit(x, y, settings=settings, callbacks=[events.append])
    assert caught[0].filename == __file__
    assert result.report.steps == 25
    assert result.report.skipped.total() == 5
    assert [event.step for event in events if event.skipped] == [21, 22, 23, 24, 25]
    assert all(bool(p.isfinite().all()) for p in result.model.parameters())
    mean, variance = result.posterior.predict(x)
    assert bool(mean.isfinite().all())
    assert bool((variance >= 0).all())


def test_a_fit_that_breaks_at_once_still_gives_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = waves()
    monkeypatch.setattr(training, "exact", broken_after(0, "raise"))
    with pytest.warns(TrainingWarning, match="5 of 40 steps"):
        result = fit(x, y, settings=replace(SMALL, objective="exact"))
    assert result.report.calibration is not None
    assert bool(result.posterior.predict(x)[0].isfinite().all())


def test_a_few_skipped_steps_do_not_end_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = waves()
    calls = 0

    def sometimes(rows, K, noise_variance) -> Adjoint:  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise NumericalError("now and then")
        return exact(rows, K, noise_variance)

    monkeypatch.setattr(training, "exact", sometimes)
    report = fit(x, y, settings=replace(SMALL, objective="exact")).report
    assert report.steps == 40
    assert report.skipped == {"now and then": 13}


def test_an_interrupt_keeps_the_best_so_far() -> None:
    x, y = waves()

    def interrupt(event: Event) -> None:
        if event.step == 10:
            raise KeyboardInterrupt

    with pytest.warns(TrainingWarning, match="10 of 40 steps: interrupted") as caught:
        result = fit(x, y, settings=SMALL, callbacks=[interrupt])
    assert caught[0].filename == __file__
    assert result.report.stopped == "interrupted"
    assert result.report.best_step <= 10
    assert bool(result.posterior.predict(x)[0].isfinite().all())


def test_the_report_reads_well() -> None:
    x, y = waves()
    text = str(fit(x, y, settings=SMALL).report)
    for fact in ("400 rows × 2", "40 rows held out", "20 points", "float32 on cpu", "qr solver"):
        assert fact in text
    assert "fallbacks    none" in text
