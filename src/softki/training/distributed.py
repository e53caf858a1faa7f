"""Training by several processes that share the rows: what is sent between them, and when.

Each process has batches of its own rows, and the same parameters. Statistics and gradients are
sums over the processes, so that all of them take the same steps; held-out rows, which all have,
are scored by process 0. No other module of training knows that there are several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from softki.batches import Batch, Data
from softki.exceptions import InvalidInputError, NumericalError
from softki.features import WeightedBatches
from softki.interpolation.backends import backend_for
from softki.objective.exact_likelihood import Adjoint, Objective, Stabilised, exact
from softki.training.report import HeldOut
from softki.training.shared_batches import SharedBatches
from softki.training.trainer import Outcome, Trainer


class DistributedTrainer(Trainer):
    """Trains the same model in all processes, each on its part of the rows.

    The vectors of Hutchinson's pseudoloss are as long as the rows of all processes, so that the
    objective is the exact one: a step in which the stabilised objective would have fallen back is
    skipped. An interrupt of one process ends the training of all after the same step.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        assert self.data.processes is not None
        self.processes = self.data.processes
        self.weighted = partial(SharedBatches, processes=self.processes)
        self.processes.copy_from_first(list(self.model.state_dict().values()))
        if self.data.device.type == "cuda":
            name = backend_for(self.data.inputs, len(self.model.points)).name
            self.report.backend = f"{name}, no CUDA graph: several processes share the rows"

    def run(self, save: Callable[[], object] | None = None) -> None:
        """Train, and restore the best parameters, as `Trainer.run` does."""
        with self.processes.deferring_interrupts():
            super().run(save)

    def _note(self, step: int, outcome: Outcome, scores: HeldOut | None) -> None:
        try:
            super()._note(step, outcome, scores)
        except KeyboardInterrupt:
            self.processes.interrupt()

    def _is_over(self, step: int) -> bool:
        if super()._is_over(step):
            return True
        if self.processes.is_stopping:
            super()._interrupted()
        return self.processes.is_stopping

    def _interrupted(self) -> None:
        """A second interrupt, or one while the other processes did not listen."""
        raise KeyboardInterrupt

    def _evaluate(self, step: int) -> HeldOut | None:
        self.processes.copy_from_first(list(self.model.state_dict().values()))
        return super()._evaluate(step)

    def _scores(self, step: int, held_out: Batch) -> HeldOut:
        """Scores of process 0, in all processes."""
        try:
            scores: HeldOut | str = super()._scores(step, held_out)
        except NumericalError as error:
            scores = str(error)
        scores = self.processes.broadcast(scores)
        if isinstance(scores, str):
            raise NumericalError(scores)
        return scores

    def _chunks(self, sample: Data) -> Sequence[Batch]:
        """The part of a sample that this process looks at."""
        own = sample.take(self.processes.share_of(len(sample)))
        return super()._chunks(Data(*own)) or [own]

    def _objective(self, objective: str | Objective) -> Objective:
        check_shared_objective(objective)
        return _exact_or_none


def check_shared_objective(objective: str | Objective) -> None:
    """Raise unless several processes can share the rows of the objective."""
    if objective in ("exact", "stabilised", exact) or isinstance(objective, Stabilised):
        return
    name = objective if isinstance(objective, str) else type(objective).__name__
    raise InvalidInputError(
        f"the objective {name} is for one process, as it needs vectors as long as all rows: use "
        "'stabilised' or 'exact' where several share them"
    )


def _exact_or_none(rows: WeightedBatches, K: Tensor, noise_variance: Tensor) -> Adjoint:
    """The exact objective; where it fails in one process, all skip the step."""
    assert isinstance(rows, SharedBatches)
    _ = rows.statistics  # all wait for it, whatever may fail in one of them
    try:
        adjoint = exact(rows, K, noise_variance)
        if not all(bool(part().isfinite().all()) for part in (adjoint.kernel, adjoint.noise)):
            raise NumericalError("the exact gradient is not finite")
    except NumericalError as error:
        rows.give_up()
        raise NumericalError(f"{error} (several processes have no fallback)") from error
    return adjoint
