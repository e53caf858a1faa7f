"""Histograms of what methods have learned for every column, a panel a data set.

The numbers are facts of the runs in a results file; the seeds of a method are pooled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from softki.bench.datasets import is_available
from softki.bench.figures._canvas import COLOURS, panels, say
from softki.bench.registry import select
from softki.bench.results import Results
from softki.bench.splits import USUAL_SPLIT
from softki.exceptions import InvalidInputError
from softki.plots._axes import DATA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 24
_COLUMNS = 4
_LETTERS = 30  # of the label that fit below a panel


def collect(
    results: Path,
    facts: Sequence[str],
    label: str,
    methods: str,
    sets: str,
    data_folder: Path | None,
) -> dict[str, Any]:
    """A fact's values by data set and method, of the runs on 90/10 splits that went well.

    A seed that was run with several settings counts with the last of its runs.

    Args:
        results: the file.
        facts: names in the facts of a run, of lists with a number a column; of several, the
            first that a run has.
        label: of the axis, in words.
        methods: that have the fact, for the message where none was run.
        sets: names and groups of data sets, a panel each.
        data_folder: of the data sets.
    """
    runs: dict[str, dict[str, dict[int, list[float]]]] = {one.name: {} for one in select(sets)}
    run = set()
    for record in Results(results):
        if record.data not in runs or record.split != USUAL_SPLIT:
            continue
        run.add(record.data)
        values = _positive(next((record.facts[f] for f in facts if f in record.facts), None))
        if record.status == "ok" and values:
            runs[record.data].setdefault(record.method, {})[record.seed] = values
    if not any(runs.values()):
        raise InvalidInputError(
            f"{results} has no {facts[-1]} of a run on {', '.join(runs)}: do some with "
            f"`softki bench run --data {sets} --methods {methods}`"
        )
    pooled = {
        name: {
            method: list(chain.from_iterable(seeds.values())) for method, seeds in by_method.items()
        }
        for name, by_method in runs.items()
    }
    absent = {
        name: _why_absent(name, name in run, data_folder)
        for name, by_method in pooled.items()
        if not by_method
    }
    return {"label": label, "panels": pooled, "absent": absent}


def _why_absent(name: str, run: bool, data_folder: Path | None) -> str:
    if run:
        return "not a fact of its runs"
    return "not run" if is_available(name, data_folder) else "no data here"


def _positive(values: Any) -> list[float]:
    """A list, one number or None as a list, without what a logarithm cannot show."""
    values = values if isinstance(values, list) else [values]
    return [float(value) for value in values if isinstance(value, int | float) and value > 0]


def draw(data: Mapping[str, Any]) -> Figure:
    """A panel a data set and a strip a method, all on the same logarithmic axis."""
    by_set: Mapping[str, Mapping[str, Sequence[float]]] = data["panels"]
    methods = sorted({method for by_method in by_set.values() for method in by_method})
    bins = _bins([v for by_method in by_set.values() for some in by_method.values() for v in some])
    columns = min(_COLUMNS, len(by_set))
    size = (3.2, 1.1 + 0.4 * len(methods))
    figure, axes = panels(-(-len(by_set) // columns), columns, size)
    for ax, (name, by_method) in zip(axes.flat, by_set.items(), strict=False):
        ax.set_title(name, fontsize="medium")
        if by_method:
            _draw_panel(ax, by_method, methods, bins)
        else:
            say(ax, data["absent"][name])
    for spare in axes.flat[len(by_set) :]:
        spare.remove()
    figure.supxlabel(fill(data["label"], _LETTERS * columns))
    return figure


def _bins(values: Sequence[float]) -> np.ndarray:
    """Edges that are evenly spaced in the logarithm, from the smallest value to the largest."""
    low, high = np.log10(min(values)), np.log10(max(values))
    margin = 1e-3 + 0.02 * (high - low)
    return np.logspace(low - margin, high + margin, _BINS + 1)


def _draw_panel(
    ax: Axes, by_method: Mapping[str, Sequence[float]], methods: Sequence[str], bins: np.ndarray
) -> None:
    """Strips from the top down; the highest bar of each is as high as its strip allows."""
    for i, method in enumerate(methods):
        foot = len(methods) - 1 - i
        ax.axhline(foot, color=DATA, linewidth=0.5)
        if method in by_method:
            counts = np.histogram(by_method[method], bins)[0]
            ax.stairs(
                foot + 0.85 * counts / max(1, counts.max()),
                bins,
                baseline=foot,
                fill=True,
                color=COLOURS[i % len(COLOURS)],
            )
    ax.set_yticks([len(methods) - 0.6 - i for i in range(len(methods))], methods, fontsize="small")
    ax.tick_params(axis="y", length=0)
    ax.set_xscale("log")
    ax.set_xlim(bins[0], bins[-1])
    ax.set_ylim(0, len(methods))
