"""Batches of rows seen through the interpolation weights of a model, a block at a time.

A minibatch is one batch; all the data is several of them, which may be read from files. One batch
keeps its weights; several recompute them on every pass, so that memory is O(batch·m) whatever n is.
Where processes share the rows, each has batches of its own, which may have no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from softki.batches import Batch
from softki.exceptions import InvalidInputError, NumericalError
from softki.interpolation.backends import Backend, Interpolated, WeightGradient, backend_for
from softki.interpolation.weights import check_columns
from softki.model import SoftKI
from softki.parallel.processes import ALONE, Processes
from softki.statistics import Features, GramStatistics

WeightAdjoint = Callable[[Interpolated, Batch, slice], WeightGradient]
"""∂/∂S of a batch, whose rows have the place given by the slice."""


class WeightedBatches:
    """The weights S and targets Y of batches of rows, under a model.

    Args:
        model: whose points and temperature give the weights.
        batches: of rows; every pass iterates them anew. A single one in a sequence is kept.
        processes: that have a part of the rows each; these are those of this process.
    """

    def __init__(
        self, model: SoftKI, batches: Iterable[Batch], processes: Processes = ALONE
    ) -> None:
        self._points, self._temperature = model.points, model.temperature
        self._batches, self._processes = batches, processes
        self._backend: Backend | None = None
        self._kept: Interpolated | None = None
        if isinstance(batches, Sequence):
            is_empty = not len(batches) or not len(batches[0].x)
            if is_empty and not processes.are_several:
                raise InvalidInputError("no rows were given: at least one is needed")
            if len(batches) == 1 and not is_empty:
                first = batches[0]
                self._batches = [first]
                self._kept = self._backend_for(first.x).interpolate(first.x)

    def __iter__(self) -> Iterator[Features]:
        """The blocks."""
        for batch in self._batches:
            kept = self._kept
            if not len(batch.x):
                weights = batch.x.new_empty(0, len(self._points))
            elif kept is not None:
                weights = kept.weights
            else:
                weights = self._backend_for(batch.x).weights(batch.x)
            yield _features(batch, weights)

    @cached_property
    def statistics(self) -> GramStatistics:
        """Statistics of the rows of all processes, in Gram form."""
        return GramStatistics.from_blocks(self).over(self._processes)

    def pull_back(self, gradient: WeightAdjoint) -> list[tuple[Tensor, Tensor]]:
        """Points and temperature, each with its gradient, added over the processes."""
        parameters = [p for p in (self._points, self._temperature) if p is not None]
        if not any(p.requires_grad for p in parameters):
            self._added([])
            return []
        total = self._added(self._pulled_back(gradient))
        if parameters[-1].ndim == 0:  # one temperature for all columns
            total[-1] = total[-1].sum()
        return list(zip(parameters, total, strict=False))

    def give_up(self) -> None:
        """Let the other processes, which wait for a gradient, know that there is none."""
        if self._processes.are_several:
            self._added([], failed=True)

    def _added(self, gradients: list[Tensor], failed: bool = False) -> list[Tensor]:
        """The gradients of all processes, md + d + 1 numbers in one message."""
        if not self._processes.are_several:
            return gradients
        z = self._points.detach()
        gradients = gradients or [z.new_zeros(z.shape), z.new_zeros(z.shape[1])]
        *total, failures = self._processes.sum([*gradients, z.new_tensor(float(failed))])
        if float(failures) and not failed:
            raise NumericalError(f"{int(failures)} other process(es) had no gradient")
        return total

    def _pulled_back(self, gradient: WeightAdjoint) -> list[Tensor]:
        """∂/∂z (m, d) and ∂/∂T by column (d,), of the rows of this process, if it has any."""
        total: list[Tensor] = []
        start = 0
        for batch in self._batches:
            if not len(batch.x):
                continue
            part = slice(start, start + len(batch.x))
            block = self._kept or self._backend_for(batch.x).interpolate(batch.x)
            pulled = [value.double() for value in block.pull_back(gradient(block, batch, part))]
            total = [a + b for a, b in zip(total, pulled, strict=True)] if total else pulled
            start = part.stop
        return total

    def _backend_for(self, x: Tensor) -> Backend:
        """the backend, which is the same for all batches; the first one says which it is."""
        if self._backend is None:
            check_columns(x, self._points)
            T = self._temperature
            self._backend = backend_for(x, len(self._points))(
                self._points.detach().to(x.dtype), None if T is None else T.detach().to(x.dtype)
            )
        return self._backend

    @property
    def targets(self) -> Tensor:
        """Y, (n, t), in float64."""
        return torch.cat([batch.y.double() for batch in self._batches])

    @property
    def noise_square(self) -> Tensor:
        """σ², (n, 1), in float64."""
        return torch.cat([_noise_square(batch) for batch in self._batches])

    def matmul(self, vectors: Tensor) -> Tensor:
        """S times (m, c): (n, c), in the precision of the vectors."""
        return torch.cat([block.weights.to(vectors.dtype) @ vectors for block in self])

    def transposed_matmul(self, vectors: Tensor) -> Tensor:
        """Sᵀ times (n, c): (m, c), in the precision of the vectors."""
        products = (S.T.to(vectors.dtype) @ vectors[part] for part, (S, *_) in sliced(self))
        return sum(products, vectors.new_zeros(()))


def _features(batch: Batch, weights: Tensor) -> Features:
    return Features(weights, batch.y.to(weights.dtype), batch.noise_std)


def sliced(blocks: Iterator[Features] | WeightedBatches) -> Iterator[tuple[slice, Features]]:
    """Each block with the place of its rows among all rows."""
    start = 0
    for block in blocks:
        end = start + len(block.weights)
        yield slice(start, end), block
        start = end


def _noise_square(batch: Batch) -> Tensor:
    if batch.noise_std is None:
        return torch.ones_like(batch.y[:, :1], dtype=torch.float64)
    return batch.noise_std.double().square()[:, None]
