"""Batches of rows seen through the interpolation weights of a model, a block at a time.

A minibatch is one batch; all the data is a sequence of them. One batch keeps its weights;
several recompute them on every pass, so that memory is O(batch·m) whatever n is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from softki.batches import Batch
from softki.engine import Interpolated, WeightGradient, engine_for
from softki.exceptions import InvalidInputError
from softki.interpolation import check_columns
from softki.model import SoftKI
from softki.statistics import Features

WeightAdjoint = Callable[[Interpolated, Batch, slice], WeightGradient]
"""∂/∂S of a batch, whose rows have the place given by the slice."""


class Rows:
    """The weights S and targets Y of batches of rows, under a model."""

    def __init__(self, model: SoftKI, batches: Sequence[Batch]) -> None:
        if not len(batches) or not len(batches[0].x):
            raise InvalidInputError("no rows were given: at least one is needed")
        first = batches[0]
        self._batches = [first] if len(batches) == 1 else batches
        check_columns(first.x, model.points)
        self._points, self._temperature = model.points, model.temperature
        dtype, T = first.x.dtype, self._temperature
        engine = engine_for(first.x, len(model.points))
        self._engine = engine(
            self._points.detach().to(dtype), None if T is None else T.detach().to(dtype)
        )
        self._kept = self._engine.interpolate(first.x) if len(batches) == 1 else None

    def __iter__(self) -> Iterator[Features]:
        """The blocks."""
        for batch in self._batches:
            kept = self._kept
            yield _features(batch, self._engine.weights(batch.x) if kept is None else kept.weights)

    def pull_back(self, gradient: WeightAdjoint) -> list[tuple[Tensor, Tensor]]:
        """Points and temperature, each with its gradient."""
        parameters = [p for p in (self._points, self._temperature) if p is not None]
        if not any(p.requires_grad for p in parameters):
            return []
        total: list[Tensor] = []
        start = 0
        for batch in self._batches:
            part = slice(start, start + len(batch.x))
            block = self._kept or self._engine.interpolate(batch.x)
            pulled = [value.double() for value in block.pull_back(gradient(block, batch, part))]
            total = [a + b for a, b in zip(total, pulled, strict=True)] if total else pulled
            start = part.stop
        if parameters[-1].ndim == 0:  # one temperature for all columns
            total[-1] = total[-1].sum()
        return list(zip(parameters, total, strict=False))

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
    return Features(weights, batch.y.to(weights.dtype), batch.noise_scale)


def sliced(blocks: Iterator[Features] | Rows) -> Iterator[tuple[slice, Features]]:
    """Each block with the place of its rows among all rows."""
    start = 0
    for block in blocks:
        end = start + len(block.weights)
        yield slice(start, end), block
        start = end


def _noise_square(batch: Batch) -> Tensor:
    if batch.noise_scale is None:
        return torch.ones_like(batch.y[:, :1], dtype=torch.float64)
    return batch.noise_scale.double().square()[:, None]
