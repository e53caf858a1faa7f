"""What happened during a fit: events as they come, and the report at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from softki.calibration import Calibration


@dataclass(frozen=True)
class HeldOut:
    """Figures on held-out rows after a step."""

    step: int
    rmse: float
    nll: float  # with the model's own variance and noise
    calibration: Calibration  # a, b and the NLL they give, on which the fit is stopped


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
    """What ran, how long, and everything that did not go as planned."""

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
    steps: int = 0
    best_step: int = 0
    stopped: str = "all steps done"
    history: list[HeldOut] = field(default_factory=list)
    fallbacks: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    unconverged: int = 0  # conjugate-gradient solves that missed their tolerance
    seconds: dict[str, float] = field(default_factory=dict)
    calibration: Calibration | None = None
    log_marginal_likelihood: float | None = None  # of all rows, where the solver gives it

    def __str__(self) -> str:
        """A readable summary, a line a fact."""
        lines = {
            "data": f"{self.rows} rows × {self.dimension}, {self.targets} target(s), "
            f"{self.held_out_rows} rows held out",
            "model": f"{self.points} points, jitter {self.jitter:g}",
            "ran": f"{self.objective} objective, {self.solver} solver, {self.precision} "
            f"on {self.device}",
            "steps": f"{self.steps} of {self.planned_steps} ({self.stopped}), "
            f"best at {self.best_step}",
            "seconds": ", ".join(f"{stage} {time:.1f}" for stage, time in self.seconds.items()),
            "fallbacks": _counted(self.fallbacks),
            "skipped": _counted(self.skipped),
        }
        if self.unconverged:
            lines["unconverged"] = f"{self.unconverged} conjugate-gradient solves"
        if self.calibration is not None:
            lines["calibration"] = (
                f"variance × {self.calibration.scale:.3g}, noise variance "
                f"{self.calibration.noise_variance:.3g}"
            )
        return "\n".join(f"{name:12} {fact}" for name, fact in lines.items())


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} × {reason}" for reason, count in counter.items()) or "none"
