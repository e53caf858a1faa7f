"""Some rows of a source, as they are read: NumPy arrays on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch

from softki.training.standardize import RawBatch

# Rows and numbers of a block, at most.
_BLOCK_ROWS = 1 << 16
_BLOCK_NUMBERS = 1 << 22


@dataclass(frozen=True, eq=False)
class RawRows:
    """Inputs, targets and, where it is known, the noise variance of some rows."""

    x: np.ndarray  # (r, d)
    y: np.ndarray  # (r, t)
    noise: np.ndarray | None = None  # (r,)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def arrays(self) -> list[np.ndarray]:
        """x, y and, where it is known, the noise variance."""
        return [self.x, self.y] if self.noise is None else [self.x, self.y, self.noise]

    def take(self, index: np.ndarray | slice) -> RawRows:
        """The rows at an index, copied, or those of a slice, as a view."""
        if isinstance(index, slice):
            return RawRows(*(values[index] for values in self.arrays))
        # `take` copies whole rows, three times as fast as an index in brackets.
        return RawRows(*(values.take(index, axis=0) for values in self.arrays))

    def as_tensors(self) -> RawBatch:
        """The same rows as tensors that share their memory."""
        return RawBatch(*map(torch.from_numpy, self.arrays))

    @classmethod
    def join(cls, pieces: Sequence[RawRows]) -> RawRows:
        """The rows of all pieces, in order."""
        if len(pieces) == 1:
            return pieces[0]
        arrays = zip(*(rows.arrays for rows in pieces), strict=True)
        return cls(*(np.concatenate(values) for values in arrays))


class Block(NamedTuple):
    """Consecutive rows of a source.

    Attributes:
        position: the number of the first row among all rows of the source, which says which row
            it is in every pass and every process.
        rows: their numbers.
    """

    position: int
    rows: RawRows

    @property
    def positions(self) -> np.ndarray:
        """The position of each row, (r,)."""
        return np.arange(self.position, self.position + len(self.rows))

    def within(self, shard: range) -> Self:
        """The rows whose positions lie in a shard."""
        start = max(shard.start - self.position, 0)
        stop = max(shard.stop - self.position, start)
        if start == 0 and stop >= len(self.rows):
            return self
        return type(self)(self.position + start, self.rows.take(slice(start, stop)))


def block_rows(width: int) -> int:
    """Number of rows of a block where a row has `width` numbers.

    Example:
        >>> block_rows(10), block_rows(1000)
        (65536, 4194)
    """
    return max(256, min(_BLOCK_ROWS, _BLOCK_NUMBERS // max(1, width)))


def rechunked(rows: Iterable[RawRows], size: int) -> Iterator[list[RawRows]]:
    """The same rows in chunks of the given size, but for the last, each as the pieces to join.

    Example:
        >>> rows = [RawRows(np.ones((r, 2)), np.ones((r, 1))) for r in (3, 0, 4, 1)]
        >>> [[len(piece) for piece in chunk] for chunk in rechunked(rows, 3)]
        [[3], [3], [1, 1]]
    """
    waiting: list[RawRows] = []
    count = 0
    for piece in rows:
        start = 0
        while count + len(piece) - start >= size:
            stop = start + size - count
            yield [*waiting, piece.take(slice(start, stop))]
            waiting, count, start = [], 0, stop
        if start < len(piece):
            waiting.append(piece.take(slice(start, None)))
            count += len(piece) - start
    if waiting:
        yield waiting
