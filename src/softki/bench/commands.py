"""The commands of the benchmark: run, table, figure, list, download."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from softki.bench.datasets import Table, data_folder, fetch, is_available, load
from softki.bench.download import Progress
from softki.bench.figures import FIGURES, make_figure
from softki.bench.methods import METHODS
from softki.bench.record import Record
from softki.bench.registry import REGISTRY, DataSet, select
from softki.bench.results import Results
from softki.bench.runner import SPLITS, Plan, run_all
from softki.bench.tables import TABLES, make_table
from softki.checks import check_choice
from softki.exceptions import InvalidInputError, SoftKIError
from softki.inputs import checked_device

_RESULTS = Path("softki-bench.jsonl")


def main(arguments: Sequence[str], program: str = "python -m softki.bench") -> int:
    """Run a command; the exit code."""
    parsed = _parser(program).parse_args(arguments)
    try:
        result: int = parsed.command(parsed)
    except (SoftKIError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: what is done is kept, the same command goes on", file=sys.stderr)
        return 130
    return result


def run(arguments: argparse.Namespace) -> int:
    """Do the runs that the results file does not have yet."""
    plan = Plan(
        data=select(arguments.data),
        methods=_methods(arguments.methods),
        seeds=range(arguments.seeds),
        split=arguments.split,
        settings=dict(map(_setting, arguments.set)),
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

    def read(dataset: DataSet) -> Table | None:
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
    missing = [name for name, dataset in REGISTRY.items() if not is_available(dataset)]
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
        **dict(map(_setting, arguments.set)),
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
        print(f"  {dataset.name:22} {dataset.group:16} {size} {dataset.target}{here}")
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


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description="The paper's experiments.")
    commands = parser.add_subparsers(required=True, metavar="command")
    results = argparse.ArgumentParser(add_help=False)
    results.add_argument("--results", type=Path, default=_RESULTS, help="JSON lines, one a run")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--folder", type=Path, help="of the data; $SOFTKI_DATA unless given")
    device = argparse.ArgumentParser(add_help=False)
    device.add_argument("--device", default="auto")
    device.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting, such as epochs=5",
    )

    command = commands.add_parser("run", parents=[results, folder, device], help=run.__doc__)
    command.add_argument("--data", required=True, help="names and groups: uci,aspirin")
    command.add_argument("--methods", default="softki", help="names, or all")
    command.add_argument("--seeds", type=_count, default=1, help="how many splits, from seed 0")
    command.add_argument("--split", choices=SPLITS, default="90/10")
    command.add_argument("--limit", type=_seconds, help="seconds a run, at most")
    command.add_argument("--force", action="store_true", help="also what has been run")
    command.add_argument("--download", action="store_true", help="data that is not here")
    command.set_defaults(command=run)

    command = commands.add_parser("table", parents=[results], help=table.__doc__)
    command.add_argument("name", help=", ".join(TABLES))
    command.add_argument("--text", action="store_true", help="for a terminal, not in Markdown")
    command.add_argument("-o", "--output", type=Path)
    command.set_defaults(command=table)

    command = commands.add_parser("figure", parents=[results, device], help=figure.__doc__)
    command.add_argument("name", help=", ".join(FIGURES))
    command.add_argument("-o", "--output", type=Path, default=Path(), help="a folder")
    command.add_argument("--data", type=Path, help="draw this data again")
    command.add_argument("--seed", type=int, default=0)
    command.set_defaults(command=figure)

    command = commands.add_parser("list", parents=[folder], help=show.__doc__)
    command.set_defaults(command=show)

    command = commands.add_parser("download", parents=[folder], help=download.__doc__)
    command.add_argument("data", help="names and groups: uci,aspirin")
    command.set_defaults(command=download)
    return parser


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number above 0, got {text!r}")
    return seconds


def _methods(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    return list(METHODS) if names == ["all"] else list(dict.fromkeys(names))


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


def _setting(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not found:
        raise InvalidInputError(f"--set wants NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _line(record: Record) -> str:
    start = f"{record.data:26} {record.method:22} seed {record.seed}"
    if record.status != "ok":
        return f"{start}  {record.status}: {record.error}"
    return (
        f"{start}  RMSE {record.rmse:.4f}  NLL {record.nll:7.3f}  covers {record.coverage:.3f}  "
        f"{record.fit_seconds:7.1f} s"
    )
