"""How records become a table: wide, with a column a method, or long, with a row a method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from softki.bench.cells import METRICS, Metric, Runs, best_methods, make_cell, shown_runs
from softki.bench.markdown import Cell, Table
from softki.bench.paper import paper_size, paper_value
from softki.bench.record import Record

USUAL_SPLIT = "90/10"

_PAPER_ONLY = {"simplex"}
_IN_PAPER = {"softki_paper": "softki"}  # where it has another name there
_BEST = "the best of these runs on the data set, or equal to it as written, the exact GP apart."


@dataclass(frozen=True)
class Spec:
    """What a table shows: a row a data set, a column a method (and figure, if it has several)."""

    title: str
    data: tuple[str, ...]
    metrics: tuple[str, ...]
    methods: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # methods that have a column if they were run
    paper: str | None = None  # the table of the paper
    split: str = USUAL_SPLIT
    remark: str = ""

    def has(self, record: Record) -> bool:
        """Whether the record belongs into the table."""
        return (
            record.split == self.split
            and record.data.split("/")[0] in self.data  # aspirin/inverse goes with aspirin
            and record.method in (*self.methods, *self.also)
        )


def wide_table(spec: Spec, records: Iterable[Record], missing: Collection[str]) -> Table:
    """A row a data set, a column a method."""
    records = [record for record in records if spec.has(record)]
    usual = _Usual(records)
    run = {record.method for record in records}
    methods = [*spec.methods, *(method for method in spec.also if method in run)]
    metrics = [METRICS[name] for name in spec.metrics]
    several = len(metrics) > 1
    rows = []
    for data in ordered_data(spec.data, records):
        runs = _by_method(record for record in records if record.data == data)
        row = [Cell(data), *_size(data, spec.split, runs)]
        for metric in metrics:
            row += _cells(spec, data, methods, metric, runs, usual, missing)
        rows.append(tuple(row))
    heads = (f"{m} {metric.title}" if several else m for metric in metrics for m in methods)
    return _table(spec, ("data", "n", "d", *heads), rows, records)


def long_table(spec: Spec, records: Iterable[Record], missing: Collection[str]) -> Table:
    """A row a data set and method, a column a figure; methods that were not run share a row."""
    records = list(records)
    usual = _Usual(records)
    metrics = [METRICS[name] for name in spec.metrics]
    rest = len(metrics) - 1
    rows = []
    for data in ordered_data(spec.data, records):
        splits = dict.fromkeys(record.split for record in records if record.data == data)
        for split in splits or (USUAL_SPLIT,):
            alike = [record for record in records if record.split == split]
            runs = _by_method(record for record in alike if record.data == data)
            name = data if split == USUAL_SPLIT else f"{data} ({split})"
            size = (Cell(name), *_size(data, split, runs))
            for method, cells in _figures(metrics, runs, usual):
                rows.append((*size, Cell(method), *cells))
            others = sorted({record.method for record in alike} - set(runs))
            if others or not runs:
                names = ", ".join(others) if runs else "all"
                rows.append((*size, Cell(names), Cell(_absent(data, missing)), *[Cell("–")] * rest))
    head = ("data", "n", "d", "method", *(metric.title for metric in metrics))
    return _table(spec, head, rows, records)


def ordered_data(names: Sequence[str], records: Iterable[Record]) -> list[str]:
    """The names, each followed by its variants that were run; then whatever else was run."""
    run = dict.fromkeys(record.data for record in records)
    known = [n for name in names for n in (name, *(v for v in run if v.startswith(f"{name}/")))]
    return list(dict.fromkeys([*known, *run]))


class _Usual:
    """The number of seeds and the device that need not be said in every cell."""

    def __init__(self, records: Sequence[Record]) -> None:
        cells = Counter(record.key._replace(seed=0) for record in records if record.status == "ok")
        self.seeds = max(cells.values(), default=0)
        devices = Counter(record.device for record in records if record.device)
        self.device = devices.most_common(1)[0][0] if devices else None


def _by_method(records: Iterable[Record]) -> dict[str, Runs]:
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.method, []).append(record)
    return {method: shown_runs(group) for method, group in grouped.items()}


def _cells(
    spec: Spec,
    data: str,
    methods: Sequence[str],
    metric: Metric,
    runs: Mapping[str, Runs],
    usual: _Usual,
    missing: Collection[str],
) -> Iterator[Cell]:
    """One figure of every method on a data set."""
    best = best_methods({method: runs[method].estimate(metric) for method in runs}, metric)
    for method in methods:
        value = spec.paper and paper_value(
            spec.paper, data, _IN_PAPER.get(method, method), metric.field
        )
        yield make_cell(
            runs.get(method, Runs()),
            metric,
            best=method in best,
            paper=str(value or ""),
            seeds=usual.seeds,
            device=usual.device,
            absent="" if method in _PAPER_ONLY else _absent(data, missing if not runs else ()),
        )


def _figures(
    metrics: Sequence[Metric], runs: Mapping[str, Runs], usual: _Usual
) -> Iterator[tuple[str, list[Cell]]]:
    """All figures of every method on a data set; settings and failures are said at the first."""
    first, *others = metrics
    best = best_methods({method: runs[method].estimate(first) for method in runs}, first)
    for method, those in runs.items():
        cell = make_cell(those, first, best=method in best, seeds=usual.seeds, device=usual.device)
        estimates = ((metric, those.estimate(metric)) for metric in others)
        rest = (Cell(m.written(e.mean) if e is not None else "–") for m, e in estimates)
        yield method, [cell, *rest]


def _size(data: str, split: str, runs: Mapping[str, Runs]) -> list[Cell]:
    """Training rows and columns; from the paper where there is no run that says them."""
    for record in (record for those in runs.values() for record in those.records):
        if record.rows is not None and record.columns is not None:
            return [Cell(f"{record.rows:,}"), Cell(str(record.columns))]
    n, d = paper_size(data) or (None, None)
    known = n is not None and split == USUAL_SPLIT
    return [Cell(f"{n:,}" if known else "–"), Cell("–" if d is None else str(d))]


def _absent(data: str, missing: Collection[str]) -> str:
    return "no data here" if data in missing else "not run"


def _table(
    spec: Spec, header: tuple[str, ...], rows: list[tuple[Cell, ...]], records: Sequence[Record]
) -> Table:
    remarks = tuple(line for line in (*_remarks(spec, records), spec.remark) if line)
    return Table(spec.title, header, rows, remarks, _BEST, right={1, 2})


def _remarks(spec: Spec, records: Sequence[Record]) -> Iterator[str]:
    """How many seeds, on what device, with which versions."""
    paper = "in parentheses, the paper's numbers." if spec.paper else ""
    seeds = _Usual(records).seeds
    if seeds > 1:
        start = f"Mean ± standard deviation over {seeds} seeds, or as many as the cell says"
    else:
        none = "No run has figures" if records else "No runs here"
        start = "One seed" if seeds else none
    yield f"{start}; {paper}" if paper else f"{start}."
    devices = dict.fromkeys(record.device for record in records if record.device)
    if devices:
        yield f"Device{'s' if len(devices) > 1 else ''}: {', '.join(devices)}."
    versions: dict[str, dict[str, None]] = {}
    for record in records:
        for package, version in record.versions.items():
            versions.setdefault(package, {})[version] = None
    if versions:
        named = (f"{package} {' and '.join(those)}" for package, those in versions.items())
        yield f"Versions: {', '.join(named)}."
