"""The state of a training after a step, and a training that goes on from there.

The state is all that changes from step to step: parameters, the best ones so far, Adam's moments,
the generator of Hutchinson's probes, counters and scores. The rows of a step are a function of the
seed and the step, so that no place in them needs to be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softki.objective.hutchinson import Hutchinson
from softki.training.documents import State, report_document, report_of

if TYPE_CHECKING:
    from softki.training.trainer import Trainer


def training_state(trainer: Trainer) -> State:
    """The state of the training; its tensors are its own, and no copies."""
    hutchinson, best = trainer.hutchinson, trainer.best
    state: State = {
        "seconds": trainer.seconds,
        "skips": trainer.skips,
        "best": None if best is None else best.step,
        "report": report_document(trainer.report),
        "model": dict(trainer.model.state_dict()),
        "best_model": dict(trainer.best_state),
        "adam": {str(k): v for k, v in trainer.optimizer.state_dict()["state"].items()},
    }
    if hutchinson is not None and hutchinson.generator is not None:
        state["unconverged"] = hutchinson.unconverged
        state["generator"] = hutchinson.generator.get_state()
    return state


def resume_training(trainer: Trainer, state: State) -> None:
    """Let a training that has not begun go on from there.

    Parameters are copied into those of the model, which a CUDA graph may know; it is captured
    later, when Adam has its moments again.
    """
    trainer.seconds, trainer.skips = state["seconds"], state["skips"]
    saved, report = report_of(state["report"]), trainer.report
    report.steps, report.seconds = saved.steps, saved.seconds
    report.plain_steps = saved.plain_steps
    report.history, report.skipped = saved.history, saved.skipped
    report.fallbacks.update(saved.fallbacks)  # the objective counts in the same
    trainer.best = next((f for f in saved.history if f.step == state["best"]), None)
    trainer.model.load_state_dict(state["model"])
    for name, value in trainer.best_state.items():
        value.copy_(state["best_model"][name])
    moments = {int(number): values for number, values in state["adam"].items()}
    groups = trainer.optimizer.state_dict()["param_groups"]  # of the settings
    trainer.optimizer.load_state_dict({"state": moments, "param_groups": groups})
    if "generator" in state:
        hutchinson = trainer.hutchinson or trainer.seeded(Hutchinson())
        hutchinson.unconverged = state["unconverged"]
        if hutchinson.generator is not None:
            hutchinson.generator.set_state(state["generator"])
