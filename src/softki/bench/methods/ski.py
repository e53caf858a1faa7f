"""Structured kernel interpolation: KISS-GP on one grid, SKIP on a grid a column.

Both interpolate between the points of a regular grid, by cubic weights w(x) with four entries
a column:  k(x, x') ≈ w(x)ᵀ K_grid w(x').  On a grid a kernel is cheap only where it is a
product over columns, so that both learn

    k(x, x') = σ² Πₖ ρ(|xₖ − x'ₖ|/ℓₖ),   ρ(r) = (1 + √3 r) exp(−√3 r),

which for more than one column is not the Matérn kernel of ‖(x − x')/ℓ‖ of the other methods.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
import torch
from gpytorch import settings as options
from gpytorch.kernels import GridInterpolationKernel, Kernel, ProductKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from softki.bench.methods.gp import FullBatchMethod, correlation, scaled, start_lengthscale

# The cubic weights need two grid points on either side.
_MARGIN = 2.01
# Up to so many rows, their covariance matrix is formed and factorised.
_CHOLESKY_ROWS = 8_000


class _OnGrid(FullBatchMethod):
    """A kernel on a grid over the range of the training rows.

    Up to 8,000 rows GPyTorch forms the covariance matrix of the rows and factorises it, in float64.
    Beyond, it solves by conjugate gradients and estimates log determinants from random probes, in
    float32, and variances are by LOVE, from a Lanczos decomposition of rank 100: where there is
    little noise, errors and variances then come out too large.

    A grid does not extrapolate: what lies outside of the range is moved to its edge, and
    `facts["clamped_rows"]` counts such rows of the latest prediction.
    """

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Learn, on a grid over the range of X."""
        self._low, self._high = X.min(0), X.max(0)
        dense = len(y) <= _CHOLESKY_ROWS
        self.dtype = torch.float64 if dense else torch.float32
        super().fit(X, y)
        self.facts["solver"] = "cholesky" if dense else "cg"

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation at the rows of X, moved into the range."""
        inside = np.clip(X, self._low, self._high)
        self.facts["clamped_rows"] = int((inside != X).any(1).sum())
        return super().predict(inside)

    def _options(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(options.fast_pred_var())
        stack.enter_context(options.max_cholesky_size(_CHOLESKY_ROWS))
        return stack

    def _grid(self, columns: list[int], size: int, correlations: Kernel) -> Kernel:
        """The kernel interpolated on a grid over the columns, `size` points each."""
        bounds = []
        for column in columns:
            low, high = float(self._low[column]), float(self._high[column])
            if low == high:  # a constant column
                low, high = low - 1, high + 1
            margin = _MARGIN * (high - low) / (size - 2 * _MARGIN)
            bounds.append((low - margin, high + margin))
        return GridInterpolationKernel(
            correlations, grid_size=size, grid_bounds=tuple(bounds), active_dims=tuple(columns)
        )


class SKI(_OnGrid):
    """KISS-GP: one grid over all columns, so that there can be few of them.

    Solved by Cholesky factors up to 8,000 rows, and by conjugate gradients beyond.

    Settings:
        grid_size: points a column; None for n^(1/d), as many grid points as rows, within 10
            and 1,000.
        epochs, learning_rate: of Adam, all rows in every step; fewer if the objective rests.
    """

    name = "ski"
    max_columns = 4
    defaults: ClassVar[dict[str, Any]] = {"grid_size": None, "epochs": 200, "learning_rate": 0.1}

    def _kernel(self, x: Tensor, likelihood: GaussianLikelihood) -> Kernel:
        n, d = x.shape
        size = self.settings["grid_size"] or min(max(int(n ** (1 / d)), 10), 1000)
        self.facts["grid_size"] = size
        return scaled(self._grid(list(range(d)), size, correlation(d, start_lengthscale(d))))

    def _kernel_parameters(self) -> tuple[Tensor, Tensor]:
        kernel = self.model.covar_module
        if len(kernel.base_kernel.grid) == 2:
            self._note_points(torch.cartesian_prod(*kernel.base_kernel.grid))
        return kernel.base_kernel.base_kernel.lengthscale, kernel.outputscale


class SKIP(_OnGrid):
    """SKIP: the product of one-dimensional SKI kernels, each on its own grid.

    Up to 8,000 rows the covariance matrix is formed and factorised. Beyond, to multiply a vector
    with an elementwise product of matrices takes low-rank factors of them, which GPyTorch finds
    by Lanczos' method, merging one column after the other. So the covariance of the training rows
    is approximate, while that between test and training rows is not; where the rank is too low
    for the lengthscales the two do not fit together, and predictions are bad.

    Settings:
        grid_size: points of every grid.
        rank: of the factors.
        epochs, learning_rate: of Adam, all rows in every step; fewer if the objective rests.
    """

    name = "skip"
    max_columns = 30
    chunk = 1024
    defaults: ClassVar[dict[str, Any]] = {
        "grid_size": 100,
        "rank": 100,
        "epochs": 200,
        "learning_rate": 0.1,
    }

    def _kernel(self, x: Tensor, likelihood: GaussianLikelihood) -> Kernel:
        d, size = x.shape[1], self.settings["grid_size"]
        return scaled(
            ProductKernel(
                *(self._grid([k], size, correlation(1, start_lengthscale(d))) for k in range(d))
            )
        )

    def _kernel_parameters(self) -> tuple[Tensor, Tensor]:
        kernel = self.model.covar_module
        lengthscales = [part.base_kernel.lengthscale for part in kernel.base_kernel.kernels]
        return torch.cat(lengthscales), kernel.outputscale

    def _options(self) -> ExitStack:
        stack = super()._options()
        stack.enter_context(options.max_root_decomposition_size(self.settings["rank"]))
        return stack
