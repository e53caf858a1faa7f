"""The pictures that `softki plot` draws of a model and of rows of a table."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from softki import plots
from softki.cli.console import Console
from softki.cli.model_file import ModelFile
from softki.cli.options import PictureKind, UsageError, about
from softki.cli.scoring import ObservedRows, observed_moments, with_names
from softki.data.file_checks import suggestion
from softki.data.file_sets import FileSet
from softki.exceptions import InvalidInputError
from softki.streaming.blocks import Block, RawRows
from softki.streaming.sampling import LowestRows

# Rows that are drawn; of a larger table, they are a random sample.
MAX_ROWS = 20_000
_SEED = 0xD12A  # unlike those of fits, which hold out the rows that are first in this order
_SLICES = 3
_OF_PREDICTIONS: dict[PictureKind, Any] = {
    PictureKind.prediction: plots.PredictionDisplay,
    PictureKind.residuals: plots.ResidualDisplay,
    PictureKind.calibration: plots.CalibrationDisplay,
}
_OF_MODEL: dict[PictureKind, Any] = {
    PictureKind.training: plots.TrainingDisplay,
    PictureKind.relevance: plots.RelevanceDisplay,
}


class Pictures:
    """Figures of a model file, and of rows of a table if there are any.

    Args:
        file: model file.
        target: name of the target to draw; None for the first.
    """

    def __init__(self, file: ModelFile, target: str | None) -> None:
        self.file, self.estimator = file, file.estimator
        self.target = 0 if target is None else _target(file, target)
        self.name = file.targets[self.target]
        self.rows: RawRows | None = None
        self.x: Any = None  # their inputs as a table
        self.has_target = False

    def sample(self, data: FileSet, console: Console) -> None:
        """Read the table, and keep all rows or a random sample of them."""
        self.has_target = self.file.names_targets and self.name in data.names
        targets = [self.name] if self.has_target else []
        self.rows = _sampled(ObservedRows.of(self.file, data, targets, console))
        self.x = with_names(self.estimator, self.rows.x)

    def possible(self, console: Console) -> list[PictureKind]:
        """The pictures that the data allows; a note says which of them would show nothing."""
        possible = []
        for kind in PictureKind:
            try:
                self._check(kind)
            except UsageError:
                continue
            except InvalidInputError as error:
                console.note(f"{kind.value} is left out: {error}")
            else:
                possible.append(kind)
        return possible

    def figure(self, kind: PictureKind) -> Any:
        """The figure of one kind."""
        with about(f"--kind {kind.value}"):
            self._check(kind)
        with suppress(ImportError):  # the first picture says what to install
            import matplotlib

            matplotlib.use("Agg")
        if kind in _OF_MODEL:
            return _OF_MODEL[kind].from_estimator(self.estimator).figure_
        if kind is PictureKind.points:
            return plots.PointsDisplay.from_estimator(self.estimator, self.x).figure_
        if kind is PictureKind.slice:
            return self._slices()
        assert self.rows is not None
        mean, std = observed_moments(self.estimator, self.rows)
        moments = mean[:, self.target], std[:, self.target]
        display = _OF_PREDICTIONS[kind]
        return display.from_predictions(self.rows.y[:, 0], *moments, target_name=self.name).figure_

    def _check(self, kind: PictureKind) -> None:
        """Raise where the data does not allow the picture, or would leave it empty."""
        if kind in _OF_PREDICTIONS and not self.has_target:
            raise UsageError(f"--kind {kind.value} needs DATA with the column {self.name!r}")
        if kind is PictureKind.training and not self.estimator.fit_report_.history:
            raise InvalidInputError("the fit held out no rows, so that there is no curve")
        if kind in (PictureKind.points, PictureKind.slice):
            if self.rows is None:
                raise UsageError(f"--kind {kind.value} needs DATA")
            if not self._varying():
                raise InvalidInputError("all rows of the table have the same inputs")

    def _varying(self) -> list[int]:
        return [j for j, column in enumerate(self.x.columns) if len(column.unique()) > 1]

    def _slices(self) -> Any:
        """Along the most relevant columns that vary here, numbers rather than categories."""
        encodings = self.file.encoder.columns
        categories = {n for column in encodings if column.kind == "category" for n in column.names}
        varying = self._varying()
        numbers = [j for j in varying if self.x.column_names[j] not in categories]
        relevance = self.estimator.feature_relevance_
        features = sorted(numbers or varying, key=lambda j: -relevance[j])[:_SLICES]
        return plots.SliceDisplay.from_estimator(
            self.estimator, self.x, features, target=self.target, target_name=self.name
        ).figure_


def _target(file: ModelFile, target: str) -> int:
    if target not in file.targets:
        hint = suggestion(target, file.targets)
        raise UsageError(f"--target: the model has no target {target!r}{hint}")
    return file.targets.index(target)


def _sampled(batches: Iterable[RawRows]) -> RawRows:
    """All rows in order, or a random sample of MAX_ROWS of them."""
    sample, position = LowestRows(MAX_ROWS, _SEED), 0
    for rows in batches:
        sample.add(Block(position, rows))
        position += len(rows)
    positions, sampled = sample.ordered()
    return sampled.take(np.argsort(positions))


def make_folder(folder: Path) -> None:
    """Make the folder of the pictures, if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"{folder}: cannot be made: {error.strerror}") from error


def drawn(figure: Any, suffix: str) -> bytes:
    """The figure as a file of the kind of the suffix."""
    from matplotlib import pyplot

    with io.BytesIO() as buffer:
        figure.savefig(buffer, format=suffix.lower().removeprefix("."), dpi=150)
        pyplot.close(figure)
        return buffer.getvalue()
