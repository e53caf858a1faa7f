"""The columns of a table that the options of `softki fit` choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softki.cli.options import UsageError, check_named
from softki.data.column_kinds import KINDS
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
