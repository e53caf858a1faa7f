"""The posterior over functions: predictions from z, T, μ and root alone.

    mean s(x)ᵀμ,   cov(f(x), f(x')) = (root·s(x))ᵀ(root·s(x')),   draws s(x)ᵀ(μ + rootᵀε)

Variances are squared norms and cannot be negative. A draw of u is a whole function, exact
everywhere, at the cost of a mean. A calibrated posterior is shrunk where its variance is large
(`softki.posterior.calibration.share_kept`); beyond the edge of the data, variance, covariance and
draws have the further term of `softki.posterior.extrapolation`. No cost depends on the number of
training rows, and predictions are made in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from softki.batches import chunk_rows
from softki.interpolation.weights import check_columns, interpolation_weights, softmax_weights
from softki.linalg.distances import pairs_between
from softki.linalg.products import linear
from softki.model import SoftKI
from softki.posterior.calibration import Calibration, share_kept
from softki.posterior.extrapolation import WAVES, Edge, waves
from softki.solvers import Solution
from softki.validation.tables import as_tensor

# Rows on which the relevance of columns is measured, at most.
_RELEVANCE_ROWS = 2000


class Deviation(NamedTuple):
    """The deviation of draws from the mean, with ε and w standard normal."""

    coefficients: Tensor  # rootᵀε, (m, …)
    waves: Tensor | None  # w, (w, …); None where there is no edge


@dataclass(frozen=True, eq=False)
class Function:
    """f(x) = α s(x)ᵀμ + √α s(x)ᵀrootᵀε + √(1 − κ²) φ(x)ᵀw: the posterior mean, or draws.

    Results are in the precision and on the device of the coefficients.
    """

    posterior: Posterior
    coefficients: Tensor  # μ, (m, …)
    deviation: Deviation | None = None  # None for the mean

    def __call__(self, x: Any) -> Tensor:
        """f at the rows of x (n, d): (n, …)."""
        return self.map(x, self._values)

    def gradient(self, x: Any) -> Tensor:
        """∂f/∂x at the rows of x (n, d): (n, …, d)."""
        return self.map(x, self._gradient)

    def map(self, x: Any, apply: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function to the rows of x chunk by chunk.

        The result of a chunk is copied to its place at once: if all were kept until the end, they
        would lie between the freed temporaries, and that memory could not be used again.
        """
        result: Tensor | None = None
        for rows, part in self.posterior.chunks(x):
            values = apply(part)
            if result is None:
                result = values.new_empty(len(x), *values.shape[1:])
            result[rows] = values
        assert result is not None
        return result

    def _values(self, x: Tensor) -> Tensor:
        weights = self.posterior._weights(x)
        return self._combined(x, weights, self.posterior._shrinkage(weights))

    def _combined(self, x: Tensor, weights: Tensor, shrinkage: Tensor) -> Tensor:
        """f, given the weights and α."""
        values = _times(shrinkage, torch.tensordot(weights, self.coefficients, 1))
        if self.deviation is None:
            return values
        deviation = torch.tensordot(weights, self.deviation.coefficients, 1)
        values = values + _times(shrinkage.sqrt(), deviation)
        if self.deviation.waves is None:
            return values
        novelty = self.posterior._novelty(x, weights)
        if not bool(novelty.any()):
            return values
        return values + torch.tensordot(self.posterior._waves(x, novelty), self.deviation.waves, 1)

    def _gradient(self, x: Tensor) -> Tensor:
        """∂f/∂x = ∂f/∂x at fixed α + ∂f/∂α ∂α/∂x: one pass of m² operations for all columns."""
        with torch.inference_mode(False), torch.enable_grad():
            x = x.detach().clone().requires_grad_()
            weights = self.posterior._weights(x)
            shrinkage = self.posterior._shrinkage(weights)
            fixed = shrinkage.detach().requires_grad_()
            values = self._combined(x, weights, fixed)
            columns = values.flatten(1).unbind(1)
            pairs = [
                torch.autograd.grad(column.sum(), (x, fixed), retain_graph=True)
                for column in columns
            ]
            shrinkage_gradient = torch.zeros_like(x)
            if shrinkage.requires_grad:
                (shrinkage_gradient,) = torch.autograd.grad(shrinkage.sum(), x)
        gradient = x.new_zeros(len(x), len(columns), x.shape[1])
        for k, (by_x, by_shrinkage) in enumerate(pairs):
            gradient[:, k] = by_x + by_shrinkage[:, None] * shrinkage_gradient
        return gradient.unflatten(1, values.shape[1:])


def _times(factor: Tensor, values: Tensor) -> Tensor:
    """Rows (n, …), each times its factor (n,)."""
    return factor.reshape(-1, *(1,) * (values.ndim - 1)) * values


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of f, and of y = f + noise, for t targets that share the covariance.

    Inputs and results are standardised like the training data. Variances and covariances are
    those of f, the same for every target. The variance of y has `noise_variance` added, times
    σ² for a row whose relative noise σ² is known.

    Attributes:
        points: z, (m, d), in units of x/T.
        temperature: T, of shape () or (d,), or None.
        mean_coefficients: μ, (m, t).
        root: (r, m), with cov(u | y) = rootᵀ root.
        noise_variance: variance of y given f, where σ² = 1.
        target_variance: τ² of `share_kept`; None for no shrinkage.
        reach, width: distance at which the data ends, and width of its edge, see
            `softki.posterior.extrapolation`; None for no edge.

    Example:
        >>> posterior = Posterior(
        ...     points=torch.tensor([[0.0], [1.0]]),
        ...     temperature=None,
        ...     root=torch.eye(2),
        ...     mean_coefficients=torch.tensor([[1.0], [3.0]]),
        ...     noise_variance=torch.tensor(0.1),
        ... )
        >>> posterior.predict(torch.tensor([[0.5]]))
        (tensor([[2.]]), tensor([0.5000]))
    """

    points: Tensor
    temperature: Tensor | None
    mean_coefficients: Tensor
    root: Tensor
    noise_variance: Tensor
    target_variance: Tensor | None = None
    reach: Tensor | None = None
    width: Tensor | None = None

    @classmethod
    def from_solution(cls, model: SoftKI, solution: Solution) -> Self:
        """The posterior of a model whose u has been solved for."""
        temperature = model.temperature
        return cls(
            points=model.points.detach().clone(),
            temperature=None if temperature is None else temperature.detach(),
            mean_coefficients=solution.mean,
            root=solution.root,
            noise_variance=model.noise_variance.detach(),
        )

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """This posterior in another precision or on another device, by `Tensor.to`."""
        moved = {
            name: value.to(*args, **kwargs)
            for name, value in vars(self).items()
            if value is not None
        }
        return replace(self, **moved)

    def calibrated(self, calibration: Calibration) -> Self:
        """This posterior with the variance a·v, the noise b, and τ² if there is one."""
        new, limit = self.noise_variance.new_tensor, calibration.target_variance
        return replace(
            self,
            root=calibration.scale**0.5 * self.root,
            noise_variance=new(calibration.noise_variance),
            target_variance=None if limit is None else new(limit),
        )

    def within(self, edge: Edge) -> Self:
        """This posterior with an edge, beyond which f has its prior variance."""
        return replace(self, reach=edge.reach, width=edge.width)

    @property
    def edge(self) -> Edge | None:
        """The edge of the data, if there is one."""
        if self.reach is None or self.width is None:
            return None
        return Edge(self.reach, self.width)

    @property
    def mean(self) -> Function:
        """The posterior mean, a function with values (n, t) and gradients (n, t, d)."""
        return Function(self, self.mean_coefficients)

    def predict(self, x: Any) -> tuple[Tensor, Tensor]:
        """Mean (n, t) and variance of f (n,) at the rows of x (n, d)."""
        mean = self.root.new_empty(len(x), self.mean_coefficients.shape[1])
        variance = self.root.new_empty(len(x))
        for rows, part in self.chunks(x):
            weights = self._weights(part)
            rooted, shrinkage = self._rooted(weights)
            mean[rows] = shrinkage[:, None] * (weights @ self.mean_coefficients)
            variance[rows] = rooted.square().sum(1) + self._novelty(part, weights).square()
        return mean, variance

    def variance(self, x: Any) -> Tensor:
        """var f(x) = α ‖root·s(x)‖² + 1 − κ², (n,)."""
        return self.predict(x)[1]

    def covariance(self, x: Any, other: Any = None) -> Tensor:
        """cov(f(x), f(x')) between the rows of x (n, d) and of other (n', d): (n, n')."""

        def features(part: Tensor) -> Tensor:
            weights = self._weights(part)
            rooted, _ = self._rooted(weights)
            if self.edge is None:
                return rooted
            novelty = self._novelty(part, weights)
            return torch.cat([rooted, self._waves(part, novelty)], 1)

        left = self.mean.map(x, features)
        return left @ (left if other is None else self.mean.map(other, features)).T

    def sample_functions(self, count: int, generator: torch.Generator | None = None) -> Function:
        """Exact draws of whole functions: one `Function` with values (n, count, t).

        ε and w ~ N(0, I) of `Function`, independent between draws and targets.
        """
        m, t = self.mean_coefficients.shape

        def normal(rows: int) -> Tensor:
            return torch.randn(
                (rows, count * t),
                generator=generator,
                dtype=self.root.dtype,
                device=self.root.device,
            )

        coefficients = (self.root.T @ normal(len(self.root))).reshape(m, count, t)
        beyond = None if self.edge is None else normal(WAVES).reshape(WAVES, count, t)
        deviation = Deviation(coefficients, beyond)
        return Function(self, self.mean_coefficients[:, None], deviation)

    def feature_relevance(self, x: Tensor, seed: int = 0) -> Tensor:
        """The root mean square of ∂mean/∂xₖ over rows and targets, by column, summing to one.

        T enters through the weights and the lengthscales through the posterior. Unlike 1/(Tₖℓₖ) it
        also sees a column whose effect is linear, for which both are large. Where the mean is
        constant, all columns have the same share.

        Args:
            x: standardised rows (n, d), of which a random sample is looked at.
            seed: seed of the sample.
        """
        generator = torch.Generator("cpu").manual_seed(seed)
        rows = torch.randperm(len(x), generator=generator, device="cpu")[:_RELEVANCE_ROWS]
        gradient = self.mean.gradient(x[rows.to(x.device)])  # (n, t, d)
        relevance = gradient.square().mean((0, 1)).sqrt()
        total = relevance.sum()
        equal = torch.full_like(relevance, 1 / len(relevance))
        return torch.where(total > 0, relevance / total, equal)

    def chunks(self, x: Any) -> Iterator[tuple[slice, Tensor]]:
        """The rows of x (n, d) chunk by chunk, in the precision and on the device of the points."""
        rows = x if isinstance(x, Tensor) else as_tensor(x, "x")
        size = chunk_rows(max(self.points.shape), self.points.device)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            yield part, rows[part].to(self.points)

    def _weights(self, x: Tensor) -> Tensor:
        """s(x), (n, m)."""
        if x.requires_grad:
            return interpolation_weights(x, self.points, self.temperature)
        check_columns(x, self.points)
        return softmax_weights(pairs_between(self._scaled(x), self.points))

    def _rooted(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """√α root·s(x), (n, r), whose products are covariances, and α(x), (n,)."""
        rooted = linear(weights, self.root)
        if self.target_variance is None:
            return rooted, torch.ones_like(weights[:, 0])
        shrinkage = share_kept(rooted.square().sum(1), self.target_variance)
        return shrinkage.sqrt()[:, None] * rooted, shrinkage

    def _shrinkage(self, weights: Tensor) -> Tensor:
        """α(x), (n,), given the weights."""
        if self.target_variance is None:
            return torch.ones_like(weights[:, 0])
        return self._rooted(weights)[1]

    def _novelty(self, x: Tensor, weights: Tensor) -> Tensor:
        """√(1 − κ²), (n,), given the weights."""
        if self.edge is None:
            return weights.new_zeros(len(x))
        nearest = self.points[weights.argmax(1)]
        return self.edge.novelty(torch.linalg.vector_norm(self._scaled(x) - nearest, dim=1))

    def _waves(self, x: Tensor, novelty: Tensor) -> Tensor:
        """√(1 − κ²) φ(x), (n, w), given √(1 − κ²)."""
        assert self.edge is not None
        return novelty[:, None] * waves(self._scaled(x), self.edge.width)

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.temperature is None else x / self.temperature
