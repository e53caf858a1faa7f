"""What training maximises: the exact log marginal likelihood, or the stabilised choice.

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
from softki.exceptions import InvalidInputError, NumericalError
from softki.features import WeightAdjoint, WeightedBatches
from softki.interpolation.backends import Interpolated, WeightGradient
from softki.likelihood import GramGradient
from softki.linalg.cuda import side_stream
from softki.linalg.products import gram
from softki.model import SoftKI
from softki.parallel.processes import ALONE, Processes
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
    model: SoftKI, batches: Iterable[Batch], objective: Objective, processes: Processes = ALONE
) -> Adjoint:
    """Add the gradient of the loss on these rows to the `.grad` of the parameters.

    The exact objective passes twice over the batches, in O(nm²) time and O(batch·m) memory:
    once for the statistics, once to push each block's ∂/∂S through its softmax. Where processes
    share the rows, each has batches of its own, and both are added: two messages.

    Example:
        >>> import torch
        >>> from softki.kernels.stationary import Matern32
        >>> model = SoftKI(torch.tensor([[-1.0], [1.0]]), Matern32(1))
        >>> x = torch.linspace(-2, 2, 8, dtype=torch.float64)[:, None]
        >>> adjoint = backward(model, [Batch(x, x.sin())], exact)
        >>> model.points.grad.shape
        torch.Size([2, 1])
    """
    device = model.points.device
    with side_stream(device, lane=1) as join_noise:
        noise_variance = model.noise_variance
    with side_stream(device):
        K = model.kernel_matrix()
    join_noise()
    rows = WeightedBatches(model, batches, processes)
    if processes.are_several:
        _ = rows.statistics  # which all wait for, whatever may fail in one of them
    try:
        adjoint = objective(rows, K.detach(), noise_variance.detach())
    except NumericalError:
        rows.give_up()
        raise
    parameters = [p for p in model.parameters() if p.requires_grad]
    with side_stream(device) as join_kernel:
        of_kernel = _gradients(parameters, [(K, adjoint.kernel())])
    with side_stream(device, lane=1) as join_noise:
        adjoint.log_likelihood()
        of_noise = _gradients(parameters, [(noise_variance, adjoint.noise())])
    of_rows = _gradients(parameters, rows.pull_back(adjoint.weights))
    join_kernel()
    join_noise()
    for parameter, *parts in zip(parameters, of_kernel, of_noise, of_rows, strict=True):
        for part in parts:
            if part is not None:
                parameter.grad = part if parameter.grad is None else parameter.grad + part
    return adjoint


def _gradients(
    parameters: Sequence[Tensor], values: Iterable[tuple[Tensor, Tensor]]
) -> Sequence[Tensor | None]:
    """The gradients of the parameters, given those of values made of them."""
    some = [(value, gradient) for value, gradient in values if value.requires_grad]
    if not some:
        return [None] * len(parameters)
    outputs, gradients = zip(*some, strict=True)
    return torch.autograd.grad(outputs, parameters, gradients, allow_unused=True)


def exact(rows: WeightedBatches, K: Tensor, noise_variance: Tensor) -> Adjoint:
    """The exact log marginal likelihood of the rows.

    For −log p, with μ, P the posterior of u and noise variance β²σᵢ² in row i,

        ∂/∂sᵢ = [ P sᵢ − (yᵢ − sᵢᵀμ) μ ] / (β²σᵢ²)

    and ∂/∂K, ∂/∂β² as in `softki.likelihood`.
    """
    with side_stream(K.device) as join:
        L = factorise(K, "the kernel matrix K")
    statistics = rows.statistics
    size = statistics.count * statistics.targets
    scale = 1 / (noise_variance * size)
    join()
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
        if not K.is_cuda:
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


def objective_of_several(objective: str | Objective) -> Objective:
    """The objective where several processes share the rows: exact, or none in this step.

    The vectors of Hutchinson's pseudoloss are as long as the rows of all processes. So a step in
    which the stabilised objective would have fallen back to it is skipped.
    """
    if objective in ("exact", "stabilised", exact) or isinstance(objective, Stabilised):
        return _exact_or_none
    name = objective if isinstance(objective, str) else type(objective).__name__
    raise InvalidInputError(
        f"the objective {name} is for one process, as it needs vectors as long as all rows: use "
        "'stabilised' or 'exact' where several share them"
    )


def _exact_or_none(rows: WeightedBatches, K: Tensor, noise_variance: Tensor) -> Adjoint:
    try:
        adjoint = exact(rows, K, noise_variance)
        if not all(bool(part().isfinite().all()) for part in (adjoint.kernel, adjoint.noise)):
            raise NumericalError("the exact gradient is not finite")
    except NumericalError as error:
        raise NumericalError(f"{error} (several processes have no fallback)") from error
    return adjoint
