"""Batches of rows seen through the interpolation weights of a model, a block at a time.

A minibatch is one batch; all the data is a sequence of them. One batch keeps its weights;
several recompute them on every pass, so that memory is O(batch·m) whatever n is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from softki.batches import Batch
from softki.model import SoftKI
from softki.statistics import Features


class Rows:
    """The weights S and targets Y of batches of rows, under a model."""

    def __init__(self, model: SoftKI, batches: Sequence[Batch]) -> None:
        self._model = model
        self._batches = batches
        self._kept = self._interpolate(batches[0]) if len(batches) == 1 else None

    def __iter__(self) -> Iterator[Features]:
        """The blocks, without a graph."""
        if self._kept is not None:
            yield self._kept._replace(weights=self._kept.weights.detach())
            return
        for batch in self._batches:
            with torch.no_grad():
                block = self._interpolate(batch)
            yield block

    def differentiable(self) -> Iterator[Features]:
        """The blocks, each with the graph from the parameters to its weights."""
        if self._kept is not None:
            yield self._kept
            return
        for batch in self._batches:
            yield self._interpolate(batch)

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

    def _interpolate(self, batch: Batch) -> Features:
        weights = self._model.weights(batch.x)
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
