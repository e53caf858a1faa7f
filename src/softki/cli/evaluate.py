"""`softki evaluate`."""

from __future__ import annotations

import time

from softki.cli.console import Console
from softki.cli.options import DataArgument, Debug, Device, Json, ModelArgument, OwnMissing, Quiet

EXAMPLES = """\b
Examples:
  softki evaluate price.softki test.csv
  softki evaluate price.softki test.parquet --missing drop --json
"""


def evaluate(
    model: ModelArgument,
    data: DataArgument,
    missing: OwnMissing = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare predictions with a table.

    The table must have the target, and is read in batches. RMSE and MAE are in the units of the
    target, NLL is the mean of -log p(y), and the last columns show how much of the table the
    central intervals cover. A model with known noise uses that of the table's rows.
    """
    from softki.cli.model_file import ModelFile
    from softki.cli.scoring import HEADER, ObservedRows, figures_row, scores_of
    from softki.data.file_sets import FileSet

    start, console = time.perf_counter(), Console(quiet, json)
    with console.listening():
        file = ModelFile.open(model, device, missing)
        file.check_named_targets()
        files = FileSet.of(data)
        rows = ObservedRows.of(file, files, file.targets, console)
        scores = scores_of(file.estimator, rows, files)
    seconds = time.perf_counter() - start
    figures = dict(zip(file.targets, scores.figures(), strict=True))
    console.table(HEADER, [figures_row(target, figures[target]) for target in file.targets])
    left = f", {rows.left_out} left out as values are missing" if rows.left_out else ""
    console.note(f"{scores.rows} rows{left}, {seconds:.1f} s")
    console.result(
        {
            "rows": scores.rows,
            "rows_left_out": rows.left_out,
            "seconds": seconds,
            "targets": figures,
        }
    )
