"""The first pass over the rows of a source: moments of the columns, and a sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import torch

from softki.streaming.blocks import Block
from softki.streaming.sampling import LowestRows
from softki.streaming.source import Source
from softki.training.data import MOST_HELD_OUT, sample_rows
from softki.training.standardize import Moments, RowStandardizer


@dataclass(frozen=True, eq=False)
class FirstPass:
    """Moments of the columns, and the first rows in the random order of their hashes.

    Of these, the first are held out, and those that come next are a sample of the others. The
    results of two processes add.
    """

    x: Moments
    y: Moments
    noise: Moments
    lowest: LowestRows

    @classmethod
    def over(cls, source: Source, seed: int, blocks: Iterable[Block] | None = None) -> Self:
        """Read all rows of the source, or some of its blocks."""
        columns, targets = len(source.columns), len(source.targets)
        lowest = LowestRows(MOST_HELD_OUT + sample_rows(columns + targets), seed)
        result = cls(Moments.none(columns), Moments.none(targets), Moments.none(1), lowest)
        for block in source.blocks() if blocks is None else blocks:
            result = result._with(block)
        return result

    def __add__(self, other: Self) -> Self:
        return replace(
            self,
            x=self.x + other.x,
            y=self.y + other.y,
            noise=self.noise + other.noise,
            lowest=self.lowest + other.lowest,
        )

    def standardizer(self, source: Source, dtype: torch.dtype) -> RowStandardizer:
        """The standardizer of the rows by these moments."""
        return RowStandardizer(
            self.x.standardizer("X", source.columns),
            self.y.standardizer("y", source.targets),
            float(self.noise.mean[0]) if self.noise.count else None,
            dtype,
        )

    def _with(self, block: Block) -> Self:
        self.lowest.add(block)
        x, y, noise = block.rows.as_tensors()
        more = self.noise if noise is None else self.noise + Moments.of(noise[:, None])
        return replace(self, x=self.x + Moments.of(x), y=self.y + Moments.of(y), noise=more)
