"""Differences between two methods on the same splits, where most of the spread cancels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from softki.bench.cells import METRICS, shown_runs
from softki.bench.layouts import USUAL_SPLIT, ordered_data
from softki.bench.record import Record
from softki.checks import check_choice


class Difference(NamedTuple):
    """How far a method's figure is above a reference's, on the same seeds of a data set."""

    data: str
    mean: float
    std_error: float | None  # None for one seed
    seeds: int


def paired(
    results: Iterable[Record], metric: str, method: str, reference: str, split: str = USUAL_SPLIT
) -> list[Difference]:
    """Mean of aₛ − bₛ over the seeds s that both have, with its standard error std/√seeds.

    Data sets without such a seed are left out. Where a method was run with several settings,
    the runs are those that a table shows.

    Args:
        results: records of runs.
        metric: a field such as `rmse`.
        method: the one with the figures a.
        reference: the one with the figures b.
        split: of the data.

    Example:
        >>> figures = {"softki": (0.06, 0.07), "svgp": (0.10, 0.12)}
        >>> runs = [
        ...     Record("pol", name, seed, "90/10", rmse=rmse)
        ...     for name, values in figures.items()
        ...     for seed, rmse in enumerate(values)
        ... ]
        >>> [(data, mean, error, seeds)] = paired(runs, "rmse", "softki", "svgp")
        >>> data, round(mean, 4), round(error, 4), seeds
        ('pol', -0.045, 0.005, 2)
    """
    check_choice("metric", metric, METRICS)
    figure = METRICS[metric]
    records = [record for record in results if record.split == split]
    differences = []
    for data in ordered_data((), records):
        a, b = (
            shown_runs(r for r in records if r.data == data and r.method == name).figures(figure)
            for name in (method, reference)
        )
        both = [a[seed] - b[seed] for seed in a if seed in b]
        if both:
            error = statistics.stdev(both) / math.sqrt(len(both)) if len(both) > 1 else None
            differences.append(Difference(data, statistics.fmean(both), error, len(both)))
    return differences
