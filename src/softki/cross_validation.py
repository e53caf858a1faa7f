"""Few rows: each is held out once, and the last fit sees all of them.

A tenth of few rows is too few to stop on, and to calibrate by: whatever suits these best looks
better than it is. So the rows are dealt out into folds, the model is trained as often without one
of them, and all are judged together: the step at which their pooled score is least is where a
last training, on all rows, ends; the variance is calibrated on all of their residuals.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softki.batches import Data
from softki.evaluation import Predictions
from softki.in_memory import InMemoryRows, Split
from softki.inference import Judged, calibration_by
from softki.model import SoftKI
from softki.report import Callback, Event, FitReport, HeldOut
from softki.runtime import timed
from softki.selection import Trained
from softki.settings import FitSettings
from softki.starting import new_report, start
from softki.training import Trainer


@dataclass(frozen=True, eq=False)
class Fold:
    """A training without some of the rows: what it said of them, and its parameters, by step."""

    rows: InMemoryRows
    model: SoftKI
    report: FitReport
    predictions: dict[int, Predictions]
    states: dict[int, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Folds:
    """All of the folds, and their pooled figures at the steps that all of them reached."""

    folds: list[Fold]
    history: list[HeldOut]

    @property
    def best(self) -> HeldOut:
        """At the step where the score is least."""
        return min(self.history, key=lambda figures: figures.score)

    def at_best(self) -> list[tuple[SoftKI, InMemoryRows]]:
        """The model of each fold at that step, and its rows."""
        for fold in self.folds:
            fold.model.load_state_dict(fold.states[self.best.step])
        return [(fold.model, fold.rows) for fold in self.folds]


def cross_validated(
    data: Data,
    settings: FitSettings,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> Trained:
    """Trained on all rows, for as many steps as were best for rows left out."""
    order = torch.randperm(len(data), generator=generator, device="cpu")
    rows = InMemoryRows(data, Split(order, order[:0]))
    begun, seconds = start(rows, settings, model, generator)
    with timed(seconds, "cross-validation", rows.device):
        folds = cross_validate(begun, data, settings, order, callbacks)
    if isinstance(folds, Fold):  # interrupted: all there is
        begun.load_state_dict(folds.model.state_dict())
        folds.report.seconds |= seconds
        return Trained(begun, settings, folds.rows, folds.report)
    report = new_report(begun, rows, settings, seconds)
    report.history, report.folds = folds.history, len(folds.folds)
    Trainer(begun, rows, settings, report, callbacks, last=folds.best.step).run()
    report.calibration = calibration_by(
        [Judged.of(fold, part, settings) for fold, part in folds.at_best()]
    )
    return Trained(begun, settings, InMemoryRows.whole(data), report)


def cross_validate(
    begun: SoftKI,
    data: Data,
    settings: FitSettings,
    order: Tensor,
    callbacks: Sequence[Callback],
) -> Folds | Fold:
    """Train once without each fold of the rows in `order`.

    Where the user stops a training, it is returned alone; likewise the first, where no step was
    reached by all.
    """
    folds: list[Fold] = []
    parts = order.tensor_split(settings.folds)
    for i, held_out in enumerate(parts):
        training = torch.cat([*parts[:i], *parts[i + 1 :]])
        rows = InMemoryRows(data, Split(training, held_out))
        fold = _train_on(rows, begun, settings, callbacks)
        if fold.report.stopped == "interrupted":
            return fold
        folds.append(fold)
    history = []
    for step in folds[0].predictions:
        parts_at = [fold.predictions[step] for fold in folds if step in fold.predictions]
        if len(parts_at) == len(folds):
            history.append(Predictions.pooled(parts_at).figures(step))
    return Folds(folds, history) if history else folds[0]


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
