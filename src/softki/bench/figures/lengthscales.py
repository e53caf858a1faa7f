"""Lengthscales that the methods have learned, by data set: which columns matter, and how much.

As in the paper, those of the kernels themselves. SoftKI's measures distances of x/T, the others'
of x: a column matters to SoftKI as T times its lengthscale says, which is another fact of a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softki.bench.figures._histograms import collect, draw

__all__ = ["compute", "draw"]

_FACTS = ("kernel_lengthscale", "lengthscale")
_LABEL = "lengthscale of the kernel, in units of x/T for SoftKI and of x for the others"


def compute(results: Path, sets: str = "uci", data_folder: Path | None = None) -> dict[str, Any]:
    """The lengthscales in a results file, by data set and method.

    Args:
        results: the file.
        sets: names and groups of data sets, a panel each.
        data_folder: of the data sets, which tells those that are not here from those not run.
    """
    return collect(results, _FACTS, _LABEL, "softki,sgpr,svgp", sets, data_folder)
