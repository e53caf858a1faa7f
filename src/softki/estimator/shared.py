"""The rows of several processes that fit one estimator together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from softki.estimator.defaults import FEW_ROWS
from softki.estimator.rows import Table, UserRows
from softki.parallel.processes import Processes
from softki.streaming import Source
from softki.streaming.shared import check_same_columns, rows_up_to, source_of_process
from softki.training.distributed import check_shared_objective
from softki.training.settings import FitSettings

# Parameters of the estimator that must be the same in all processes.
_SAME_IN_ALL = (
    "points",
    "objective",
    "batch_size",
    "steps",
    "learning_rate",
    "held_out",
    "solver",
    "dtype",
)


def source_of_all(X: Any, y: Any, noise_variance: Any, processes: Processes) -> Source:
    """The rows that this process gives, which have the same columns in all processes."""
    source = processes.together(lambda: source_of_process(X, y, noise_variance))
    check_same_columns(source, processes)
    return source


def rows_of_all(
    source: Source,
    settings: FitSettings,
    parameters: Mapping[str, Any],
    device: torch.device,
    processes: Processes,
) -> tuple[UserRows, FitSettings]:
    """The rows of all processes, and the settings with the seed of process 0.

    Few rows are sent to all processes, each of which does the same fit to them.
    """
    facts = {name: parameters[name] for name in _SAME_IN_ALL}
    facts |= {
        "kernel": str(parameters["kernel"]),
        "a checkpoint": parameters["checkpoint"] is not None,
    }
    processes.check_same(facts)
    settings = replace(settings, seed=processes.broadcast(settings.seed))
    few = rows_up_to(source, FEW_ROWS, processes) if parameters["held_out"] == "auto" else None
    if few is not None:
        return UserRows.of(Table.of_source(source, few), settings, device), settings
    check_shared_objective(settings.objective)
    return UserRows.of(source, settings, device, processes), settings
