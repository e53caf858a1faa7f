from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel

from softki.batches import Data
from softki.cuda_graph import why_not
from softki.engine import Engine, PlainEngine
from softki.kernels import Matern32, RationalQuadratic
from softki.model import SoftKI


class OwnKernel(Matern32):
    """One of a user's, which may do anything."""


class FastEngine(PlainEngine):
    """Stands for an engine that can be captured."""


@pytest.mark.parametrize(
    ("kernel", "noise", "objective", "batches", "engine", "reason"),
    [
        (Matern32(2), None, "stabilised", 1, FastEngine, None),
        (RationalQuadratic(2), None, "exact", 1, FastEngine, None),
        (Matern32(2), None, "exact", 1, PlainEngine, "not on a CUDA device"),
        (Matern32(2), None, "hutchinson", 1, FastEngine, "objective"),
        (OwnKernel(2), None, "exact", 1, FastEngine, "kernel"),
        (RBFKernel().double(), None, "exact", 1, FastEngine, "kernel"),
        (Matern32(2), torch.ones(5), "exact", 1, FastEngine, "noise"),
        (Matern32(2), None, "exact", 2, FastEngine, "several batches"),
    ],
)
def test_what_can_be_captured(
    kernel: torch.nn.Module,
    noise: torch.Tensor | None,
    objective: str,
    batches: int,
    engine: type[Engine],
    reason: str | None,
) -> None:
    model = SoftKI(torch.randn(3, 2), kernel)
    data = Data(torch.randn(5, 2), torch.randn(5, 1), noise)
    found = why_not(model, data, objective, batches, engine)
    assert found is None if reason is None else reason in str(found)
