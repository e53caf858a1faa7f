"""The numbers in the tables of the paper, to stand beside those measured here."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class PaperValue(NamedTuple):
    """A number of the paper, or a note that says why it has none."""

    mean: float | None
    std: float | None
    note: str = ""

    def __str__(self) -> str:
        if self.mean is None:
            return self.note
        return f"{self.mean:.3f}" if self.std is None else f"{self.mean:.3f} ± {self.std:.3f}"


def paper_value(table: str, data: str, method: str, metric: str) -> PaperValue | None:
    """What a table of the paper says of a method on a data set, if it has such a cell.

    Args:
        table: `uci`, `md22`, `objective`, `sgpr_qr`, `ski` or `ricker`.
        data: name of the data set.
        method: `exact`, `softki`, `sgpr`, …
        metric: `rmse`, `nll` or `seconds_per_epoch`.

    Example:
        >>> paper_value("uci", "pol", "softki", "rmse")
        PaperValue(mean=0.075, std=0.002, note='')
        >>> str(paper_value("uci", "song", "exact", "rmse"))
        'out of memory'
    """
    return _values().get((table, data, method, metric))


@cache
def _lines() -> list[dict[str, str]]:
    with (files("softki.bench") / "paper_tables.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def _values() -> dict[tuple[str, str, str, str], PaperValue]:
    return {
        (line["table"], line["dataset"], line["method"], line["metric"]): PaperValue(
            _number(line["mean"]), _number(line["std"]), line["note"]
        )
        for line in _lines()
    }


def _number(text: str) -> float | None:
    return float(text) if text else None
