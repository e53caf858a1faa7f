"""`softki fit`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softki.cli.console import Console, number, share
from softki.cli.options import (
    DataArgument,
    Debug,
    Device,
    Json,
    MissingChoice,
    Quiet,
    UsageError,
    check_new_file,
    listed,
    usage,
)
from softki.cli.process_group import launched_rank, process_group

if TYPE_CHECKING:
    from softki.data.encoding import TableEncoder

_MAX_SEED = 2**32 - 1

EXAMPLES = """\b
Examples:
  softki fit train.parquet --target price -o price.softki
  softki fit train.csv.gz --target price --drop id,name --missing impute -o price.softki
  softki fit 2023.csv 2024.csv --target price -o price.softki
  softki fit train.csv --target east --target north --test 0.1 -o wind.softki
"""


@process_group()
def fit(
    data: DataArgument,
    target: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", help="Column to predict; may be given repeatedly."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Model file to write.")
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B,…", help="Inputs; by default all other columns."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="A,B,…", help="Columns to leave out.")
    ] = None,
    missing: Annotated[
        MissingChoice, typer.Option(help="What becomes of rows with missing values.")
    ] = MissingChoice.refuse,
    points: Annotated[
        int | None,
        typer.Option(min=1, help="Interpolation points; by default 512, on a GPU up to 4096."),
    ] = None,
    kernel: Annotated[
        str, typer.Option(metavar="NAME", help="matern12, matern32, matern52, rbf or rq.")
    ] = "matern32",
    steps: Annotated[
        int | None, typer.Option(min=0, help="Training steps, at most; by default 600 or more.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=0, help="Rows a step, 0 for all; by default 1024 or more.")
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the rows that stops training and calibrates; by default 0.1, and "
            "cross-validation of up to 1000 rows.",
        ),
    ] = None,
    noise_variance: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the known noise of rows.")
    ] = None,
    test: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Share of the rows to keep from the fit, and to test it on."
        ),
    ] = 0.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save the fit there while it goes on; the same command goes on from there.",
        ),
    ] = None,
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, max=_MAX_SEED, help="Seed of random numbers.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a table, and write it to a file.

    The table may be in several files, or a folder of such; one that is too large for memory is
    read in batches. Text is one-hot encoded and dates become numbers; the model file remembers
    how. An older file of the same name is replaced once the new one is complete. Ctrl-C ends
    training early: the best model so far is written. A second Ctrl-C gives up. Several processes
    fit together: torchrun --nproc-per-node 2 -m softki fit …
    """
    from softki.cli.columns import chosen_columns
    from softki.cli.model_file import fit_summary
    from softki.cli.training_rows import TrainingRows
    from softki.data.file_sets import FileSet
    from softki.estimator.regressor import SoftKIRegressor
    from softki.files.atomic import checked_target
    from softki.kernels.stationary import KERNELS
    from softki.storage import save
    from softki.training.checkpoints import checked_folder, kept_until_the_end
    from softki.training.settings import FitSettings
    from softki.validation.inputs import checked_device
    from softki.validation.parameters import check_choice, check_range

    start, console = time.perf_counter(), Console.of_process(launched_rank(), quiet, json)
    with usage():
        checked_device(device)
        check_choice("kernel", kernel, KERNELS)
        check_range("--test", test, 0, 1)
        given = {"points": points, "steps": steps, "batch_size": batch_size, "held_out": held_out}
        settings: dict[str, Any] = {"kernel": kernel}
        settings |= {name: value for name, value in given.items() if value is not None}
        if batch_size == 0:
            settings["batch_size"] = None
        FitSettings(**settings)
        if checkpoint is not None and not launched_rank():
            checked_folder(checkpoint)
    files = FileSet.of(data)
    check_new_file(output, files)
    if not launched_rank():
        checked_target(output)
    chosen = chosen_columns(
        files, listed_targets(target), listed(columns), listed(drop), noise_variance
    )
    with kept_until_the_end():
        with console.listening():
            rows = TrainingRows(files, chosen, missing.value, console, test, seed)
            estimator = SoftKIRegressor(
                **settings,
                device=device,
                random_state=seed,
                verbose=console.shows_progress,
                checkpoint=checkpoint,
            )
            estimator.fit(rows.source)
            if launched_rank():
                return
            tested = rows.tested(estimator)
        summary = fit_summary(
            estimator,
            kernel,
            data=files.title,
            targets=chosen.targets,
            dropped_rows=rows.dropped,
            noise_column=chosen.noise,
            test=None if tested is None else dict(zip(chosen.targets, tested, strict=True)),
            seconds=time.perf_counter() - start,
        )
        extra = {"encoder": rows.encoder.to_json(), "targets": chosen.targets, "fit": summary}
        save(estimator, output, extra)
    _show(console, summary, output)
    console.result({"model": str(output), **summary, "columns": _columns(rows.encoder)})


def listed_targets(target: list[str]) -> list[str]:
    """The targets, each once. A name may hold a comma, as each has its own option."""
    if len(set(target)) < len(target):
        raise UsageError("--target: a column is given twice")
    return target


def _columns(encoder: TableEncoder) -> dict[str, str]:
    left_out = {name: f"left out: {why}" for name, why in encoder.left_out.items()}
    return {column.name: str(column) for column in encoder.columns} | left_out


def _show(console: Console, summary: dict[str, Any], output: Path) -> None:
    rows = []
    if held_out := summary["held_out"]:
        name = "held out" if held_out["units"] != "standardised" else "held out, standardised"
        rows.append([name, str(held_out["rows"]), *_cells(held_out)])
    for target, figures in (summary["test"] or {}).items():
        rows.append([f"test, {target}", str(figures["rows"]), *_cells(figures)])
    if rows:
        console.table(("", "rows", "RMSE", "NLL", "95% covers"), rows)
    console.note(
        f"{summary['rows']} rows, {summary['points']} points, {summary['steps']} of "
        f"{summary['planned_steps']} steps ({summary['stopped']}), {summary['seconds']:.1f} s: "
        f"wrote {output}"
    )


def _cells(figures: dict[str, Any]) -> list[str]:
    """Coverage is that of test rows: on held-out rows, it was made to be right."""
    covered = figures.get("coverage", {}).get("0.95")
    return [number(figures["rmse"]), number(figures["nll"]), share(covered)]
