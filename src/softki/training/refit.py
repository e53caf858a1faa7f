"""Refit of noise, output scale and lengthscales on all rows, from the statistics alone.

The statistics do not depend on the kernel or on β², so that the likelihood of all the data can
be maximised over those at O(m³) an evaluation, whatever n is; over output scale and noise
alone at O(m) after one singular value decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from softki.exceptions import InvalidInputError
from softki.likelihood import likelihood_gradient
from softki.model import SoftKI
from softki.solvers import factorise
from softki.statistics import SquareRootStatistics, Statistics


@torch.inference_mode(False)
@torch.enable_grad()
def refit(model: SoftKI, statistics: Statistics, max_iterations: int = 50) -> float:
    """Maximise log p over the kernel's parameters and β² by L-BFGS, in place.

    Points and temperature stay: the statistics depend on them.

    Args:
        model: the model, whose points and temperature gave the statistics.
        statistics: statistics of all the rows, in either form.
        max_iterations: iterations of L-BFGS at most.

    Returns:
        log p per observed value, after.
    """
    statistics.check_points(len(model.points))
    candidates = [*model.kernel.parameters(), model.raw_noise_variance]
    parameters = [parameter for parameter in candidates if parameter.requires_grad]
    size = statistics.count * statistics.targets

    def loss() -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        K, noise_variance = model.kernel_matrix(), model.noise_variance
        gradient = likelihood_gradient(K.detach(), statistics, noise_variance.detach())
        for value, adjoint in ((K, gradient.kernel), (noise_variance, gradient.noise)):
            if value.requires_grad and parameters:
                value.backward(adjoint / size, inputs=parameters)
        return -gradient.log_likelihood / size

    return -_minimise(loss, parameters, max_iterations)


@torch.inference_mode(False)
@torch.enable_grad()
def refit_scales(
    model: SoftKI, statistics: SquareRootStatistics, max_iterations: int = 100
) -> float:
    """Maximise log p over the output scale and β² alone, in place.

    Let K = σ² L Lᵀ with the output scale σ² taken out, Rs L = U diag(λ) Wᵀ and q = UᵀC. Then

        −2 log p = Σᵢ log(1 + σ²λᵢ²/β²) + n log β² + n log 2π + Σ log σᵢ²
                   + [ yy − Σᵢ qᵢ² σ²λᵢ²/(β² + σ²λᵢ²) ] / β²

    costs O(m) an evaluation after the one decomposition.

    Args:
        model: a model whose kernel has an `outputscale` that can be set, as those of softki and
            `gpytorch.kernels.ScaleKernel` have.
        statistics: statistics of all the rows, in square-root form.
        max_iterations: iterations of L-BFGS at most.

    Returns:
        log p per observed value, after.
    """
    outputscale = getattr(model.kernel, "outputscale", None)
    if not isinstance(outputscale, Tensor) or outputscale.numel() != 1:
        raise InvalidInputError(
            f"{type(model.kernel).__name__} has no single outputscale to refit: wrap it in "
            "gpytorch.kernels.ScaleKernel, or use refit"
        )
    if not isinstance(statistics, SquareRootStatistics):
        raise InvalidInputError("refit_scales needs SquareRootStatistics; refit takes both forms")
    statistics.check_points(len(model.points))
    with torch.no_grad():
        spectrum = _spectrum(model.kernel_matrix() / outputscale, statistics)
    log_scale = nn.Parameter(outputscale.detach().log().reshape(()).clone())
    raw_noise = nn.Parameter(model.raw_noise_variance.detach().clone())

    def loss() -> Tensor:
        log_scale.grad = raw_noise.grad = None
        noise = model.min_noise_variance + raw_noise.exp()
        value = -spectrum.log_likelihood(log_scale.exp(), noise) / spectrum.size
        value.backward()
        return value.detach()

    free = (outputscale.requires_grad, model.raw_noise_variance.requires_grad)
    parameters = [p for p, is_free in zip((log_scale, raw_noise), free, strict=True) if is_free]
    log_likelihood = -_minimise(loss, parameters, max_iterations)
    model.kernel.outputscale = log_scale.detach().exp()
    with torch.no_grad():
        model.raw_noise_variance.copy_(raw_noise)
    return log_likelihood


class _Spectrum(NamedTuple):
    """The likelihood as a function of output scale and noise alone."""

    signal: Tensor  # λ², (k,)
    square: Tensor  # q², (k,), summed over targets
    total: Tensor  # yy, summed over targets
    log_noise: float  # Σ log σᵢ²
    rows: int  # n
    targets: int  # t

    @property
    def size(self) -> int:
        return self.rows * self.targets

    def log_likelihood(self, outputscale: Tensor, noise_variance: Tensor) -> Tensor:
        ratio = outputscale * self.signal / noise_variance
        quadratic = (self.total - (self.square * ratio / (1 + ratio)).sum()) / noise_variance
        log_det = ratio.log1p().sum() + self.rows * (2 * math.pi * noise_variance).log()
        return -(quadratic + self.targets * (log_det + self.log_noise)) / 2


def _spectrum(K: Tensor, statistics: SquareRootStatistics) -> _Spectrum:
    """The singular values of Rs L for K with unit output scale, and the targets in their basis."""
    L = factorise(K, "the kernel matrix K")
    U, values, _ = torch.linalg.svd(statistics.weights_factor @ L, full_matrices=False)
    return _Spectrum(
        signal=values.square(),
        square=(U.T @ statistics.targets_factor).square().sum(1),
        total=statistics.target_square.sum(),
        log_noise=statistics.log_noise,
        rows=statistics.count,
        targets=statistics.targets,
    )


def _minimise(
    loss: Callable[[], Tensor], parameters: list[nn.Parameter], max_iterations: int
) -> float:
    if parameters:  # all may be frozen
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=max_iterations, line_search_fn="strong_wolfe"
        )
        optimizer.step(loss)
    value = float(loss())
    for parameter in parameters:
        parameter.grad = None
    return value
