"""The arguments of the benchmark's commands."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from softki.bench.figures import FIGURES
from softki.bench.methods import METHODS
from softki.bench.splits import SPLITS, USUAL_SPLIT
from softki.bench.tables import TABLES

_RESULTS = Path("softki-bench.jsonl")
_SETS = "names and groups: uci,aspirin"


def make_parser(program: str) -> argparse.ArgumentParser:
    """The parser; what it gives has the name of the command as `command`.

    Example:
        >>> arguments = make_parser("softki bench").parse_args(["run", "--data", "pol"])
        >>> arguments.command, arguments.methods, arguments.seeds
        ('run', ['softki'], 1)
    """
    parser = argparse.ArgumentParser(prog=program, description="The paper's experiments.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    results = argparse.ArgumentParser(add_help=False)
    results.add_argument("--results", type=Path, default=_RESULTS, help="JSON lines, one a run")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--folder", type=Path, help="of the data; $SOFTKI_DATA unless given")
    device = argparse.ArgumentParser(add_help=False)
    device.add_argument("--device", default="auto")
    device.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting, such as epochs=5",
    )

    command = commands.add_parser(
        "run",
        parents=[results, folder, device],
        help="Do the runs that the results file does not have yet.",
    )
    command.add_argument("--data", required=True, help=_SETS)
    command.add_argument("--methods", type=_methods, default="softki", help="names, or all")
    command.add_argument("--seeds", type=_count, default=1, help="how many splits, from seed 0")
    command.add_argument("--split", choices=SPLITS, default=USUAL_SPLIT)
    command.add_argument("--limit", type=_seconds, help="seconds a run, at most")
    command.add_argument("--force", action="store_true", help="also what has been run")
    command.add_argument("--download", action="store_true", help="data that is not here")

    command = commands.add_parser(
        "table", parents=[results, folder], help="Print a table, beside the paper's numbers."
    )
    command.add_argument("name", help=", ".join(TABLES))
    command.add_argument("--text", action="store_true", help="for a terminal, not in Markdown")
    command.add_argument("-o", "--output", type=Path)

    command = commands.add_parser(
        "figure", parents=[results, folder, device], help="Make a figure and the data behind it."
    )
    command.add_argument("name", help=", ".join(FIGURES))
    command.add_argument("-o", "--output", type=Path, default=Path(), help="a folder")
    command.add_argument("--data", type=Path, help="draw this data again")
    command.add_argument("--seed", type=int, default=0)

    commands.add_parser(
        "list", parents=[folder], help="List data sets, methods, tables and figures."
    )

    command = commands.add_parser(
        "download", parents=[folder], help="Download data sets into the data folder."
    )
    command.add_argument("data", help=_SETS)
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


def _setting(text: str) -> tuple[str, Any]:
    """Name and value, which is JSON or else a word."""
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
