"""Trainings without some of the rows: what they said of these, and where they are kept."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from softki.calibration import Unseen
from softki.evaluation import Predictions
from softki.in_memory import InMemoryRows
from softki.model import SoftKI
from softki.report import FitReport, HeldOut
from softki.snapshots import Snapshot
from softki.storage.documents import report_document, report_of


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
                _, y, noise_scale = rows.held_out
                unseen = Unseen(y, mean, about["noise_variance"], noise_scale)
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
                history.append(Predictions.pooled(parts_at).figures(step))
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
