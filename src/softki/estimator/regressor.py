"""`SoftKIRegressor`: soft kernel interpolation as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
import torch.distributed as dist
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from softki.estimator.defaults import DTYPES, seed_of, settings_for, shared_settings
from softki.estimator.prediction import Predictor, checked_levels
from softki.estimator.rows import (
    UserRows,
    check_columns,
    check_more_rows,
    more_rows,
    note_columns,
    opened,
    refuse_arguments,
)
from softki.exceptions import InvalidInputError
from softki.kernels.stationary import StationaryKernel
from softki.likelihood import log_marginal_likelihood
from softki.posterior.functions import Posterior
from softki.solvers import Solver
from softki.training.fit import Fit, fit_rows
from softki.training.report import Callback, FitReport
from softki.training.settings import ObjectiveName
from softki.training.standardize import RowStandardizer, Standardizer
from softki.validation.inputs import checked_device, checked_matrix
from softki.validation.parameters import check_choice, check_integer
from softki.validation.tables import column_names

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel

    from softki.parallel.processes import Processes

Of = Literal["y", "f"]


class SoftKIRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Gaussian-process regression by soft kernel interpolation.

    Inputs and targets are standardised inside; all that goes in and comes out is in the user's
    units. Tables may be NumPy arrays, torch tensors, or pandas, polars or PyArrow tables; rows that
    do not fit into memory are read from files (see `fit`). Predictions are computed in float64 and
    returned as NumPy arrays, or, where X is a torch tensor, as tensors of its precision and device.

    There is no `sample_weight` (rows known to be noisier than others have `noise_variance`), no
    classification, and no support for missing values.

    Args:
        points: number of interpolation points, at most a quarter of the rows; `auto` for 512, and
            on a GPU up to 4,096 where the rows are many and held-out rows improve by them.
        kernel: `matern32`, `matern12`, `matern52`, `rbf`, `rq`, or any gpytorch kernel.
        objective: `stabilised`, `exact` or `hutchinson`.
        batch_size: rows a training step; None for all rows in every step; `auto` for what suits
            rows and device (`softki.estimator.defaults`).
        steps: training steps, at most one a row, but no fewer than 50; `auto` likewise.
        learning_rate: learning rate of Adam at its peak.
        held_out: share of the rows on which training is stopped and error bars are calibrated;
            `auto` for a tenth of them, or, of up to 1,000 rows, for five folds in which every
            row is held out once.
        solver: solver of the posterior: `qr`, `whitened`, `cholesky`, `solve` or `cg`.
        dtype: `float32` or `float64`, of the training.
        device: `auto` (CUDA if there is a device, else CPU), or a torch device.
        random_state: seed; None for a fresh one every time, or that of a fit which goes on.
        verbose: whether to show a progress bar.
        checkpoint: a folder to save a fit to while it goes on: where it is killed, the same call
            goes on from there. A fit that is done leaves nothing in it.

    Attributes:
        n_features_in_, feature_names_in_: the columns of X; names only if it had them.
        fit_report_: what ran, how long, and what did not go as planned.
        feature_relevance_: one number a column, summing to one: the root mean square of
            ∂mean/∂xₖ over training rows, in standardised units. T enters it through the weights
            and the lengthscales through the posterior; unlike 1/(Tₖℓₖ) it also sees a column
            whose effect is linear, for which both are large.
        fit_: the `softki.Fit` to the standardised rows: model, posterior, statistics.
        x_standardizer_, y_standardizer_: mean and scale of the columns of X and y.

    Example:
        >>> from softki.data import robot_arm
        >>> X, y = robot_arm(2000)
        >>> model = SoftKIRegressor(points=64, steps=100, random_state=0).fit(X[:1500], y[:1500])
        >>> mean, std = model.predict(X[1500:], return_std=True)
        >>> bool(model.score(X[1500:], y[1500:]) > 0.9)
        True
    """

    def __init__(
        self,
        points: int | Literal["auto"] = "auto",
        kernel: str | StationaryKernel | Kernel = "matern32",
        objective: ObjectiveName = "stabilised",
        batch_size: int | Literal["auto"] | None = "auto",
        steps: int | Literal["auto"] = "auto",
        learning_rate: float = 0.05,
        held_out: float | Literal["auto"] = "auto",
        solver: Solver = "qr",
        dtype: Literal["float32", "float64"] = "float32",
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        checkpoint: str | PathLike[str] | None = None,
    ) -> None:
        self.points = points
        self.kernel = kernel
        self.objective = objective
        self.batch_size = batch_size
        self.steps = steps
        self.learning_rate = learning_rate
        self.held_out = held_out
        self.solver = solver
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any = None, noise_variance: Any = None, **unsupported: Any) -> Self:
        """Fit to the rows of X (n, d) and y, (n,) or (n, targets).

        Files of up to 256 MiB in float64 are read into memory and fitted as a table, with the same
        result; larger ones are read a block at a time, as often as needed.

        Inside a group of processes (`torch.distributed`, as `torchrun` makes it), all of them fit
        together: each reads its part of files and data sets, while tables, arrays and batches are
        the rows of the process that gives them. Afterwards all have the same fit.

        Args:
            X: inputs: a table, or what is read a block at a time (`softki.streaming`): a Parquet
                file, a folder of such, one or several files (Parquet, CSV, gzipped CSV, Arrow), a
                `pyarrow.dataset.Dataset`, a `.npy` file, an `np.memmap`, or an object that gives
                batches (X, y) or (X, y, noise variance) anew each time that it is iterated.
            y: targets; several share points, kernel and, once standardised, noise. Where X is
                files or a data set, the name of the target's column, or a list of names; where it
                is a `.npy` file or an `np.memmap`, another such or an array; where it gives
                batches, None.
            noise_variance: known noise variance of each row (n,), up to a factor that is learned:
                row i has noise β²σᵢ², with σᵢ² = noise_varianceᵢ / its mean. Where X is files or a
                data set, the name of its column.
            unsupported: nothing else is taken; `sample_weight` is refused.

        Example:
            >>> import tempfile, pandas
            >>> from softki.data import robot_arm
            >>> X, y = robot_arm(3000)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = f"{folder}/arm.parquet"
            ...     pandas.DataFrame(X).add_prefix("angle").assign(reach=y).to_parquet(path)
            ...     model = SoftKIRegressor(points=64, steps=100, random_state=0).fit(path, "reach")
            >>> model.fit_report_.is_streamed, model.feature_names_in_[0]
            (False, 'angle0')
            >>> bool(model.score(pandas.DataFrame(X).add_prefix("angle"), y) > 0.9)
            True
        """
        refuse_arguments(unsupported)
        device = checked_device(self.device)
        parameters = {name: getattr(self, name) for name in SoftKIRegressor._get_param_names()}
        shared = shared_settings(parameters)
        with _process_group(device) as processes:
            if processes is None:
                rows = UserRows.of(opened(X, y, noise_variance), shared, device)
            else:
                from softki.estimator.shared import rows_of_all, source_of_all

                source = source_of_all(X, y, noise_variance, processes)
                rows, shared = rows_of_all(source, shared, parameters, device, processes)
            is_shown = self.verbose and (processes is None or processes.is_rank_zero)
            is_alone = rows.training.processes is None and processes is not None
            with _progress(is_shown, rows.standardizer.y) as callbacks:
                result = fit_rows(
                    rows.training,
                    settings=settings_for(parameters, shared, len(rows.training), device),
                    callbacks=callbacks,
                    checkpoint=None if is_alone else self.checkpoint,
                )
        return self._set_fitted(result, rows)

    def _set_fitted(self, result: Fit, rows: UserRows) -> Self:
        """Note what was fitted; all at the end, so that a fit that fails leaves an earlier one."""
        relevance = result.posterior.feature_relevance(rows.training.inputs, result.settings.seed)
        self.fit_, self.n_iter_ = result, result.report.steps
        self.x_standardizer_, self.y_standardizer_ = rows.standardizer.x, rows.standardizer.y
        self.noise_unit_, self.single_target_ = rows.standardizer.noise_unit, rows.single_target
        self.feature_relevance_ = relevance.cpu().numpy()
        note_columns(self, rows.training.dimension, rows.names)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, noise_variance: Any = None, **unsupported: Any
    ) -> Self:
        """Fit at the first call; afterwards add rows with everything learned held fixed.

        Points, kernel, noise, standardisation and calibration stay as the first call left them;
        the statistics of the new rows are added, and the posterior is solved anew at O(m³). X, y
        and noise_variance are as for `fit`.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, noise_variance, **unsupported)
        refuse_arguments(unsupported)
        device = self._posterior.points.device
        with _process_group(device) as processes:
            if processes is None:
                rows = opened(X, y, noise_variance)
                check_more_rows(self, rows)
            else:
                from softki.estimator.shared import source_of_all

                rows = source_of_all(X, y, noise_variance, processes)
                processes.together(partial(check_more_rows, self, rows))
            added = more_rows(rows, self._row_standardizer, device, processes)
            self.fit_ = self.fit_.with_data(added)
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, of: Of = "y"
    ) -> Any:
        """Mean at the rows of X, with standard deviation or covariance if asked for.

        Args:
            X: inputs (n, d).
            return_std: also return the standard deviation, of the shape of the mean.
            return_cov: also return the covariance, (n, n) or (n, n, targets).
            of: whose standard deviation or covariance: that of `y`, a new observation with its
                noise, or of `f`, the function without it.
        """
        if return_std and return_cov:
            raise InvalidInputError("ask for return_std or return_cov, not both")
        noise, matrix = self._noise_of(of), self._inputs(X)
        if return_cov:
            mean, covariance = self._predictor.covariance(matrix, noise)
            return self._output(X, mean), self._output(X, covariance)
        if not return_std:
            return self._output(X, self._predictor.mean(matrix))
        mean, std = self._predictor.mean_and_std(matrix, noise)
        return self._output(X, mean), self._output(X, std)

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95), *, of: Of = "y"
    ) -> Any:
        """Quantiles of y (or of f) at the rows of X: (n, quantiles) or (n, quantiles, targets)."""
        levels = checked_levels(quantiles)
        noise, matrix = self._noise_of(of), self._inputs(X)
        return self._output(X, self._predictor.quantiles(matrix, levels, noise))

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        *,
        of: Of = "y",
    ) -> Any:
        """Joint draws of y (or of f) at the rows of X: (n, draws) or (n, targets, draws)."""
        noise, matrix = self._noise_of(of), self._inputs(X)
        check_integer("n_samples", n_samples, 1)
        generator = self._generator(random_state)
        draws = self._predictor.observations(matrix, noise, n_samples, generator)
        return self._output(X, draws, axis=1)

    def sample_functions(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> Callable[[Any], Any]:
        """Exact draws of whole functions f: a callable of X with the shapes of `sample_y`.

        The callable always gives the same functions, wherever they are evaluated.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 1)
        fitted = copy(self)  # as it is now: a later fit replaces what it holds
        draws = self._predictor.functions(n_samples, self._generator(random_state))

        def functions(X: Any) -> Any:
            return fitted._output(X, draws(fitted._inputs(X)), axis=1)

        return functions

    def predict_gradient(self, X: Any) -> Any:
        """Gradient of the mean in the columns of X: (n, d) or (n, targets, d)."""
        matrix = self._inputs(X)
        return self._output(X, self._predictor.gradient(matrix), axis=1)

    def log_marginal_likelihood(self) -> float:
        """log p(y) of all rows seen so far, in the units of y, summed over targets.

        It is that of the learned model with its own noise, before calibration.
        """
        check_is_fitted(self)
        model, statistics = self.fit_.model, self.fit_.statistics
        with torch.no_grad():
            value = log_marginal_likelihood(model.kernel_matrix(), statistics, model.noise_variance)
        return float(value) - statistics.count * float(self.y_standardizer_.scale.log().sum())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to one file, to be read by `softki.load`."""
        from softki.storage import save

        save(self, path)

    def export_onnx(self, path: str | PathLike[str]) -> None:
        """Write mean and standard deviation of y as an ONNX graph (needs the package onnx)."""
        from softki.storage import export_onnx

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        export_onnx(
            path,
            self._posterior,
            self.x_standardizer_,
            self.y_standardizer_,
            None if names is None else list(map(str, names)),
            single_target=self.single_target_,
        )

    @property
    def fit_report_(self) -> FitReport:
        """The record of the computation, in the units of a single target.

        With several targets, its figures are those of the standardised targets.
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError("fit_report_ is there once the estimator is fitted: call fit")
        report, scale = self.fit_.report, self.y_standardizer_.scale
        return report.in_units(float(scale[0])) if len(scale) == 1 else report

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fit_")

    @property
    def _posterior(self) -> Posterior:
        return self.fit_.posterior

    @property
    def _predictor(self) -> Predictor:
        names = getattr(self, "feature_names_in_", None)
        return Predictor(self._posterior, self.x_standardizer_, self.y_standardizer_, names)

    @property
    def _row_standardizer(self) -> RowStandardizer:
        return RowStandardizer(
            self.x_standardizer_,
            self.y_standardizer_,
            self.noise_unit_,
            self.fit_.settings.dtype,
        )

    def _inputs(self, X: Any) -> Tensor:
        """The numbers of X, with the columns of the fit."""
        check_is_fitted(self)
        matrix = checked_matrix(X)
        check_columns(self, matrix.shape[1], column_names(X))
        return matrix

    def _noise_of(self, of: Of) -> float:
        """Variance that y has beside f's, standardised."""
        check_choice("of", of, ("y", "f"))
        check_is_fitted(self)
        return float(self._posterior.noise_variance) if of == "y" else 0.0

    def _generator(self, random_state: int | np.random.RandomState | None) -> torch.Generator:
        return torch.Generator(self._posterior.points.device).manual_seed(seed_of(random_state))

    def _output(self, X: Any, values: Tensor, axis: int = -1) -> Any:
        """The values as the caller has X, without the axis of targets if y had none."""
        if self.single_target_:
            values = values.squeeze(axis)
        if isinstance(X, Tensor):  # shorter formats than float32 would overflow
            keeps = X.dtype in DTYPES.values()
            return values.to(X.device, X.dtype if keeps else None)
        return values.cpu().numpy()


def _process_group(device: torch.device) -> AbstractContextManager[Processes | None]:
    """The processes that fit together, if there are several."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return nullcontext()
    from softki.parallel.groups import joined_processes

    return joined_processes(device)


def _progress(is_shown: bool, y: Standardizer) -> AbstractContextManager[list[Callback]]:
    """Callbacks that show a progress bar with errors in the unit of a single target, if asked."""
    if not is_shown:
        return nullcontext([])
    from softki.estimator.progress import progress

    return progress(float(y.scale[0]) if len(y.scale) == 1 else 1.0)
