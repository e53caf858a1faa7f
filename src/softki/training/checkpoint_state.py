"""Where a training stands after a step, and a training that goes on from there.

It is all that changes from step to step: parameters, the best ones so far, Adam's moments, the
generator of Hutchinson's probes, counters and figures. The rows of a step are a function of the
seed and the step, so that no place in them needs to be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softki.training.documents import Snapshot, report_document, report_of

if TYPE_CHECKING:
    from softki.training.trainer import Trainer


def training_snapshot(trainer: Trainer) -> Snapshot:
    """Where the training stands; its tensors are its own, and no copies."""
    hutchinson, best = trainer.hutchinson, trainer.best
    document = {
        "seconds": trainer.seconds,
        "skips": trainer.skips,
        "best": None if best is None else best.step,
        "unconverged": 0 if hutchinson is None else hutchinson.unconverged,
        "report": report_document(trainer.report),
    }
    generator = {}
    if hutchinson is not None and hutchinson.generator is not None:
        generator["state"] = hutchinson.generator.get_state()
    return Snapshot.of(
        document,
        model=Snapshot({}, dict(trainer.model.state_dict())),
        best_model=Snapshot({}, dict(trainer.best_state)),
        adam=Snapshot({}, _moments(trainer.optimizer)),
        generator=Snapshot({}, generator),
    )


def resume_training(trainer: Trainer, snapshot: Snapshot) -> None:
    """Let a training that has not begun go on from there.

    Parameters are copied into those of the model, which a CUDA graph may know; it is captured
    later, when Adam has its moments again.
    """
    document = snapshot.document
    trainer.seconds, trainer.skips = document["seconds"], document["skips"]
    saved, report = report_of(document["report"]), trainer.report
    report.steps, report.seconds = saved.steps, saved.seconds
    report.plain_steps = saved.plain_steps
    report.history, report.skipped = saved.history, saved.skipped
    report.fallbacks.update(saved.fallbacks)  # the objective counts in the same
    trainer.best = next((f for f in saved.history if f.step == document["best"]), None)
    trainer.model.load_state_dict(snapshot.part("model").tensors)
    for name, value in trainer.best_state.items():
        value.copy_(snapshot.part("best_model").tensors[name])
    _restore_moments(trainer.optimizer, snapshot.part("adam").tensors)
    if trainer.hutchinson is not None:
        trainer.hutchinson.unconverged = document["unconverged"]
        state = snapshot.part("generator").tensors.get("state")
        if state is not None and trainer.hutchinson.generator is not None:
            trainer.hutchinson.generator.set_state(state)


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's state, by the number of the parameter and its own names."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"{i}.{key}": value for i, values in state.items() for key, value in values.items()}


def _restore_moments(optimizer: torch.optim.Optimizer, moments: dict[str, Tensor]) -> None:
    """Adam's state as it was; its groups, which the settings give, stay."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in moments.items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
