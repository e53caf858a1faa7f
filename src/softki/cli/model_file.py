"""A model file, with what it takes to feed it a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softki.cli.errors import usage
from softki.cli.options import MissingChoice
from softki.data.column_kinds import KINDS
from softki.data.encoding import Encoded, TableEncoder
from softki.data.readers import Batches, read_batches
from softki.estimator import Of, SoftKIRegressor
from softki.exceptions import InvalidInputError
from softki.inputs import checked_device
from softki.storage import load, read_metadata


@dataclass(frozen=True)
class ModelFile:
    """The estimator in a file, the encoder of its columns, and the names of its targets."""

    path: Path
    estimator: SoftKIRegressor
    encoder: TableEncoder
    targets: list[str]
    names_targets: bool  # whether the file says what the targets are called

    @classmethod
    def open(cls, path: Path, device: str, missing: MissingChoice | None = None) -> ModelFile:
        """Load the model; another choice for missing values replaces that of the fit."""
        with usage():
            checked_device(device)
        metadata = read_metadata(path)
        encoder = TableEncoder.from_file(path)
        if missing is not None:
            with usage():
                encoder = encoder.with_missing(missing.value)
        targets = metadata["extra"].get("targets")
        count = metadata["report"]["targets"]
        unnamed = ["y"] if count == 1 else [f"y{k}" for k in range(count)]
        return cls(path, load(path, device), encoder, targets or unnamed, targets is not None)

    def reader(self, path: Path, others: Sequence[str] = ()) -> Batches:
        """The columns of a file that the model needs, and others."""
        types = {column.name: KINDS[column.kind].csv_types for column in self.encoder.columns}
        inputs = self.encoder.inputs
        columns = [*inputs, *(name for name in others if name not in inputs)]
        return read_batches(path, columns, types | _types_of_others(others, types, self.targets))

    def check_named_targets(self) -> None:
        """Raise where the file does not say which columns the targets are."""
        if not self.names_targets:
            raise InvalidInputError(
                f"{self.path}: does not name its target, as it was saved from Python: fit it by "
                "softki fit, or use softki.load and score"
            )

    def moments(self, encoded: Encoded, rows: np.ndarray, of: Of = "y") -> tuple[Any, Any]:
        """Mean and standard deviation at some of the rows, (rows, targets) each."""
        if not rows.any():
            nothing = np.empty((0, len(self.targets)))
            return nothing, nothing
        mean, std = self.estimator.predict(encoded.table(rows), return_std=True, of=of)
        count = int(rows.sum())
        return mean.reshape(count, -1), std.reshape(count, -1)


def _types_of_others(
    others: Sequence[str], inputs: dict[str, Any], targets: Sequence[str]
) -> dict[str, Any]:
    """Targets of a CSV file are numbers; all else that is carried along stays text."""
    return {
        name: KINDS["number" if name in targets else "category"].csv_types
        for name in others
        if name not in inputs
    }
