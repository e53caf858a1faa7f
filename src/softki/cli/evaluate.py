"""`softki evaluate`."""

from __future__ import annotations

import time

from softki.cli.console import Console
from softki.cli.model_file import EncodedBatches, ModelFile
from softki.cli.options import (
    DataArgument,
    Debug,
    Device,
    Json,
    ModelArgument,
    OwnMissing,
    Quiet,
    about,
)
from softki.cli.scoring import HEADER, KnownNoise, Scores, figures_row, numbers_in, observed_moments
from softki.data.file_sets import FileSet
from softki.exceptions import InvalidInputError

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
    start, console = time.perf_counter(), Console(quiet, json)
    with console.listening():
        file = ModelFile.open(model, device, missing)
        file.check_named_targets()
        scores, skipped = _scores(file, FileSet.of(data), console)
    seconds = time.perf_counter() - start
    figures = dict(zip(file.targets, scores.figures(), strict=True))
    console.table(HEADER, [figures_row(target, figures[target]) for target in file.targets])
    left = f", {skipped} left out as values are missing" if skipped else ""
    console.note(f"{scores.rows} rows{left}, {seconds:.1f} s")
    console.result(
        {"rows": scores.rows, "rows_left_out": skipped, "seconds": seconds, "targets": figures}
    )


def _scores(file: ModelFile, data: FileSet, console: Console) -> tuple[Scores, int]:
    """The figures, and how many rows could not be used."""
    noise = KnownNoise(file, data)
    reader = file.reader(data, [*file.targets, *noise.columns])
    batches = EncodedBatches(file, reader, console, file.targets)
    scores = Scores(len(file.targets))
    with about(data):
        numbers_in(reader.schema.empty_table(), [*file.targets, *noise.columns])
    for batch, encoded, complete in batches:
        y, relative = numbers_in(batch, file.targets)[complete], noise.relative(batch, complete)
        with about(data):
            predicted = observed_moments(file.estimator, encoded.table(complete), relative)
        scores.add(y, *predicted)
    if not scores.rows:
        raise InvalidInputError(f"{data}: no row is complete")
    noise.tell(console)
    return scores, batches.incomplete
