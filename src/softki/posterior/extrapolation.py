"""Away from the data: f is as uncertain as it was before there was any.

Far from the points the weights tend to a constant, and with them the variance. So f gets a term
that grows with the distance from the data. With D(x) the distance from x/T to the nearest point,

    f(x) = [s(x)ᵀu] + √(1 − κ(x)²) g(x),   κ(x) = ρ((D(x) − R)₊/ℓ),   ρ(r) = (1 + √3 r) exp(−√3 r),

where [ ] is what `share_kept` (`softki.posterior.calibration`) leaves, and g is a Gaussian process
with mean 0, the variance 1 of the standardised target, and the correlation ρ(‖x/T − x'/T‖/ℓ). The
reach R and the width ℓ of the edge come from the training rows. Within the reach κ is 1, and
nothing changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from softki.batches import chunk_rows
from softki.linalg.distances import pairs_between
from softki.model import SoftKI

# Rows that the reach is measured on, at most.
_ROWS = 65_536
# Of the distances, relative to them: rows on a lattice may all be at the same.
_LEAST_SPREAD, _TINY = 0.05, 1e-9
# Waves that g is made of: as many cosines as sines.
WAVES = 512


class Edge(NamedTuple):
    """Where the data ends, in units of x/T."""

    reach: Tensor  # R, ()
    width: Tensor  # ℓ, ()

    def novelty(self, distance: Tensor) -> Tensor:
        """√(1 − κ²) at a distance D from the nearest point.

        Example:
            >>> Edge(torch.tensor(1.0), torch.tensor(2.0)).novelty(torch.tensor([0.5, 1.0, 99.0]))
            tensor([0., 0., 1.])
        """
        s = math.sqrt(3) * (distance - self.reach).clamp_min(0) / self.width
        outside = s > 0  # the root of zero has no gradient
        square = torch.where(outside, 1 - ((1 + s) * torch.exp(-s)).square(), 1)
        return torch.where(outside, square.clamp_min(0).sqrt(), 0)

    def wider(self, other: Edge) -> Edge:
        """The edge of two sets of rows together."""
        return Edge(torch.maximum(self.reach, other.reach), torch.maximum(self.width, other.width))


@torch.no_grad()
def edge_of(model: SoftKI, x: Tensor) -> Edge:
    """The edge of rows x (n, d).

    With quantiles q of the distances to the second nearest point (the nearest may be the row
    itself, where points are many):  R = q₉₉ + (q₉₉ − q₅₀)/2,   ℓ = 2 (q₉₉ − q₅₀).
    """
    points, T = model.points.detach(), model.temperature
    some = x[:: math.ceil(len(x) / _ROWS)]
    distances = [
        _second_nearest(part.double() if T is None else part.double() / T, points)
        for part in some.split(chunk_rows(max(points.shape), x.device))
    ]
    levels = torch.tensor([0.5, 0.99], dtype=torch.float64, device=points.device)
    middle, high = torch.cat(distances).quantile(levels)
    spread = torch.maximum(high - middle, _LEAST_SPREAD * high).clamp_min(_TINY)
    return Edge(high + spread / 2, 2 * spread)


def waves(scaled: Tensor, width: Tensor) -> Tensor:
    """φ(x) (n, w) with φ(x)ᵀφ(x') ≈ ρ(‖x̃ − x̃'‖/ℓ) for x̃ = x/T, and exactly 1 where x = x'.

    Cosines and sines of ωᵀx̃/ℓ, with ω from Student's t with 3 degrees of freedom, the spectrum of
    ρ: always the same ω, so that predictions do not change from call to call.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    pairs = WAVES // 2
    normal = torch.randn(
        pairs, scaled.shape[1] + 3, generator=generator, dtype=torch.float64, device="cpu"
    )
    frequency = normal[:, 3:] / normal[:, :3].square().mean(1, keepdim=True).sqrt()
    phase = scaled @ frequency.T.to(scaled) / width
    return torch.cat([phase.cos(), phase.sin()], 1) / math.sqrt(pairs)


def _second_nearest(scaled: Tensor, points: Tensor) -> Tensor:
    distance = pairs_between(scaled, points).distance
    k = min(2, len(points))
    return distance.topk(k, largest=False).values[:, -1]
