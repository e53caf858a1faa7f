"""Several settings for the same rows: each is tried as long as it pays, and the best is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch

from softki.model import SoftKI
from softki.training.checkpoint_state import resume_training, training_state
from softki.training.data import TrainingData
from softki.training.documents import State, report_document, report_of
from softki.training.initialization import model_again, new_report, start
from softki.training.report import Callback, FitReport, Trial
from softki.training.settings import FitSettings
from softki.training.trainer import Trainer

# Where settings improve the score by less than this, the next are not tried.
_LEAST_GAIN = 0.01

Save = Callable[[Callable[[], State]], None]
"""A function that saves the state that it is given the making of."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A model after training, and the rows that it is to be conditioned on."""

    model: SoftKI
    settings: FitSettings
    data: TrainingData
    report: FitReport
    is_interrupted: bool = False  # whether the user stopped this training, or the one after it

    @property
    def score(self) -> float:
        """Score on held-out rows; less is better."""
        best = self.report.best
        return math.inf if best is None else best.score


def trainer_for(model: SoftKI, data: TrainingData, *arguments: Any, **named: Any) -> Trainer:
    """The trainer that suits the rows: of several processes, on a GPU, or the plain one."""
    if data.processes is not None:
        from softki.training.distributed import DistributedTrainer

        return DistributedTrainer(model, data, *arguments, **named)
    if data.device.type == "cuda":
        from softki.training.cuda_graph import GraphTrainer

        return GraphTrainer(model, data, *arguments, **named)
    return Trainer(model, data, *arguments, **named)


@dataclass
class Search:
    """The settings that have been tried, in order, and the best of them."""

    trials: list[Trial] = field(default_factory=list)
    best: Trained | None = None
    best_number: int = 0  # of its settings, from 0
    noise: float | None = None  # that all sizes start from, as the first did

    def add(self, trained: Trained) -> float:
        """Add a trained model; by how much it is better than the best before."""
        gain = math.inf if self.best is None else self.best.score - trained.score
        if self.best is None or gain > 0:
            self.best, self.best_number = trained, len(self.trials)
        self.trials.append(trained.report.trial)
        return gain

    def state(self, trainer: Trainer, generator: torch.Generator) -> State:
        """The search so far, with the state of the training of the next settings."""
        best = None
        if self.best is not None:
            best = {
                "number": self.best_number,
                "report": report_document(self.best.report),
                "model": dict(self.best.model.state_dict()),
            }
        return {
            "trials": [trial._asdict() for trial in self.trials],
            "noise": self.noise,
            "generator": generator.get_state(),
            "training": training_state(trainer),
            "best": best,
        }

    @classmethod
    def resumed(cls, state: State, candidates: Sequence[FitSettings], data: TrainingData) -> Self:
        """The search as it was saved."""
        search = cls([Trial(**trial) for trial in state["trials"]], noise=state["noise"])
        best = state["best"]
        if best is not None:
            search.best_number = best["number"]
            settings = candidates[search.best_number]
            model = model_again(data, settings, None, best["model"])
            search.best = Trained(model, settings, data, report_of(best["report"]))
        return search


def best_of(
    candidates: Sequence[FitSettings],
    data: TrainingData,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
    save: Save | None = None,
    found: State | None = None,
) -> Trained:
    """The best of the candidates, each tried as long as the one before was a gain.

    Without held-out rows there is nothing to compare them by, and the first is taken.

    Args:
        candidates: settings to try, in order.
        data: the rows.
        model: a model to start from, if there is one.
        generator: generator of the random numbers of initialization.
        callbacks: functions called with an `Event` after every step.
        save: saves the state of the search; None where nothing is to be saved.
        found: a state to go on from, if there is one.
    """
    if data.held_out is None:
        candidates = candidates[:1]
    search, is_interrupted = Search(), False
    if found is not None:
        search = Search.resumed(found, candidates, data)
        generator.set_state(found["generator"])
    for settings in candidates[len(search.trials) :]:
        if found is None:
            begun, seconds = start(data, settings, model, generator, search.noise)
            search.noise = float(begun.noise_variance.detach())
        else:
            begun = model_again(data, settings, model, found["training"]["model"])
            seconds = {}
        report = new_report(begun, data, settings, seconds)
        trainer = trainer_for(begun, data, settings, report, callbacks)
        if found is not None:
            resume_training(trainer, found["training"])
            found = None
        state = partial(search.state, trainer, generator)
        trainer.run(None if save is None else partial(save, state))
        gain = search.add(Trained(begun, settings, data, report))
        is_interrupted = report.stopped == "interrupted"
        if is_interrupted or gain < _LEAST_GAIN:
            break
    assert search.best is not None
    search.best.report.trials = search.trials if len(candidates) > 1 else []
    return replace(search.best, is_interrupted=is_interrupted)
