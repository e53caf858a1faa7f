"""What is said about columns and rows while a table is made ready for a fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from softki.cli.console import Console
from softki.cli.errors import UsageError
from softki.data.encoding import TableEncoder, unseen_messages

MISSING_HELP = (
    "--missing drop leaves such rows out, --missing impute fills in inputs with medians and most "
    "frequent categories"
)
ONE_ROW = "there is one row to fit to, and at least two are needed"
NO_COLUMN = "no column is left that could tell rows apart"


def tell_columns(
    encoder: TableEncoder, missing: Mapping[str, int], hints: Mapping[str, str], console: Console
) -> None:
    """Say what becomes of columns that are no plain numbers, or were filled in or left out."""
    for column in encoder.columns:
        filled = missing.get(column.name, 0) if encoder.missing == "impute" else 0
        note = f", {filled} missing filled in with {_shown(column.fill)}" if filled else ""
        note += f"; {hints[column.name]}" if column.name in hints else ""
        if column.kind != "number" or filled:
            console.note(f"column {column.name!r}: {column}{note}")
    for name, reason in encoder.left_out.items():
        console.note(f"column {name!r}: left out, it {reason}")


def tell_test_rows(
    encoder: TableEncoder,
    unseen: Mapping[str, Counter[str]],
    changed: Mapping[str, int],
    console: Console,
) -> None:
    """Warn of what only test rows have: all values of training rows are known."""
    for message in (*unseen_messages(unseen), *encoder.changed_messages(changed)):
        console.warn(f"test rows: {message}")


def tell_dropped(dropped: int, rows: int, console: Console) -> None:
    """Say how many rows are left out."""
    if dropped:
        console.note(f"{dropped} of {rows} rows are left out, as values are missing")


def check_parts(training: int, tested: int, share: float) -> None:
    """Wrong usage if the share of test rows leaves none of either."""
    if share and not (training and tested):
        raise UsageError(
            f"--test {share:g} of {training + tested} rows leaves none to fit or none to test"
        )


def _shown(fill: Any) -> str:
    return repr(fill) if isinstance(fill, str) else f"{fill:g}"
