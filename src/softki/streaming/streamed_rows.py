"""Rows larger than memory, standardised: what training takes of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softki.batches import Batch, chunk_rows
from softki.exceptions import InvalidInputError
from softki.files.digest import digest_of
from softki.streaming.blocks import RawRows, rechunked
from softki.streaming.first_pass import FirstPass
from softki.streaming.layout import Shards
from softki.streaming.minibatches import ShuffledBatches, StreamedMinibatches
from softki.streaming.prefetch import on_device, standardized_on_device
from softki.streaming.preparation import as_batch, each, part_of, pinned, slices, standardized
from softki.streaming.sampling import HeldOutPositions
from softki.streaming.source import Source
from softki.training.data import held_out_count
from softki.training.standardize import RowStandardizer

if TYPE_CHECKING:
    from softki.parallel.processes import Processes

# Rows of chunks that are read ahead at once, and numbers of those that are sent to a GPU.
_TOGETHER, _SENT_TOGETHER = 1 << 14, 1 << 23


class StreamedRows:
    """Rows of a source, standardised, of which few are in memory at a time.

    They are `softki.training.data.TrainingData`, to be given to `softki.fit_rows`.

    Args:
        source: source of the rows.
        first: result of the first pass over all rows.
        seed: seed of the first pass.
        held_out_share: share of the rows that are held out; at most 10,000 are.
        dtype: precision of the batches.
        device: device of the batches.
        processes: processes that share the rows; chunks and minibatches are of this process.
        shards: shards that the processes read; by default, this process reads all rows.
        standardizer: standardizer of the rows; by default, that of the first pass.

    Attributes:
        source, seed, dtype, device, processes: as given.
        standardizer: mean and scale of inputs and targets, and the unit of known noise.
        held_out: the rows that are not trained on; None if there are none.
        held_out_index: their positions among all rows.
        training_count: the number of the others, in all processes.

    Example:
        >>> import numpy as np
        >>> from softki.streaming import open_source
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, (1000, 3))
        >>> rows = StreamedRows.open(open_source(x, x.sum(1)), held_out_share=0.1)
        >>> len(rows), rows.training_count, len(rows.held_out.x)
        (1000, 900, 100)
        >>> rows.minibatches(size=64, seed=0).batch(0).x.shape
        torch.Size([64, 3])
    """

    is_streamed = True

    def __init__(
        self,
        source: Source,
        first: FirstPass,
        seed: int = 0,
        held_out_share: float = 0.1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        processes: Processes | None = None,
        shards: Shards | None = None,
        standardizer: RowStandardizer | None = None,
    ) -> None:
        self.source, self.seed, self.dtype, self.processes = source, seed, dtype, processes
        self._shards = Shards.even(len(source)) if shards is None else shards
        self._total = self._shards.total
        if first.x.count != self._total:
            raise InvalidInputError(
                f"the first pass has seen {first.x.count} of {self._total} rows: with several "
                "processes, it must be the sum over all of them"
            )
        self.device = torch.device(device)
        self.dimension, self.targets = len(source.columns), len(source.targets)
        self.standardizer = standardizer or first.standardizer(source, dtype)
        self.knows_noise = self.standardizer.noise_unit is not None
        count = held_out_count(self._total, held_out_share)
        positions, rows = first.lowest.ordered()
        self.held_out_index = torch.from_numpy(positions[:count])
        self._held_out = HeldOutPositions(positions[:count])
        self.training_count = self._total - count
        self.held_out = self._on_device(rows.take(slice(count))) if count else None
        self._sample = self._on_device(rows.take(slice(count, None)))

    @classmethod
    def open(
        cls,
        source: Source,
        seed: int = 0,
        held_out_share: float = 0.1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        processes: Processes | None = None,
        standardizer: RowStandardizer | None = None,
    ) -> StreamedRows:
        """Make the first pass.

        Args:
            source: source of the rows.
            seed: seed by which rows are held out and sampled.
            held_out_share: share of the rows that are held out; at most 10,000 are.
            dtype: precision of the batches.
            device: device of the batches.
            processes: processes that share the rows, see `softki.streaming.shared`.
            standardizer: standardizer of the rows; by default, by what the pass finds.
        """
        shards = None
        if processes is None:
            first = FirstPass.over(source, seed)
            source.check_unchanged()
        else:
            from softki.streaming.shared import shared_first_pass

            first, shards = shared_first_pass(source, seed, processes)
        return cls(
            source, first, seed, held_out_share, dtype, device, processes, shards, standardizer
        )

    def __len__(self) -> int:
        """All rows, of all processes and with those that are held out."""
        return self._total

    @property
    def inputs(self) -> Tensor:
        """x of training rows at random, (s, d), the same in all processes."""
        return self._sample.x

    def digest(self) -> str:
        """A fingerprint of the rows.

        Mean and scale are of all rows, and so are in all of the standardised ones.
        """
        held_out = () if self.held_out is None else self.held_out
        layout, files = self.source.layout, self.source.files.fingerprint.values()
        sizes = [None if state is None else state[0] for state in files]
        groups = torch.from_numpy(layout.part), torch.from_numpy(layout.rows)
        return digest_of([*self._sample, *held_out, *groups], sizes)

    def sample(self, count: int) -> Batch:
        """Training rows at random, the same in all processes: as many, or all that were kept."""
        return next(slices(self._sample, count))

    def chunks(self, points: int) -> Chunks:
        """The training rows of this process in order, in chunks for so many points."""
        return self.chunks_of(chunk_rows(max(points, self.dimension), self.device))

    def chunks_of(self, size: int) -> Chunks:
        """The training rows of this process in order, so many at a time.

        They can be iterated again and again, and are read in the background.
        """
        return Chunks(self, size)

    def minibatches(
        self, size: int, seed: int, buffer_rows: int | None = None
    ) -> StreamedMinibatches:
        """Random minibatches, of which this process has its part, read in the background."""
        batches = ShuffledBatches(
            self.source, size, seed, self._held_out, self._prepared, self._shards, buffer_rows
        )
        return StreamedMinibatches(batches, self.device)

    @property
    def nothing(self) -> Batch:
        """A batch of no rows."""
        return part_of(self._sample, slice(0, 0))

    def raw_training_rows(self) -> Iterator[RawRows]:
        """The training rows of this process, as they are read."""
        for block in self.source.between(self._shards.own):
            yield self._held_out.training(block)
        self.source.check_unchanged()

    def _prepared(self, rows: RawRows) -> RawRows:
        return standardized(rows, self.standardizer)

    def _on_device(self, rows: RawRows) -> Batch:
        return each(as_batch(self._prepared(rows)), lambda tensor: tensor.to(self.device))


class Chunks:
    """Chunks of rows in order, as often as they are iterated."""

    def __init__(self, rows: StreamedRows, size: int) -> None:
        self._rows, self._size = rows, size

    def __iter__(self) -> Iterator[Batch]:
        # Small chunks are read and sent together, and cut here.
        rows = _TOGETHER
        if self._rows.device.type == "cuda":
            rows = _SENT_TOGETHER // (self._rows.dimension + self._rows.targets)
        together = self._size * max(1, rows // self._size)
        batch = None
        with closing(self._sent(together)) as batches:
            for batch in batches:
                yield from slices(batch, self._size)
        if batch is None:  # of several processes, this has no rows
            yield self._rows.nothing

    def _sent(self, size: int) -> Generator[Batch, None, None]:
        device, standardizer = self._rows.device, self._rows.standardizer
        raw = self._rows.raw_training_rows()
        if device.type == "cuda":
            return standardized_on_device(
                rechunked(raw, size, pinned), device, standardizer.to(device)
            )
        prepared = (standardized(rows, standardizer) for rows in raw)
        return on_device(map(as_batch, rechunked(prepared, size, RawRows.join)), device)
