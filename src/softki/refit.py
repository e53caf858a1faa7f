"""Refit of noise, output scale and lengthscales on all rows, from the statistics alone.

The statistics do not depend on the kernel or on β², so that the likelihood of all the data can
be maximised over those at O(m³) an evaluation, whatever n is; over output scale and noise
alone at O(m) after one singular value decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from softki.exceptions import InvalidInputError
from softki.likelihood import likelihood_gradient
from softki.model import SoftKI
from softki.solvers import factorise
from softki.statistics import SquareRootStatistics, Statistics


def refit(model: SoftKI, statistics: Statistics, max_iterations: int = 50) -> float:
    """Maximise log p over the kernel's parameters and β² by L-BFGS, in place.

    Points and temperature stay: the statistics depend on them.

    Returns:
        log p per observed value, after.
    """
    parameters = [*model.kernel.parameters(), model.raw_noise_variance]
    size = statistics.count * statistics.targets

    def loss() -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        K, noise_variance = model.kernel_matrix(), model.noise_variance
        gradient = likelihood_gradient(K.detach(), statistics, noise_variance.detach())
        torch.autograd.backward(
            [K, noise_variance],
            [gradient.kernel / size, gradient.noise / size],
            inputs=parameters,
        )
        return -gradient.log_likelihood / size

    return -_minimise(loss, parameters, max_iterations)


def refit_scales(
    model: SoftKI, statistics: SquareRootStatistics, max_iterations: int = 100
) -> float:
    """Maximise log p over the output scale and β² alone, in place.

    Let K = σ² L Lᵀ with the output scale σ² taken out, Rs L = U diag(λ) Wᵀ and q = UᵀC. Then

        −2 log p = Σᵢ log(1 + σ²λᵢ²/β²) + n log β² + n log 2π + Σ log σᵢ²
                   + [ yy − Σᵢ qᵢ² σ²λᵢ²/(β² + σ²λᵢ²) ] / β²

    costs O(m) an evaluation after the one decomposition.

    Args:
        model: its kernel must have an `outputscale` that can be set, as ours and
            `gpytorch.kernels.ScaleKernel` have.
        statistics: of all the rows, in square-root form.
        max_iterations: of L-BFGS.

    Returns:
        log p per observed value, after.
    """
    outputscale = getattr(model.kernel, "outputscale", None)
    if not isinstance(outputscale, Tensor) or outputscale.numel() != 1:
        raise InvalidInputError(
            f"{type(model.kernel).__name__} has no single outputscale to refit: wrap it in "
            "gpytorch.kernels.ScaleKernel, or use refit"
        )
    with torch.no_grad():
        L = factorise(model.kernel_matrix() / outputscale, "the kernel matrix K")
        U, values, _ = torch.linalg.svd(statistics.weights_factor @ L, full_matrices=False)
        signal = values.square()  # λ², (k,)
        square = (U.T @ statistics.targets_factor).square().sum(1)  # q², summed over targets
        total, n, t = statistics.target_square.sum(), statistics.count, statistics.targets
    log_scale = nn.Parameter(outputscale.detach().log().reshape(()).clone())
    raw_noise = nn.Parameter(model.raw_noise_variance.detach().clone())

    def loss() -> Tensor:
        log_scale.grad = raw_noise.grad = None
        noise = model.min_noise_variance + raw_noise.exp()
        ratio = log_scale.exp() * signal / noise
        quadratic = (total - (square * ratio / (1 + ratio)).sum()) / noise
        log_det = ratio.log1p().sum() + n * (noise.log() + math.log(2 * math.pi))
        value = (quadratic + t * (log_det + statistics.log_noise)) / (2 * n * t)
        value.backward()
        return value.detach()

    log_likelihood = -_minimise(loss, [log_scale, raw_noise], max_iterations)
    model.kernel.outputscale = log_scale.detach().exp()
    with torch.no_grad():
        model.raw_noise_variance.copy_(raw_noise)
    return log_likelihood


def _minimise(
    loss: Callable[[], Tensor], parameters: list[nn.Parameter], max_iterations: int
) -> float:
    optimizer = torch.optim.LBFGS(
        parameters, max_iter=max_iterations, line_search_fn="strong_wolfe"
    )
    optimizer.step(loss)
    value = float(loss())
    for parameter in parameters:
        parameter.grad = None
    return value
