"""A fit to rows in the user's units: standardised, fitted, and what leads back.

The rows are a table in memory, or a source that is read again and again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Self

import numpy as np
import torch
from torch import Tensor

from softki.estimator.progress import progress
from softki.estimator.relevance import feature_relevance
from softki.exceptions import InvalidInputError, ScaleWarning
from softki.objective.exact import objective_of_several
from softki.parallel.processes import ALONE, Processes
from softki.streaming import Source, StreamedRows
from softki.streaming.blocks import RawRows
from softki.streaming.preparation import Preparation
from softki.training.fit import Fit, fit, fit_rows
from softki.training.settings import FitSettings
from softki.training.standardize import Standardizer

SettingsFor = Callable[[int], list[FitSettings]]
"""The settings to try for so many rows."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in memory, as numbers."""

    x: Tensor  # (n, d)
    y: Tensor  # (n,) or (n, t)
    noise: Tensor | None  # (n,), variances
    x_names: Sequence[str] | None = None
    y_names: Sequence[str] | None = None

    @classmethod
    def of_source(cls, source: Source, rows: RawRows) -> Self:
        """All rows of a source."""
        y = rows.y[:, 0] if source.single_target else rows.y
        noise = None if rows.noise is None else torch.from_numpy(rows.noise).double()
        x = torch.from_numpy(rows.x)
        return cls(x, torch.from_numpy(y), noise, source.columns, source.targets)

    @property
    def targets(self) -> Tensor:
        """y as a table, (n, t)."""
        return self.y.reshape(len(self.y), -1)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit to standardised rows, and what leads back to the user's units."""

    fit: Fit
    x: Standardizer
    y: Standardizer
    noise_unit: float | None  # mean of the known noise variance
    single_target: bool
    relevance: np.ndarray  # of the columns, (d,)


def fit_table(
    table: Table,
    settings_for: SettingsFor,
    device: torch.device,
    verbose: bool,
    checkpoint: str | PathLike[str] | None = None,
) -> Fitted:
    """Fit to rows in memory."""
    settings = settings_for(len(table.x))
    dtype = settings[0].dtype
    x_standardizer = Standardizer.of(table.x, "X", table.x_names)
    y_standardizer = Standardizer.of(table.targets, "y", table.y_names)
    noise, noise_unit = table.noise, None
    if noise is not None:
        noise_unit = float(noise.mean())
        noise = noise / noise_unit
    x = x_standardizer.transform(table.x, dtype)
    y = y_standardizer.transform(table.targets, dtype)
    with progress(verbose, _shown_scale(y_standardizer)) as callbacks, _standardised():
        result = fit(
            x,
            y,
            noise,
            settings=settings,
            device=device,
            callbacks=callbacks,
            checkpoint=checkpoint,
        )
    relevance = feature_relevance(result.posterior, x, result.settings.seed)
    single = table.y.ndim == 1
    return Fitted(result, x_standardizer, y_standardizer, noise_unit, single, relevance)


def fit_source(
    source: Source,
    shared: FitSettings,
    settings_for: SettingsFor,
    device: torch.device,
    verbose: bool,
    checkpoint: str | PathLike[str] | None = None,
    processes: Processes = ALONE,
) -> Fitted:
    """Fit to rows that are read again and again, with what the settings share."""
    if processes.are_several:
        objective_of_several(shared.objective)
    rows = StreamedRows.open(source, shared.seed, shared.held_out, shared.dtype, device, processes)
    with progress(verbose, _shown_scale(rows.y_standardizer)) as callbacks:
        settings = settings_for(len(rows))
        result = fit_rows(rows, settings=settings, callbacks=callbacks, checkpoint=checkpoint)
    relevance = feature_relevance(result.posterior, rows.inputs, shared.seed)
    return Fitted(
        result,
        rows.x_standardizer,
        rows.y_standardizer,
        rows.noise_unit,
        source.single_target,
        relevance,
    )


def add_table(fitted: Fitted, table: Table) -> Fit:
    """The fit with more rows, standardised as the first ones were."""
    _check_targets(fitted, tuple(table.y.shape[1:]))
    noise, noise_unit = table.noise, _noise_unit(fitted, table.noise is not None)
    if noise is not None and noise_unit is not None:
        noise = noise / noise_unit
    dtype = fitted.fit.settings.dtype
    with _standardised():
        return fitted.fit.with_rows(
            fitted.x.transform(table.x, dtype),
            fitted.y.transform(table.targets, dtype),
            noise,
        )


def add_source(fitted: Fitted, source: Source, processes: Processes = ALONE) -> Fit:
    """The fit with more rows, which are read from a source, standardised as the first ones were."""
    _check_targets(fitted, () if source.single_target else (len(source.targets),))
    noise_unit = _noise_unit(fitted, source.noise is not None)
    settings, device = fitted.fit.settings, fitted.fit.posterior.points.device
    prepared = Preparation(fitted.x, fitted.y, noise_unit, settings.dtype)
    rows = StreamedRows.open(
        source, settings.seed, 0.0, settings.dtype, device, processes, prepared
    )
    return fitted.fit.with_data(rows)


def _check_targets(fitted: Fitted, shape: tuple[int, ...]) -> None:
    count = len(fitted.y.scale)
    if shape != (() if fitted.single_target else (count,)):
        expected = "(rows,)" if fitted.single_target else f"(rows, {count})"
        found = "(rows,)" if not shape else f"(rows, {shape[0]})"
        raise InvalidInputError(
            f"y had the shape {expected} at the first call of partial_fit, and has {found} now"
        )


def _noise_unit(fitted: Fitted, is_known: bool) -> float | None:
    """What the noise of more rows is divided by, where it is known."""
    if is_known and fitted.noise_unit is None:
        raise InvalidInputError(
            "noise_variance was not given at the first call of partial_fit, so that the "
            "noise of these rows has nothing to be compared with: give it at every call, "
            "or at none"
        )
    return fitted.noise_unit if is_known else None


def _shown_scale(y: Standardizer) -> float:
    """In what unit a progress bar shows errors: that of a single target."""
    return float(y.scale[0]) if len(y.scale) == 1 else 1.0


@contextmanager
def _standardised() -> Iterator[None]:
    """Rows are standardised here, even where a few later ones, or rounding, do not look so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        yield
