"""From standardised data to a posterior: Algorithm 1 of the paper, made safe.

points and temperature → training → statistics of all rows → posterior, calibrated, with an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Self

import joblib
import torch
from torch import Tensor

from softki.batches import Data
from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.model import SoftKI
from softki.posterior.extrapolation import edge_of
from softki.posterior.functions import Posterior
from softki.statistics import Statistics
from softki.training.data import LEAST_HELD_OUT, InMemoryRows, TrainingData, held_out_count
from softki.training.inference import HeldOutPosterior, calibration_by, posterior_of, statistics_of
from softki.training.model_selection import Trained, best_of
from softki.training.report import Callback, FitReport, timed
from softki.training.settings import FitSettings
from softki.validation.inputs import checked_data

# The largest block after which malloc adapts (DEFAULT_MMAP_THRESHOLD_MAX of 64-bit glibc), less
# what malloc itself adds to it.
_BLOCK = (1 << 25) - (1 << 16)


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `fit`."""

    model: SoftKI  # the learned parameters
    posterior: Posterior  # calibrated, in float64
    statistics: Statistics  # of all rows, in the form that the solver needs
    report: FitReport
    settings: FitSettings
    held_out: Tensor  # indices of the rows that training did not see

    def with_rows(self, x: Any, y: Any, noise_variance: Any = None) -> Self:
        """This fit with more rows: their statistics added, the posterior solved anew.

        Points, kernel, noise and calibration are taken as they are. The rows must be
        standardised like those of the fit.
        """
        device = self.posterior.points.device
        data = checked_data(x, y, noise_variance, self.settings.dtype, device)
        return self.with_data(InMemoryRows.whole(data))

    def with_data(self, data: TrainingData) -> Self:
        """This fit with all rows of training data, such as a stream, which is not trained on."""
        with prepared():
            statistics = self.statistics + _all_statistics(self.model, data, self.settings)
            report = replace(self.report, rows=statistics.count)
            posterior = posterior_of(
                self.model, statistics, self.settings, self.report.calibration, report
            )
            edge = self.posterior.edge
            if edge is not None:
                posterior = posterior.within(edge.wider(edge_of(self.model, data.inputs)))
        return replace(self, posterior=posterior, statistics=statistics, report=report)


def fit(
    x: Any,
    y: Any,
    noise_variance: Any = None,
    *,
    settings: FitSettings | Sequence[FitSettings] | None = None,
    model: SoftKI | None = None,
    device: torch.device | str | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | PathLike[str] | None = None,
) -> Fit:
    """Fit SoftKI to standardised rows.

    Args:
        x: inputs (n, d), each column with mean 0 and standard deviation 1: a NumPy array, a torch
            tensor, or a data frame.
        y: targets (n,) or (n, t), standardised likewise; all share kernel and noise.
        noise_variance: known noise σᵢ² of each row (n,), relative to the learned β².
        settings: how to fit. Of several, each is tried as long as held-out rows improve by it,
            and the best on these is kept; they share seed, precision and held-out rows.
        model: a model to start from (it is trained in place), instead of k-means points and the
            kernel and temperature of the settings.
        device: device to fit on; None for where x is, "auto" for CUDA if there is one.
        callbacks: functions called with a `softki.Event` after every step.
        checkpoint: a folder to save the fit to while it goes on. The same call goes on from there
            where the last one was killed, with the same result. A fit that is done leaves nothing.
            A cross-validation, of few rows, starts anew.

    Example:
        >>> x = torch.linspace(-2, 2, 200)[:, None]
        >>> result = fit(x, torch.sin(2 * x), settings=FitSettings(points=16, steps=50))
        >>> mean, variance = result.posterior.predict(torch.tensor([[0.5]]))
        >>> bool((mean - torch.sin(torch.tensor(1.0))).abs() < 0.1)
        True
    """
    first = _candidates(settings, model)[0]
    data = checked_data(x, y, noise_variance, first.dtype, device)
    rows = InMemoryRows.holding_out(data, first.held_out, first.seed)
    return fit_rows(
        rows, settings=settings, model=model, callbacks=callbacks, checkpoint=checkpoint
    )


def fit_rows(
    data: TrainingData,
    *,
    settings: FitSettings | Sequence[FitSettings] | None = None,
    model: SoftKI | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | PathLike[str] | None = None,
) -> Fit:
    """Fit SoftKI to standardised rows that need not be in memory.

    Args:
        data: the rows, such as `softki.streaming.StreamedRows`, which has the device and says
            which of them are held out.
        settings: how to fit; one or several, as for `fit`. Precision, seed and share of held-out
            rows must be those of the rows; cross-validation is for rows in memory.
        model: a model to start from, as for `fit`.
        callbacks: functions called with a `softki.Event` after every step.
        checkpoint: a folder to save the fit to while it goes on, as for `fit`.

    Example:
        >>> import numpy as np
        >>> from softki.streaming import StreamedRows, open_source
        >>> x = np.linspace(0, 6, 4000)[:, None]
        >>> rows = StreamedRows.open(open_source(x, np.sin(x[:, 0])))
        >>> result = fit_rows(rows, settings=FitSettings(points=16, steps=50))
        >>> len(result.held_out), result.report.rows
        (400, 4000)
    """
    candidates = _candidates(settings, model)
    _check_callbacks(callbacks)
    first = candidates[0]
    _check_rows(data, first)
    generator = torch.Generator("cpu").manual_seed(first.seed)
    checkpoints = None
    if checkpoint is not None:
        from softki.training.checkpoints import checkpoints_of

        checkpoints = checkpoints_of(checkpoint, candidates, data, model)
    with _fitting():
        if _is_cross_validated(data, first):
            from softki.training.cross_validation import cross_validated

            assert isinstance(data, InMemoryRows)
            return _conditioned(cross_validated(data.data, first, model, generator, callbacks))
        if checkpoints is None:
            return _conditioned(best_of(candidates, data, model, generator, callbacks))
        trained = best_of(
            candidates, data, model, generator, callbacks, checkpoints.save, checkpoints.found
        )
        result = _conditioned(trained)
        if not trained.is_interrupted:
            checkpoints.finish()
        return result


def _candidates(
    settings: FitSettings | Sequence[FitSettings] | None, model: SoftKI | None
) -> list[FitSettings]:
    """The settings to try, checked, where one, several or none are given."""
    if model is not None and not isinstance(model, SoftKI):
        raise InvalidTypeError(f"model must be a SoftKI, got {type(model).__name__}")
    if settings is None or isinstance(settings, FitSettings):
        return [settings or FitSettings()]
    if not isinstance(settings, list | tuple) or not settings:
        what = "an empty one" if isinstance(settings, list | tuple) else type(settings).__name__
        raise InvalidTypeError(f"settings must be FitSettings, or a list of them, got {what}")
    for one in settings:
        if not isinstance(one, FitSettings):
            raise InvalidTypeError(
                f"settings must be FitSettings, or a list of them, and has {type(one).__name__}"
            )
    if len({(one.held_out, one.seed, one.dtype) for one in settings}) > 1:
        raise InvalidInputError("settings to choose from must share held_out, seed and dtype")
    if len(settings) > 1 and model is not None:
        raise InvalidInputError("a model to start from goes with one settings, not with several")
    return list(settings)


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, list | tuple) or not all(map(callable, callbacks)):
        raise InvalidTypeError(
            f"callbacks must be a list of functions of an Event, such as [print], got {callbacks!r}"
        )


def _check_rows(data: Any, settings: FitSettings) -> None:
    """Raise unless the rows are training data that the settings suit."""
    if not hasattr(data, "minibatches"):
        raise InvalidTypeError(
            "fit_rows is given rows such as softki.streaming.StreamedRows, and got "
            f"{type(data).__name__}: give tables and tensors to fit"
        )
    if settings.dtype != data.dtype:
        raise InvalidInputError(
            f"the rows are in {data.dtype}, and settings.dtype is {settings.dtype}"
        )
    if settings.folds:
        if not isinstance(data, InMemoryRows):
            raise InvalidInputError("folds are for rows in memory: give these to fit, or folds=0")
        if _is_cross_validated(data, settings):
            return
    expected, found = held_out_count(len(data), settings.held_out), len(data.held_out_index)
    if found != expected:
        raise InvalidInputError(
            f"{found} of {len(data)} rows are held out, and settings.held_out="
            f"{settings.held_out} asks for {expected}: open the rows with this share, as "
            f"held_out_share={settings.held_out}, or change the settings"
        )
    if found and data.seed is not None and data.seed != settings.seed:
        raise InvalidInputError(
            f"the held-out rows were drawn with seed={data.seed}, and settings.seed is "
            f"{settings.seed}: give the same seed to both"
        )


def _is_cross_validated(data: TrainingData, settings: FitSettings) -> bool:
    return settings.folds > 0 and len(data) >= settings.folds * LEAST_HELD_OUT


def _conditioned(trained: Trained) -> Fit:
    """The fit after training: the posterior on all rows, within their edge."""
    model, settings, data, report = trained.model, trained.settings, trained.data, trained.report
    with timed(report.seconds, "posterior", data.device):
        posterior, statistics = _final_posterior(trained)
        posterior = posterior.within(edge_of(model, data.inputs))
    return Fit(model, posterior, statistics, report, settings, data.held_out_index)


def _final_posterior(trained: Trained) -> tuple[Posterior, Statistics]:
    """The posterior on all rows, calibrated on the held-out ones.

    The statistics of the training rows give the posterior that the calibration is fitted to; adding
    those of the held-out rows gives the final one.
    """
    model, settings, data, report = trained.model, trained.settings, trained.data, trained.report
    if data.held_out is None:
        statistics = statistics_of(model, data, settings)
    else:
        judged = HeldOutPosterior.of(model, data, settings)
        statistics = judged.statistics + statistics_of(model, Data(*data.held_out), settings)
        report.calibration = calibration_by([judged]).for_more_rows(
            judged.statistics.count / statistics.count
        )
    return posterior_of(model, statistics, settings, report.calibration, report), statistics


def _all_statistics(model: SoftKI, data: TrainingData, settings: FitSettings) -> Statistics:
    """Statistics of training and held-out rows."""
    statistics = statistics_of(model, data, settings)
    if data.held_out is None:
        return statistics
    return statistics + statistics_of(model, Data(*data.held_out), settings)


@contextmanager
def _fitting() -> Iterator[None]:
    """Gradients on, whatever the caller has asked of autograd."""
    with torch.inference_mode(False), torch.enable_grad(), prepared():
        yield


@contextmanager
def prepared() -> Iterator[None]:
    """Exact float32 products, no more threads than processors, freed memory used again.

    The shorter formats of float32 that GPUs multiply in would ruin the gradient. Torch starts a
    thread for each processor of the machine, also where the process may use only a few of them (a
    container, a batch job, an affinity); `joblib.cpu_count` knows these limits. A smaller number
    that the user has set stays. Precision and threads are restored afterwards.

    Example:
        >>> threads = torch.get_num_threads()
        >>> with prepared():
        ...     torch.get_num_threads() <= joblib.cpu_count()
        True
        >>> torch.get_num_threads() == threads
        True
    """
    threads = torch.get_num_threads()
    fewer = min(threads, joblib.cpu_count())
    put_back = _exact_float32()
    try:
        if fewer < threads:
            torch.set_num_threads(fewer)
        _keep_freed_memory()
        yield
    finally:
        put_back()
        if fewer < threads:
            torch.set_num_threads(threads)


def _exact_float32() -> Callable[[], None]:
    """Turn shorter formats of float32 off, and return a function that restores them.

    Torch has two interfaces for this, and refuses the older where the newer has been used.
    """
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        parts = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
        formats = [part.fp32_precision for part in parts]
        for part in parts:
            part.fp32_precision = "ieee"

        def put_back() -> None:
            for part, precision in zip(parts, formats, strict=True):
                part.fp32_precision = precision

        return put_back
    torch.set_float32_matmul_precision("highest")
    return lambda: torch.set_float32_matmul_precision(before)


def _keep_freed_memory() -> None:
    """Let the process keep the memory of arrays of up to 32 MB, to use it again.

    malloc of glibc hands such blocks back to the system, and each new one costs a page fault for
    every 4 kB: thousands in a step of training. It stops doing so once a block of that size has
    been freed, which this does. The block is never written to; with another malloc, nothing
    happens.
    """
    torch.empty(_BLOCK, dtype=torch.uint8, device="cpu")
