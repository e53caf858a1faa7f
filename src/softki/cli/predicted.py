"""The columns of the output of `softki predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softki.cli.scoring import moments
from softki.data.arrow import pa
from softki.data.encoding import Encoded
from softki.estimator.regressor import Of, SoftKIRegressor
from softki.metrics import normal_quantile


@dataclass(frozen=True)
class PredictedColumns:
    """Columns of the input that are kept, then mean, standard deviation and quantiles."""

    estimator: SoftKIRegressor
    kept: Sequence[str]
    names: Sequence[str]  # of the predictions, target by target
    std: bool
    levels: Sequence[float]
    of: Of

    def schema(self, source: Any) -> Any:
        """The schema of the output, given that of the input."""
        kept = [source.field(name) for name in self.kept]
        return pa.schema([*kept, *(pa.field(name, pa.float64()) for name in self.names)])

    def predicted(self, batch: Any, encoded: Encoded, complete: np.ndarray) -> Any:
        """One batch of the output; rows that are not complete have nulls."""
        means, stds = moments(self.estimator, encoded.values[complete], self.of)
        z = normal_quantile(self.levels).numpy()
        arrays = [batch.column(name) for name in self.kept]
        for mean, std in zip(means.T, stds.T, strict=True):
            columns = [mean, *([std] if self.std else []), *(mean + q * std for q in z)]
            arrays += [_spread_out(column, complete) for column in columns]
        return pa.record_batch(arrays, schema=self.schema(batch.schema))


def _spread_out(values: np.ndarray, complete: np.ndarray) -> Any:
    """The values in the complete rows, and null in the others."""
    column = np.zeros(len(complete))
    column[complete] = values
    return pa.array(column, mask=~complete)
