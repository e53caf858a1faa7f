"""The table that a model is fitted to: chosen columns, encoded rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softki.cli.console import Console
from softki.cli.errors import UsageError, about
from softki.cli.options import check_named
from softki.cli.targets import numbers_in
from softki.data.arrow import pa
from softki.data.column_kinds import KINDS, categories_of, kind_of
from softki.data.encoding import (
    Encoded,
    Missing,
    TableEncoder,
    missing_message,
    unseen_messages,
)
from softki.data.readers import file_format, read_batches
from softki.data.splits import split_indices
from softki.data.text_hints import stray_text, text_hint
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
        if noise in targets:
            raise UsageError(f"--noise-variance: {noise!r} is a target, it cannot be the noise too")
        for option, chosen in (("--columns", columns), ("--drop", drop)):
            for name in chosen:
                if name in others:
                    raise UsageError(f"{option}: {name!r} is a target or the noise, and no input")
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

    def hints(self, table: Any) -> dict[str, str]:
        """What inputs that are text may have been meant as, and which value is in the way."""
        hints = {}
        for name in self.inputs:
            if kind_of(table[name], name) == "category":
                counts = categories_of(table[name])
                hints[name] = text_hint(counts, self._place(table[name], stray_text(counts)))
        return {name: hint for name, hint in hints.items() if hint}

    def _place(self, column: Any, text: str | None) -> str:
        row = -1 if text is None else column.cast(pa.string()).index(text).as_py()
        if row < 0:
            return ""
        return f" in line {row + 2}" if file_format(self.path) == "csv" else f" in row {row + 1}"


@dataclass(frozen=True, eq=False)
class Rows:
    """Complete rows: encoded inputs `x`, `y` (n, t), and `noise` (n,) where it is known."""

    x: Any
    y: np.ndarray
    noise: np.ndarray | None


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Rows to fit to and rows to test on; the encoder has seen only the former."""

    encoder: TableEncoder
    training: Rows
    test: Rows | None
    dropped: int  # rows that were left out, as something was missing

    @classmethod
    def read(
        cls, choice: ColumnChoice, missing: Missing, console: Console, test: float, seed: int
    ) -> TrainingTable:
        """Read, split and encode; refuse, drop or fill in what is missing, and say so."""
        table = choice.table()
        rows, hints = len(table), choice.hints(table)
        with about(choice.path):
            numbers = numbers_in(table, choice.others)
            known = np.isfinite(numbers).all(1)
            if not known.any():
                raise InvalidInputError("no row has a target")
            if missing != "refuse":  # a target is never filled in
                table, numbers, known = table.filter(pa.array(known)), numbers[known], known[known]
            held_back = _test_rows(len(table), test, seed)
            seen = table.filter(pa.array(~held_back)) if test else table
            encoder = TableEncoder.of(seen.select(choice.inputs), missing, hints)
            if not encoder.columns:
                raise InvalidInputError(
                    "there is one row to fit to, and at least two are needed"
                    if len(seen) == 1
                    else "no column is left that could tell rows apart"
                )
            encoded = encoder.encode(table)
            complete = encoded.complete & known
            if missing == "refuse" and not complete.all():
                counts = dict(
                    zip(choice.others, (~np.isfinite(numbers)).sum(0).tolist(), strict=True)
                )
                message = missing_message(encoded.missing + Counter(counts), int((~complete).sum()))
                raise InvalidInputError(f"{message}: {_HELP}")
            if choice.noise:
                checked_noise(numbers[complete, -1], int(complete.sum()))
        _check_parts(held_back[complete], test)
        _tell(encoder, encoded, hints, console)
        dropped = rows - int(complete.sum())
        if dropped:
            console.note(f"{dropped} of {rows} rows are left out, as values are missing")

        def part(chosen: np.ndarray) -> Rows:
            y, noise = np.split(numbers[chosen], [len(choice.targets)], axis=1)
            return Rows(encoded.table(chosen), y, noise[:, 0] if choice.noise else None)

        tested = part(complete & held_back) if test else None
        return cls(encoder, part(complete & ~held_back), tested, dropped)


def _test_rows(count: int, share: float, seed: int) -> np.ndarray:
    """Which rows are kept from the fit, (count,)."""
    held_back = np.zeros(count, dtype=bool)
    held_back[split_indices(count, seed, 1 - share)[1]] = True
    _check_parts(held_back, share)
    return held_back


def _check_parts(held_back: np.ndarray, share: float) -> None:
    if share and (held_back.all() or not held_back.any()):
        raise UsageError(
            f"--test {share:g} of {len(held_back)} rows leaves none to fit or none to test"
        )


def _tell(
    encoder: TableEncoder, encoded: Encoded, hints: Mapping[str, str], console: Console
) -> None:
    for column in encoder.columns:
        filled = encoded.missing.get(column.name, 0) if encoder.missing == "impute" else 0
        note = f", {filled} missing filled in with {_shown(column.fill)}" if filled else ""
        note += f"; {hints[column.name]}" if column.name in hints else ""
        if column.kind != "number" or filled:
            console.note(f"column {column.name!r}: {column}{note}")
    for name, reason in encoder.left_out.items():
        console.note(f"column {name!r}: left out, it {reason}")
    # All values of training rows are known.
    for message in (*unseen_messages(encoded.unseen), *encoder.changed_messages(encoded.changed)):
        console.warn(f"test rows: {message}")


def _shown(fill: Any) -> str:
    return repr(fill) if isinstance(fill, str) else f"{fill:g}"
