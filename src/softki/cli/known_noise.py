"""Known noise variances of the rows of a table, for scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from softki.cli.console import Console
from softki.cli.model_file import ModelFile
from softki.cli.targets import numbers_in
from softki.data.file_sets import FileSet


class KnownNoise:
    """The noise of the rows of a table where the model was fitted with `--noise-variance`.

    Attributes:
        columns: the column that holds it, if the model knows one and the table has it.
    """

    def __init__(self, model: ModelFile, data: FileSet) -> None:
        self.model, self.data = model, data
        has = model.noise is not None and model.noise in data.names
        self.columns = [model.noise] if model.noise is not None and has else []
        self._unusable = 0

    def relative(self, batch: Any, rows: np.ndarray) -> np.ndarray:
        """vᵢ / v̄ of some rows, with the mean v̄ of the fit; 1 where it is not known, (rows,)."""
        if not self.columns:
            return np.ones(int(rows.sum()))
        variance = numbers_in(batch, self.columns)[rows, 0]
        usable = np.isfinite(variance) & (variance > 0)
        self._unusable += int((~usable).sum())
        return np.where(usable, variance / self.model.estimator.noise_unit_, 1.0)

    def tell(self, console: Console) -> None:
        """Warn where figures assume average noise."""
        name = self.model.noise
        if name is not None and not self.columns:
            console.warn(
                f"{self.data}: has no column {name!r}, the known noise of the fit: the figures "
                "assume average noise"
            )
        if self._unusable:
            console.warn(
                f"{self.data}: {name!r} is missing or not positive in {self._unusable} rows: "
                "their figures assume average noise"
            )
