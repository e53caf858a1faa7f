"""Adam for the parameters of a model, and the learning rate of every step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softki.model import SoftKI
from softki.training.settings import FitSettings

# Share of the steps in which the learning rate rises to its peak.
_WARM_UP = 0.05
# Beyond this many columns, points move less in each.
_POINT_COLUMNS = 20


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
