"""Pieces of a table, encoded as they are read, as parts of a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from softki.data.encoding import TableEncoder
from softki.streaming.blocks import RawRows, block_rows, rechunked
from softki.streaming.pieces import Piece
from softki.streaming.source import Part
from softki.streaming.tables import block_sizes, matrix_of
from softki.training.data import row_hash

# So that test rows are other rows than those that a fit with the same seed holds out.
_APART = 0x7E57


class TestRows:
    """A random share of the rows, chosen by the hash of their position among all rows.

    Example:
        >>> test = TestRows(0.25, seed=0)
        >>> round(float(test.mask(0, 10_000).mean()), 2)
        0.25
        >>> bool((test.mask(0, 100)[40:] == test.mask(40, 60)).all())
        True
    """

    __test__ = False  # pytest would take it for a test, by its name

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self._limit = np.uint64(share * 2.0**64)
        self._seed = seed ^ _APART

    def mask(self, position: int, count: int) -> np.ndarray:
        """Which of consecutive rows are of the share, (count,)."""
        if not self.share:
            return np.zeros(count, dtype=bool)
        return np.asarray(row_hash(np.arange(position, position + count), self._seed) < self._limit)


class EncodedPart(Part):
    """The rows of a piece that are complete and no test rows, as numbers.

    Args:
        piece: that is read.
        position: of its first row among all rows of the table.
        count: its rows, if all of them are given; None where some are left out.
        encoder: of the inputs.
        targets: columns to predict.
        noise: the column of known noise variances, if there is one.
        test: rows that are left out.
    """

    def __init__(
        self,
        piece: Piece,
        position: int,
        count: int | None,
        encoder: TableEncoder,
        targets: Sequence[str],
        noise: str | None,
        test: TestRows,
    ) -> None:
        self.file, self.name, self.first_row = piece.path, str(piece.path), piece.first_row
        self._piece, self._position = piece, position
        self._encoder = replace(encoder, constants=())  # which rows of a fit do have
        self._targets, self._noise, self._test = list(targets), noise, test
        self._are_numbers = all(column.kind == "number" for column in encoder.columns)
        self._size = block_rows(len(encoder.names) + len(self._targets))
        if count is not None:
            self.sizes = block_sizes(count, self._size)

    def read(self) -> Iterator[RawRows]:
        """The rows, in blocks."""
        yield from rechunked(self._rows(), self._size, RawRows.join)

    def _rows(self) -> Iterator[RawRows]:
        position = self._position
        for batch in self._piece.batches(self._size):
            yield self._encoded(batch, ~self._test.mask(position, len(batch)))
            position += len(batch)

    def _encoded(self, batch: Any, chosen: np.ndarray) -> RawRows:
        """The chosen rows that are complete."""
        y = matrix_of(batch, self._targets)
        noise = None if self._noise is None else matrix_of(batch, [self._noise])[:, 0]
        x, complete = self._inputs(batch)
        chosen &= complete
        for values in (y, noise):
            if values is not None and not np.isfinite(values.sum()):
                chosen &= np.isfinite(values).reshape(len(values), -1).all(1)
        rows = RawRows(x, y, None if noise is None else noise.astype(np.float64))
        return rows if chosen.all() else rows.take(np.flatnonzero(chosen))

    def _inputs(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (n, d), and which rows have all of them, (n,)."""
        if self._are_numbers:
            numbers = matrix_of(batch, self._encoder.inputs)
            if np.isfinite(numbers.sum()):  # nothing is missing, and there is nothing to encode
                return numbers, np.ones(len(numbers), dtype=bool)
        encoded = self._encoder.encode(batch)
        return np.ascontiguousarray(encoded.values), encoded.complete
