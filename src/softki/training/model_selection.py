"""Several settings for the same rows: which are tried, and which is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import torch

from softki.exceptions import InvalidInputError
from softki.model import SoftKI
from softki.training.checkpoint_state import resume_training, training_snapshot
from softki.training.checkpoints import NONE, Checkpoints
from softki.training.data import TrainingData
from softki.training.documents import Snapshot, report_document, report_of
from softki.training.initialization import model_again, new_report, start
from softki.training.report import Callback, FitReport, Trial
from softki.training.settings import FitSettings
from softki.training.trainer import Trainer

# Where settings improve the score by less than this, the next are not tried.
_LEAST_GAIN = 0.01


@dataclass(frozen=True, eq=False)
class Trained:
    """A model after training, and the rows that it is to be conditioned on."""

    model: SoftKI
    settings: FitSettings
    data: TrainingData
    report: FitReport

    @property
    def score(self) -> float:
        """On held-out rows; less is better."""
        best = self.report.best
        return math.inf if best is None else best.score


def candidates_of(
    settings: FitSettings | Sequence[FitSettings] | None, model: SoftKI | None
) -> list[FitSettings]:
    """The settings to try, checked, where there may be one, several or none."""
    if settings is None or isinstance(settings, FitSettings):
        return [settings or FitSettings()]
    first, *others = settings
    shared = [(s.held_out, s.seed, s.dtype) for s in settings]
    if len(set(shared)) > 1:
        raise InvalidInputError("settings to choose from must share held_out, seed and dtype")
    if others and model is not None:
        raise InvalidInputError("a model to start from goes with one settings, not with several")
    return [first, *others]


@dataclass
class Search:
    """What has been tried of several settings, in order."""

    trials: list[Trial] = field(default_factory=list)
    best: Trained | None = None
    best_number: int = 0  # of its settings, from 0
    noise: float | None = None  # that all sizes start from, as the first did

    def add(self, trained: Trained) -> float:
        """One more; by how much it is better than the best before."""
        gain = math.inf if self.best is None else self.best.score - trained.score
        if self.best is None or gain > 0:
            self.best, self.best_number = trained, len(self.trials)
        self.trials.append(trained.report.trial)
        return gain

    def snapshot(self, trainer: Trainer, generator: torch.Generator) -> Snapshot:
        """What was tried, and where the training of the next settings stands."""
        document = {"trials": [trial._asdict() for trial in self.trials], "noise": self.noise}
        parts = {
            "training": training_snapshot(trainer),
            "generator": Snapshot({}, {"state": generator.get_state()}),
        }
        if self.best is not None:
            about = {"number": self.best_number, "report": report_document(self.best.report)}
            parts["best"] = Snapshot(about, dict(self.best.model.state_dict()))
        return Snapshot.of(document, **parts)

    @classmethod
    def resumed(
        cls, snapshot: Snapshot, candidates: Sequence[FitSettings], data: TrainingData
    ) -> Self:
        """What had been tried."""
        document = snapshot.document
        search = cls([Trial(**trial) for trial in document["trials"]], noise=document["noise"])
        if snapshot.has("best"):
            about, parameters = snapshot.part("best")
            search.best_number = about["number"]
            settings = candidates[search.best_number]
            model = model_again(data, settings, None, parameters)
            search.best = Trained(model, settings, data, report_of(about["report"]))
        return search


def best_of(
    candidates: Sequence[FitSettings],
    data: TrainingData,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints = NONE,
) -> Trained:
    """The best of what the settings give, each tried as long as the one before was a gain.

    Without held-out rows there is nothing to compare them by, and the first is taken.
    """
    if data.held_out is None:
        candidates = candidates[:1]
    search, found = Search(), checkpoints.found
    if found is not None:
        search = Search.resumed(found, candidates, data)
        generator.set_state(found.part("generator").tensors["state"])
    for settings in candidates[len(search.trials) :]:
        if found is None:
            begun, seconds = start(data, settings, model, generator, search.noise)
            search.noise = float(begun.noise_variance.detach())
        else:
            parameters = found.part("training").part("model").tensors
            begun, seconds = model_again(data, settings, model, parameters), {}
        report = new_report(begun, data, settings, seconds)
        trainer = Trainer(begun, data, settings, report, callbacks)
        if found is not None:
            resume_training(trainer, found.part("training"))
            found = None
        trainer.run(partial(checkpoints.save, partial(search.snapshot, trainer, generator)))
        gain = search.add(Trained(begun, settings, data, report))
        if report.stopped == "interrupted":
            checkpoints.keep()
            break
        if gain < _LEAST_GAIN:
            break
    assert search.best is not None
    search.best.report.trials = search.trials if len(candidates) > 1 else []
    return search.best
