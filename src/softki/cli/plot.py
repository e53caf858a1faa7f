"""`softki plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softki.cli.console import Console
from softki.cli.options import (
    Debug,
    Device,
    Json,
    ModelArgument,
    OwnMissing,
    PictureKind,
    Quiet,
    UsageError,
)

_SUFFIXES = (".png", ".svg", ".pdf")


EXAMPLES = """\b
Examples:
  softki plot price.softki test.csv -o pictures
  softki plot price.softki test.csv --kind residuals -o residuals.svg
  softki plot price.softki --kind relevance -o relevance.png
"""


def plot(
    model: ModelArgument,
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA]", help="Table; training and relevance need none."),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Folder, or a .png, .svg or .pdf file for one."
        ),
    ] = Path("pictures"),
    kind: Annotated[
        list[PictureKind] | None,
        typer.Option("--kind", "-k", help="Pictures to draw; by default all."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Which one, if there are several.")
    ] = None,
    missing: OwnMissing = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draw pictures of a model.

    They show how good it is, how it was trained, and what it has learned. Without --kind, all
    pictures that the data allows are drawn into a folder, which is made if it is not there.
    """
    from softki.cli.model_file import ModelFile
    from softki.cli.pictures import Pictures, drawn, make_folder
    from softki.data.file_sets import FileSet
    from softki.files.atomic import write_atomically

    console = Console(quiet, json)
    single = output.suffix.lower() in _SUFFIXES
    if single and len(kind or []) != 1:
        raise UsageError(f"-o {output} is one picture: say which one with --kind, or give a folder")
    if not single and output.suffix and not output.is_dir():
        raise UsageError(f"-o {output}: a folder, or a file that ends in {', '.join(_SUFFIXES)}")
    with console.listening():
        pictures = Pictures(ModelFile.open(model, device, missing), target)
        if data is not None:
            pictures.sample(FileSet.of([data]), console)
        kinds = list(dict.fromkeys(kind)) if kind else pictures.possible(console)
        suffix = output.suffix if single else ".png"
        # All are drawn before the first is written: where one fails, there is none.
        images = {which: drawn(pictures.figure(which), suffix) for which in kinds}
    if not single:
        make_folder(output)
    paths = [output if single else output / f"{which.value}.png" for which in kinds]
    for path, image in zip(paths, images.values(), strict=True):
        write_atomically(path, image)
        console.note(f"wrote {path}")
    console.result({"files": [str(path) for path in paths]})
