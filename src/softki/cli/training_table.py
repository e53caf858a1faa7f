"""The table that a model is fitted to: chosen columns, encoded rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softki.cli.console import Console
from softki.cli.errors import UsageError, about
from softki.cli.options import check_named
from softki.cli.targets import target_numbers
from softki.data.arrow import pa
from softki.data.column_kinds import KINDS
from softki.data.encoding import Encoded, Missing, TableEncoder, missing_message
from softki.data.readers import read_batches
from softki.exceptions import InvalidInputError
from softki.inputs import checked_noise

_HELP = (
    "--missing drop leaves such rows out, --missing impute fills in inputs with medians and most "
    "frequent categories"
)


@dataclass(frozen=True)
class ColumnChoice:
    """Which columns of a file are what."""

    path: Path
    inputs: list[str]
    targets: list[str]
    noise: str | None

    @classmethod
    def of(
        cls,
        path: Path,
        targets: Sequence[str],
        columns: Sequence[str],
        drop: Sequence[str],
        noise: str | None,
    ) -> ColumnChoice:
        """Check the names against those of the file."""
        if columns and drop:
            raise UsageError("--columns and --drop exclude each other")
        names = read_batches(path).names
        others = [*targets, *([noise] if noise else [])]
        for option, chosen in (
            ("--target", targets),
            ("--columns", columns),
            ("--drop", drop),
            ("--noise-variance", [noise] if noise else []),
        ):
            check_named(option, chosen, names, path)
        for name in (*columns, *drop):
            if name in others:
                raise UsageError(
                    f"{name!r} is a target or the noise: it cannot be an input as well"
                )
        inputs = [name for name in columns or names if name not in (*others, *drop)]
        if not inputs:
            raise UsageError(f"{path} has no columns left as inputs")
        return cls(path, inputs, list(targets), noise)

    @property
    def others(self) -> list[str]:
        """The columns that are no inputs: targets, then noise."""
        return [*self.targets, *([self.noise] if self.noise else [])]

    def table(self) -> Any:
        """The chosen columns, all rows."""
        types = dict.fromkeys(self.others, KINDS["number"].csv_types)
        return read_batches(self.path, [*self.inputs, *self.others], types).table()


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Rows for a fit; `x` is encoded, `y` (n, t) and `noise` (n,) are numbers."""

    encoder: TableEncoder
    encoded: Encoded
    y: np.ndarray
    noise: np.ndarray | None
    dropped: int  # rows that were left out, as something was missing

    @classmethod
    def read(cls, choice: ColumnChoice, missing: Missing, console: Console) -> TrainingTable:
        """Read and encode; refuse, drop or fill in what is missing, and say so."""
        table = choice.table()
        rows = len(table)
        with about(choice.path):
            numbers = target_numbers(table, choice.others)
            known = np.isfinite(numbers).all(1)
            if not known.any():
                raise InvalidInputError("no row has a target")
            if missing != "refuse":  # a target is never filled in
                table, numbers, known = table.filter(pa.array(known)), numbers[known], known[known]
            encoder = TableEncoder.of(table.select(choice.inputs), missing)
            if not encoder.columns:
                raise InvalidInputError("no column is left that could tell rows apart")
            encoded = encoder.encode(table)
            complete = encoded.complete & known
            if missing == "refuse" and not complete.all():
                counts = zip(choice.others, (~np.isfinite(numbers)).sum(0).tolist(), strict=True)
                lacking = encoded.missing + Counter(dict(counts))
                message = missing_message(lacking, int((~complete).sum()))
                raise InvalidInputError(f"{message}: {_HELP}")
            y, noise = np.split(numbers[complete], [len(choice.targets)], axis=1)
            if choice.noise:
                checked_noise(noise[:, 0], len(noise))
        _tell(encoder, encoded, console)
        dropped = rows - int(complete.sum())
        if dropped:
            console.note(f"{dropped} of {rows} rows are left out, as values are missing")
        return cls(encoder, encoded, y, noise[:, 0] if choice.noise else None, dropped)

    def __len__(self) -> int:
        return len(self.y)

    def x(self, rows: np.ndarray | None = None) -> Any:
        """The inputs of all complete rows, or of some of them, by index."""
        if rows is None:
            return self.encoded.table()
        chosen = np.zeros(len(self.encoded.complete), dtype=bool)
        chosen[np.flatnonzero(self.encoded.complete)[rows]] = True
        return self.encoded.table(chosen)


def _tell(encoder: TableEncoder, encoded: Encoded, console: Console) -> None:
    for column in encoder.columns:
        filled = encoded.missing.get(column.name, 0) if encoder.missing == "impute" else 0
        note = f", {filled} missing filled in with {_shown(column.fill)}" if filled else ""
        if column.kind != "number" or filled:
            console.note(f"column {column.name!r}: {column}{note}")
    for name, reason in encoder.left_out.items():
        console.note(f"column {name!r}: left out, it {reason}")


def _shown(fill: Any) -> str:
    return repr(fill) if isinstance(fill, str) else f"{fill:g}"
