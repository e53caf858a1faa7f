"""The columns of a table that the options of `softki fit` choose."""

from __future__ import annotations

from collections.abc import Sequence

from softki.cli.options import UsageError, check_named
from softki.data.file_sets import FileSet
from softki.streaming.tables import TableColumns


def chosen_columns(
    data: FileSet,
    targets: Sequence[str],
    columns: Sequence[str],
    drop: Sequence[str],
    noise: str | None,
) -> TableColumns:
    """Inputs, targets and noise by the options, checked against the names in the files."""
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
    return TableColumns(inputs, list(targets), noise)
