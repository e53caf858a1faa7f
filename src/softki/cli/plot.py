"""`softki plot`."""

from __future__ import annotations

import io
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from softki.atomic import write_atomically
from softki.cli.console import Console
from softki.cli.encoded_batches import EncodedBatches
from softki.cli.errors import UsageError, about
from softki.cli.model_file import ModelFile
from softki.cli.options import Debug, Device, Json, ModelArgument, OwnMissing, Quiet
from softki.cli.targets import target_numbers
from softki.data.arrow import pa
from softki.data.readers import nearest, read_batches
from softki.exceptions import InvalidInputError, SoftKIError

# Of a larger table, a random sample of so many rows is drawn.
MAX_ROWS = 20_000
_SLICES = 3
_SUFFIXES = (".png", ".svg", ".pdf")


class Kind(StrEnum):
    """The pictures there are."""

    prediction = "prediction"
    residuals = "residuals"
    calibration = "calibration"
    training = "training"
    relevance = "relevance"
    points = "points"
    slice = "slice"


_NEED_TARGET = (Kind.prediction, Kind.residuals, Kind.calibration)
_NEED_NO_DATA = (Kind.training, Kind.relevance)

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
        list[Kind] | None, typer.Option("--kind", "-k", help="Pictures to draw; by default all.")
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
    _use_files_only()
    with console.listening():
        file = ModelFile.open(model, device, missing)
        pictures = _Pictures(file, _target(file, target))
        if data is not None:
            pictures.sample(data, console)
        kinds = list(dict.fromkeys(kind)) if kind else pictures.possible()
        if not single:
            _make_folder(output)
        paths = []
        for which in kinds:
            paths.append(output if single else output / f"{which.value}.png")
            write_atomically(paths[-1], _drawn(pictures.figure(which), paths[-1].suffix))
            console.note(f"wrote {paths[-1]}")
    console.result({"files": [str(path) for path in paths]})


class _Pictures:
    """Figures of a model, and of rows of a table if there are any."""

    def __init__(self, file: ModelFile, target: int) -> None:
        self.file, self.target = file, target
        self.name = file.targets[target]
        self.x: Any = None
        self.y: np.ndarray | None = None

    def sample(self, path: Path, console: Console) -> None:
        """Read the table, and keep all rows or a random sample of them."""
        file = self.file
        has_target = file.names_targets and self.name in read_batches(path).names
        targets = [self.name] if has_target else []
        reader = file.reader(path, targets)
        batches, rng = EncodedBatches(file, reader, console, targets), np.random.default_rng(0)
        width = len(file.encoder.names)
        rows = np.empty((0, 1 + width + len(targets)))  # a random key, the inputs, the target
        for batch, encoded, complete in batches:
            with about(path):
                y = target_numbers(batch, targets) if targets else np.empty((len(batch), 0))
            keys = rng.random((len(batch), 1))
            rows = np.concatenate([rows, np.hstack([keys, encoded.values, y])[complete]])
            if len(rows) > MAX_ROWS:  # the smallest keys are a sample without replacement
                rows = rows[np.sort(np.argpartition(rows[:, 0], MAX_ROWS)[:MAX_ROWS])]
        if not len(rows):
            raise InvalidInputError(f"{path}: no row is complete")
        names = file.encoder.names
        self.x = pa.table({name: rows[:, 1 + j] for j, name in enumerate(names)})
        self.y = rows[:, -1] if targets else None

    def possible(self) -> list[Kind]:
        """The pictures that the model and the data allow."""
        possible = []
        for kind in Kind:
            if kind in _NEED_TARGET:
                allowed = self.y is not None
            elif kind in _NEED_NO_DATA:
                allowed = bool(self.file.estimator.fit_report_.history) or kind is Kind.relevance
            else:
                allowed = self.x is not None
            if allowed:
                possible.append(kind)
        return possible

    def figure(self, kind: Kind) -> Any:
        """The figure of one kind."""
        from softki import plots

        if kind in _NEED_TARGET and self.y is None:
            raise UsageError(f"--kind {kind.value} needs DATA with the column {self.name!r}")
        if kind not in _NEED_NO_DATA and self.x is None:
            raise UsageError(f"--kind {kind.value} needs DATA")
        estimator = self.file.estimator
        if kind is Kind.training:
            return plots.TrainingDisplay.from_estimator(estimator).figure_
        if kind is Kind.relevance:
            return plots.RelevanceDisplay.from_estimator(estimator).figure_
        if kind is Kind.points:
            return plots.PointsDisplay.from_estimator(estimator, self.x).figure_
        return self._slices() if kind is Kind.slice else self._of_predictions(kind)

    def _slices(self) -> Any:
        """Along the most relevant columns that vary here, numbers rather than categories."""
        from softki.plots import SliceDisplay

        encodings = self.file.encoder.columns
        categories = {n for column in encodings if column.kind == "category" for n in column.names}
        varying = [j for j, column in enumerate(self.x.columns) if len(column.unique()) > 1]
        if not varying:
            raise InvalidInputError("all columns are constant: there is no slice to draw")
        relevance = self.file.estimator.feature_relevance_
        numbers = [j for j in varying if self.x.column_names[j] not in categories]
        features = sorted(numbers or varying, key=lambda j: -relevance[j])[:_SLICES]
        display = SliceDisplay.from_estimator(
            self.file.estimator, self.x, features, target=self.target
        )
        for axes in display.axes_:
            if axes.get_ylabel():
                axes.set_ylabel(self.name)
        return display.figure_

    def _of_predictions(self, kind: Kind) -> Any:
        from softki import plots

        mean, std = self.file.estimator.predict(self.x, return_std=True)
        y_pred, y_std = (v.reshape(len(v), -1)[:, self.target] for v in (mean, std))
        assert self.y is not None
        draw: dict[Kind, Callable[..., Any]] = {
            Kind.prediction: lambda *values: plots.PredictionDisplay(*values).plot(),
            Kind.residuals: lambda *values: plots.ResidualDisplay(*values).plot(),
            Kind.calibration: lambda *values: plots.CalibrationDisplay.from_predictions(
                *values[:3], target_name=values[3]
            ),
        }
        return draw[kind](self.y, y_pred, y_std, self.name).figure_


def _target(file: ModelFile, target: str | None) -> int:
    if target is None:
        return 0
    if target not in file.targets:
        hint = nearest(target, file.targets)
        raise UsageError(f"--target: the model has no target {target!r}{hint}")
    return file.targets.index(target)


def _use_files_only() -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise SoftKIError(
            "pictures need the package matplotlib: pip install 'softki[plot]'"
        ) from error
    matplotlib.use("Agg")


def _make_folder(folder: Path) -> None:
    if folder.suffix and not folder.is_dir():
        raise UsageError(f"-o {folder}: a folder, or a file that ends in {', '.join(_SUFFIXES)}")
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
