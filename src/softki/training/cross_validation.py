"""Few rows: each is held out once, and the last fit sees all of them.

A tenth of few rows is too few to stop on, and to calibrate by: whatever suits these best looks
better than it is. So the rows are dealt out into folds, the model is trained as often without one
of them, and all are judged together: the step at which their pooled score is least is where a
last training, on all rows, ends; predictions are calibrated on all of their residuals.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from softki.batches import Data
from softki.model import SoftKI
from softki.posterior.calibration import HeldOutRows
from softki.training.checkpoint_state import resume_training, training_snapshot
from softki.training.checkpoints import NONE, Checkpoints
from softki.training.data import InMemoryRows, Split
from softki.training.documents import Snapshot, report_document, report_of
from softki.training.inference import HeldOutPosterior, Predictions, calibration_by
from softki.training.initialization import model_again, new_report, start
from softki.training.model_selection import Trained
from softki.training.report import Callback, Event, FitReport, HeldOut
from softki.training.runtime import timed
from softki.training.settings import FitSettings
from softki.training.trainer import Trainer


@dataclass(frozen=True, eq=False)
class Fold:
    """A training without some of the rows: what it said of them, and its parameters, by step."""

    rows: InMemoryRows
    model: SoftKI
    report: FitReport
    predictions: dict[int, Predictions]
    states: dict[int, dict[str, Any]]

    def only(self, step: int) -> Fold:
        """What is needed of it once the step is chosen."""
        return replace(self, predictions={}, states={step: self.states[step]})

    def snapshot(self) -> Snapshot:
        """Everything but the rows."""
        document = {"report": report_document(self.report), "steps": list(self.states)}
        parts = {"model": Snapshot({}, dict(self.model.state_dict()))}
        for step, said in self.predictions.items():
            about = {"noise_variance": said.unseen.noise_variance}
            tensors = {"mean": said.unseen.mean, "variance": said.variance}
            parts[f"predictions {step}"] = Snapshot(about, tensors)
        for step, state in self.states.items():
            parts[f"state {step}"] = Snapshot({}, dict(state))
        return Snapshot.of(document, **parts)

    @classmethod
    def resumed(cls, snapshot: Snapshot, rows: InMemoryRows, begun: SoftKI) -> Fold:
        """The fold on its rows, whose training had begun with a copy of the model."""
        document, model = snapshot.document, copy.deepcopy(begun)
        model.load_state_dict(snapshot.part("model").tensors)
        states, predictions = {}, {}
        for step in document["steps"]:
            states[step] = snapshot.part(f"state {step}").tensors
            if snapshot.has(f"predictions {step}"):
                about, tensors = snapshot.part(f"predictions {step}")
                mean, variance = (tensors[k].to(rows.device) for k in ("mean", "variance"))
                assert rows.held_out is not None
                _, y, noise_std = rows.held_out
                unseen = HeldOutRows(y, mean, about["noise_variance"], noise_std)
                predictions[step] = Predictions(unseen, variance)
        return cls(rows, model, report_of(document["report"]), predictions, states)


@dataclass(frozen=True, eq=False)
class Folds:
    """All of the folds, and their pooled figures at the steps that all of them reached."""

    folds: list[Fold]
    history: list[HeldOut]

    @classmethod
    def judged_together(cls, folds: list[Fold]) -> Folds:
        """The folds with their pooled figures; with none where no step was reached by all."""
        history = []
        for step in folds[0].predictions:
            parts_at = [fold.predictions[step] for fold in folds if step in fold.predictions]
            if len(parts_at) == len(folds):
                history.append(Predictions.pooled(parts_at).scores(step))
        return cls(folds, history)

    @property
    def best(self) -> HeldOut:
        """At the step where the score is least."""
        return min(self.history, key=lambda figures: figures.score)

    def at_best(self) -> list[tuple[SoftKI, InMemoryRows]]:
        """The model of each fold at that step, and its rows."""
        for fold in self.folds:
            fold.model.load_state_dict(fold.states[self.best.step])
        return [(fold.model, fold.rows) for fold in self.folds]


def folds_snapshot(folds: Sequence[Fold]) -> Snapshot:
    """Those that are done."""
    return Snapshot.of(
        {"count": len(folds)}, **{str(i): fold.snapshot() for i, fold in enumerate(folds)}
    )


def resumed_folds(snapshot: Snapshot, rows: Sequence[InMemoryRows], begun: SoftKI) -> list[Fold]:
    """Those that were done, each on its rows."""
    count = snapshot.document["count"]
    return [Fold.resumed(snapshot.part(str(i)), rows[i], begun) for i in range(count)]


def cross_validated(
    data: Data,
    settings: FitSettings,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints = NONE,
) -> Trained:
    """Trained on all rows, for as many steps as were best for rows left out.

    Checkpoints have the folds that are done, and then the last training as it goes on; a fold that
    was under way starts anew.
    """
    order = torch.randperm(len(data), generator=generator, device="cpu")
    rows, parts = InMemoryRows(data, Split(order, order[:0])), _dealt(data, order, settings.folds)
    found, done = checkpoints.found, list[Fold]()
    if found is None:
        begun, seconds = start(rows, settings, model, generator)
    else:
        begun = model_again(rows, settings, model, found.part("begun").tensors)
        seconds, done = found.document["seconds"], resumed_folds(found.part("folds"), parts, begun)
    before = Snapshot({}, copy.deepcopy(dict(begun.state_dict())))

    def save(folds: Sequence[Fold], training: Trainer | None = None) -> None:
        def snapshot() -> Snapshot:
            last = {} if training is None else {"training": training_snapshot(training)}
            kept = folds_snapshot(folds)
            return Snapshot.of({"seconds": seconds}, begun=before, folds=kept, **last)

        checkpoints.save(snapshot)

    training = found.part("training") if found is not None and found.has("training") else None
    if training is not None:
        folds: Folds | Fold = Folds(done, report_of(training.document["report"]).history)
    else:
        earlier = sum(sum(fold.report.seconds.values()) for fold in done)
        with timed(seconds, "cross-validation", rows.device):
            folds = cross_validate(begun, parts, settings, callbacks, done, save)
        seconds["cross-validation"] += earlier
    if isinstance(folds, Fold):  # interrupted: all there is
        if folds.report.stopped == "interrupted":
            checkpoints.keep()
        begun.load_state_dict(folds.model.state_dict())
        folds.report.seconds |= seconds
        return Trained(begun, settings, folds.rows, folds.report)
    report = new_report(begun, rows, settings, seconds)
    report.history, report.folds = folds.history, len(folds.folds)
    trainer = Trainer(begun, rows, settings, report, callbacks, last=folds.best.step)
    if training is not None:
        resume_training(trainer, training)
    trainer.run(partial(save, [fold.only(folds.best.step) for fold in folds.folds], trainer))
    if report.stopped == "interrupted":
        checkpoints.keep()
    report.calibration = calibration_by(
        [HeldOutPosterior.of(fold, part, settings) for fold, part in folds.at_best()]
    )
    return Trained(begun, settings, InMemoryRows.whole(data), report)


def _dealt(data: Data, order: Tensor, count: int) -> list[InMemoryRows]:
    """The rows in this order, as often as there are folds, each time with another held out."""
    parts = order.tensor_split(count)
    return [
        InMemoryRows(data, Split(torch.cat([*parts[:i], *parts[i + 1 :]]), held_out))
        for i, held_out in enumerate(parts)
    ]


def cross_validate(
    begun: SoftKI,
    parts: Sequence[InMemoryRows],
    settings: FitSettings,
    callbacks: Sequence[Callback],
    done: Sequence[Fold] = (),
    save: Callable[[Sequence[Fold]], None] = lambda folds: None,
) -> Folds | Fold:
    """Train once on each of the parts, on which the model is judged by the rows held out.

    Where the user stops a training, it is returned alone; likewise the first, where no step was
    reached by all. Those that are done already are not trained again, and all are saved whenever
    another is done.
    """
    folds = list(done)
    for rows in parts[len(done) :]:
        fold = _train_on(rows, begun, settings, callbacks)
        if fold.report.stopped == "interrupted":
            return fold
        folds.append(fold)
        save(folds)
    together = Folds.judged_together(folds)
    return together if together.history else folds[0]


def _train_on(
    rows: InMemoryRows, begun: SoftKI, settings: FitSettings, callbacks: Sequence[Callback]
) -> Fold:
    model = copy.deepcopy(begun)
    fold = Fold(rows, model, new_report(model, rows, settings, {}), {}, {})
    trainer = Trainer(model, rows, settings, fold.report)

    def remember(event: Event) -> None:
        if event.held_out is not None and trainer.predictions is not None:
            fold.predictions[event.step] = trainer.predictions
            fold.states[event.step] = copy.deepcopy(model.state_dict())

    trainer.callbacks = [remember, *callbacks]
    trainer.run()
    if not fold.predictions and trainer.predictions is not None:  # of no steps at all
        fold.predictions[0] = trainer.predictions
        fold.states[0] = copy.deepcopy(model.state_dict())
    return fold
