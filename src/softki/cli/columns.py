"""The choice among the columns of a table, and messages about those that are not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softki.cli.console import Console
from softki.cli.options import UsageError, check_named
from softki.data.column_kinds import KINDS
from softki.data.encoding import TableEncoder, unseen_messages
from softki.data.file_sets import FileSet, TableReader

_ADVICE = "mend it, or leave the column out (--drop)"


@dataclass(frozen=True)
class ColumnChoice:
    """Inputs, targets and noise among the columns of a table."""

    data: FileSet
    inputs: list[str]
    targets: list[str]
    noise: str | None

    @classmethod
    def of(
        cls,
        data: FileSet,
        targets: Sequence[str],
        columns: Sequence[str],
        drop: Sequence[str],
        noise: str | None,
    ) -> ColumnChoice:
        """Check the names against those of the files."""
        if columns and drop:
            raise UsageError("--columns and --drop exclude each other")
        others = [*targets, *([noise] if noise else [])]
        for option, chosen in (
            ("--target", targets),
            ("--columns", columns),
            ("--drop", drop),
            ("--noise-variance", [noise] if noise else []),
        ):
            check_named(option, chosen, data)
        if noise in targets:
            raise UsageError(f"--noise-variance: {noise!r} is a target, it cannot be the noise too")
        for option, chosen in (("--columns", columns), ("--drop", drop)):
            for name in chosen:
                if name in others:
                    raise UsageError(f"{option}: {name!r} is a target or the noise, and no input")
        inputs = [name for name in columns or data.names if name not in (*others, *drop)]
        if not inputs:
            raise UsageError(f"{data} has no columns left as inputs")
        return cls(data, inputs, list(targets), noise)

    @property
    def others(self) -> list[str]:
        """The columns that are no inputs: targets, then noise."""
        return [*self.targets, *([self.noise] if self.noise else [])]

    def reader(self) -> TableReader:
        """A reader of the chosen columns; in CSV files, targets and noise are numbers."""
        types = dict.fromkeys(self.others, KINDS["number"].csv_types)
        return self.data.read([*self.inputs, *self.others], types, _ADVICE)


MISSING_HELP = (
    "--missing drop leaves such rows out, --missing impute fills in inputs with medians and most "
    "frequent categories"
)
ONE_ROW = "there is one row to fit to, and at least two are needed"
NO_COLUMN = "no column is left that could tell rows apart"


def tell_columns(
    encoder: TableEncoder, missing: Mapping[str, int], hints: Mapping[str, str], console: Console
) -> None:
    """Note the encoding of columns that are no plain numbers, or were filled in or left out."""
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
    """Note the number of rows that are left out."""
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
