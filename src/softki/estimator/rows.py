"""The user's rows and columns: a table, or a source that is read a block at a time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from softki.batches import Data
from softki.estimator.defaults import FEW_ROWS
from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.training.data import InMemoryRows, TrainingData
from softki.training.settings import FitSettings
from softki.training.standardize import RawBatch, RowStandardizer, Standardizer
from softki.validation.inputs import checked_table
from softki.validation.tables import column_names, with_names

if TYPE_CHECKING:
    from softki.parallel.processes import Processes
    from softki.streaming import Source
    from softki.streaming.blocks import RawRows

# A source whose numbers take no more bytes in float64 is read into memory and fitted as a table.
IN_MEMORY_BYTES = 1 << 28
# The squares of larger standardised values, summed over columns, would overflow.
_FARTHEST = {torch.float32: 1e15, torch.float64: 1e150}


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in memory, in the user's units, with the names of their columns if they have any."""

    rows: RawBatch
    single_target: bool
    names: Sequence[str] | None = None
    target_names: Sequence[str] | None = None

    @classmethod
    def of(cls, X: Any, y: Any, noise_variance: Any) -> Self:
        """The numbers of a user's table, checked."""
        x, targets, noise = checked_table(X, y, noise_variance)
        if hasattr(X, "columns"):  # scikit-learn refuses names that are mixed with numbers
            validate_data(BaseEstimator(), with_names(X), skip_check_array=True)
        rows = RawBatch(x, targets.reshape(len(x), -1), noise)
        return cls(rows, targets.ndim == 1, column_names(X), column_names(y))

    @classmethod
    def of_source(cls, source: Source, rows: RawRows) -> Self:
        """All rows of a source."""
        noise = None if rows.noise is None else torch.from_numpy(rows.noise).double()
        batch = RawBatch(torch.from_numpy(rows.x), torch.from_numpy(rows.y), noise)
        names = source.columns if source.is_named else None
        return cls(batch, source.single_target, names, source.targets)

    def standardizer(self, dtype: torch.dtype) -> RowStandardizer:
        """The standardizer by the moments of these rows."""
        x, y, noise = self.rows
        return RowStandardizer(
            Standardizer.of(x, "X", self.names),
            Standardizer.of(y, "y", self.target_names),
            None if noise is None else float(noise.mean()),
            dtype,
        )

    def standardized(self, by: RowStandardizer, device: torch.device) -> Data:
        """The rows on the device, standardised."""
        x, y, noise = by(self.rows)
        check_near("X", x, self.names)
        check_near("y", y, self.target_names)
        return Data(x.to(device), y.to(device), None if noise is None else noise.to(device))


@dataclass(frozen=True, eq=False)
class UserRows:
    """Rows for a fit, with all that leads back to the user's units."""

    training: TrainingData
    standardizer: RowStandardizer
    single_target: bool
    names: Sequence[str] | None

    @classmethod
    def of(
        cls,
        rows: Table | Source,
        settings: FitSettings,
        device: torch.device,
        processes: Processes | None = None,
    ) -> Self:
        """The rows of a table, or of a source that is read again and again, some held out."""
        if isinstance(rows, Table):
            with torch.inference_mode(False):
                standardizer = rows.standardizer(settings.dtype)
                data = rows.standardized(standardizer, device)
            training = InMemoryRows.holding_out(data, settings.held_out, settings.seed)
            return cls(training, standardizer, rows.single_target, rows.names)
        from softki.streaming import StreamedRows

        streamed = StreamedRows.open(
            rows, settings.seed, settings.held_out, settings.dtype, device, processes
        )
        names = rows.columns if rows.is_named else None
        return cls(streamed, streamed.standardizer, rows.single_target, names)


def opened(X: Any, y: Any, noise_variance: Any) -> Table | Source:
    """The rows of a table or a small source in memory; a larger source as it is."""
    is_table = any(hasattr(type(X), name) for name in ("shape", "columns", "__array__"))
    if is_table and not isinstance(X, np.memmap):
        return Table.of(X, y, noise_variance)
    from softki.streaming.open import source_of

    source = source_of(X, y, noise_variance)
    if source is None:
        return Table.of(X, y, noise_variance)
    width = len(source.columns) + len(source.targets)
    rows = source.up_to(max(FEW_ROWS, IN_MEMORY_BYTES // (8 * width)))
    if rows is None:
        return source
    source.check_unchanged()
    return Table.of_source(source, rows)


def more_rows(
    rows: Table | Source,
    standardizer: RowStandardizer,
    device: torch.device,
    processes: Processes | None = None,
) -> TrainingData:
    """More rows, none of them held out, standardised as the first ones were."""
    noise = rows.rows.noise_variance if isinstance(rows, Table) else rows.noise
    if noise is not None and standardizer.noise_unit is None:
        raise InvalidInputError(
            "noise_variance was not given at the first call of partial_fit, so that the "
            "noise of these rows has nothing to be compared with: give it at every call, "
            "or at none"
        )
    if isinstance(rows, Table):
        with torch.inference_mode(False):
            return InMemoryRows.whole(rows.standardized(standardizer, device))
    from softki.streaming import StreamedRows

    return StreamedRows.open(rows, 0, 0.0, standardizer.dtype, device, processes, standardizer)


def check_near(name: str, values: Tensor, columns: Sequence[str] | None) -> None:
    """Raise where a standardised value is so large that its square overflows."""
    limit = _FARTHEST[values.dtype]
    largest = values.abs().amax(0)
    if bool((largest < limit).all()):
        return
    column = int(largest.argmax())
    raise InvalidInputError(
        f"{name} is more than {limit:.0e} standard deviations away from the rows of the fit in "
        f"column {column if columns is None else columns[column]!r}: is it in the right units?"
    )


def check_more_rows(estimator: Any, rows: Table | Source) -> None:
    """Raise unless more rows have the columns and targets of the fit."""
    if isinstance(rows, Table):
        count, names, targets = rows.rows.x.shape[1], rows.names, rows.rows.y.shape[1]
    else:
        count, targets = len(rows.columns), len(rows.targets)
        names = rows.columns if rows.is_named else None
    check_columns(estimator, count, names)
    expected = () if estimator.single_target_ else (len(estimator.y_standardizer_.scale),)
    found = () if rows.single_target else (targets,)
    if found != expected:
        before, now = (f"(rows, {s[0]})" if s else "(rows,)" for s in (expected, found))
        raise InvalidInputError(
            f"y had the shape {before} at the first call of partial_fit, and has {now} now"
        )


def note_columns(estimator: Any, count: int, names: Sequence[str] | None) -> None:
    """Note number and names of the inputs of a fit, as scikit-learn does."""
    estimator.n_features_in_ = count
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def feature_names(estimator: Any) -> list[str]:
    """The names of the inputs of a fitted estimator; x0, x1, … where they had none."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"x{j}" for j in range(estimator.n_features_in_)]
    return [str(name) for name in names]


def check_columns(estimator: Any, count: int, names: Sequence[str] | None) -> None:
    """Raise unless columns are those of the fit, in their order, in scikit-learn's words."""
    kind, known = type(estimator).__name__, getattr(estimator, "feature_names_in_", None)
    if names is not None and known is not None:
        _check_same(names, known)
    elif names is not None:
        warnings.warn(
            f"X has feature names, but {kind} was fitted without feature names", stacklevel=4
        )
    elif known is not None:
        warnings.warn(
            f"X does not have valid feature names, but {kind} was fitted with feature names",
            stacklevel=4,
        )
    if count != estimator.n_features_in_:
        raise InvalidInputError(
            f"X has {count} features, but {kind} is expecting {estimator.n_features_in_} features "
            "as input"
        )


def _check_same(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise where names are new, missing or in another order."""
    message = "The feature names should match those that were passed during fit.\n"
    for title, some in (
        ("unseen at fit time", [name for name in names if name not in known]),
        ("seen at fit time, yet now missing", [name for name in known if name not in names]),
    ):
        if some:
            listed = "\n".join(f"- {name}" for name in some[:5])
            raise InvalidInputError(f"{message}Feature names {title}:\n{listed}\n")
    for position, (name, expected) in enumerate(zip(names, known, strict=True)):
        if name != expected:
            raise InvalidInputError(
                f"{message}Feature names must be in the same order as they were in fit.\n"
                f"Column {position} is {name!r}, and was {expected!r}: reorder the columns "
                "as in feature_names_in_."
            )


def refuse_arguments(unsupported: dict[str, Any]) -> None:
    """Raise for arguments of `fit` beside X, y and noise_variance."""
    if "sample_weight" in unsupported:
        raise InvalidTypeError(
            "sample_weight is not supported: give noise_variance, one number a row, for rows that "
            "are known to be noisier than others"
        )
    for name in unsupported:
        raise InvalidTypeError(f"there is no argument {name!r}: X, y and noise_variance are taken")
