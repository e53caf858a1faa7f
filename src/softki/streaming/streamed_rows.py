"""Rows larger than memory, standardised: what training takes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import torch
from torch import Tensor

from softki.batches import Batch, chunk_rows
from softki.exceptions import InvalidInputError
from softki.in_memory import held_out_count
from softki.streaming.first_pass import FirstPass
from softki.streaming.held_out import HeldOutRows
from softki.streaming.layout import ONE_PROCESS, Shard, stretch_of
from softki.streaming.minibatches import StreamedMinibatches
from softki.streaming.prefetch import prefetched
from softki.streaming.prepared import Preparation, as_batch, each, slices
from softki.streaming.rows import Rows, rechunked
from softki.streaming.shuffle import ShuffledBatches
from softki.streaming.source import Source

# Rows and numbers that are kept in memory for `sample`, at most: 20 for each of 4,096 points.
_SAMPLE_ROWS, _SAMPLE_NUMBERS = 81_920, 1 << 25
# Rows of chunks that are read ahead at once.
_TOGETHER = 1 << 14


class StreamedRows:
    """Rows of a source, standardised, of which few are in memory at a time.

    It is `softki.training_data.TrainingData`, to be given to `softki.fit_rows`.

    Args:
        source: of the rows.
        first: what a pass over all rows has found.
        held_out_share: of the rows; at most 10,000 are held out.
        dtype: of the batches.
        device: of the batches.
        shard: this process and their number; chunks and minibatches are of its rows.
        preparation: of the rows; by default, they are standardised by what the first pass found.

    Attributes:
        source: of the rows.
        x_standardizer, y_standardizer: mean and scale of inputs and targets.
        noise_unit: mean of the known noise variance, if there is one.
        held_out: the rows that are not trained on; None if there are none.
        held_out_index: where they are among all rows.
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
        held_out_share: float = 0.1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        shard: Shard = ONE_PROCESS,
        preparation: Preparation | None = None,
    ) -> None:
        if first.x.count != len(source):
            raise InvalidInputError(
                f"the first pass has seen {first.x.count} of {len(source)} rows: with several "
                "processes, combine must give the sum over all of them"
            )
        self.source, self.dtype, self.shard = source, dtype, shard
        self.device = torch.device(device)
        self.dimension, self.targets = len(source.columns), len(source.targets)
        self._prepared = preparation or first.preparation(source, dtype)
        self.x_standardizer, self.y_standardizer = self._prepared.x, self._prepared.y
        self.noise_unit = self._prepared.noise_unit
        self.knows_noise = self.noise_unit is not None
        self._stretch = stretch_of(len(source), shard)
        count = held_out_count(len(source), held_out_share)
        positions, rows = first.lowest.ordered()
        self.held_out_index = torch.from_numpy(positions[:count])
        self._held_out = HeldOutRows(positions[:count])
        self.training_count = len(source) - count
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
        shard: Shard = ONE_PROCESS,
        combine: Callable[[FirstPass], FirstPass] = lambda first: first,
        preparation: Preparation | None = None,
    ) -> StreamedRows:
        """Make the first pass.

        Args:
            source: of the rows.
            seed: which rows are held out and sampled.
            held_out_share: of the rows; at most 10,000 are held out.
            dtype: of the batches.
            device: of the batches.
            shard: this process and their number.
            combine: gives the sum over the processes. It is called where the number of rows is
                known beforehand, and each process reads its own; otherwise each reads all.
            preparation: of the rows; by default, they are standardised by what the pass finds.
        """
        width = len(source.columns) + len(source.targets)
        sample_rows = max(1, min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // width))
        if source.knows_layout:
            stretch = stretch_of(len(source), shard)
            first = combine(FirstPass.over(source, seed, sample_rows, stretch))
        else:
            first = FirstPass.over(source, seed, sample_rows)
        source.check_unchanged()
        return cls(source, first, held_out_share, dtype, device, shard, preparation)

    def __len__(self) -> int:
        """All rows, of all processes and with those that are held out."""
        return len(self.source)

    @property
    def inputs(self) -> Tensor:
        """x of training rows at random, (s, d), the same in all processes."""
        return self._sample.x

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
        """Random minibatches of the training rows of this process, read in the background."""
        batches = ShuffledBatches(
            self.source, size, seed, self._held_out, self._prepared, self.shard, buffer_rows
        )
        return StreamedMinibatches(batches, self.device)

    def _on_device(self, rows: Rows) -> Batch:
        return each(as_batch(self._prepared(rows)), lambda tensor: tensor.to(self.device))

    def _training_rows(self) -> Iterator[Rows]:
        """Those of this process, as they are read."""
        for block in self.source.between(self._stretch):
            yield self._prepared(self._held_out.training(block))
        self.source.check_unchanged()


class Chunks:
    """Chunks of rows in order, as often as they are iterated."""

    def __init__(self, rows: StreamedRows, size: int) -> None:
        self._rows, self._size = rows, size

    def __iter__(self) -> Iterator[Batch]:
        # Small chunks are read and sent together, and cut here.
        together = self._size * max(1, _TOGETHER // self._size)
        with closing(prefetched(self._batches(together), self._rows.device)) as batches:
            for batch in batches:
                yield from slices(batch, self._size)

    def _batches(self, size: int) -> Iterator[Batch]:
        for rows in rechunked(self._rows._training_rows(), size):
            yield as_batch(rows)
