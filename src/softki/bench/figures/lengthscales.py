"""Lengthscales that the methods have learned, by data set: which columns matter, and how much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softki.bench.figures._histograms import collect, draw

__all__ = ["compute", "draw"]


def compute(results: Path, sets: str = "uci") -> dict[str, Any]:
    """The lengthscales in a results file, by data set and method.

    Args:
        results: the file.
        sets: names and groups of data sets, a panel each.
    """
    return collect(results, "lengthscale", "softki,sgpr,svgp", sets)
