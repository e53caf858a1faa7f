"""The record of a fit: events as they come, and the report at the end."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from html import escape
from typing import NamedTuple, Self

import torch

from softki.posterior.calibration import Calibration

# Evaluations that a printed report shows, about.
_SHOWN = 6


@dataclass(frozen=True)
class HeldOut:
    """Figures on held-out rows after a step."""

    step: int
    rmse: float
    nll: float  # with the model's own variance and noise
    calibration: Calibration  # a, b and the NLL they give

    @property
    def score(self) -> float:
        """NLL after the refit + log RMSE; the fit keeps the step where it is least.

        The second term is, but for a constant, the NLL of the same mean with one variance for
        all rows. Error bars that improve do not make up for a mean that gets worse.
        """
        return self.calibration.nll + math.log(max(self.rmse, 1e-300))

    def in_units(self, scale: float) -> Self:
        """These figures for a target that was divided by the scale."""
        return replace(
            self,
            rmse=scale * self.rmse,
            nll=self.nll + math.log(scale),
            calibration=self.calibration.in_units(scale),
        )


class Trial(NamedTuple):
    """A size that was tried, and its best figures on held-out rows, if there are any."""

    points: int
    steps: int
    seconds: float
    rmse: float | None = None
    nll: float | None = None

    def in_units(self, scale: float) -> Self:
        """These figures for a target that was divided by the scale."""
        if self.rmse is None or self.nll is None:
            return self
        return self._replace(rmse=scale * self.rmse, nll=self.nll + math.log(scale))

    def __str__(self) -> str:
        """In a line."""
        figures = "" if self.rmse is None else f", RMSE {self.rmse:.4g}, NLL {self.nll:.4g}"
        return f"{self.points} points: {self.steps} steps, {self.seconds:.1f} s{figures}"


@dataclass(frozen=True)
class Event:
    """One training step, sent to the callbacks."""

    step: int  # 1, 2, …
    steps: int  # how many are planned
    objective: str  # the one that was used in this step
    log_likelihood: float | None  # of the rows of this step, per observed value
    fallback: bool = False  # whether the stabilised objective fell back in this step
    skipped: str | None = None  # why the step was skipped, if it was
    held_out: HeldOut | None = None  # where the fit was evaluated after this step


Callback = Callable[[Event], None]


@dataclass
class FitReport:
    """The record of a fit: what ran, how long, and all that did not go as planned."""

    rows: int
    held_out_rows: int
    dimension: int
    targets: int
    points: int  # m, after it was limited to the distinct rows
    device: str
    precision: str
    objective: str  # the name of the setting
    solver: str
    jitter: float
    planned_steps: int
    backend: str = "plain PyTorch"  # what did the work on rows in training
    steps: int = 0
    plain_steps: int = 0  # that were not made in a CUDA graph
    best_step: int = 0
    folds: int = 0  # of a cross-validation, in which every row was held out once
    stopped: str = "all steps done"
    is_streamed: bool = False  # whether rows were read anew in every pass, and not in memory
    processes: int = 1  # that shared the rows
    history: list[HeldOut] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)  # where there were several to choose from
    fallbacks: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    unconverged: int = 0  # conjugate-gradient solves that missed their tolerance
    seconds: dict[str, float] = field(default_factory=dict)
    calibration: Calibration | None = None
    log_marginal_likelihood: float | None = None  # of all rows, where the solver gives it
    units: str = "standardised"  # of RMSE, NLL, noise variance and log likelihood

    @property
    def best(self) -> HeldOut | None:
        """The held-out figures of the step that was kept, if rows were held out."""
        return next((f for f in self.history if f.step == self.best_step), None)

    @property
    def judged_rows(self) -> int:
        """Rows that held-out figures are of."""
        return self.rows if self.folds else self.held_out_rows

    @property
    def trial(self) -> Trial:
        """This fit as one of those that were tried."""
        best, seconds = self.best, sum(self.seconds.values())
        if best is None:
            return Trial(self.points, self.steps, seconds)
        return Trial(self.points, self.steps, seconds, best.rmse, best.calibration.nll)

    def in_units(self, scale: float) -> Self:
        """This report for a target that was divided by the scale, in the target's own units.

        An error is multiplied by the scale, a noise variance by its square, and a density divided
        by it: log p falls by log(scale) a value, the NLL grows by as much.
        """
        calibration, log_likelihood = self.calibration, self.log_marginal_likelihood
        if calibration is not None:
            calibration = calibration.in_units(scale)
        if log_likelihood is not None:
            log_likelihood -= self.rows * self.targets * math.log(scale)
        return replace(
            self,
            history=[figures.in_units(scale) for figures in self.history],
            trials=[trial.in_units(scale) for trial in self.trials],
            calibration=calibration,
            log_marginal_likelihood=log_likelihood,
            units="the target's",
        )

    def __str__(self) -> str:
        """A readable summary, a line a fact, with the held-out curve below."""
        lines = [f"{name:12} {fact}" for name, fact in self._facts().items()]
        if self.history:
            lines.append(f"{'held out':12} {'step':>6} {'RMSE':>10} {'NLL':>10}")
            for figures in self._curve():
                best = "  best" if figures.step == self.best_step else ""
                lines.append(
                    f"{'':12} {figures.step:6} {figures.rmse:10.4g} "
                    f"{figures.calibration.nll:10.4g}{best}"
                )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        facts = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(fact)}</td></tr>"
            for name, fact in self._facts().items()
        )
        curve = "".join(
            f"<tr><td>{figures.step}</td><td>{figures.rmse:.4g}</td>"
            f"<td>{figures.calibration.nll:.4g}</td></tr>"
            for figures in self.history
        )
        if curve:
            head = "<tr><th>step</th><th>held-out RMSE</th><th>held-out NLL</th></tr>"
            curve = (
                f"<details><summary>held-out curve</summary><table>{head}{curve}</table></details>"
            )
        return f"<table>{facts}</table>{curve}"

    @property
    def _has_graph(self) -> bool:
        return self.backend.endswith("in a CUDA graph")

    def _curve(self) -> list[HeldOut]:
        """A few evaluations, evenly spaced, with the best and the last."""
        every = -(-len(self.history) // _SHOWN)
        return [
            figures
            for i, figures in enumerate(self.history)
            if i % every == every - 1
            or figures.step == self.best_step
            or i == len(self.history) - 1
        ]

    def _facts(self) -> dict[str, str]:
        lines = {
            "data": f"{self.rows} rows × {self.dimension}, {self.targets} target(s), "
            + ("streamed, " if self.is_streamed else "")
            + (
                f"each held out once in {self.folds} folds"
                if self.folds
                else f"{self.held_out_rows} rows held out"
            ),
            "model": f"{self.points} points, jitter {self.jitter:g}",
            "ran": f"{self.objective} objective, {self.solver} solver, {self.precision} "
            f"on {self.device}, {self.backend}"
            + (
                f" but for {self.plain_steps} step(s)"
                if self._has_graph and self.plain_steps
                else ""
            )
            + (f", {self.processes} processes" if self.processes > 1 else ""),
            "steps": f"{self.steps} of {self.planned_steps} ({self.stopped}), "
            f"best at {self.best_step}",
            "seconds": ", ".join(f"{stage} {time:.1f}" for stage, time in self.seconds.items()),
            "fallbacks": _counted(self.fallbacks),
            "skipped": _counted(self.skipped),
        }
        if self.trials:
            lines["tried"] = "; ".join(map(str, self.trials))
        if self.unconverged:
            lines["unconverged"] = f"{self.unconverged} conjugate-gradient solves"
        if self.calibration is not None:
            lines["calibration"] = (
                f"variance × {self.calibration.scale:.3g} with rows counting "
                f"{self.calibration.row_weight:g}, and {self.calibration.mean_row_weight:g} in the "
                f"mean, noise variance {self.calibration.noise_variance:.3g}"
            )
        if self.log_marginal_likelihood is not None:
            lines["log p(y)"] = f"{self.log_marginal_likelihood:.6g}"
        lines["units"] = self.units
        return lines


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} × {reason}" for reason, count in counter.items()) or "none"


@contextmanager
def timed(seconds: dict[str, float], stage: str, device: torch.device) -> Iterator[None]:
    """Record the seconds that the body takes, to the end of its work on the device."""
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds[stage] = time.perf_counter() - start
