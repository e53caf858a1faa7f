"""What the first pass over the rows finds out; that of several processes adds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch

from softki.streaming.blocks import Block
from softki.streaming.preparation import Preparation
from softki.streaming.sampling import LowestRows
from softki.streaming.source import Source
from softki.training.data import MOST_HELD_OUT
from softki.training.standardize import Moments


@dataclass(frozen=True, eq=False)
class FirstPass:
    """Moments of the columns, and the first rows in the random order of their hashes.

    Of these, the first are held out, and those that come next are a sample of the others.
    """

    x: Moments
    y: Moments
    noise: Moments
    lowest: LowestRows

    @classmethod
    def over(
        cls, source: Source, seed: int, sample_rows: int, stretch: range | None = None
    ) -> Self:
        """Read all rows, or those of a stretch of positions."""
        blocks = source.blocks() if stretch is None else source.between(stretch)
        result = cls(
            Moments.none(len(source.columns)),
            Moments.none(len(source.targets)),
            Moments.none(1),
            LowestRows(MOST_HELD_OUT + sample_rows, seed),
        )
        for block in blocks:
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

    def preparation(self, source: Source, dtype: torch.dtype) -> Preparation:
        """Standardises the rows by these moments."""
        return Preparation(
            self.x.standardizer("X", source.columns),
            self.y.standardizer("y", source.targets),
            float(self.noise.mean[0]) if self.noise.count else None,
            dtype,
        )

    def _with(self, block: Block) -> Self:
        rows = block.rows
        self.lowest.add(block)
        noise = self.noise if rows.noise is None else self.noise + Moments.of(rows.noise[:, None])
        x, y = self.x + Moments.of(rows.x), self.y + Moments.of(rows.y)
        return replace(self, x=x, y=y, noise=noise)
