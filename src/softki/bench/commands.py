"""The commands of the benchmark: run, table, figure, list, download."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softki.bench.datasets import data_folder, fetch, is_available
from softki.bench.figures import FIGURES, make_figure
from softki.bench.methods import METHODS
from softki.bench.record import Record
from softki.bench.registry import REGISTRY, select
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
    methods = list(METHODS) if arguments.methods == "all" else arguments.methods.split(",")
    for method in methods:
        check_choice("method", method, METHODS)
    plan = Plan(
        data=select(arguments.data),
        methods=methods,
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
        print(f"{dataset.name}: no data here (softki bench download {dataset.name})")
    present = [dataset for dataset in plan.data if dataset not in missing]
    plan = Plan(**{**vars(plan), "data": present})
    failed = 0
    for record in run_all(plan, Results(arguments.results), arguments.force):
        print(_line(record), flush=True)
        failed += record.status != "ok"
    if failed:
        print(f"{failed} runs have no figures: the reasons are in {arguments.results}")
    return 0


def table(arguments: argparse.Namespace) -> int:
    """Print a table, beside the paper's numbers."""
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
    for dataset in select(arguments.data):
        if is_available(dataset, arguments.folder):
            print(f"{dataset.name}: already there")
            continue
        print(f"{dataset.name}: {fetch(dataset, arguments.folder)}")
    return 0


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
    command.add_argument("--seeds", type=int, default=1, help="how many splits, from seed 0")
    command.add_argument("--split", choices=SPLITS, default="90/10")
    command.add_argument("--limit", type=float, help="seconds a run, at most")
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
