"""Few rows: each is held out once, and the last fit sees all of them.

A tenth of few rows is too few to stop on, and to calibrate by: whatever suits these best looks
better than it is. So the rows are dealt out into folds, and the model is trained once for each fold
on the rows of the others. The step at which the pooled score of all folds is least is where a last
training, on all rows, ends; predictions are calibrated on the residuals of all folds.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from softki.batches import Data
from softki.model import SoftKI
from softki.training.data import InMemoryRows, Split, hash_order
from softki.training.inference import HeldOutPosterior, Predictions, calibration_by
from softki.training.initialization import new_report, start
from softki.training.model_selection import Trained, trainer_for
from softki.training.report import Callback, Event, FitReport, HeldOut, timed
from softki.training.settings import FitSettings


@dataclass(eq=False)
class Fold:
    """A training without some of the rows, with predictions of these and parameters by step."""

    rows: InMemoryRows
    model: SoftKI
    report: FitReport
    predictions: dict[int, Predictions] = field(default_factory=dict)
    states: dict[int, dict[str, Any]] = field(default_factory=dict)

    def train(self, settings: FitSettings, callbacks: Sequence[Callback]) -> None:
        """Train, and keep predictions and parameters of every evaluation."""
        trainer = trainer_for(self.model, self.rows, settings, self.report)

        def keep(step: int) -> None:
            if trainer.predictions is not None:
                self.predictions[step] = trainer.predictions
                self.states[step] = copy.deepcopy(self.model.state_dict())

        def keep_evaluated(event: Event) -> None:
            if event.held_out is not None:
                keep(event.step)

        trainer.callbacks = [keep_evaluated, *callbacks]
        trainer.run()
        if not self.predictions:  # no steps at all
            keep(0)

    def posterior_at(self, step: int, settings: FitSettings) -> HeldOutPosterior:
        """The posterior with the parameters of a step, and the held-out rows."""
        self.model.load_state_dict(self.states[step])
        return HeldOutPosterior.of(self.model, self.rows, settings)


def cross_validated(
    data: Data,
    settings: FitSettings,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> Trained:
    """A model trained on all rows, for as many steps as were best for held-out rows.

    Where the user stops the training of a fold, that fold is the result; likewise the first, where
    no step was reached by all.
    """
    order = hash_order(len(data), settings.seed)
    rows = InMemoryRows(data, Split(order, order[:0]), settings.seed)
    begun, seconds = start(rows, settings, model, generator)
    folds: list[Fold] = []
    with timed(seconds, "cross-validation", rows.device):
        for part in _dealt(rows, settings.folds):
            fold_model = copy.deepcopy(begun)
            fold = Fold(part, fold_model, new_report(fold_model, part, settings, {}))
            fold.train(settings, callbacks)
            folds.append(fold)
            if fold.report.stopped == "interrupted":
                break
    history = pooled_history(folds)
    is_interrupted = folds[-1].report.stopped == "interrupted"
    if is_interrupted or not history:
        fold = folds[-1] if is_interrupted else folds[0]
        begun.load_state_dict(fold.model.state_dict())
        fold.report.seconds |= seconds
        return Trained(begun, settings, fold.rows, fold.report)
    best = min(history, key=lambda scores: scores.score).step
    report = new_report(begun, rows, settings, seconds)
    report.history, report.folds = history, len(folds)
    trainer_for(begun, rows, settings, report, callbacks, last=best).run()
    report.calibration = calibration_by([fold.posterior_at(best, settings) for fold in folds])
    return Trained(begun, settings, InMemoryRows.whole(data), report)


def pooled_history(folds: Sequence[Fold]) -> list[HeldOut]:
    """The pooled scores of all folds at the steps that all of them reached."""
    history = []
    for step in folds[0].predictions:
        parts = [fold.predictions[step] for fold in folds if step in fold.predictions]
        if len(parts) == len(folds):
            history.append(Predictions.pooled(parts).scores(step))
    return history


def _dealt(rows: InMemoryRows, count: int) -> list[InMemoryRows]:
    """The rows once for each fold, with the rows of that fold held out."""
    parts = rows.training.cpu().tensor_split(count)
    return [
        InMemoryRows(rows.data, Split(torch.cat([*parts[:i], *parts[i + 1 :]]), held_out))
        for i, held_out in enumerate(parts)
    ]
