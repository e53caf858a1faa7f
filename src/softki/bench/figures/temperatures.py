"""Temperatures that SoftKI has learned, by data set: how local its interpolation is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softki.bench.figures._histograms import collect, draw

__all__ = ["compute", "draw"]


def compute(results: Path, sets: str = "uci", data_folder: Path | None = None) -> dict[str, Any]:
    """The temperatures in a results file, by data set and method.

    Args:
        results: the file.
        sets: names and groups of data sets, a panel each.
        data_folder: of the data sets, which tells those that are not here from those not run.
    """
    return collect(results, ("temperature",), "temperature", "softki", sets, data_folder)
