"""Rows larger than memory, standardised: what training takes of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from operator import add

import torch
from torch import Tensor

from softki.batches import Batch, chunk_rows
from softki.exceptions import InvalidInputError
from softki.files.digest import digest_of
from softki.parallel.processes import ALONE, Processes
from softki.streaming.blocks import RawRows, rechunked
from softki.streaming.first_pass import FirstPass
from softki.streaming.layout import Shards
from softki.streaming.minibatches import ShuffledBatches, StreamedMinibatches
from softki.streaming.prefetch import prefetched
from softki.streaming.preparation import Preparation, as_batch, each, part_of, pinned, slices
from softki.streaming.sampling import HeldOutPositions
from softki.streaming.source import Source
from softki.training.data import held_out_count

# Rows and numbers that are kept in memory for `sample`, at most: 20 for each of 4,096 points.
_SAMPLE_ROWS, _SAMPLE_NUMBERS = 81_920, 1 << 25
# Rows of chunks that are read ahead at once, and numbers of those that are sent to a GPU.
_TOGETHER, _SENT_TOGETHER = 1 << 14, 1 << 23


class StreamedRows:
    """Rows of a source, standardised, of which few are in memory at a time.

    It is `softki.training.data.TrainingData`, to be given to `softki.fit_rows`.

    Args:
        source: of the rows.
        first: what a pass over all rows has found.
        held_out_share: of the rows; at most 10,000 are held out.
        dtype: of the batches.
        device: of the batches.
        processes: that share the rows; chunks and minibatches are of those of this process.
        shards: which rows each of them reads; by default, this process reads all.
        preparation: of the rows; by default, they are standardised by what the first pass found.

    Attributes:
        processes: that share the rows.
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
        processes: Processes = ALONE,
        shards: Shards | None = None,
        preparation: Preparation | None = None,
    ) -> None:
        self.source, self.dtype, self.processes = source, dtype, processes
        self._shards = Shards.even(len(source)) if shards is None else shards
        self._total = self._shards.total
        if first.x.count != self._total:
            raise InvalidInputError(
                f"the first pass has seen {first.x.count} of {self._total} rows: with several "
                "processes, it must be the sum over all of them"
            )
        self.device = torch.device(device)
        self.dimension, self.targets = len(source.columns), len(source.targets)
        self._prepared = preparation or first.preparation(source, dtype)
        self.x_standardizer, self.y_standardizer = self._prepared.x, self._prepared.y
        self.noise_unit = self._prepared.noise_unit
        self.knows_noise = self.noise_unit is not None
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
        processes: Processes = ALONE,
        preparation: Preparation | None = None,
    ) -> StreamedRows:
        """Make the first pass.

        With several processes, each reads its own stretch of files and data sets, if their number
        of rows is known beforehand, and all of them in this pass otherwise. Arrays and batches are
        rows that this process has; they come after those of the processes before it.

        Args:
            source: of the rows.
            seed: which rows are held out and sampled.
            held_out_share: of the rows; at most 10,000 are held out.
            dtype: of the batches.
            device: of the batches.
            processes: that share the rows.
            preparation: of the rows; by default, they are standardised by what the pass finds.
        """
        width = len(source.columns) + len(source.targets)
        sample_rows = max(1, min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // width))
        shards = _own_rows(source, processes)
        if shards is None and source.knows_layout:
            shards = Shards.even(len(source), processes.rank, processes.size)
        stretch = None if shards is None else shards.own
        first = processes.together(lambda: FirstPass.over(source, seed, sample_rows, stretch))
        processes.together(source.check_unchanged)
        if shards is None:  # all processes have read all rows
            shards = Shards.even(len(source), processes.rank, processes.size)
        else:
            first = processes.reduce(first, add)
        _check_same_rows(processes, shards)
        return cls(source, first, held_out_share, dtype, device, processes, shards, preparation)

    def __len__(self) -> int:
        """All rows, of all processes and with those that are held out."""
        return self._total

    @property
    def inputs(self) -> Tensor:
        """x of training rows at random, (s, d), the same in all processes."""
        return self._sample.x

    def digest(self) -> str:
        """What the rows are, in a few characters, to know them again.

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
        """No rows, as a process may have none."""
        return part_of(self._sample, slice(0, 0))

    def _on_device(self, rows: RawRows) -> Batch:
        return each(as_batch(self._prepared(rows)), lambda tensor: tensor.to(self.device))

    def _training_rows(self) -> Iterator[RawRows]:
        """Those of this process, as they are read."""
        for block in self.source.between(self._shards.own):
            yield self._held_out.training(block)
        self.source.check_unchanged()


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
        device, prepared = self._rows.device, self._rows._prepared
        rows = self._rows._training_rows()
        if device.type == "cuda":
            return prefetched(
                rechunked(rows, size, pinned), device, prepared.to(device).standardized
            )
        return prefetched(map(as_batch, rechunked(map(prepared, rows), size, RawRows.join)), device)


def _own_rows(source: Source, processes: Processes) -> Shards | None:
    """Where each process has rows of its own: its place among them."""
    if source.is_shared or not processes.are_several:
        return None
    source.may_be_empty = True
    count = processes.together(lambda: len(source))
    shards = Shards.of_counts(processes.gather(count), processes.rank)
    if not shards.total:
        raise InvalidInputError("no process has any rows")
    source.start_at(shards.own.start)
    return shards


def _check_same_rows(processes: Processes, shards: Shards) -> None:
    for rank, total in enumerate(processes.gather(shards.total)):
        if total != shards.total:
            raise InvalidInputError(
                f"process {rank} finds {total} rows, and process {processes.rank} {shards.total}: "
                "all processes must open the same files"
            )
