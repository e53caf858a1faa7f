"""Predictions of a posterior in the user's units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from softki.estimator.rows import check_near
from softki.exceptions import InvalidInputError
from softki.metrics import normal_quantile
from softki.posterior.functions import Posterior
from softki.training.standardize import Standardizer
from softki.validation.tables import as_tensor

# Numbers of a table that are standardised at once.
_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class Predictor:
    """A posterior between the standardizers of inputs and targets.

    Noise is given as the variance that y has beside f's, standardised.
    """

    posterior: Posterior
    x: Standardizer
    y: Standardizer
    names: Sequence[str] | None = None  # of the columns, for messages

    def mean(self, matrix: Tensor) -> Tensor:
        """Mean at the rows of a table, (n, t)."""
        mean = self.posterior.mean
        return self.y.inverse(torch.cat([mean(x) for x in self._blocks(matrix)]))

    def mean_and_std(self, matrix: Tensor, noise: float) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (n, t) each."""
        moments = [self.posterior.predict(x) for x in self._blocks(matrix)]
        mean = torch.cat([mean for mean, _ in moments])
        std = torch.cat([(variance + noise).sqrt() for _, variance in moments])
        return self.y.inverse(mean), std[:, None] * self._scale

    def quantiles(self, matrix: Tensor, levels: Tensor, noise: float) -> Tensor:
        """Quantiles at the levels (q,): (n, q, t)."""
        mean, std = self.mean_and_std(matrix, noise)
        z = normal_quantile(levels).to(mean.device)
        return mean[:, None] + z[:, None] * std[:, None]

    def covariance(self, matrix: Tensor, noise: float) -> tuple[Tensor, Tensor]:
        """Mean (n, t) and covariance (n, n, t)."""
        covariance = self.posterior.covariance(torch.cat(list(self._blocks(matrix))))
        covariance.diagonal().add_(noise)
        return self.mean(matrix), covariance[:, :, None] * self._scale.square()

    def functions(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draws of whole functions f, from the rows of a table to (n, t, count)."""
        draws = self.posterior.sample_functions(count, generator)

        def values(matrix: Tensor) -> Tensor:
            standardised = torch.cat([draws(x) for x in self._blocks(matrix)])  # (n, count, t)
            return self.y.inverse(standardised).transpose(1, 2)

        return values

    def observations(
        self, matrix: Tensor, noise: float, count: int, generator: torch.Generator
    ) -> Tensor:
        """Joint draws at the rows of a table, with independent noise: (n, t, count)."""
        values = self.functions(count, generator)(matrix)
        if not noise:
            return values
        epsilon = torch.randn(
            values.shape, generator=generator, dtype=values.dtype, device=values.device
        )
        return values + noise**0.5 * self._scale[:, None] * epsilon

    def gradient(self, matrix: Tensor) -> Tensor:
        """Gradient of the mean in the columns, (n, t, d)."""
        mean = self.posterior.mean
        gradient = torch.cat([mean.gradient(x) for x in self._blocks(matrix)])
        units = self._scale[:, None] / self.x.scale.to(gradient.device)
        return gradient * units

    def _blocks(self, matrix: Tensor) -> Iterator[Tensor]:
        """Standardised rows, a block at a time, on the device of the posterior."""
        device, size = self.posterior.points.device, max(1, _BLOCK // matrix.shape[1])
        for start in range(0, len(matrix), size):
            block = self.x.transform(matrix[start : start + size].to(device))
            check_near("X", block, self.names)
            yield block

    @property
    def _scale(self) -> Tensor:
        return self.y.scale.to(self.posterior.points.device)


def checked_levels(quantiles: Sequence[float]) -> Tensor:
    """The levels of quantiles, checked, in float64."""
    levels = as_tensor(quantiles, "quantiles").double()
    if levels.ndim != 1 or not len(levels) or not bool(((levels > 0) & (levels < 1)).all()):
        raise InvalidInputError(
            f"quantiles must be a list of numbers between 0 and 1, such as [0.05, 0.95], "
            f"got {quantiles!r}"
        )
    return levels
