"""Which columns of a table are inputs, targets and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softki.cli.errors import UsageError
from softki.cli.options import check_named
from softki.data.arrow import pa
from softki.data.column_kinds import KINDS, categories_of, kind_of
from softki.data.file_sets import FileSet
from softki.data.readers import Batches
from softki.data.text_hints import stray_text, text_hint


@dataclass(frozen=True)
class ColumnChoice:
    """Which columns of a table are what."""

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

    def reader(self) -> Batches:
        """A reader of the chosen columns; in CSV files, targets and noise are numbers."""
        types = dict.fromkeys(self.others, KINDS["number"].csv_types)
        return self.data.read([*self.inputs, *self.others], types)

    def hints(self, table: Any, reader: Batches) -> dict[str, str]:
        """What inputs that are text may have been meant as, and which value is in the way."""
        hints = {}
        for name in self.inputs:
            if kind_of(table[name], name) == "category":
                counts = categories_of(table[name])
                hints[name] = text_hint(counts, _place(table[name], stray_text(counts), reader))
        return {name: hint for name, hint in hints.items() if hint}


def _place(column: Any, text: str | None, reader: Batches) -> str:
    row = -1 if text is None else column.cast(pa.string()).index(text).as_py()
    return "" if row < 0 else f" in {reader.place(row)}"
