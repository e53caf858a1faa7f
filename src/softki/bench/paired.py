"""Differences between two methods on the same splits, where most of the spread cancels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from softki.bench.cells import METRICS, REFERENCE, Metric, Runs, magnitude
from softki.bench.layouts import (
    Spec,
    by_method,
    described,
    named_splits,
    ordered_data,
    size_cells,
)
from softki.bench.markdown import Cell, Table
from softki.bench.record import Record
from softki.bench.remarks import origin
from softki.bench.splits import USUAL_SPLIT
from softki.validation.parameters import check_choice


class Difference(NamedTuple):
    """How far a method's figure is above a reference's, on the same seeds of a data set."""

    data: str
    mean: float
    std_error: float | None  # None for one seed
    seeds: int

    def __str__(self) -> str:
        error = self.std_error or 0.0
        # Four decimals, more where they would leave less than two digits.
        decimals = max(4, min(1 - magnitude(max(abs(self.mean), error)), 8))
        mean = f"{self.mean:+z.{decimals}f}"
        return mean if self.std_error is None else f"{mean} ± {error:.{decimals}f}"


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
        >>> [difference] = paired(runs, "rmse", "softki", "svgp")
        >>> difference.data, str(difference), difference.seeds
        ('pol', '-0.0450 ± 0.0050', 2)
    """
    check_choice("metric", metric, METRICS)
    records = [record for record in results if record.split == split]
    differences = []
    for data in ordered_data((), records):
        runs = by_method(record for record in records if record.data == data)
        differences.append(_difference(data, runs, METRICS[metric], method, reference))
    return [difference for difference in differences if difference is not None]


def paired_table(spec: Spec, records: Iterable[Record], missing: Collection[str]) -> Table:
    """A row a data set, a column a method: its figure minus the reference's, seeds beside.

    Data sets on which nothing can be paired are left out, whether or not the data is here.
    """
    records = list(records)
    metric = METRICS[spec.metrics[0]]
    methods = (*spec.methods, *spec.also)
    found: list[tuple[list[Cell], dict[str, Cell]]] = []  # the start of a row, its cells by method
    shown: list[Record] = []
    for data in ordered_data(spec.data, records):
        for split, name in named_splits(data, records).items():
            runs = by_method(r for r in records if r.data == data and r.split == split)
            pairs = {m: _difference(data, runs, metric, m, REFERENCE) for m in methods}
            cells = {m: _cell(pair, runs[m]) for m, pair in pairs.items() if pair is not None}
            if cells:
                start = Cell(name, notes=_settings(runs[REFERENCE], f"{REFERENCE} with "))
                found.append(([start, *size_cells(data, split, runs)], cells))
                shown += [r for m in (REFERENCE, *cells) for r in runs[m].records]
    columns = [m for m in methods if m in spec.methods or any(m in cells for _, cells in found)]
    rows = [(*start, *(cells.get(m, Cell("–")) for m in columns)) for start, cells in found]
    remarks = origin(shown) if found else [f"No runs here that share a seed with {REFERENCE}."]
    return described(spec, ("data", "n", "d", *columns), rows, remarks)


def _difference(
    data: str, runs: Mapping[str, Runs], metric: Metric, method: str, reference: str
) -> Difference | None:
    """Over the seeds of both; None if there are none."""
    a, b = (runs.get(name, Runs()).figures(metric) for name in (method, reference))
    both = [a[seed] - b[seed] for seed in a if seed in b]
    if not both:
        return None
    error = statistics.stdev(both) / math.sqrt(len(both)) if len(both) > 1 else None
    return Difference(data, statistics.fmean(both), error, len(both))


def _cell(difference: Difference, runs: Runs) -> Cell:
    return Cell(str(difference), str(difference.seeds), notes=_settings(runs))


def _settings(runs: Runs, start: str = "") -> tuple[str, ...]:
    """A footnote, where they are not the defaults."""
    return (start + runs.settings,) if runs.settings else ()
