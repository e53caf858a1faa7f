"""From the runs of a method on a data set to a cell: a figure over seeds, or why there is none."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from softki.bench.markdown import Cell
from softki.bench.record import Record

REFERENCE = "exact"  # never the best: the others approximate it

_SHORT = 48  # characters of a reason that a cell shows; a footnote has all


def _three_decimals(value: float) -> int:
    return 3


def _two_digits(value: float) -> int:
    """Three decimals, more where they would leave less than two digits."""
    return max(3, min(1 - magnitude(value), 8))


def _three_digits(value: float) -> int:
    """Three digits, but no more than three decimals."""
    return max(0, min(2 - magnitude(value), 3))


def magnitude(value: float) -> int:
    """The place of the first digit, as a power of ten; that of 0 is 0.

    Example:
        >>> magnitude(123.0), magnitude(-0.05)
        (2, -2)
    """
    return math.floor(math.log10(abs(value))) if value else 0


@dataclass(frozen=True)
class Metric:
    """A figure of a record: how it is written, and what a better one is."""

    field: str  # of a Record
    title: str
    decimals: Callable[[float], int] = _three_decimals
    loss: Callable[[float], float] = float  # the smaller the better
    unit: float = 1.0
    optional: bool = False  # not every run has it

    def of(self, record: Record) -> float | None:
        """The figure, in the unit in which it is shown."""
        value = getattr(record, self.field)
        return None if value is None else value / self.unit

    def written(self, *values: float) -> str:
        """Numbers joined by ±, with as many decimals as the first is given.

        Example:
            >>> METRICS["rmse"].written(0.0631, 0.0023), METRICS["rmse"].written(0.00317)
            ('0.063 ± 0.002', '0.0032')
        """
        decimals = self.decimals(values[0])
        return " ± ".join(f"{v:z.{decimals}f}" if abs(v) < 1e5 else f"{v:.2e}" for v in values)


METRICS = {
    metric.field: metric
    for metric in (
        Metric("rmse", "RMSE", _two_digits),
        Metric("nll", "NLL"),
        Metric("coverage", "coverage", loss=lambda share: abs(share - 0.95)),
        Metric("seconds_per_epoch", "seconds an epoch", _three_digits, optional=True),
        Metric("fit_seconds", "fit, seconds", _three_digits, optional=True),
        Metric("peak_memory", "memory, GB", _three_digits, unit=1e9, optional=True),
    )
}


class Estimate(NamedTuple):
    """A figure over seeds."""

    mean: float
    std: float | None  # over seeds, with ddof = 1; None for one seed
    seeds: int


class Runs(NamedTuple):
    """The runs of a method on a data set that are shown: one a seed, all with the same settings."""

    records: tuple[Record, ...] = ()
    others: tuple[str, ...] = ()  # settings of further runs, which are not shown

    @property
    def settings(self) -> str:
        """Those that are not the defaults; empty where all are."""
        return _settings(self.records[0]) if self.records else ""

    def figures(self, metric: Metric) -> dict[int, float]:
        """The figure by seed, of the seeds that have it."""
        done = (record for record in self.records if record.status == "ok")
        found = ((record.seed, metric.of(record)) for record in done)
        return {seed: value for seed, value in found if value is not None}

    def estimate(self, metric: Metric) -> Estimate | None:
        """Mean and standard deviation over seeds."""
        values = list(self.figures(metric).values())
        if not values:
            return None
        std = statistics.stdev(values) if len(values) > 1 else None
        return Estimate(statistics.fmean(values), std, len(values))


def shown_runs(records: Iterable[Record]) -> Runs:
    """Which settings to show of all runs of a method on a data set.

    Those with the defaults, if any of them has figures; else those with the most seeds that do.
    Of runs on a CPU and on a GPU, only those on the kind of device with more seeds.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.key.settings, record.key.device_kind), []).append(record)
    if not groups:
        return Runs()

    def rank(group: tuple[str, str]) -> tuple[bool, bool, int, bool]:
        settings, device = group
        done = sum(record.status == "ok" for record in groups[group])
        return done > 0, settings == "{}", done, device == "cuda"

    shown = max(groups, key=rank)
    others = {
        text: _settings(runs[0]) or "the default settings"
        for (text, _), runs in groups.items()
        if text != shown[0]
    }
    runs = tuple(sorted(groups[shown], key=lambda record: record.seed))
    return Runs(runs, tuple(others.values()))


def best_methods(estimates: Mapping[str, Estimate | None], metric: Metric) -> set[str]:
    """The method with the smallest loss, and those that cannot be told from it as written.

    Empty where there is nothing to compare: fewer than two methods besides the reference.
    """
    losses = {
        method: metric.loss(estimate.mean)
        for method, estimate in estimates.items()
        if estimate is not None and method != REFERENCE
    }
    if len(losses) < 2:
        return set()
    least = metric.written(min(losses.values()))
    return {method for method, loss in losses.items() if metric.written(loss) == least}


def make_cell(
    runs: Runs,
    metric: Metric,
    *,
    best: bool = False,
    paper: str = "",
    seeds: int = 1,
    device: str | None = None,
    settings: bool = True,
    absent: str = "not run",
) -> Cell:
    """The cell for the runs.

    Args:
        runs: of a method on a data set.
        metric: the figure to show.
        best: whether the method is the best of its row.
        paper: the number of the paper.
        seeds: how many are usual in the table; fewer are said in the cell.
        device: the usual one of the table; another is a footnote.
        settings: whether those that are not the defaults are a footnote.
        absent: what to say where there are no runs.
    """
    if not runs.records:
        return Cell(absent, paper)
    estimate = runs.estimate(metric)
    if estimate is None:
        value = _short(_outcome(runs.records[0], metric))
    else:
        std = [] if estimate.std is None else [estimate.std]
        value = metric.written(estimate.mean, *std)
        if estimate.seeds < seeds:
            value += f", {estimate.seeds} seed{'s' if estimate.seeds > 1 else ''}"
    notes = [runs.settings] if settings and runs.settings else []
    return Cell(value, paper, best, (*notes, *_notes(runs, metric, device)))


def _notes(runs: Runs, metric: Metric, device: str | None) -> Iterator[str]:
    if runs.others:
        yield f"run with {' and with '.join(runs.others)}, too, which is not shown"
    figures = runs.figures(metric)
    lacking = {r.seed: _outcome(r, metric) for r in runs.records if r.seed not in figures}
    if figures:
        yield from (f"seed {seed}: {outcome}" for seed, outcome in lacking.items())
    else:  # the cell shows the first
        first, *others = dict.fromkeys(lacking.values())
        yield from others if _short(first) == first else (first, *others)
    for other in sorted({r.device for r in runs.records if r.device} - {device}):
        yield f"on {other}"


def _outcome(record: Record, metric: Metric) -> str:
    """Why there is no figure."""
    if record.status == "ok":
        return "–" if metric.optional else "not finite"
    if record.status == "out of memory" or not record.error:
        return record.status
    return f"{record.status}: {' '.join(record.error.split())}"


def _short(outcome: str) -> str:
    return outcome if len(outcome) <= _SHORT else outcome[: _SHORT - 1].rstrip() + "…"


def _settings(record: Record) -> str:
    return ", ".join(f"{k}={v}" for k, v in record.settings.items())
