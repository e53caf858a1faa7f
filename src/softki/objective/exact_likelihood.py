"""The objective of training: the exact log marginal likelihood, or the stabilised choice.

An objective sees the rows through their weights S and returns an `Adjoint`: the gradient of
the loss with respect to K, to β² and, block by block, to S. `backward` pushes these through
the kernel, the softmax and the distances into the parameters; no graph spans the rows. The loss
is −objective per observed value, so that objectives can be mixed and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from softki.batches import Batch
from softki.exceptions import NumericalError
from softki.features import WeightAdjoint, WeightedBatches
from softki.interpolation.weights import Interpolated, WeightGradient
from softki.likelihood import GramGradient
from softki.linalg.products import gram
from softki.model import SoftKI
from softki.solvers import factorise, solve_factorised, whitened_log_likelihood


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The gradient of the loss, per observed value, where the rows meet the parameters."""

    objective: str  # the one that was used: "exact" or "hutchinson"
    log_likelihood: Callable[[], Tensor | None]  # per observed value; the pseudoloss has none
    kernel: Callable[[], Tensor]  # ∂/∂K, (m, m)
    noise: Callable[[], Tensor]  # ∂/∂β²
    weights: WeightAdjoint  # ∂/∂S, batch by batch


class Objective(Protocol):
    """Turns rows, K and β² into an `Adjoint`, or raises `NumericalError`."""

    def __call__(self, rows: WeightedBatches, K: Tensor, noise_variance: Tensor) -> Adjoint:
        """The gradient of the loss on these rows."""
        ...


def backward(
    model: SoftKI, batches: Iterable[Batch] | WeightedBatches, objective: Objective
) -> Adjoint:
    """Add the gradient of the loss on these rows to the `.grad` of the parameters.

    The exact objective passes twice over the batches, in O(nm²) time and O(batch·m) memory:
    once for the statistics, once to push each block's ∂/∂S through its softmax.

    Example:
        >>> import torch
        >>> from softki.kernels import Matern32
        >>> model = SoftKI(torch.tensor([[-1.0], [1.0]]), Matern32(1))
        >>> x = torch.linspace(-2, 2, 8, dtype=torch.float64)[:, None]
        >>> adjoint = backward(model, [Batch(x, x.sin())], exact)
        >>> model.points.grad.shape
        torch.Size([2, 1])
    """
    rows = batches if isinstance(batches, WeightedBatches) else WeightedBatches(model, batches)
    K, noise_variance = model.kernel_matrix(), model.noise_variance
    adjoint = objective(rows, K.detach(), noise_variance.detach())
    parameters = [p for p in model.parameters() if p.requires_grad]
    add_gradients(
        parameters,
        gradients(parameters, [(K, adjoint.kernel())]),
        gradients(parameters, [(noise_variance, adjoint.noise())]),
        gradients(parameters, rows.pull_back(adjoint.weights)),
    )
    return adjoint


def add_gradients(parameters: Sequence[Tensor], *parts: Sequence[Tensor | None]) -> None:
    """Add the gradients to the `.grad` of the parameters; None stands for 0."""
    for parameter, *some in zip(parameters, *parts, strict=True):
        for part in some:
            if part is not None:
                parameter.grad = part if parameter.grad is None else parameter.grad + part


def gradients(
    parameters: Sequence[Tensor], values: Iterable[tuple[Tensor, Tensor]]
) -> Sequence[Tensor | None]:
    """The gradients of the parameters, given those of values made of them."""
    some = [(value, gradient) for value, gradient in values if value.requires_grad]
    if not some:
        return [None] * len(parameters)
    outputs, gradients = zip(*some, strict=True)
    return torch.autograd.grad(outputs, parameters, gradients, allow_unused=True)


def exact(
    rows: WeightedBatches, K: Tensor, noise_variance: Tensor, factor: Tensor | None = None
) -> Adjoint:
    """The exact log marginal likelihood of the rows.

    For −log p, with μ, P the posterior of u and noise variance β²σᵢ² in row i,

        ∂/∂sᵢ = [ P sᵢ − (yᵢ − sᵢᵀμ) μ ] / (β²σᵢ²)

    and ∂/∂K, ∂/∂β² as in `softki.likelihood`. The Cholesky factor of K may be given.
    """
    L = factorise(K, "the kernel matrix K") if factor is None else factor
    statistics = rows.statistics
    size = statistics.count * statistics.targets
    scale = 1 / (noise_variance * size)
    solution = solve_factorised(L, statistics, noise_variance)
    gradient = GramGradient(solution, statistics, noise_variance)
    mean, scaled_mean = solution.mean, -scale * solution.mean

    @cache
    def log_likelihood() -> Tensor:
        return whitened_log_likelihood(solution, statistics, noise_variance) / size

    @cache
    def kernel() -> Tensor:
        return gradient.kernel(size)

    @cache
    def noise() -> Tensor:
        return gradient.noise() / size

    @cache
    def covariance(dtype: torch.dtype) -> Tensor:
        """P, which may be computed in the precision of the rows where float64 costs more."""
        if not L.is_cuda:
            return gram(solution.root.to(dtype)).mul_(float(statistics.targets * scale))
        root = solution.root
        result = torch.empty_like(root, dtype=dtype)
        return torch.mul(gram(root), statistics.targets * scale, out=result)

    def weights(block: Interpolated, batch: Batch, part: slice) -> WeightGradient:
        dtype, y = batch.x.dtype, batch.y.to(batch.x.dtype)
        mu, right = mean.to(dtype), scaled_mean.to(dtype)
        dense = block.times(covariance(dtype))
        if batch.noise_std is None:
            return WeightGradient(dense, y, right, mu)
        square = batch.noise_std.to(dtype).square()[:, None]
        return WeightGradient(dense / square, (y - block.weights @ mu) / square, right)

    return Adjoint("exact", log_likelihood, kernel, noise, weights)


class Stabilised:
    """The paper's objective: exact while that is stable, another one otherwise.

    Exact counts as unstable when a Cholesky factorisation fails or a result is not finite.

    Args:
        fallback: the objective to use then, Hutchinson's pseudoloss in the paper.

    Attributes:
        fallbacks: how often the fallback was used, by reason.
    """

    def __init__(self, fallback: Objective) -> None:
        self.fallback = fallback
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, rows: WeightedBatches, K: Tensor, noise_variance: Tensor) -> Adjoint:
        """Exact if it can be computed, else the fallback."""
        try:
            adjoint = exact(rows, K, noise_variance)
            if all(bool(part().isfinite().all()) for part in (adjoint.kernel, adjoint.noise)):
                return adjoint
            reason = "the exact gradient is not finite"
        except NumericalError as error:
            reason = str(error)
        self.fallbacks[reason] += 1
        try:
            return self.fallback(rows, K, noise_variance)
        except NumericalError as error:
            raise NumericalError(f"{reason}; and in the fallback, {error}") from error
