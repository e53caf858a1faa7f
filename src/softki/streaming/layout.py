"""Which rows of a source are read together, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from softki.exceptions import InvalidInputError


@dataclass(frozen=True, eq=False)
class Layout:
    """The groups of a source: stretches of rows that are read at once.

    A part, such as a file, has one or more groups, and is read from its start.
    """

    part: np.ndarray  # (g,), which part a group belongs to, ascending
    index: np.ndarray  # (g,), its number within the part
    position: np.ndarray  # (g,), of its first row among all rows
    rows: np.ndarray  # (g,)

    @classmethod
    def of(cls, sizes: Sequence[Sequence[int]]) -> Layout:
        """The layout where part k has groups of sizes[k] rows.

        Example:
            >>> layout = Layout.of([[3, 2], [4]])
            >>> len(layout), layout.total, layout.position.tolist()
            (3, 9, [0, 3, 5])
        """
        part = np.repeat(np.arange(len(sizes)), [len(groups) for groups in sizes])
        none = np.empty(0, dtype=np.int64)
        index = np.concatenate([none, *(np.arange(len(groups)) for groups in sizes)])
        rows = np.concatenate([none, *(np.asarray(groups, dtype=np.int64) for groups in sizes)])
        return cls(part, index, np.cumsum(rows) - rows, rows)

    def starting_at(self, position: int) -> Layout:
        """The same groups, where the first row has that position."""
        return replace(self, position=self.position + position)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def total(self) -> int:
        """All rows."""
        return int(self.rows.sum())

    def groups_of(self, stretch: range) -> np.ndarray:
        """The groups that have rows in a stretch of positions."""
        ends = self.position + self.rows
        return np.flatnonzero((ends > stretch.start) & (self.position < stretch.stop))


@dataclass(frozen=True)
class Shards:
    """A stretch of positions for each process; that of this one is `own`.

    Example:
        >>> Shards.even(10, rank=1, size=3)
        Shards(rank=1, stretches=(range(0, 3), range(3, 6), range(6, 10)))
        >>> Shards.of_counts([4, 0, 2], rank=2).own
        range(4, 6)
    """

    rank: int
    stretches: tuple[range, ...]

    def __post_init__(self) -> None:
        size = len(self.stretches)
        if not 0 <= self.rank < size:
            raise InvalidInputError(f"rank must be from 0 to {size - 1}, got {self.rank}")

    @classmethod
    def even(cls, total: int, rank: int = 0, size: int = 1) -> Shards:
        """As many rows in each process, but for one."""
        ends = [total * k // size for k in range(size + 1)]
        return cls(rank, tuple(range(*pair) for pair in pairwise(ends)))

    @classmethod
    def of_counts(cls, counts: Sequence[int], rank: int) -> Shards:
        """So many rows in each process, one process after the other."""
        ends = accumulate(counts, initial=0)
        return cls(rank, tuple(range(*pair) for pair in pairwise(ends)))

    @property
    def own(self) -> range:
        """The rows of this process."""
        return self.stretches[self.rank]

    @property
    def total(self) -> int:
        """All rows."""
        return self.stretches[-1].stop


def shares(counts: np.ndarray, total: int) -> np.ndarray:
    """How many of the first `total` rows each process gives, where it has so many in all.

    The i-th row of a process with n rows, counted from 0, has its turn at (i + ½)/n. So each gives
    in proportion to what it has, none gives back what it gave before, and all are done together.

    Example:
        >>> counts = np.array([600, 0, 300, 100])
        >>> shares(counts, 10), shares(counts, 20), shares(counts, 1000)
        (array([6, 0, 3, 1]), array([12,  0,  6,  2]), array([600,   0, 300, 100]))
    """
    if len(counts) == 1:
        return np.array([total])
    # At this time, at least as many are left to give as there are processes.
    time = max(0, total - len(counts)) / counts.sum()
    given = np.floor(time * counts).astype(np.int64)
    for _ in range(total - int(given.sum())):
        turn = np.full(len(counts), np.inf)
        np.divide(given + 0.5, counts, out=turn, where=given < counts)
        given[np.argmin(turn)] += 1
    return given
