"""Rows larger than memory, standardised: what training takes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softki.batches import Batch, Data, chunk_rows
from softki.files.digest import digest_of
from softki.streaming.blocks import RawRows, rechunked
from softki.streaming.first_pass import FirstPass
from softki.streaming.minibatches import ShuffledRows, Standardize, StreamedMinibatches
from softki.streaming.prefetch import standardized_ahead
from softki.streaming.shards import TrainingShard
from softki.streaming.source import Source
from softki.training.data import held_out_count
from softki.training.standardize import RowStandardizer

if TYPE_CHECKING:
    from softki.parallel.processes import Processes

# Rows of chunks that are read ahead at once, and numbers of those that are sent to a GPU.
_TOGETHER, _SENT_TOGETHER = 1 << 14, 1 << 23


class StreamedRows:
    """Rows of a source, standardised, of which few are in memory at a time.

    They are `softki.training.data.TrainingData`, to be given to `softki.fit_rows`. Chunks and
    minibatches are those of this process, and everything else is the same in all of them.

    Attributes:
        source, seed, dtype, device, processes: as given to `open`.
        standardizer: mean and scale of inputs and targets, and the unit of known noise.
        held_out: the rows that are not trained on; None if there are none.
        held_out_index: their positions among all rows.
        training_count: the number of the others, in all processes.
        shard: those of this process.

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
        standardizer: RowStandardizer,
        held_out_share: float,
        device: torch.device | str,
        shards: Sequence[range],
        processes: Processes | None = None,
    ) -> None:
        self.source, self.standardizer, self.processes = source, standardizer, processes
        self.seed, self.dtype = first.lowest.seed, standardizer.dtype
        self.device = torch.device(device)
        self.dimension, self.targets = len(source.columns), len(source.targets)
        self.knows_noise = standardizer.noise_unit is not None
        self._total = shards[-1].stop
        count = held_out_count(self._total, held_out_share)
        self.training_count = self._total - count
        positions, rows = first.lowest.ordered()
        self.held_out_index = torch.from_numpy(positions[:count])
        self.held_out = self._on_device(rows.take(slice(count))) if count else None
        self._sample = Data(*self._on_device(rows.take(slice(count, None))))
        rank = 0 if processes is None else processes.rank
        self.shard = TrainingShard(source, positions[:count], shards, rank)

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
        if processes is None:
            first = FirstPass.over(source, seed)
            source.check_unchanged()
            shards = [range(len(source))]
        else:
            from softki.streaming.shared import shared_first_pass

            first, shards = shared_first_pass(source, seed, processes)
        standardizer = standardizer or first.standardizer(source, dtype)
        return cls(source, first, standardizer, held_out_share, device, shards, processes)

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
        blocks = torch.from_numpy(layout.part), torch.from_numpy(layout.rows)
        return digest_of([*self.sample(len(self._sample)), *held_out, *blocks], sizes)

    def sample(self, count: int) -> Batch:
        """Training rows at random, the same in all processes: as many, or all that were kept."""
        return self._sample.take(slice(count))

    def chunks(self, points: int) -> Chunks:
        """The training rows of this process in order, for work on this number of points."""
        return Chunks(self, chunk_rows(max(points, self.dimension), self.device))

    def minibatches(self, size: int, seed: int) -> StreamedMinibatches:
        """Random minibatches, of which this process has its share, read in the background."""
        shuffled = ShuffledRows(self.shard, size, seed)
        return StreamedMinibatches(shuffled, self.standardized, self.sample(0))

    @property
    def standardized(self) -> Standardize:
        """The function that reads chunks of rows as batches, in the background."""
        return partial(standardized_ahead, standardizer=self.standardizer, device=self.device)

    def _on_device(self, rows: RawRows) -> Batch:
        x, y, noise = self.standardizer(rows.as_tensors())
        there = None if noise is None else noise.to(self.device)
        return Batch(x.to(self.device), y.to(self.device), there)


class Chunks:
    """The training rows of a process in order, in chunks of one size but for the last.

    They can be iterated again and again, and are read in the background.
    """

    def __init__(self, rows: StreamedRows, size: int) -> None:
        self._rows, self._size = rows, size

    def __iter__(self) -> Iterator[Batch]:
        # Small chunks are read and sent together, and cut here.
        rows, together = self._rows, _TOGETHER
        if rows.device.type == "cuda":
            together = _SENT_TOGETHER // (rows.dimension + rows.targets)
        together = self._size * max(1, together // self._size)
        has_rows = False
        with closing(rows.standardized(rechunked(rows.shard.read(), together))) as read:
            for batch in read:
                several, has_rows = Data(*batch), True
                for start in range(0, len(several), self._size):
                    yield several.take(slice(start, start + self._size))
        if not has_rows:  # of several processes, this has no rows
            yield rows.sample(0)
