"""The settings of a fit, with defaults that suit most data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import MAX_LENGTHSCALE, Kernel, check_kernel
from softki.objective.exact_likelihood import Objective
from softki.solvers import Solver
from softki.validation.parameters import check_choice, check_integer, check_range

if TYPE_CHECKING:
    import gpytorch

ObjectiveName = Literal["stabilised", "exact", "hutchinson"]
TemperatureKind = Literal["per_dimension", "one", "none"]
Schedule = Literal["cosine", "constant"]


@dataclass(frozen=True)
class FitSettings:
    """The settings of a fit.

    Attributes:
        points: m, the number of interpolation points; fewer where the rows are fewer.
        kernel: a name from `softki.kernels.KERNELS`, a kernel of `softki.kernels`, or any
            `gpytorch.kernels.Kernel`.
        max_lengthscale: the cap on the lengthscales of a kernel that is given by name, in units of
            x/T, in which rows lie about 7 apart at first.
        temperature: one temperature per dimension, one for all, or none.
        objective: `stabilised` (exact, Hutchinson's pseudoloss where that fails), `exact`, or
            `hutchinson`; or any `softki.objective.Objective`, such as `Hutchinson(probes=64)`.
        batch_size: rows in a minibatch; None for all rows in every step.
        steps: number of training steps.
        learning_rate: learning rate of Adam, at its peak.
        point_learning_rate: learning rate of the points; None for the learning rate, in more than
            20 columns times √(20/d).
        schedule: `cosine` (warm-up, then cosine decay to zero) or `constant`.
        held_out: share of the rows that training does not see, on which it is stopped and
            its predictions calibrated; 0 for neither.
        folds: number of folds of a cross-validation that takes the place of `held_out`, for few
            rows; 0 for none.
        patience: evaluations without improvement after which the fit ends; None for never.
        solver: solver of the final posterior, see `softki.solvers`.
        cg_tolerance: relative residual at which the solver `cg` stops.
        dtype: precision of the work on rows, torch.float32 or torch.float64; parameters and
            m×m algebra are always in float64.
        seed: seed of all random numbers.

    Example:
        >>> FitSettings(kernel="mattern32")
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: unknown kernel 'mattern32', did you mean ...
    """

    points: int = 512
    kernel: str | Kernel | gpytorch.kernels.Kernel = "matern32"
    max_lengthscale: float = MAX_LENGTHSCALE
    temperature: TemperatureKind = "per_dimension"
    objective: ObjectiveName | Objective = "stabilised"
    batch_size: int | None = 1024
    steps: int = 600
    learning_rate: float = 0.05
    point_learning_rate: float | None = None
    schedule: Schedule = "cosine"
    held_out: float = 0.1
    folds: int = 0
    patience: int | None = 8
    solver: Solver = "qr"
    cg_tolerance: float = 1e-4
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every setting."""
        check_kernel(self.kernel)
        check_choice("temperature", self.temperature, get_args(TemperatureKind))
        if isinstance(self.objective, type):
            raise InvalidInputError(
                f"objective is the class {self.objective.__name__}: give an instance, such as "
                f"{self.objective.__name__}()"
            )
        if not callable(self.objective):
            check_choice("objective", self.objective, get_args(ObjectiveName))
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("solver", self.solver, get_args(Solver))
        check_integer("points", self.points, 1)
        check_integer("steps", self.steps, 0)
        check_integer("seed", self.seed, 0)
        check_range("seed", self.seed, 0, 2**63)
        check_range("held_out", self.held_out, 0, 1)
        check_integer("folds", self.folds, 0)
        if self.folds == 1:
            raise InvalidInputError("folds must be 0, or at least 2: one would leave no rows")
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, 1)
        if self.patience is not None:
            check_integer("patience", self.patience, 1)
        check_range("learning_rate", self.learning_rate, 1e-12)
        check_range("max_lengthscale", self.max_lengthscale, 1.1)  # lengthscales start at 1
        if self.point_learning_rate is not None:
            check_range("point_learning_rate", self.point_learning_rate, 0)
        check_range("cg_tolerance", self.cg_tolerance, 0)
        if self.dtype not in (torch.float32, torch.float64):
            raise InvalidInputError(
                f"dtype must be torch.float32 or torch.float64, got {self.dtype}"
            )
