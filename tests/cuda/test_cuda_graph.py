from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel

from softki.batches import Data
from softki.interpolation.weights import Backend, PlainBackend
from softki.kernels.stationary import Matern32, RationalQuadratic
from softki.model import SoftKI
from softki.parallel.processes import Processes
from softki.training import cuda_graph, distributed
from softki.training.cuda_graph import why_not
from softki.training.data import InMemoryRows
from softki.training.model_selection import trainer_for


class OwnKernel(Matern32):
    """One of a user's, which may do anything."""


class FastEngine(PlainBackend):
    """Stands for a backend that can be captured."""


@pytest.mark.parametrize(
    ("kernel", "noise", "objective", "is_one_batch", "backend", "reason"),
    [
        (Matern32(2), None, "stabilised", True, FastEngine, None),
        (RationalQuadratic(2), None, "exact", True, FastEngine, None),
        (Matern32(2), None, "exact", True, PlainBackend, "not on a CUDA device"),
        (Matern32(2), None, "hutchinson", True, FastEngine, "objective"),
        (OwnKernel(2), None, "exact", True, FastEngine, "kernel"),
        (RBFKernel().double(), None, "exact", True, FastEngine, "kernel"),
        (Matern32(2), torch.ones(5), "exact", True, FastEngine, "noise"),
        (Matern32(2), None, "exact", False, FastEngine, "several batches"),
    ],
)
def test_what_can_be_captured(
    kernel: torch.nn.Module,
    noise: torch.Tensor | None,
    objective: str,
    is_one_batch: bool,
    backend: type[Backend],
    reason: str | None,
) -> None:
    model = SoftKI(torch.randn(3, 2), kernel)
    data = InMemoryRows.whole(Data(torch.randn(5, 2), torch.randn(5, 1), noise))
    found = why_not(model, data, objective, is_one_batch, backend)
    assert found is None if reason is None else reason in str(found)


def test_several_processes_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their steps wait for messages, on a GPU as elsewhere."""
    made: list[str] = []
    for module, name in ((distributed, "DistributedTrainer"), (cuda_graph, "GraphTrainer")):
        monkeypatch.setattr(module, name, lambda *_, name=name: made.append(name))
    data = InMemoryRows.whole(Data(torch.randn(5, 2), torch.randn(5, 1)))
    data.device = torch.device("cuda")
    model = SoftKI(torch.randn(3, 2), Matern32(2))
    for processes in (Processes(rank=0, size=2), None):
        data.processes = processes  # type: ignore[assignment]
        trainer_for(model, data)
    assert made == ["DistributedTrainer", "GraphTrainer"]
