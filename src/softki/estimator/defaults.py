"""The settings of a fit: what the user says, and the size where the user does not say.

More points, and more rows a step, are more accurate where there are rows enough for them, and
overfit sooner where there are not. A GPU takes them at little cost: there, larger sizes are
tried after smaller ones, as long as held-out rows improve (`softki.training.fit.fit`). Where rows
are few, one of fewer points with longer lengthscales is tried instead, which suits smooth functions
of many columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sklearn.utils.validation import check_random_state

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import MAX_LENGTHSCALE
from softki.training.settings import FitSettings
from softki.validation.parameters import check_choice, check_integer

DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Folds of the cross-validation of few rows.
_FOLDS = 5
# A size needs so many rows for each of its points, the first one apart.
_ROWS_PER_POINT = 8


@dataclass(frozen=True)
class Size:
    """Points, rows a step, steps, and the cap on lengthscales (see `FitSettings`)."""

    points: int
    batch_size: int | None
    steps: int
    max_lengthscale: float = MAX_LENGTHSCALE

    def within(self, rows: int) -> Size:
        """This size for few rows: no more points than a quarter of them, one step a row."""
        return replace(
            self, points=min(self.points, max(1, rows // 4)), steps=min(self.steps, max(50, rows))
        )


_ON_CUDA = (Size(512, 1024, 1200), Size(2048, 4096, 1200), Size(4096, 8192, 1600))
_ON_CPU = (Size(512, 1024, 600), Size(512, 2048, 800))
_MANY_ROWS_ON_CPU = 20_000
# Few rows show no more than a smooth function.
FEW_ROWS = 1000
_SMOOTH = Size(256, 4096, 1200, max_lengthscale=5.0)
# Below so many rows it is tried; a CPU, on which it takes as long as the other, has less time.
_SMOOTH_ROWS = {True: _ROWS_PER_POINT * _ON_CUDA[1].points, False: 6000}


def sizes_for(rows: int, on_cuda: bool) -> list[Size]:
    """The sizes to try, in this order.

    Example:
        >>> sizes_for(15_000, on_cuda=False)
        [Size(points=512, batch_size=1024, steps=600, max_lengthscale=3.0)]
        >>> [size.points for size in sizes_for(1_000_000, on_cuda=True)]
        [512, 2048, 4096]
    """
    if on_cuda:
        first, *larger = _ON_CUDA
        sizes = [first, *(size for size in larger if rows >= _ROWS_PER_POINT * size.points)]
    else:
        sizes = [_ON_CPU[rows >= _MANY_ROWS_ON_CPU]]
    if rows <= FEW_ROWS:
        sizes = [replace(sizes[0], max_lengthscale=_SMOOTH.max_lengthscale)]
    elif rows < _SMOOTH_ROWS[on_cuda]:
        sizes.append(_SMOOTH if on_cuda else replace(_SMOOTH, steps=_ON_CPU[0].steps))
    return [size.within(rows) for size in sizes]


def shared_settings(parameters: Mapping[str, Any]) -> FitSettings:
    """The settings that do not depend on the rows, from the parameters of an estimator."""
    check_choice("dtype", parameters["dtype"], DTYPES)
    held_out = parameters["held_out"]
    if isinstance(held_out, str):
        _check_auto("held_out", held_out, "a number between 0 and 1")
        held_out = 0.1
    return FitSettings(
        kernel=parameters["kernel"],
        objective=parameters["objective"],
        learning_rate=parameters["learning_rate"],
        held_out=held_out,
        solver=parameters["solver"],
        dtype=DTYPES[parameters["dtype"]],
        seed=_seed_of_fit(parameters["random_state"], parameters["checkpoint"]),
    )


def settings_for(
    parameters: Mapping[str, Any], shared: FitSettings, rows: int, device: torch.device
) -> list[FitSettings]:
    """The settings to try for this number of rows, each of another size."""
    folds = _FOLDS if parameters["held_out"] == "auto" and rows <= FEW_ROWS else 0
    return [
        replace(
            shared,
            folds=folds,
            points=size.points,
            batch_size=size.batch_size,
            steps=size.steps,
            max_lengthscale=size.max_lengthscale,
        )
        for size in _sizes(parameters, rows, device)
    ]


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """The seed that a `random_state` of scikit-learn gives."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InvalidInputError(f"random_state: {error}") from error


def _seed_of_fit(random_state: int | np.random.RandomState | None, checkpoint: Any) -> int:
    """The seed of the `random_state`, or without one, that of the fit that goes on."""
    saved = None
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    if checkpoint is not None and rank == 0:
        from softki.training.checkpoints import checked_folder, saved_seed

        folder = checked_folder(checkpoint)
        saved = saved_seed(folder) if random_state is None else None
    return seed_of(random_state) if saved is None else saved


def _sizes(parameters: Mapping[str, Any], rows: int, device: torch.device) -> list[Size]:
    """The sizes that the user chose, and otherwise those that suit the rows."""
    chosen: dict[str, Any] = {}
    for name in ("points", "batch_size", "steps"):
        if isinstance(parameters[name], str):
            _check_auto(name, parameters[name], "a whole number")
        else:
            chosen[name] = parameters[name]
    sizes = sizes_for(rows, device.type == "cuda")
    if "points" in chosen:  # the other parameters suit a size of about so many points
        check_integer("points", chosen["points"], 1)
        first, *others = sizes
        larger = [s for s in others if first.points < s.points <= chosen["points"]]
        sizes = [first, *larger][-1:]
    FitSettings(**chosen)  # checks what is there
    return [replace(size, **chosen).within(rows) for size in sizes]


def _check_auto(name: str, value: str, kind: str) -> None:
    if value != "auto":
        raise InvalidInputError(f"{name} must be {kind} or 'auto', got {value!r}")
