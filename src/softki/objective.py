"""What training maximises: the exact log marginal likelihood, or the stabilised choice.

An objective sees the rows through their weights S and returns an `Adjoint`: the gradient of
the loss with respect to K, to β² and, block by block, to S. `backward` pushes these through
the kernel, the softmax and the distances into the parameters; no graph spans the rows. The loss
is −objective per observed value, so that objectives can be mixed and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from softki.batches import Batch
from softki.exceptions import NumericalError
from softki.likelihood import likelihood_gradient
from softki.model import SoftKI
from softki.rows import Rows, sliced
from softki.statistics import Features, GramStatistics


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The gradient of the loss, per observed value, where the rows meet the parameters."""

    objective: str  # the one that was used: "exact" or "hutchinson"
    log_likelihood: float | None  # log p per observed value; the pseudoloss has none
    kernel: Tensor  # ∂/∂K, (m, m)
    noise: Tensor  # ∂/∂β²
    weights: Callable[[Features, slice], Tensor]  # ∂/∂S of the block of rows in that slice


class Objective(Protocol):
    """Turns rows, K and β² into an `Adjoint`, or raises `NumericalError`."""

    def __call__(self, rows: Rows, K: Tensor, noise_variance: Tensor) -> Adjoint:
        """The gradient of the loss on these rows."""
        ...


def backward(model: SoftKI, batches: Sequence[Batch], objective: Objective) -> Adjoint:
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
    rows = Rows(model, batches)
    K, noise_variance = model.kernel_matrix(), model.noise_variance
    adjoint = objective(rows, K.detach(), noise_variance.detach())
    for part, block in sliced(rows.differentiable()):
        if block.weights.requires_grad:
            block.weights.backward(adjoint.weights(block, part))
    for value, gradient in ((K, adjoint.kernel), (noise_variance, adjoint.noise)):
        if value.requires_grad:  # parameters may be frozen
            value.backward(gradient)
    return adjoint


def exact(rows: Rows, K: Tensor, noise_variance: Tensor) -> Adjoint:
    """The exact log marginal likelihood of the rows.

    For −log p, with μ, P the posterior of u and noise variance β²σᵢ² in row i,

        ∂/∂sᵢ = [ P sᵢ − (yᵢ − sᵢᵀμ) μ ] / (β²σᵢ²)

    and ∂/∂K, ∂/∂β² as in `softki.likelihood`.
    """
    statistics = GramStatistics.from_blocks(rows)
    log_likelihood, solution, kernel, noise = likelihood_gradient(K, statistics, noise_variance)
    size = statistics.count * statistics.targets
    mean = solution.mean
    covariance = statistics.targets * (solution.root.T @ solution.root)

    def weights(block: Features, part: slice) -> Tensor:
        S, dtype = block.weights.detach(), block.weights.dtype
        mu = mean.to(dtype)
        gradient = S @ covariance.to(dtype) - (block.targets - S @ mu) @ mu.T
        row_noise = noise_variance.to(dtype) * size
        if block.noise_scale is not None:
            row_noise = row_noise * block.noise_scale.square()[:, None]
        return gradient / row_noise

    return Adjoint("exact", float(log_likelihood) / size, kernel / size, noise / size, weights)


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

    def __call__(self, rows: Rows, K: Tensor, noise_variance: Tensor) -> Adjoint:
        """Exact if it can be computed, else the fallback."""
        try:
            adjoint = exact(rows, K, noise_variance)
            if bool(adjoint.kernel.isfinite().all()) and bool(adjoint.noise.isfinite()):
                return adjoint
            reason = "the exact gradient is not finite"
        except NumericalError as error:
            reason = str(error)
        self.fallbacks[reason] += 1
        try:
            return self.fallback(rows, K, noise_variance)
        except NumericalError as error:
            raise NumericalError(f"{reason}; and in the fallback, {error}") from error
