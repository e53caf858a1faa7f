"""How records become a table: wide, with a column a method, or long, with a row a method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from softki.bench.cells import METRICS, Metric, Runs, best_methods, make_cell, shown_runs
from softki.bench.markdown import Cell, Table
from softki.bench.paper import paper_value
from softki.bench.record import Record
from softki.bench.registry import REGISTRY
from softki.bench.remarks import origin, settings_by_method, spread
from softki.bench.splits import SPLITS, USUAL_SPLIT, training_rows

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
    settings_below: bool = False  # said once a method, not at every cell
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
    rows: list[tuple[Cell, ...]] = []
    shown: list[tuple[str, Runs]] = []
    for data in ordered_data(spec.data, records):
        runs = by_method(record for record in records if record.data == data)
        row = [Cell(data), *size_cells(data, spec.split, runs)]
        for metric in metrics:
            row += _cells(spec, data, methods, metric, runs, usual, missing)
        rows.append(tuple(row))
        shown += runs.items()
    heads = (f"{m} {metric.title}" if several else m for metric in metrics for m in methods)
    settings = settings_by_method(shown) if spec.settings_below else ""
    remarks = (*usual.remarks(records, paper=spec.paper is not None), settings)
    return described(spec, ("data", "n", "d", *heads), rows, remarks)


def long_table(spec: Spec, records: Iterable[Record], missing: Collection[str]) -> Table:
    """A row a data set and method, a column a figure; methods that were not run share a row."""
    records = list(records)
    usual = _Usual(records)
    metrics = [METRICS[name] for name in spec.metrics]
    rest = len(metrics) - 1
    rows = []
    for data in ordered_data(spec.data, records):
        for split, name in named_splits(data, records).items():
            alike = [record for record in records if record.split == split]
            runs = by_method(record for record in alike if record.data == data)
            size = (Cell(name), *size_cells(data, split, runs))
            for method, cells in _figures(metrics, runs, usual):
                rows.append((*size, Cell(method), *cells))
            others = sorted({record.method for record in alike} - set(runs))
            if others or not runs:
                names = ", ".join(others) if runs else "all"
                rows.append((*size, Cell(names), Cell(_absent(data, missing)), *[Cell("–")] * rest))
    head = ("data", "n", "d", "method", *(metric.title for metric in metrics))
    return described(spec, head, rows, usual.remarks(records, paper=False))


def described(
    spec: Spec, header: tuple[str, ...], rows: list[tuple[Cell, ...]], remarks: Iterable[str]
) -> Table:
    """The rows, whose second and third columns are n and d, with all remarks below."""
    said = tuple(line for line in (*remarks, spec.remark) if line)
    return Table(spec.title, header, rows, said, _BEST, right={1, 2})


def ordered_data(names: Sequence[str], records: Iterable[Record]) -> list[str]:
    """The names, each followed by its variants that were run; then whatever else was run."""
    run = dict.fromkeys(record.data for record in records)
    known = [n for name in names for n in (name, *(v for v in run if v.startswith(f"{name}/")))]
    return list(dict.fromkeys([*known, *run]))


def named_splits(data: str, records: Iterable[Record]) -> dict[str, str]:
    """The splits of a data set that were run, the usual one if none was, with names for rows.

    Example:
        >>> named_splits(
        ...     "pol", [Record("pol", "svgp", 0, "4/9"), Record("pol", "svgp", 0, "90/10")]
        ... )
        {'4/9': 'pol (4/9)', '90/10': 'pol'}
    """
    splits = dict.fromkeys(record.split for record in records if record.data == data)
    return {
        split: data if split == USUAL_SPLIT else f"{data} ({split})"
        for split in splits or (USUAL_SPLIT,)
    }


def by_method(records: Iterable[Record]) -> dict[str, Runs]:
    """The runs that are shown of every method, of all runs on a data set."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.method, []).append(record)
    return {method: shown_runs(group) for method, group in grouped.items()}


def size_cells(data: str, split: str, runs: Mapping[str, Runs]) -> list[Cell]:
    """Training rows and columns; from the registry where there is no run that says them."""
    for record in (record for those in runs.values() for record in those.records):
        if record.rows is not None and record.columns is not None:
            return [Cell(f"{record.rows:,}"), Cell(f"{record.columns:,}")]
    if data not in REGISTRY or split not in SPLITS:
        return [Cell("–"), Cell("–")]
    dataset = REGISTRY[data]
    return [Cell(f"{training_rows(split, dataset.rows):,}"), Cell(f"{dataset.columns:,}")]


class _Usual:
    """The number of seeds and the device that need not be said in every cell."""

    def __init__(self, records: Sequence[Record]) -> None:
        cells = Counter(record.key._replace(seed=0) for record in records if record.status == "ok")
        self.seeds = max(cells.values(), default=0)
        devices = Counter(record.device for record in records if record.device)
        self.device = devices.most_common(1)[0][0] if devices else None

    def remarks(self, records: Sequence[Record], paper: bool) -> tuple[str, ...]:
        """How many seeds, on what device, with which versions."""
        return (spread(self.seeds, bool(records), paper), *origin(records))


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
            settings=not spec.settings_below,
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


def _absent(data: str, missing: Collection[str]) -> str:
    return "no data here" if data in missing else "not run"
