"""Batches of rows seen through the interpolation weights of a model, a block at a time.

A minibatch is one batch; all the data is several of them, which may be read from files. One batch
keeps its weights; several recompute them on every pass, so that memory is O(batch·m) whatever n is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from softki.batches import Batch
from softki.exceptions import InvalidInputError
from softki.interpolation.weights import (
    Backend,
    Interpolated,
    PlainBackend,
    WeightGradient,
    check_columns,
)
from softki.model import SoftKI
from softki.statistics import Features, GramStatistics

WeightAdjoint = Callable[[Interpolated, Batch, slice], WeightGradient]
"""∂/∂S of a batch, whose rows have the place given by the slice."""

NO_ROWS = "no rows were given: at least one is needed"


class WeightedBatches:
    """The weights S and targets Y of batches of rows, under a model.

    Args:
        model: model whose points and temperature give the weights.
        batches: batches of rows, iterated anew in every pass. A single one in a sequence is kept
            with its weights.
    """

    def __init__(self, model: SoftKI, batches: Iterable[Batch]) -> None:
        self._points, self._temperature = model.points, model.temperature
        self._batches = batches
        self._backend: Backend | None = None
        self._kept: Interpolated | None = None
        if isinstance(batches, Sequence):
            if not len(batches):
                raise InvalidInputError(NO_ROWS)
            if len(batches) == 1:
                self._batches = [batches[0]]
                self._keep(self._batches[0])

    def _keep(self, batch: Batch) -> None:
        """Compute the weights of the only batch once for all passes."""
        if not len(batch.x):
            raise InvalidInputError(NO_ROWS)
        self._kept = self._backend_for(batch.x).interpolate(batch.x)

    def __iter__(self) -> Iterator[Features]:
        """Weights, targets and noise of each batch."""
        for batch in self._batches:
            kept = self._kept
            S = self._backend_for(batch.x).weights(batch.x) if kept is None else kept.weights
            yield _features(batch, S)

    @cached_property
    def statistics(self) -> GramStatistics:
        """Statistics of all rows, in Gram form."""
        total: GramStatistics | None = None
        for batch in self._batches:
            kept = self._kept
            S = self._backend_for(batch.x).weights(batch.x) if kept is None else kept.weights
            part = GramStatistics.from_block(_features(batch, S))
            total = part if total is None else total + part
        if total is None:
            raise InvalidInputError(NO_ROWS)
        return total

    def pull_back(self, gradient: WeightAdjoint) -> list[tuple[Tensor, Tensor]]:
        """Points and temperature, each with its gradient."""
        parameters = self._parameters()
        if not parameters:
            return []
        total: list[Tensor] = []  # ∂/∂z (m, d) and ∂/∂T by column (d,)
        start = 0
        for batch in self._batches:
            part = slice(start, start + len(batch.x))
            block = self._kept or self._backend_for(batch.x).interpolate(batch.x)
            pulled = [value.double() for value in block.pull_back(gradient(block, batch, part))]
            total = [a + b for a, b in zip(total, pulled, strict=True)] if total else pulled
            start = part.stop
        if total and parameters[-1].ndim == 0:  # one temperature for all columns
            total[-1] = total[-1].sum()
        return list(zip(parameters, total, strict=False))

    def _parameters(self) -> list[Tensor]:
        """Points and temperature, if any of them is to be learned."""
        parameters = [p for p in (self._points, self._temperature) if p is not None]
        return parameters if any(p.requires_grad for p in parameters) else []

    def _backend_for(self, x: Tensor) -> Backend:
        """The backend, which is the same for all batches; the first one says which it is."""
        if self._backend is None:
            check_columns(x, self._points)
            backend: type[Backend] = PlainBackend
            if x.is_cuda:
                from softki.interpolation.backends import backend_for

                backend = backend_for(x, len(self._points))
            T = self._temperature
            self._backend = backend(
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
