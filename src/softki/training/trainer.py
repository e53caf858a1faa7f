"""The training loop: Adam on minibatches or all rows, stopped on rows it does not see.

Held-out rows are compared by `HeldOut.score`: the NLL that they have after a refit of the
predictive variance on them (`softki.posterior.calibration`), plus the logarithm of their RMSE. With
the model's own variance, which shrinks while the error still falls, training would stop too early.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softki.batches import Batch, Data
from softki.exceptions import NumericalError, TrainingWarning, warn_caller
from softki.features import WeightedBatches
from softki.model import SoftKI
from softki.objective.exact_likelihood import Adjoint, Objective, Stabilised, backward, exact
from softki.objective.hutchinson import Hutchinson
from softki.posterior.functions import Posterior
from softki.solvers import solve_whitened
from softki.training.data import MinibatchesByStep, TrainingData
from softki.training.inference import Predictions
from softki.training.report import Callback, Event, FitReport, HeldOut
from softki.training.settings import FitSettings

# Evaluations of a fit on its held-out rows, at most.
_EVALUATIONS = 24
# Training rows that the posterior of an evaluation is given, at most.
_EVALUATION_ROWS = 65_536
# Skipped steps in a row after which a fit gives up.
_MAX_SKIPPED = 5
# Share of the steps in which the learning rate rises to its peak.
_WARM_UP = 0.05
# Beyond this many columns, points move less in each.
_POINT_COLUMNS = 20


@dataclass(frozen=True)
class Outcome:
    """The result of one training step."""

    objective: str  # the one that was used
    log_likelihood: float | None = None
    fallback: bool = False
    skipped: str | None = None  # the reason, if the step was skipped


class Trainer:
    """Trains a model in place; afterwards it has the best parameters that were seen.

    Args:
        model: model to train.
        data: the rows; where none are held out, all steps are done and the last is best.
        settings: settings of the fit.
        report: report that is filled in as training goes.
        callbacks: functions called with an `Event` after every step.
        last: the step to end at, if that is before the last of the schedule.

    Attributes:
        best: scores of the best step so far, where rows are held out.
        best_state: the parameters to keep, if training ended now.
        predictions: predictions of held-out rows at the latest evaluation.
        seconds: duration of `run`, up to now.
        skips: the reasons why the last steps were skipped, in a row.
        hutchinson: the pseudoloss with probes of this fit, once it was needed.
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
        self.held_out = data.held_out
        self.optimizer = make_adam(model, settings, data.device)
        size = settings.batch_size
        self.minibatches: MinibatchesByStep | None = None
        if size is not None and size < data.training_count:
            self.minibatches = data.minibatches(size, settings.seed)
        self.weighted: Callable[[SoftKI, Iterable[Batch]], WeightedBatches] = WeightedBatches
        self.hutchinson: Hutchinson | None = None
        self.objective = self._objective(settings.objective)
        self.best: HeldOut | None = None
        self.predictions: Predictions | None = None
        self.best_state = copy.deepcopy(model.state_dict())
        self.seconds, self.skips = 0.0, list[str]()

    def run(self, save: Callable[[], object] | None = None) -> None:
        """Train, and restore the best parameters.

        Args:
            save: called wherever the training may be left and resumed later, which is where it is
                evaluated, or would be if rows were held out.
        """
        start = time.perf_counter() - self.seconds
        step = self.report.steps
        try:
            while not self._is_over(step):
                step += 1
                outcome = self.step(step)
                is_due = step % self.stretch == 0 or step == self.settings.steps
                self._note(step, outcome, self._evaluate(step) if is_due else None)
                if is_due and save is not None:
                    self.seconds = time.perf_counter() - start
                    save()
        except KeyboardInterrupt:
            self._interrupted()
        finally:
            if self.minibatches is not None:
                self.minibatches.close()
        self._keep_best()
        evaluation = self.report.seconds.get("evaluation", 0.0)
        self.report.seconds["training"] = time.perf_counter() - start - evaluation

    def step(self, step: int) -> Outcome:
        """One step of Adam; a gradient that is not finite never reaches the parameters."""
        self.report.plain_steps += 1
        fallbacks = self.report.fallbacks.total()
        set_rate(self.optimizer, self.settings, step)
        self.optimizer.zero_grad()
        try:
            rows = self.weighted(self.model, self._batches(step))
            adjoint = backward(self.model, rows, self.objective)
        except NumericalError as error:
            return Outcome(self.report.objective, skipped=self._skip(str(error)))
        log_likelihood = adjoint.log_likelihood()
        outcome = Outcome(
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

    @property
    def stretch(self) -> int:
        """Number of steps from one evaluation to the next."""
        return max(1, math.ceil(self.settings.steps / _EVALUATIONS))

    def _note(self, step: int, outcome: Outcome, scores: HeldOut | None) -> None:
        """Count the step, and tell the callbacks of it."""
        self.skips = [*self.skips, outcome.skipped] if outcome.skipped else []
        self.report.steps = step
        event = Event(
            step=step,
            steps=self.settings.steps,
            objective=outcome.objective,
            log_likelihood=outcome.log_likelihood,
            fallback=outcome.fallback,
            skipped=outcome.skipped,
            held_out=scores,
        )
        for callback in self.callbacks:
            callback(event)

    def _is_over(self, step: int) -> bool:
        """True if training ends after this step."""
        if len(self.skips) == _MAX_SKIPPED:
            if self.held_out is None:
                self.model.load_state_dict(self.best_state)
            self.stop(f"{_MAX_SKIPPED} steps in a row were skipped: {self.skips[-1]}", warn=True)
            return True
        if step == self.last:
            return True
        patience = self.settings.patience
        if (
            patience is not None
            and self.best is not None
            and step - self.best.step >= patience * self.stretch
        ):
            self.stop("held-out rows no longer improved")
            return True
        return step >= self.settings.steps

    def _interrupted(self) -> None:
        """End the fit where the user interrupts it, with the best parameters so far."""
        self.stop("interrupted", warn=True)

    def stop(self, reason: str, warn: bool = False) -> None:
        """Note why the fit ends before its last step, with a warning where that is a trouble."""
        self.report.stopped = reason
        if warn:
            warn_caller(
                f"training ended after {self.report.steps} of {self.settings.steps} steps: "
                f"{reason}; the best parameters so far are kept",
                TrainingWarning,
            )

    def _keep_best(self) -> None:
        """Restore the parameters of the best step, and note it."""
        self.report.best_step = self.report.steps
        if self.held_out is not None:
            if self.best is None:
                self._evaluate(self.report.steps)
            self.model.load_state_dict(self.best_state)
            self.report.best_step = self.best.step if self.best else 0
        if self.hutchinson is not None:
            self.report.unconverged = self.hutchinson.unconverged

    def _evaluate(self, step: int) -> HeldOut | None:
        """Scores on the held-out rows; the parameters are kept if they are the best."""
        if self.held_out is None:
            return None
        start = time.perf_counter()
        try:
            scores = self._scores(step, self.held_out)
        except NumericalError as error:
            self._skip(f"evaluation: {error}")
            return None
        self.report.history.append(scores)
        if math.isfinite(scores.score) and (self.best is None or scores.score < self.best.score):
            self.best = scores
            self.best_state = copy.deepcopy(self.model.state_dict())
        seconds = self.report.seconds
        seconds["evaluation"] = seconds.get("evaluation", 0.0) + time.perf_counter() - start
        return scores

    @torch.no_grad()
    def _scores(self, step: int, held_out: Batch) -> HeldOut:
        """Scores of the posterior that is given a sample of the training rows."""
        model = self.model
        sample = Data(*self.data.sample(_EVALUATION_ROWS))
        statistics = self.weighted(model, self._chunks(sample)).statistics
        solution = solve_whitened(model.kernel_matrix(), statistics, model.noise_variance)
        posterior = Posterior.from_solution(model, solution).to(self.data.dtype)
        self.predictions = Predictions.of(posterior, held_out)
        return self.predictions.scores(step)

    def _chunks(self, sample: Data) -> Sequence[Batch]:
        """The rows of a sample, in chunks."""
        return sample.chunks(len(self.model.points))

    def _batches(self, step: int) -> Iterable[Batch]:
        """The rows of a step, counted from 1."""
        if self.minibatches is None:
            return self.data.chunks(len(self.model.points))
        return [self.minibatches.batch(step - 1)]

    def _objective(self, objective: str | Objective) -> Objective:
        """The objective with counters of this fit, and probes from its seed."""
        if objective == "exact":
            return exact
        if objective == "stabilised":
            return self._stabilised(self._seeded_hutchinson)
        if objective == "hutchinson" or isinstance(objective, Hutchinson):
            return self.seeded(Hutchinson() if isinstance(objective, str) else objective)
        if isinstance(objective, Stabilised):
            return self._stabilised(self._objective(objective.fallback))
        assert not isinstance(objective, str)
        return objective

    def _stabilised(self, fallback: Objective) -> Stabilised:
        stabilised = Stabilised(fallback)
        self.report.fallbacks = stabilised.fallbacks
        return stabilised

    def seeded(self, hutchinson: Hutchinson) -> Hutchinson:
        """The pseudoloss with probes from the seed of this fit, unless it has its own."""
        seeded = torch.Generator(self.data.device).manual_seed(self.settings.seed)
        self.hutchinson = replace(hutchinson, generator=hutchinson.generator or seeded)
        return self.hutchinson

    def _seeded_hutchinson(
        self, rows: WeightedBatches, K: Tensor, noise_variance: Tensor
    ) -> Adjoint:
        """The pseudoloss, made when it is first needed."""
        hutchinson = self.hutchinson or self.seeded(Hutchinson())
        return hutchinson(rows, K, noise_variance)

    def _skip(self, reason: str) -> str:
        self.report.skipped[reason] += 1
        return reason


def make_adam(model: SoftKI, settings: FitSettings, device: torch.device) -> torch.optim.Adam:
    """Adam with one group for the points and one for the rest; `peak` is a group's rate."""
    others = [parameter for parameter in model.parameters() if parameter is not model.points]
    on_cuda = device.type == "cuda"
    groups = []
    for parameters, peak in (
        ([model.points], point_rate(settings, model.points.shape[1])),
        (others, settings.learning_rate),
    ):
        lr = torch.tensor(peak, device=device) if on_cuda else peak
        groups.append({"params": parameters, "lr": lr, "peak": peak})
    return (
        torch.optim.Adam(groups, fused=True, capturable=True)
        if on_cuda
        else torch.optim.Adam(groups)
    )


def point_rate(settings: FitSettings, columns: int) -> float:
    """The learning rate of the points' coordinates, at its peak.

    Adam moves every coordinate by about its rate, and so a point by √d times that, while rows of
    x/T lie about as far apart at every d (`initial_temperature`). So it falls as 1/√d.
    """
    if settings.point_learning_rate is not None:
        return settings.point_learning_rate
    return settings.learning_rate * min(1.0, math.sqrt(_POINT_COLUMNS / columns))


def set_rate(optimizer: torch.optim.Adam, settings: FitSettings, step: int) -> None:
    """Set the learning rate of a step, counted from 1."""
    share = _share_of_peak(settings, step - 1)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):  # as a CUDA graph reads it
            group["lr"].fill_(share * group["peak"])
        else:
            group["lr"] = share * group["peak"]


def _share_of_peak(settings: FitSettings, step: int) -> float:
    if settings.schedule == "constant":
        return 1.0
    warm_up = max(1, round(_WARM_UP * settings.steps))
    if step < warm_up:
        return (step + 1) / warm_up
    share = (step - warm_up) / max(1, settings.steps - warm_up)
    return (1 + math.cos(math.pi * share)) / 2
