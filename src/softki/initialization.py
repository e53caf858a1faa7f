"""Where training starts: k-means centres and the temperature."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from softki.batches import chunk_rows
from softki.distances import pairs_between

# k-means looks at this many rows for each point, at most.
_ROWS_PER_POINT = 20
_KMEANS_ITERATIONS = 10


def initial_temperature(dimension: int) -> float:
    """T₀ = 0.2 √d.

    Standardised rows lie about √(2d) apart. With T = 1 the softmax is then nearly one-hot in
    high dimension, which training has to undo; with 0.2 √d they are about 7 apart for every d.
    """
    return 0.2 * math.sqrt(dimension)


def initial_points(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means centres of the rows of x (n, d): (m, d) with m = count, or fewer.

    Looks at a sample of the rows when there are many. There are never more centres than
    distinct rows in the sample: equal points would add nothing and make K singular.
    """
    size = max(_ROWS_PER_POINT * count, 10_000)
    if len(x) > size:
        x = x[torch.randperm(len(x), generator=generator, device="cpu")[:size].to(x.device)]
    distinct = torch.unique(x, dim=0)
    if len(distinct) <= count:
        return distinct.double()
    if x.is_cuda:
        return _lloyd(x, _plus_plus(x, count, generator)).double()
    seed = int(torch.randint(2**31 - 1, (), generator=generator, device="cpu"))
    return torch.from_numpy(_sklearn_kmeans(x.numpy(), count, seed)).double()


def _sklearn_kmeans(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    kmeans = KMeans(count, n_init=1, max_iter=_KMEANS_ITERATIONS, random_state=seed)
    with warnings.catch_warnings():
        # Ten iterations are enough to start from; convergence is not what is wanted here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        centres: np.ndarray = kmeans.fit(x).cluster_centers_
    return centres


def _plus_plus(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++ seeds: each next row is drawn in proportion to its squared distance to the rest.

    The draws are inverse cumulative sums on the device of x, so that nothing waits for the host.
    """
    uniform = torch.rand(count, generator=generator, device="cpu").to(x)
    chosen = (uniform[:1] * len(x)).long()
    squared = torch.full_like(x[:, 0], math.inf)
    for draw in uniform[1:]:
        squared = torch.minimum(squared, (x - x[chosen[-1:]]).square().sum(1))
        total = squared.double().cumsum(0)
        index = torch.searchsorted(total, draw.double() * total[-1:], right=True)
        chosen = torch.cat([chosen, index.clamp_max(len(x) - 1)])
    return x[chosen]


def _lloyd(x: Tensor, centres: Tensor) -> Tensor:
    """Lloyd's algorithm on the device of x; an empty cluster keeps its centre."""
    m = len(centres)
    for _ in range(_KMEANS_ITERATIONS):
        sums, sizes = torch.zeros_like(centres), centres.new_zeros(m, 1)
        for part in x.split(chunk_rows(max(centres.shape), x.device)):
            nearest = pairs_between(part, centres).distance.argmin(1)
            # A product with the one-hot matrix adds in a fixed order, unlike a scatter.
            members = torch.nn.functional.one_hot(nearest, m).to(x.dtype)  # (rows, m)
            sums += members.T @ part
            sizes += members.sum(0)[:, None]
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1), centres)
    return centres
