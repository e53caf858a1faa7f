"""`softki predict`."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from softki.cli.console import Console
from softki.cli.options import (
    DataArgument,
    Debug,
    Device,
    Json,
    ModelArgument,
    OfChoice,
    OwnMissing,
    Quiet,
    UsageError,
    about,
    check_named,
    check_new_file,
    listed,
    usage,
)

if TYPE_CHECKING:
    from softki.data.file_sets import FileSet

EXAMPLES = """\b
Examples:
  softki predict price.softki new.csv -o predictions.parquet --quantiles 0.05,0.95
  softki predict price.softki new.parquet --keep id -o predictions.csv
  softki predict price.softki new.csv --no-std | head
"""


def predict(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write; without it, CSV on stdout."
        ),
    ] = None,
    quantiles: Annotated[
        str, typer.Option(metavar="Q,Q,…", help="Quantiles to add, such as 0.05,0.95.")
    ] = "",
    std: Annotated[bool, typer.Option(help="Whether to add the standard deviation.")] = True,
    of: Annotated[
        OfChoice, typer.Option(help="Spread of y, with its noise, or of the function f.")
    ] = OfChoice.y,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B,…", help="Columns of the input to keep, or all."),
    ] = None,
    missing: OwnMissing = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict the rows of a table, which may be in several files or a folder of such.

    The output has a row for each, in the same order: the mean under the name of the target
    (price), its standard deviation (price_std), and the quantiles asked for (price_q0.05). Rows
    are read and written in batches, so the table may be larger than memory; the output file
    appears once it is complete.
    """
    from softki.cli.model_file import EncodedBatches, ModelFile
    from softki.cli.predicted import PredictedColumns
    from softki.data.file_checks import file_format
    from softki.data.file_sets import FileSet
    from softki.data.writers import csv_to, written

    start, console = time.perf_counter(), Console(quiet, json)
    if output is None and json:
        raise UsageError("--json needs --output: without it, stdout has the predictions")
    if output is not None:
        with usage():
            file_format(output)
    files = FileSet.of(data)
    if output is not None:
        check_new_file(output, files)
    levels = _levels(quantiles)
    with console.listening():
        file = ModelFile.open(model, device, missing)
        names = _names(file.targets, levels, std)
        kept = _kept(keep, files, names, console)
        columns = PredictedColumns(file.estimator, kept, names, std, levels, of.value)
        reader = file.reader(files, kept)
        batches = EncodedBatches(file.encoder, reader.name, reader, reader.count, console)
        schema = columns.schema(reader.schema)
        sink = csv_to(sys.stdout.buffer, schema) if output is None else written(output, schema)
        with sink as write:
            for batch, encoded, complete in batches:
                with about(files):
                    predicted = columns.predicted(batch, encoded, complete)
                write(predicted)
    seconds = time.perf_counter() - start
    left = f" ({batches.incomplete} without prediction)" if batches.incomplete else ""
    if output is not None:
        console.note(f"predicted {batches.rows} rows{left} in {seconds:.1f} s: wrote {output}")
    console.result(
        {
            "output": str(output),
            "rows": batches.rows,
            "rows_without_prediction": batches.incomplete,
            "seconds": seconds,
        }
    )


def _levels(quantiles: str) -> list[float]:
    try:
        levels = [float(text) for text in listed([quantiles] if quantiles else [])]
    except ValueError:
        levels = [math.nan]
    if not all(0 < level < 1 for level in levels) or len(set(levels)) < len(levels):
        raise UsageError(
            f"--quantiles: numbers between 0 and 1, such as 0.05,0.95, not {quantiles!r}"
        )
    return levels


def _names(targets: Sequence[str], levels: Sequence[float], std: bool) -> list[str]:
    """The columns of the predictions, which must differ.

    Example:
        >>> _names(["price"], [0.05], std=True)
        ['price', 'price_std', 'price_q0.05']
    """
    endings = ["", *(["_std"] if std else []), *(f"_q{level!r}" for level in levels)]
    names = [target + ending for target in targets for ending in endings]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(
            f"the output would have two columns {twice[0]!r}: leave out --quantiles, give "
            "--no-std, or fit with another name of the target"
        )
    return names


def _kept(
    keep: list[str] | None, data: FileSet, taken: Sequence[str], console: Console
) -> list[str]:
    """The columns to keep; those that have the name of a prediction cannot be kept."""
    if not keep:
        return []
    names, chosen = data.names, listed(keep)
    if chosen == ["all"] and "all" not in names:
        left_out = [name for name in names if name in taken]
        if left_out:
            console.note(f"not kept, as the output has such a column: {', '.join(left_out)}")
        return [name for name in names if name not in taken]
    check_named("--keep", chosen, data)
    for name in chosen:
        if name in taken:
            raise UsageError(f"--keep: {name!r} is a column of the predictions: rename it")
    return chosen
