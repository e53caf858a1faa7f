"""Statistics and gradients of rows that several processes share: sums over the processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, singledispatch
from typing import Any, TypeVar

import torch
from torch import Tensor

from softki.batches import Batch
from softki.exceptions import NumericalError
from softki.features import WeightAdjoint, WeightedBatches
from softki.interpolation.weights import Backend, PlainBackend
from softki.model import SoftKI
from softki.parallel.processes import Processes
from softki.statistics import GramStatistics, SquareRootStatistics, Statistics

AnyStatistics = TypeVar("AnyStatistics", bound=Statistics)


class SharedBatches(WeightedBatches):
    """Batches of the rows of this process; statistics and gradients are those of all processes.

    Args:
        model: model whose points and temperature give the weights.
        batches: batches of the rows of this process, which may have none.
        processes: processes that have a part of the rows each.
    """

    def __init__(self, model: SoftKI, batches: Iterable[Batch], processes: Processes) -> None:
        self._processes = processes
        super().__init__(model, batches)

    def _keep(self, batch: Batch) -> None:
        if len(batch.x):
            super()._keep(batch)

    def _backend_for(self, x: Tensor) -> Backend:
        if len(x):
            return super()._backend_for(x)
        T = self._temperature  # a kernel on a GPU cannot be launched for no rows
        return PlainBackend(self._points.detach().to(x), None if T is None else T.detach().to(x))

    @cached_property
    def statistics(self) -> GramStatistics:
        """Statistics of the rows of all processes, in Gram form."""
        return total(GramStatistics.from_blocks(self), self._processes)

    def pull_back(self, gradient: WeightAdjoint) -> list[tuple[Tensor, Tensor]]:
        """Points and temperature, each with its gradient, added over the processes."""
        return self._added([value for _, value in super().pull_back(gradient)])

    def give_up(self) -> None:
        """Let the other processes, which wait for a gradient, know that there is none."""
        self._added([], failed=True)

    def _added(self, gradients: list[Tensor], failed: bool = False) -> list[tuple[Tensor, Tensor]]:
        """The gradients of all processes, at most md + d + 1 numbers in one message."""
        parameters = self._parameters()
        gradients = gradients or [torch.zeros_like(p) for p in parameters]
        flag = self._points.detach().new_tensor(float(failed))
        *added, failures = self._processes.sum([*gradients, flag])
        if float(failures) and not failed:
            raise NumericalError(f"{int(failures)} other process(es) had no gradient")
        return list(zip(parameters, added, strict=True))


def total(statistics: AnyStatistics, processes: Processes) -> AnyStatistics:
    """Statistics of the rows of all processes, the same in each of them."""
    result: AnyStatistics = _total(statistics, processes)
    return result


@singledispatch
def _total(statistics: Any, processes: Processes) -> Any:
    raise TypeError(f"no sum over processes for {type(statistics).__name__}")


@_total.register
def _(statistics: GramStatistics, processes: Processes) -> GramStatistics:
    """The sums over all processes, in one message of m² + mt + t + 2 numbers."""
    others = statistics.square.new_tensor([statistics.count, statistics.log_noise])
    gram, cross, square, others = processes.sum(
        [statistics.gram_matrix, statistics.cross_matrix, statistics.square, others]
    )
    count, log_noise = others.tolist()
    return GramStatistics(int(count), log_noise, gram, cross, square)


@_total.register
def _(statistics: SquareRootStatistics, processes: Processes) -> SquareRootStatistics:
    """R of the factors of all processes: a QR of two at a time, in log₂ P rounds.

    Messages have at most (m + t)² numbers, R; they are sent from the CPU, and added on the device.
    """
    device = statistics.factor.device

    def at(place: torch.device | str, some: SquareRootStatistics) -> SquareRootStatistics:
        return replace(some, factor=some.factor.to(place))

    def add(one: SquareRootStatistics, other: SquareRootStatistics) -> SquareRootStatistics:
        return at("cpu", at(device, one) + at(device, other))

    return at(device, processes.reduce(at("cpu", statistics), add))
