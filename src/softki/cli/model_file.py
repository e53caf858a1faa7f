"""A model file, and the batches of a table as its model takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softki.cli.console import Console
from softki.cli.options import MissingChoice, about, usage
from softki.data.column_kinds import KINDS, is_present
from softki.data.encoding import Encoded, TableEncoder, missing_message
from softki.data.file_sets import FileSet, TableReader
from softki.estimator.regressor import SoftKIRegressor
from softki.estimator.rows import feature_names
from softki.exceptions import InvalidInputError
from softki.storage import load_with_metadata
from softki.validation.inputs import checked_device


class EncodedBatches:
    """Batches of a table and their numbers, with a count of all that is missing or unknown.

    Rows with missing values are refused at the end of the table, so that all are counted; after
    the first one, batches are only counted.

    Args:
        encoder: encoder of the inputs.
        name: name of the table, for messages.
        batches: record batches of the table.
        count: number of rows, if it is known, for the bar.
        console: console for the bar and for warnings.
        needed: columns that must not miss a value either.
    """

    def __init__(
        self,
        encoder: TableEncoder,
        name: str,
        batches: Iterable[Any],
        count: int | None,
        console: Console,
        needed: Sequence[str] = (),
    ) -> None:
        self.encoder, self.name, self.console, self.needed = encoder, name, console, needed
        self._batches, self._count = batches, count
        self.rows = self.incomplete = 0
        self.missing: Counter[str] = Counter()
        self.unseen: Counter[tuple[str, str]] = Counter()
        self.changed: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[Any, Encoded, np.ndarray]]:
        """Batches, their numbers, and masks of the rows that are complete."""
        with self.console.bar(self._count) as bar:
            for batch in self._batches:
                with about(self.name):
                    encoded, complete = self._encoded(batch)
                if not self._refused:
                    yield batch, encoded, complete
                bar.update(len(batch))
        if self._refused:
            raise InvalidInputError(
                f"{self.name}: {missing_message(self.missing, self.incomplete)}: with --missing "
                "drop such rows have no prediction, with --missing impute values are filled in"
            )
        for message in self.encoder.warnings(self.unseen, self.changed):
            self.console.warn(f"{self.name}: {message}")

    @property
    def _refused(self) -> bool:
        return self.encoder.missing == "refuse" and self.incomplete > 0

    def _encoded(self, batch: Any) -> tuple[Encoded, np.ndarray]:
        encoded = self.encoder.encode(batch)
        complete = encoded.complete.copy()
        self.missing += encoded.missing
        for name in self.needed:
            present = is_present(batch.column(name), name)
            complete &= present
            self.missing += Counter({name: int((~present).sum())})
        self.unseen += encoded.unseen
        self.changed += encoded.changed
        self.rows += len(batch)
        self.incomplete += int((~complete).sum())
        return encoded, complete


@dataclass(frozen=True)
class ModelFile:
    """The estimator in a file, the encoder of its columns, and the names of its targets."""

    path: Path
    estimator: SoftKIRegressor
    encoder: TableEncoder
    targets: list[str]
    names_targets: bool  # whether the file says what the targets are called
    noise: str | None  # the column of known noise variances, if it was fitted with one

    @classmethod
    def open(cls, path: Path, device: str, missing: MissingChoice | None = None) -> ModelFile:
        """Load the model; another choice for missing values replaces that of the fit."""
        with usage():
            checked_device(device)
        estimator, metadata = load_with_metadata(path, device)
        encoder, extra = TableEncoder.from_metadata(metadata, path), metadata["extra"]
        if missing is not None:
            with usage():
                encoder = encoder.with_missing(missing.value)
        return cls(
            path,
            estimator,
            encoder,
            target_names(metadata),
            names_targets=extra.get("targets") is not None,
            noise=extra.get("fit", {}).get("noise_column"),
        )

    def reader(self, data: FileSet, others: Sequence[str] = ()) -> TableReader:
        """The columns of a table that the model needs, others, and those that were constant."""
        encoder = self.encoder
        constants = [column.name for column in encoder.constants if column.name in data.names]
        columns = list(dict.fromkeys([*encoder.inputs, *others, *constants]))
        # Targets and noise in a CSV file are numbers; all else that is carried along stays text.
        numbers = [*self.targets, self.noise]
        kinds = {name: "number" if name in numbers else "category" for name in columns}
        kinds |= {column.name: column.kind for column in encoder.columns}
        return data.read(columns, {name: KINDS[kind].csv_types for name, kind in kinds.items()})

    def check_named_targets(self) -> None:
        """Raise if the file does not say which columns the targets are."""
        if not self.names_targets:
            raise InvalidInputError(
                f"{self.path}: does not name its target, as it was saved from Python: fit it by "
                "softki fit, or use softki.load and score"
            )


def target_names(metadata: Mapping[str, Any]) -> list[str]:
    """The names of the targets, or `y`, or `y0`, `y1`, … where the file does not say them."""
    count = metadata["report"]["targets"]
    numbered = ["y"] if count == 1 else [f"y{k}" for k in range(count)]
    return metadata["extra"].get("targets") or numbered


def fit_summary(estimator: SoftKIRegressor, kernel: str, **more: Any) -> dict[str, Any]:
    """The facts of a fit, in JSON.

    Args:
        estimator: fitted estimator.
        kernel: name of its kernel.
        **more: facts that the estimator does not know: the names of the file, its targets and its
            noise column, the number of dropped rows, the scores on test rows, and the seconds of
            the whole command.
    """
    report = estimator.fit_report_
    held_out = None
    if (best := report.best) is not None:
        held_out = {
            "rows": report.judged_rows,
            "rmse": best.rmse,
            "nll": best.calibration.nll,
            "units": report.units,
        }
    unknown = {"data": None, "targets": None, "dropped_rows": 0, "noise_column": None, "test": None}
    return {
        **unknown,
        "rows": report.rows,
        "points": report.points,
        "kernel": kernel,
        "steps": report.steps,
        "planned_steps": report.planned_steps,
        "stopped": report.stopped,
        "device": report.device,
        "noise_std": noise_std(estimator).tolist(),
        "held_out": held_out,
        "relevance": dict(
            zip(feature_names(estimator), estimator.feature_relevance_.tolist(), strict=True)
        ),
        "seconds": sum(report.seconds.values()),
        **more,
    }


def noise_std(estimator: SoftKIRegressor) -> np.ndarray:
    """Standard deviation of average noise in each target (t,), in its units."""
    standardised = float(estimator.fit_.posterior.noise_variance) ** 0.5
    return np.asarray(standardised * estimator.y_standardizer_.scale)
