"""The commands of the benchmark: run, table, figure, list, download."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path

from softki.bench.datasets import Observations, data_folder, fetch, is_available, load
from softki.bench.download import Progress
from softki.bench.figures import FIGURES, make_figure
from softki.bench.methods import METHODS
from softki.bench.parser import make_parser
from softki.bench.record import Record
from softki.bench.registry import REGISTRY, DataSet, select
from softki.bench.results import Results
from softki.bench.runner import Plan, run_all
from softki.bench.tables import TABLES, make_table
from softki.exceptions import InvalidInputError, SoftKIError
from softki.validation.inputs import checked_device
from softki.validation.parameters import check_choice


def main(arguments: Sequence[str], program: str = "python -m softki.bench") -> int:
    """Run a command; the exit code."""
    parsed = make_parser(program).parse_args(arguments)
    try:
        return _COMMANDS[parsed.command](parsed)
    except (SoftKIError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: what is done is kept, the same command goes on", file=sys.stderr)
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Do the runs that the results file does not have yet."""
    plan = Plan(
        data=select(arguments.data),
        methods=arguments.methods,
        seeds=range(arguments.seeds),
        split=arguments.split,
        settings=dict(arguments.set),
        device=str(checked_device(arguments.device)),
        limit=arguments.limit,
        folder=arguments.folder,
        download=arguments.download,
    )
    missing = [d for d in plan.data if not (plan.download or is_available(d, plan.folder))]
    for dataset in missing:
        means = f"softki bench download {dataset.name}" if dataset.url else dataset.source
        print(f"{dataset.name}: no data here ({means})")
    plan = replace(plan, data=[dataset for dataset in plan.data if dataset not in missing])
    unread: list[str] = []

    def read(dataset: DataSet) -> Observations | None:
        try:
            if plan.download and not is_available(dataset, plan.folder):
                _download(dataset, plan.folder)
            return load(dataset, plan.folder)
        except (SoftKIError, OSError) as error:
            _complain(dataset, error)
            unread.append(dataset.name)
            return None

    done = failed = 0
    for record in run_all(plan, Results(arguments.results), arguments.force, read):
        print(_line(record), flush=True)
        done, failed = done + 1, failed + (record.status != "ok")
    runs = sum(len(plan.runs_on(dataset)) for dataset in plan.data)
    if failed:
        print(f"{failed} runs have no figures: the reasons are in {arguments.results}")
    elif runs and not done and not unread:
        print(f"all {runs} runs are in {arguments.results} (--force runs them again)")
    return 1 if unread or not plan.data else 0


def table(arguments: argparse.Namespace) -> int:
    """Print a table, beside the paper's numbers."""
    check_choice("table", arguments.name, TABLES)
    _check_exists(arguments.results)
    missing = [name for name in REGISTRY if not is_available(name, arguments.folder)]
    made = make_table(arguments.name, Results(arguments.results), missing)
    text = made.text() if arguments.text else made.markdown()
    if arguments.output is None:
        print(text)
    else:
        arguments.output.write_text(text + "\n")
    return 0


def figure(arguments: argparse.Namespace) -> int:
    """Make a figure and the data behind it."""
    check_choice("figure", arguments.name, FIGURES)
    if (
        arguments.data is None
        and "results" in signature(FIGURES[arguments.name].compute).parameters
    ):
        _check_exists(arguments.results)
    paths = make_figure(
        arguments.name,
        arguments.output,
        device=str(checked_device(arguments.device)),
        seed=arguments.seed,
        results=arguments.results,
        data=arguments.data,
        data_folder=arguments.folder,
        **dict(arguments.set),
    )
    for path in paths:
        print(path)
    return 0


def show(arguments: argparse.Namespace) -> int:
    """List data sets, methods, tables and figures."""
    folder = arguments.folder or data_folder()
    print(f"data sets in {folder}:")
    for dataset in REGISTRY.values():
        here = "" if is_available(dataset, arguments.folder) else "  (no data here)"
        size = f"{dataset.rows:>9,} × {dataset.columns:<5}"
        print(f"  {dataset.name:26} {dataset.group:16} {size} {dataset.target}{here}")
    for what, names in (("methods", METHODS), ("tables", TABLES), ("figures", FIGURES)):
        print(f"{what}: {', '.join(names)}")
    return 0


def download(arguments: argparse.Namespace) -> int:
    """Download data sets into the data folder."""
    code = 0
    for dataset in select(arguments.data):
        if is_available(dataset, arguments.folder):
            print(f"{dataset.name}: already there")
            continue
        try:
            print(f"{dataset.name}: {_download(dataset, arguments.folder)}")
        except (SoftKIError, OSError) as error:
            _complain(dataset, error)
            code = 1
    return code


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "table": table,
    "figure": figure,
    "list": show,
    "download": download,
}


def _download(dataset: DataSet, folder: Path | None) -> Path:
    with _bar(dataset.name) as progress:
        return fetch(dataset, folder, progress)


@contextmanager
def _bar(name: str) -> Iterator[Progress | None]:
    """A bar for a download, where somebody may be looking."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=name, unit="B", unit_scale=True, unit_divisor=1024) as bar:

        def show(have: int, total: int | None) -> None:
            bar.total = total
            bar.update(have - bar.n)

        yield show


def _complain(dataset: DataSet, error: Exception) -> None:
    print(f"{dataset.name}: {error}", file=sys.stderr, flush=True)


def _check_exists(results: Path) -> None:
    if not results.exists():
        raise InvalidInputError(
            f"there is no results file {results}: `softki bench run` makes one, or pass another "
            "with --results"
        )


def _line(record: Record) -> str:
    start = f"{record.data:26} {record.method:22} seed {record.seed}"
    if record.status != "ok":
        return f"{start}  {record.status}: {record.error}"
    return (
        f"{start}  RMSE {record.rmse:.4f}  NLL {record.nll:7.3f}  covers {record.coverage:.3f}  "
        f"{record.fit_seconds:7.1f} s"
    )
