"""A table to fit to that is read into memory: split, encoded, and tested on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from softki.cli.columns import (
    MISSING_HELP,
    NO_COLUMN,
    ONE_ROW,
    ColumnChoice,
    check_parts,
    tell_columns,
    tell_dropped,
    tell_test_rows,
)
from softki.cli.console import Console
from softki.cli.options import about
from softki.cli.scoring import Scores, numbers_in, observed_moments
from softki.data.arrow import pa
from softki.data.datasets import split_indices
from softki.data.encoding import Missing, TableEncoder, missing_message
from softki.data.readers import Batches
from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import InvalidInputError
from softki.validation.inputs import check_noise


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
        cls,
        choice: ColumnChoice,
        reader: Batches,
        missing: Missing,
        console: Console,
        test: float,
        seed: int,
    ) -> TrainingTable:
        """Read, split and encode; refuse, drop or fill in what is missing, and say so."""
        table = reader.table()
        rows, hints = len(table), choice.hints(table, reader)
        with about(choice.data):
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
                raise InvalidInputError(ONE_ROW if len(seen) == 1 else NO_COLUMN)
            encoded = encoder.encode(table)
            complete = encoded.complete & known
            if missing == "refuse" and not complete.all():
                counts = dict(
                    zip(choice.others, (~np.isfinite(numbers)).sum(0).tolist(), strict=True)
                )
                message = missing_message(encoded.missing + Counter(counts), int((~complete).sum()))
                raise InvalidInputError(f"{message}: {MISSING_HELP}")
            if choice.noise:
                check_noise(numbers[complete, -1])
        check_parts(*_both(held_back[complete]), test)
        tell_columns(encoder, encoded.missing, hints, console)
        tell_test_rows(encoder, encoded.unseen, encoded.changed, console)
        dropped = rows - int(complete.sum())
        tell_dropped(dropped, rows, console)

        def part(chosen: np.ndarray) -> Rows:
            y, noise = np.split(numbers[chosen], [len(choice.targets)], axis=1)
            return Rows(encoded.table(chosen), y, noise[:, 0] if choice.noise else None)

        tested = part(complete & held_back) if test else None
        return cls(encoder, part(complete & ~held_back), tested, dropped)

    @property
    def for_fit(self) -> tuple[Any, ...]:
        """What the estimator is fitted to."""
        y = self.training.y
        return self.training.x, y[:, 0] if y.shape[1] == 1 else y, self.training.noise

    def tested(self, estimator: SoftKIRegressor) -> list[dict[str, Any]] | None:
        """The figures of the fitted estimator on test rows, a target each."""
        test = self.test
        if test is None:
            return None
        count, targets = test.y.shape
        relative = np.ones(count) if test.noise is None else test.noise / estimator.noise_unit_
        scores = Scores(targets)
        scores.add(test.y, *observed_moments(estimator, test.x, relative))
        return [{"rows": count, **figures} for figures in scores.figures()]


def _test_rows(count: int, share: float, seed: int) -> np.ndarray:
    """Which rows are kept from the fit, (count,)."""
    held_back = np.zeros(count, dtype=bool)
    held_back[split_indices(count, seed, 1 - share)[1]] = True
    check_parts(*_both(held_back), share)
    return held_back


def _both(held_back: np.ndarray) -> tuple[int, int]:
    """How many rows are fitted to, and how many are kept from the fit."""
    return int((~held_back).sum()), int(held_back.sum())
