"""Several settings for the same rows: which are tried, and which is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from softki.exceptions import InvalidInputError
from softki.model import SoftKI
from softki.report import Callback, FitReport
from softki.settings import FitSettings
from softki.starting import new_report, start
from softki.training import Trainer
from softki.training_data import TrainingData

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


def best_of(
    candidates: Sequence[FitSettings],
    data: TrainingData,
    model: SoftKI | None,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> Trained:
    """The best of what the settings give, each tried as long as the one before was a gain.

    Without held-out rows there is nothing to compare them by, and the first is taken.
    """
    best, trials, noise = None, [], None
    if data.held_out is None:
        candidates = candidates[:1]
    for settings in candidates:
        begun, seconds = start(data, settings, model, generator, noise)
        noise = float(begun.noise_variance.detach())  # for all sizes, as that of the first
        report = new_report(begun, data, settings, seconds)
        Trainer(begun, data, settings, report, callbacks).run()
        trained = Trained(begun, settings, data, report)
        trials.append(report.trial)
        gain = math.inf if best is None else best.score - trained.score
        if best is None or gain > 0:
            best = trained
        if gain < _LEAST_GAIN or report.stopped == "interrupted":
            break
    assert best is not None
    best.report.trials = trials if len(candidates) > 1 else []
    return best
