"""A model file, with what it takes to feed it a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softki.cli.errors import usage
from softki.cli.options import MissingChoice
from softki.data.column_kinds import KINDS
from softki.data.encoding import TableEncoder
from softki.data.file_sets import FileSet
from softki.data.readers import Batches
from softki.estimator import SoftKIRegressor
from softki.exceptions import InvalidInputError
from softki.inputs import checked_device
from softki.storage import load_with_metadata


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

    def reader(self, data: FileSet, others: Sequence[str] = ()) -> Batches:
        """The columns of a table that the model needs, others, and those that were constant."""
        types = {column.name: KINDS[column.kind].csv_types for column in self.encoder.columns}
        names, constants = data.names, self.encoder.constants
        others = [*others, *(column.name for column in constants if column.name in names)]
        columns = list(dict.fromkeys([*self.encoder.inputs, *others]))
        numbers = [*self.targets, self.noise]
        return data.read(columns, types | _types_of_others(others, types, numbers))

    def check_named_targets(self) -> None:
        """Raise where the file does not say which columns the targets are."""
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


def _types_of_others(
    others: Sequence[str], inputs: dict[str, Any], numbers: Sequence[str | None]
) -> dict[str, Any]:
    """Targets and noise in a CSV file are numbers; all else that is carried along stays text."""
    return {
        name: KINDS["number" if name in numbers else "category"].csv_types
        for name in others
        if name not in inputs
    }
