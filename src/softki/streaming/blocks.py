"""Some rows of a source, as they are read: NumPy arrays on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np

T = TypeVar("T")
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

    def take(self, index: np.ndarray | slice) -> RawRows:
        """The rows at an index, copied, or those of a slice, as a view."""
        noise = None if self.noise is None else _taken(self.noise, index)
        return RawRows(_taken(self.x, index), _taken(self.y, index), noise)

    @classmethod
    def join(cls, parts: Sequence[RawRows]) -> RawRows:
        """The rows of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        noise = None
        if parts[0].noise is not None:
            noise = np.concatenate([part.noise for part in parts if part.noise is not None])
        return cls(
            np.concatenate([part.x for part in parts]),
            np.concatenate([part.y for part in parts]),
            noise,
        )


def _taken(values: np.ndarray, index: np.ndarray | slice) -> np.ndarray:
    # `take` copies whole rows, three times as fast as an index in brackets.
    return values[index] if isinstance(index, slice) else values.take(index, axis=0)


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
        """Of each row, (r,)."""
        return np.arange(self.position, self.position + len(self.rows))

    def within(self, stretch: range) -> Self:
        """The rows whose positions lie in the stretch."""
        start = max(stretch.start - self.position, 0)
        stop = max(stretch.stop - self.position, start)
        if start == 0 and stop >= len(self.rows):
            return self
        return type(self)(self.position + start, self.rows.take(slice(start, stop)))


def block_rows(width: int) -> int:
    """Rows to read at once where a row has so many numbers.

    Example:
        >>> block_rows(10), block_rows(1000)
        (65536, 4194)
    """
    return max(256, min(_BLOCK_ROWS, _BLOCK_NUMBERS // max(1, width)))


def rechunked(
    parts: Iterable[RawRows], size: int, join: Callable[[Sequence[RawRows]], T]
) -> Iterator[T]:
    """The same rows in parts of the given size, but for the last, each joined from its pieces.

    Example:
        >>> parts = [RawRows(np.ones((r, 2)), np.ones((r, 1))) for r in (3, 0, 4, 1)]
        >>> [len(part) for part in rechunked(parts, 3, RawRows.join)]
        [3, 3, 2]
    """
    waiting: list[RawRows] = []
    count = 0
    for part in parts:
        start = 0
        while count + len(part) - start >= size:
            stop = start + size - count
            yield join([*waiting, part.take(slice(start, stop))])
            waiting, count, start = [], 0, stop
        if start < len(part):
            waiting.append(part.take(slice(start, None)))
            count += len(part) - start
    if waiting:
        yield join(waiting)
