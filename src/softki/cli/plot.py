"""`softki plot`."""

from __future__ import annotations

import io
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from softki.cli.console import Console
from softki.cli.model_file import EncodedBatches, ModelFile
from softki.cli.options import (
    Debug,
    Device,
    Json,
    ModelArgument,
    OwnMissing,
    Quiet,
    UsageError,
    about,
)
from softki.cli.scoring import KnownNoise, numbers_in, observed_moments
from softki.data.arrow import pa
from softki.data.file_sets import FileSet
from softki.data.readers import suggestion
from softki.exceptions import InvalidInputError
from softki.files.atomic import write_atomically

# Of a larger table, a random sample of so many rows is drawn.
MAX_ROWS = 20_000
_SLICES = 3
_SUFFIXES = (".png", ".svg", ".pdf")


class PictureKind(StrEnum):
    """The pictures there are."""

    prediction = "prediction"
    residuals = "residuals"
    calibration = "calibration"
    training = "training"
    relevance = "relevance"
    points = "points"
    slice = "slice"


_NEED_TARGET = (PictureKind.prediction, PictureKind.residuals, PictureKind.calibration)
_NEED_NO_DATA = (PictureKind.training, PictureKind.relevance)

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
    console = Console(quiet, json)
    single = output.suffix.lower() in _SUFFIXES
    if single and len(kind or []) != 1:
        raise UsageError(f"-o {output} is one picture: say which one with --kind, or give a folder")
    if not single and output.suffix and not output.is_dir():
        raise UsageError(f"-o {output}: a folder, or a file that ends in {', '.join(_SUFFIXES)}")
    _use_files_only()
    with console.listening():
        file = ModelFile.open(model, device, missing)
        pictures = _Pictures(file, _target(file, target))
        if data is not None:
            pictures.sample(FileSet.of([data]), console)
        kinds = list(dict.fromkeys(kind)) if kind else pictures.possible(console)
        paths = [output if single else output / f"{which.value}.png" for which in kinds]
        # All are drawn before the first is written: where one fails, there is none.
        drawn = [
            _drawn(pictures.figure(which), path.suffix)
            for which, path in zip(kinds, paths, strict=True)
        ]
    if not single:
        _make_folder(output)
    for path, picture in zip(paths, drawn, strict=True):
        write_atomically(path, picture)
        console.note(f"wrote {path}")
    console.result({"files": [str(path) for path in paths]})


class _Pictures:
    """Figures of a model, and of rows of a table if there are any."""

    def __init__(self, file: ModelFile, target: int) -> None:
        self.file, self.target = file, target
        self.name = file.targets[target]
        self.x: Any = None
        self.y: np.ndarray | None = None
        self.noise = np.empty(0)  # of the rows, relative to the average

    def sample(self, data: FileSet, console: Console) -> None:
        """Read the table, and keep all rows or a random sample of them."""
        file = self.file
        has_target = file.names_targets and self.name in data.names
        targets = [self.name] if has_target else []
        noise = KnownNoise(file, data)
        reader = file.reader(data, [*targets, *noise.columns])
        batches, rng = EncodedBatches(file, reader, console, targets), np.random.default_rng(0)
        names = file.encoder.names
        # A random key, the noise, the inputs, the target.
        rows = np.empty((0, 2 + len(names) + len(targets)))
        for batch, encoded, complete in batches:
            with about(data):
                y = numbers_in(batch, targets)[complete]
                relative = noise.relative(batch, complete)
            keys = rng.random(len(y))
            new = np.column_stack([keys, relative, encoded.values[complete], y])
            rows = np.concatenate([rows, new])
            if len(rows) > MAX_ROWS:  # the smallest keys are a sample without replacement
                rows = rows[np.sort(np.argpartition(rows[:, 0], MAX_ROWS)[:MAX_ROWS])]
        if not len(rows):
            raise InvalidInputError(f"{data}: no row is complete")
        if targets:
            noise.tell(console)
        self.x = pa.table({name: rows[:, 2 + j] for j, name in enumerate(names)})
        self.y, self.noise = rows[:, -1] if targets else None, rows[:, 1]

    def possible(self, console: Console) -> list[PictureKind]:
        """The pictures that the model and the data allow; a note says why others are left out."""
        possible = []
        for kind in PictureKind:
            if self.y is None if kind in _NEED_TARGET else self._lacks_data(kind):
                continue
            if (reason := self._nothing_to_show(kind)) is not None:
                console.note(f"{kind.value} is left out: {reason}")
            else:
                possible.append(kind)
        return possible

    def _lacks_data(self, kind: PictureKind) -> bool:
        return kind not in _NEED_NO_DATA and self.x is None

    def _nothing_to_show(self, kind: PictureKind) -> str | None:
        if kind is PictureKind.training and not self.file.estimator.fit_report_.history:
            return "the fit held out no rows, so that there is no curve"
        if kind in (PictureKind.points, PictureKind.slice) and not self._varying():
            return "all rows of the table have the same inputs"
        return None

    def _varying(self) -> list[int]:
        return [j for j, column in enumerate(self.x.columns) if len(column.unique()) > 1]

    def figure(self, kind: PictureKind) -> Any:
        """The figure of one kind."""
        from softki import plots

        if kind in _NEED_TARGET and self.y is None:
            raise UsageError(f"--kind {kind.value} needs DATA with the column {self.name!r}")
        if self._lacks_data(kind):
            raise UsageError(f"--kind {kind.value} needs DATA")
        if (reason := self._nothing_to_show(kind)) is not None:
            raise InvalidInputError(f"--kind {kind.value}: {reason}")
        estimator = self.file.estimator
        if kind is PictureKind.training:
            return plots.TrainingDisplay.from_estimator(estimator).figure_
        if kind is PictureKind.relevance:
            return plots.RelevanceDisplay.from_estimator(estimator).figure_
        if kind is PictureKind.points:
            return plots.PointsDisplay.from_estimator(estimator, self.x).figure_
        return self._slices() if kind is PictureKind.slice else self._of_predictions(kind)

    def _slices(self) -> Any:
        """Along the most relevant columns that vary here, numbers rather than categories."""
        from softki.plots import SliceDisplay

        encodings = self.file.encoder.columns
        categories = {n for column in encodings if column.kind == "category" for n in column.names}
        varying = self._varying()
        relevance = self.file.estimator.feature_relevance_
        numbers = [j for j in varying if self.x.column_names[j] not in categories]
        features = sorted(numbers or varying, key=lambda j: -relevance[j])[:_SLICES]
        return SliceDisplay.from_estimator(
            self.file.estimator, self.x, features, target=self.target, target_name=self.name
        ).figure_

    def _of_predictions(self, kind: PictureKind) -> Any:
        from softki import plots

        mean, std = observed_moments(self.file.estimator, self.x, self.noise)
        display: Any = {
            PictureKind.prediction: plots.PredictionDisplay,
            PictureKind.residuals: plots.ResidualDisplay,
            PictureKind.calibration: plots.CalibrationDisplay,
        }[kind]
        predicted = mean[:, self.target], std[:, self.target]
        return display.from_predictions(self.y, *predicted, target_name=self.name).figure_


def _target(file: ModelFile, target: str | None) -> int:
    if target is None:
        return 0
    if target not in file.targets:
        hint = suggestion(target, file.targets)
        raise UsageError(f"--target: the model has no target {target!r}{hint}")
    return file.targets.index(target)


def _use_files_only() -> None:
    with suppress(ImportError):  # the first picture says what to install
        import matplotlib

        matplotlib.use("Agg")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"{folder}: cannot be made: {error.strerror}") from error


def _drawn(figure: Any, suffix: str) -> bytes:
    """The figure as a file of the kind that the suffix says."""
    from matplotlib import pyplot

    with io.BytesIO() as buffer:
        figure.savefig(buffer, format=suffix.lower().removeprefix("."), dpi=150)
        pyplot.close(figure)
        return buffer.getvalue()
