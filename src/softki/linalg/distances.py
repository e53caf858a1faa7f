"""Pairwise Euclidean distances from one matrix product, exact also where points meet.

With x and z shifted by the mean of z (distances do not change),

    ‖xᵢ − zⱼ‖² = ‖xᵢ‖² + eᵢⱼ,   eᵢⱼ = ‖zⱼ‖² − 2 xᵢ·zⱼ                       (one product)

loses digits where the two norms cancel. Pairs with ‖xᵢ − zⱼ‖² ≤ tol·(‖xᵢ‖² + ‖zⱼ‖²) are
therefore recomputed from xᵢ − zⱼ, forward and backward. The gradient at distance zero is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softki.linalg.products import cross, linear

# Elements of the (pairs, d) differences held at once while near pairs are recomputed.
_PAIR_BLOCK = 1 << 22


class Pairs(NamedTuple):
    """Distances between the rows of x and z, with all that their gradient needs."""

    x: Tensor  # (n, d)
    z: Tensor  # (m, d)
    distance: Tensor  # (n, m)
    excess: Tensor  # (n, m), ‖zⱼ‖² − 2 xᵢ·zⱼ
    norm: Tensor  # (n, 1), ‖xᵢ‖; excess and norm belong to the shifted x and z
    rows: Tensor  # (p,), the near pairs
    columns: Tensor  # (p,)


def pairs_between(x: Tensor, z: Tensor) -> Pairs:
    """Distances between the rows of x (n, d) and of z (m, d), without an n×m×d tensor."""
    x_shifted, z_shifted = _shifted(x, z)
    x_squared = x_shifted.square().sum(1, keepdim=True)  # (n, 1)
    z_squared = z_shifted.square().sum(1)  # (m,)
    excess = linear(x_shifted, -2 * z_shifted, z_squared)  # (n, m)
    squared = excess + x_squared
    if _rounds_to_zero(x):
        limit = 64 * torch.finfo(x.dtype).eps * (x_squared + z_squared.max())  # (n, 1)
        limit = torch.where(limit.isfinite(), limit, -1)  # what overflows is not near
        distance = squared.masked_fill_(squared <= limit, 0).sqrt_()
        none = torch.empty(0, dtype=torch.long, device=x.device)
        return Pairs(x, z, distance, excess, x_squared.sqrt(), none, none)
    rows, columns = _near_pairs(squared, x_squared, z_squared, _near_tolerance(x.dtype))
    distance = squared.clamp_min_(0).sqrt_()
    for block, difference in _near_differences(x, z, rows, columns):
        distance[rows[block], columns[block]] = torch.linalg.vector_norm(difference, dim=1)
    return Pairs(x, z, distance, excess, x_squared.sqrt(), rows, columns)


def self_distance(z: Tensor) -> Tensor:
    """Distances (m, m) between the rows of z (m, d), with zeros on the diagonal.

    Example:
        >>> self_distance(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
        tensor([[0., 5.],
                [5., 0.]])
    """
    shifted = z - z.mean(0)
    norms = shifted.square().sum(1)  # (m,)
    squared = torch.addmm(norms, shifted, shifted.T, alpha=-2).add_(norms[:, None])
    squared.fill_diagonal_(torch.inf)
    if len(z) > 1 and squared.min() > _near_tolerance(z.dtype) * 2 * norms.max():
        return squared.fill_diagonal_(0).sqrt_()
    return pairs_between(z, z).distance.fill_diagonal_(0)


def pairs_gradient(pairs: Pairs, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Pull ∂/∂distance (n, m) back to ∂/∂x (n, d) and ∂/∂z (m, d).

    With cᵢⱼ = gᵢⱼ/‖xᵢ − zⱼ‖ (0 at distance zero, up to rounding),  ∂/∂xᵢ = Σⱼ cᵢⱼ (xᵢ − zⱼ)  and
    ∂/∂zⱼ = −Σᵢ cᵢⱼ (xᵢ − zⱼ): two matrix products, with the near pairs added one by one.
    """
    c, c_near = _coefficients(pairs, gradient)
    x_shifted, z_shifted = _shifted(pairs.x, pairs.z)
    x_gradient = c.sum(1, keepdim=True) * x_shifted - c @ z_shifted
    z_gradient = c.sum(0).unsqueeze(1) * z_shifted - c.T @ x_shifted
    for block, pull in _near_pulls(pairs, c_near):
        _add_rows(x_gradient, pairs.rows[block], pull)
        _add_rows(z_gradient, pairs.columns[block], -pull)
    return x_gradient, z_gradient


def scaled_gradient(pairs: Pairs, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """∂/∂z (m, d) as above, and the moment Σᵢ xᵢ ∂/∂xᵢ by column (d,), from one product.

        Σᵢ xᵢ ∂/∂xᵢ = Σᵢ xᵢ² Σⱼ cᵢⱼ − Σⱼ zⱼ Σᵢ cᵢⱼ xᵢ

    The moment is all of ∂/∂x that the gradient of a scale of the columns needs.
    """
    c, c_near = _coefficients(pairs, gradient)
    centre = pairs.z.mean(0)
    x, z = pairs.x - centre, pairs.z - centre
    c_x, c_sum = cross(c, x), c.sum(0).unsqueeze(1)  # (m, d), (m, 1)
    z_gradient = c_sum * z - c_x
    moment = c.sum(1) @ (pairs.x * x) - (z * (c_x + c_sum * centre)).sum(0)
    for block, pull in _near_pulls(pairs, c_near):
        moment += (pairs.x[pairs.rows[block]] * pull).sum(0)
        _add_rows(z_gradient, pairs.columns[block], -pull)
    return z_gradient, moment


def pairwise_distance(x: Tensor, z: Tensor) -> Tensor:
    """Differentiable distances (n, m) between the rows of x (n, d) and of z (m, d).

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
        >>> pairwise_distance(x, x)
        tensor([[0., 5.],
                [5., 0.]], grad_fn=<_PairwiseDistanceBackward>)
    """
    distance: Tensor = _PairwiseDistance.apply(x, z)
    return distance


class _PairwiseDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor) -> Tensor:
        pairs = pairs_between(x, z)
        ctx.save_for_backward(*pairs)
        return pairs.distance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return pairs_gradient(Pairs(*ctx.saved_tensors), gradient)


def _shifted(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    centre = z.mean(0)
    return x - centre, z - centre


def _near_tolerance(dtype: torch.dtype) -> float:
    # The product's error in a squared distance is about eps·(‖x‖² + ‖z‖²); at this tolerance
    # it has become an error of eps^¾ in a distance (1e-6 in float32), relative to the norms.
    return float(10 * torch.finfo(dtype).eps ** 0.5)


def _near_pairs(
    squared: Tensor, x_squared: Tensor, z_squared: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Rows and columns of the pairs with ‖xᵢ − zⱼ‖² ≤ tol·(‖xᵢ‖² + ‖zⱼ‖²), mostly none.

    The least of every row is therefore compared with a bound first, which takes one pass.
    """
    least = squared.amin(1, keepdim=True)
    if bool((least > tolerance * (x_squared + z_squared.max())).all()):
        none = torch.empty(0, dtype=torch.long, device=squared.device)
        return none, none
    near = squared <= tolerance * (x_squared + z_squared)
    rows, columns = near.nonzero(as_tuple=True)
    return rows, columns


def _rounds_to_zero(x: Tensor) -> bool:
    """True where the distance of a near pair is taken for zero instead of recomputed.

    Picking pairs out makes a GPU wait for the host, which a CUDA graph cannot. In float64 the
    error is 1e-7 of the norms at most, in distances that are as small.
    """
    return x.is_cuda and x.dtype == torch.float64


def _coefficients(pairs: Pairs, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The coefficients c (n, m), zero at the near pairs, and those of the near pairs (p,)."""
    x, rows, columns = pairs.x, pairs.rows, pairs.columns
    c = gradient / pairs.distance
    if _rounds_to_zero(x):
        return torch.where(pairs.distance > 0, c, 0), c.new_empty(0)
    # A distance at the level of rounding is zero: its direction means nothing.
    rounding = 8 * torch.finfo(x.dtype).eps * torch.linalg.vector_norm(x, dim=1)  # (n,)
    c_near = torch.where(pairs.distance[rows, columns] > rounding[rows], c[rows, columns], 0)
    c[rows, columns] = 0
    return c, c_near


def _near_pulls(pairs: Pairs, c_near: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """cᵢⱼ (xᵢ − zⱼ) for the near pairs, block by block."""
    for block, difference in _near_differences(pairs.x, pairs.z, pairs.rows, pairs.columns):
        yield block, c_near[block].unsqueeze(1) * difference


def _near_differences(
    x: Tensor, z: Tensor, rows: Tensor, columns: Tensor
) -> Iterator[tuple[slice, Tensor]]:
    step = max(1, _PAIR_BLOCK // max(1, x.shape[1]))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        yield block, x[rows[block]] - z[columns[block]]


def _add_rows(target: Tensor, index: Tensor, values: Tensor) -> None:
    # Each is the deterministic one of the two on its device.
    if target.is_cuda:
        target.index_put_((index,), values, accumulate=True)
    else:
        target.index_add_(0, index, values)
