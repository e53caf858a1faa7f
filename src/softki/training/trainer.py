"""The training loop: Adam on minibatches or all rows, stopped on rows it does not see.

Held-out rows are compared by `HeldOut.score`: the NLL that they have after a refit of the
predictive variance on them (`softki.posterior.calibration`), plus the logarithm of their RMSE. With
the model's own variance, which shrinks while the error still falls, training would stop too early.
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from softki.batches import Batch, Data, Minibatches
from softki.exceptions import NumericalError, TrainingWarning
from softki.features import WeightedBatches
from softki.interpolation.backends import backend_for
from softki.model import SoftKI
from softki.objective.exact import (
    Objective,
    Stabilised,
    backward,
    exact,
    objective_of_several,
)
from softki.objective.hutchinson import Hutchinson
from softki.posterior.functions import Posterior
from softki.solvers import solve_whitened
from softki.training.cuda_graph import CopiedRows, GraphSteps, IndexedRows, StepRows, why_not
from softki.training.data import InMemoryRows, MinibatchesByStep, TrainingData
from softki.training.inference import Predictions
from softki.training.optimizer import make_adam, set_rate
from softki.training.report import Callback, Event, FitReport, HeldOut
from softki.training.settings import FitSettings

# How often a fit is evaluated on its held-out rows, at most.
_EVALUATIONS = 24
# The posterior of an evaluation looks at this many training rows, at most.
_EVALUATION_ROWS = 65_536
# Skipped steps in a row after which a fit gives up.
_MAX_SKIPPED = 5


@dataclass(frozen=True)
class _Outcome:
    step: int  # 1, 2, …
    objective: str  # the one that was used
    log_likelihood: float | None = None
    fallback: bool = False
    skipped: str | None = None  # why, if it was


class Trainer:
    """Trains a model in place; afterwards it has the best parameters that were seen.

    Args:
        model: to train.
        data: the rows; where none are held out, all steps are done and the last is best.
        settings: of the fit.
        report: filled in as training goes.
        callbacks: called with an `Event` after every step.
        last: the step to end at, if that is before the last of the schedule.

    Attributes:
        best: figures of the best step so far, where rows are held out.
        best_state: the parameters to keep, if training ended now.
        predictions: of the latest evaluation.
        seconds: of `run`, up to now.
        skips: why the last steps were skipped, in a row.
    """

    def __init__(
        self,
        model: SoftKI,
        data: TrainingData,
        settings: FitSettings,
        report: FitReport,
        callbacks: Sequence[Callback] = (),
        last: int | None = None,
    ) -> None:
        self.model, self.data, self.settings = model, data, settings
        self.report, self.callbacks, self.last = report, callbacks, last
        self.held_out, self.processes = data.held_out, data.processes
        self.optimizer = make_adam(model, settings, data.device)
        size = settings.batch_size
        self.minibatches: MinibatchesByStep | None = None
        if size is not None and size < data.training_count:
            self.minibatches = data.minibatches(size, settings.seed)
        self.hutchinson: Hutchinson | None = None
        self.objective = self._objective()
        self.best: HeldOut | None = None
        self.predictions: Predictions | None = None
        self.best_state = copy.deepcopy(model.state_dict())
        self.seconds, self.skips = 0.0, list[str]()
        self._graph = self._graph_steps()

    def run(self, save: Callable[[], object] = lambda: None) -> None:
        """Train, and restore the best parameters.

        Args:
            save: called wherever the training may be left and resumed later, which is where it is
                evaluated, or would be if rows were held out.
        """
        self._start = time.perf_counter() - self.seconds
        try:
            with self.processes.deferring_interrupts():
                self._loop(save)
        except KeyboardInterrupt:
            if self.processes.are_several:  # a second time, or while the others did not listen
                raise
            self._stop("interrupted", stacklevel=5)
        finally:
            if self.minibatches is not None:
                self.minibatches.close()
        self.report.best_step = self.report.steps
        if self.held_out is not None:
            if self.best is None:
                self._evaluate(self.report.steps)
            self.model.load_state_dict(self.best_state)
            self.report.best_step = self.best.step if self.best else 0
        if self.hutchinson is not None:
            self.report.unconverged = self.hutchinson.unconverged
        evaluation = self.report.seconds.get("evaluation", 0.0)
        self.report.seconds["training"] = time.perf_counter() - self._start - evaluation

    def _loop(self, save: Callable[[], object]) -> None:
        every, step = self._stretch, self.report.steps
        if self._is_over(step, every):  # as it was when it was saved
            return
        for outcome in self._outcomes(every, step + 1):
            step, skipped = outcome.step, outcome.skipped
            self.skips = [*self.skips, skipped] if skipped else []
            self.report.steps = step
            due = step % every == 0 or step == self.settings.steps
            event = Event(
                step=step,
                steps=self.settings.steps,
                objective=outcome.objective,
                log_likelihood=outcome.log_likelihood,
                fallback=outcome.fallback,
                skipped=skipped,
                held_out=self._evaluate(step) if due else None,
            )
            self._tell(event)
            if due:
                self.seconds = time.perf_counter() - self._start
                save()
            if self._is_over(step, every):
                return
            if self.processes.is_stopping:
                return self._stop("interrupted", stacklevel=6)

    def _tell(self, event: Event) -> None:
        """Call the callbacks; an interrupt in one process is a wish that all learn of."""
        try:
            for callback in self.callbacks:
                callback(event)
        except KeyboardInterrupt:
            if not self.processes.are_several:
                raise
            self.processes.interrupt()

    def _is_over(self, step: int, every: int) -> bool:
        """Whether training ends after this step, before the last of the schedule."""
        if len(self.skips) == _MAX_SKIPPED:
            if self.held_out is None:
                self.model.load_state_dict(self.best_state)
            reason = f"{_MAX_SKIPPED} steps in a row were skipped: {self.skips[-1]}"
            self._stop(reason, stacklevel=7)
            return True
        if step == self.last:
            return True
        if self._out_of_patience(step, every):
            self._stop("held-out rows no longer improved")
            return True
        return False

    @property
    def _stretch(self) -> int:
        """Steps from one evaluation to the next."""
        return max(1, math.ceil(self.settings.steps / _EVALUATIONS))

    def _outcomes(self, every: int, first: int) -> Iterator[_Outcome]:
        """Train, step by step from the first; in a graph, from one evaluation to the next."""
        batches = self._batches()
        if self._graph is None:
            for step in range(first, self.settings.steps + 1):
                yield self._step(step, batches(step))
            return
        name = backend_for(self.data.inputs, len(self.model.points)).name
        for start in range(first, self.settings.steps + 1, every):
            stretch = range(start, min(start + every, self.settings.steps + 1))
            before = copy.deepcopy(self.model.state_dict())
            for step, log_likelihood in self._graph.run(stretch):
                if log_likelihood is None:
                    if self._graph.trouble is not None:
                        self.report.backend = f"{name}, no CUDA graph: {self._graph.trouble}"
                    yield self._step(step, batches(step))
                    continue
                if self.held_out is None and step == start:
                    self.best_state = before
                yield _Outcome(step, "exact", log_likelihood)

    def _step(self, step: int, batches: Iterable[Batch]) -> _Outcome:
        """One step of Adam; a gradient that is not finite never reaches the parameters."""
        self.report.plain_steps += 1
        fallbacks = self.report.fallbacks.total()
        set_rate(self.optimizer, self.settings, step)
        self.optimizer.zero_grad()
        try:
            adjoint = backward(self.model, batches, self.objective, self.processes)
        except NumericalError as error:
            return _Outcome(step, self.report.objective, skipped=self._skip(str(error)))
        log_likelihood = adjoint.log_likelihood()
        outcome = _Outcome(
            step,
            adjoint.objective,
            None if log_likelihood is None else float(log_likelihood),
            fallback=self.report.fallbacks.total() > fallbacks,
        )
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
                return replace(outcome, skipped=self._skip(f"the gradient of {name} is not finite"))
        if self.held_out is None:  # the best that is known is the last with a finite gradient
            self.best_state = copy.deepcopy(self.model.state_dict())
        self.optimizer.step()
        return outcome

    def _evaluate(self, step: int) -> HeldOut | None:
        """Figures on the held-out rows, and the parameters kept if they are the best.

        Where there are several processes, both are those of the first.
        """
        self.processes.copy_from_first(list(self.model.state_dict().values()))
        if self.held_out is None:
            return None
        start = time.perf_counter()
        figures = self.processes.broadcast(self._figures(step, self.held_out))
        if isinstance(figures, str):
            self._skip(f"evaluation: {figures}")
            return None
        self.report.history.append(figures)
        if math.isfinite(figures.score) and (self.best is None or figures.score < self.best.score):
            self.best = figures
            self.best_state = copy.deepcopy(self.model.state_dict())
        seconds = self.report.seconds
        seconds["evaluation"] = seconds.get("evaluation", 0.0) + time.perf_counter() - start
        return figures

    def _figures(self, step: int, held_out: Batch) -> HeldOut | str:
        """The figures, or why there are none."""
        try:
            posterior = self._posterior()
        except NumericalError as error:
            return str(error)
        self.predictions = Predictions.of(posterior, held_out)
        return self.predictions.scores(step)

    @torch.no_grad()
    def _posterior(self) -> Posterior:
        some = Data(*self.data.sample(_EVALUATION_ROWS))
        own = some.take(self.processes.share_of(len(some)))
        chunks = Data(*own).chunks(len(self.model.points)) or [own]
        statistics = WeightedBatches(self.model, chunks, self.processes).statistics
        solution = solve_whitened(self.model.kernel_matrix(), statistics, self.model.noise_variance)
        return Posterior.from_solution(self.model, solution).to(self.data.dtype)

    def _batches(self) -> Callable[[int], Iterable[Batch]]:
        """The rows of a step, counted from 1."""
        if self.minibatches is None:
            chunks = self.data.chunks(len(self.model.points))
            return lambda step: chunks
        minibatches = self.minibatches
        return lambda step: [minibatches.batch(step - 1)]

    def _graph_steps(self) -> GraphSteps | None:
        """Steps in a CUDA graph, where they can be captured."""
        data, minibatches = self.data, self.minibatches
        backend = backend_for(data.inputs, len(self.model.points))
        self.report.backend = backend.name
        is_one_batch = minibatches is not None or (
            isinstance(data, InMemoryRows) and len(data.chunks(len(self.model.points))) == 1
        )
        reason = why_not(self.model, data, self.settings.objective, is_one_batch, backend)
        if reason is not None:
            if data.device.type == "cuda":
                self.report.backend += f", no CUDA graph: {reason}"
            return None
        self.report.backend += " in a CUDA graph"
        rows = self._step_rows()
        set_graph_rate = partial(set_rate, self.optimizer, self.settings)
        return GraphSteps(self.model, rows, self.optimizer, set_graph_rate, self._stretch)

    def _step_rows(self) -> StepRows:
        """The rows of a step, for a graph."""
        data, minibatches = self.data, self.minibatches
        if isinstance(data, InMemoryRows):
            training = data.training
            if isinstance(minibatches, Minibatches):
                return IndexedRows(data.data, minibatches.index)
            return IndexedRows(data.data, lambda step: training)
        assert minibatches is not None
        assert self.settings.batch_size is not None
        x, y = (
            torch.zeros(self.settings.batch_size, c, dtype=data.dtype, device=data.device)
            for c in (data.dimension, data.targets)
        )
        return CopiedRows(Batch(x, y), minibatches.batch)

    def _objective(self) -> Objective:
        named: dict[str, Objective] = {
            "exact": exact,
            "hutchinson": Hutchinson(),
            "stabilised": Stabilised(Hutchinson()),
        }
        objective = self.settings.objective
        if self.processes.are_several:
            return objective_of_several(objective)
        return self._own(named[objective] if isinstance(objective, str) else objective)

    def _own(self, objective: Objective) -> Objective:
        """The objective with counters of this fit, and probes from its seed."""
        if isinstance(objective, Hutchinson):
            seeded = torch.Generator(self.data.device).manual_seed(self.settings.seed)
            self.hutchinson = replace(objective, generator=objective.generator or seeded)
            return self.hutchinson
        if isinstance(objective, Stabilised):
            stabilised = Stabilised(self._own(objective.fallback))
            self.report.fallbacks = stabilised.fallbacks
            return stabilised
        return objective

    def _out_of_patience(self, step: int, every: int) -> bool:
        patience = self.settings.patience
        return (
            patience is not None
            and self.best is not None
            and step - self.best.step >= patience * every
        )

    def _skip(self, reason: str) -> str:
        self.report.skipped[reason] += 1
        return reason

    def _stop(self, reason: str, stacklevel: int | None = None) -> None:
        """End the fit; where a stacklevel is given, the one of `fit`'s caller, with a warning."""
        self.report.stopped = reason
        if stacklevel is not None:
            warnings.warn(
                f"training ended after {self.report.steps} of {self.settings.steps} steps: "
                f"{reason}; the best parameters so far are kept",
                TrainingWarning,
                stacklevel=stacklevel,
            )
