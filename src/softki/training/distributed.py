"""Training by several processes that share the rows: what is sent between them, and when.

Each process has batches of its own rows, and the same parameters. Statistics and gradients are
sums over the processes, so that all of them take the same steps; held-out rows, which all have,
are scored by process 0. No other module of training knows that there are several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, singledispatch
from os import PathLike
from typing import Any, TypeVar

import torch
from torch import Tensor

from softki.batches import Batch, Data
from softki.exceptions import InvalidInputError, NumericalError
from softki.features import WeightAdjoint, WeightedBatches
from softki.interpolation.backends import Backend, PlainBackend, backend_for
from softki.model import SoftKI
from softki.objective.exact_likelihood import Adjoint, Objective, Stabilised, backward, exact
from softki.parallel.processes import Processes
from softki.statistics import GramStatistics, SquareRootStatistics, Statistics, triangular_factor
from softki.training.checkpoints import CheckpointFolder
from softki.training.documents import State
from softki.training.report import HeldOut
from softki.training.trainer import Outcome, Trainer

AnyStatistics = TypeVar("AnyStatistics", bound=Statistics)


class SharedBatches(WeightedBatches):
    """Batches of the rows of this process; statistics and gradients are those of all processes.

    Args:
        model: model whose points and temperature give the weights.
        batches: batches of the rows of this process, which may have none.
        processes: processes that have a part of the rows each.
    """

    def __init__(self, model: SoftKI, batches: Iterable[Batch], processes: Processes) -> None:
        self._processes = processes
        super().__init__(model, batches)

    def _keep(self, batch: Batch) -> None:
        if len(batch.x):
            super()._keep(batch)

    def _backend_for(self, x: Tensor) -> Backend:
        if len(x):
            return super()._backend_for(x)
        T = self._temperature  # a kernel on a GPU cannot be launched for no rows
        return PlainBackend(self._points.detach().to(x), None if T is None else T.detach().to(x))

    @cached_property
    def statistics(self) -> GramStatistics:
        """Statistics of the rows of all processes, in Gram form."""
        return total(GramStatistics.from_blocks(self), self._processes)

    def _pulled_back(self, gradient: WeightAdjoint) -> list[Tensor]:
        return self._added(super()._pulled_back(gradient))

    def give_up(self) -> None:
        """Let the other processes, which wait for a gradient, know that there is none."""
        self._added([], failed=True)

    def _added(self, gradients: list[Tensor], failed: bool = False) -> list[Tensor]:
        """The gradients of all processes, md + d + 1 numbers in one message."""
        z = self._points.detach()
        gradients = gradients or [z.new_zeros(z.shape), z.new_zeros(z.shape[1])]
        *added, failures = self._processes.sum([*gradients, z.new_tensor(float(failed))])
        if float(failures) and not failed:
            raise NumericalError(f"{int(failures)} other process(es) had no gradient")
        return added


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
        self.processes.copy_from_first(list(self.model.state_dict().values()))
        if self.data.device.type == "cuda":
            name = backend_for(self.data.inputs, len(self.model.points)).name
            self.report.backend = f"{name}, no CUDA graph: several processes share the rows"

    def run(self, save: Callable[[], object] | None = None) -> None:
        """Train, and restore the best parameters, as `Trainer.run` does."""
        with self.processes.deferring_interrupts():
            super().run(save)

    def gradient(self, batches: Iterable[Batch]) -> Adjoint:
        """Add the gradient of the loss on the rows of a step, of all processes."""
        rows = SharedBatches(self.model, batches, self.processes)
        _ = rows.statistics  # all wait for it, whatever may fail in one of them
        try:
            return backward(self.model, rows, self.objective)
        except NumericalError:
            rows.give_up()
            raise

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

    def _statistics_of_sample(self, sample: Data) -> GramStatistics:
        own = sample.take(self.processes.share_of(len(sample)))
        chunks = Data(*own).chunks(len(self.model.points)) or [own]
        return SharedBatches(self.model, chunks, self.processes).statistics

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
    try:
        adjoint = exact(rows, K, noise_variance)
        if not all(bool(part().isfinite().all()) for part in (adjoint.kernel, adjoint.noise)):
            raise NumericalError("the exact gradient is not finite")
    except NumericalError as error:
        raise NumericalError(f"{error} (several processes have no fallback)") from error
    return adjoint


def total(statistics: AnyStatistics, processes: Processes) -> AnyStatistics:
    """Statistics of the rows of all processes, the same in each of them."""
    result: AnyStatistics = _total(statistics, processes)
    return result


@singledispatch
def _total(statistics: Any, processes: Processes) -> Any:
    raise TypeError(f"no sum over processes for {type(statistics).__name__}")


@_total.register
def _(statistics: GramStatistics, processes: Processes) -> GramStatistics:
    """The sums over all processes, in one message of m² + mt + t + 2 numbers."""
    others = statistics.square.new_tensor([statistics.count, statistics.log_noise])
    gram, cross, square, others = processes.sum(
        [statistics.gram_matrix, statistics.cross_matrix, statistics.square, others]
    )
    count, log_noise = others.tolist()
    return GramStatistics(int(count), log_noise, gram, cross, square)


@_total.register
def _(statistics: SquareRootStatistics, processes: Processes) -> SquareRootStatistics:
    """R of the factors of all processes: a QR of two at a time, in log₂ P rounds.

    Messages have (m + t)² + 2 numbers: R, n and Σ log σᵢ².
    """
    width = statistics.factor.shape[1]
    square = statistics.factor.new_zeros(width, width)
    square[: len(statistics.factor)] = statistics.factor

    def add(one: Tensor, other: Tensor) -> Tensor:
        R = torch.cat([one[:-2].view(width, width), other[:-2].view(width, width)])
        return torch.cat([triangular_factor(R).reshape(-1), one[-2:] + other[-2:]])

    others = square.new_tensor([statistics.count, statistics.log_noise])
    summed = processes.reduce_tensor(torch.cat([square.reshape(-1), others]), add)
    count, log_noise = summed[-2:].tolist()
    factor = summed[:-2].view(width, width)
    return SquareRootStatistics(int(count), log_noise, factor, statistics.points)


class SharedCheckpoints:
    """The checkpoints of a fit of several processes: process 0 writes, all go on from them.

    Args:
        folder: folder that the checkpoints are in.
        fingerprint: fingerprint of the fit, see `softki.training.checkpoints`.
        processes: processes of the fit.
    """

    def __init__(
        self, folder: str | PathLike[str], fingerprint: dict[str, Any], processes: Processes
    ) -> None:
        own = processes.together(
            lambda: CheckpointFolder(folder, fingerprint) if processes.is_rank_zero else None
        )
        self._folder = own
        self.found: State | None = processes.broadcast(own.found if own else None)

    def save(self, make: Callable[[], State]) -> None:
        """Write a checkpoint, in process 0."""
        if self._folder is not None:
            self._folder.save(make)

    def finish(self) -> None:
        """Remove the checkpoints of a fit that is done, in process 0."""
        if self._folder is not None:
            self._folder.finish()
