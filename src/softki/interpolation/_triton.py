"""Distance and softmax in one kernel, and their backward in another, for CUDA devices.

A program holds the distances of a few rows to all m points in registers,

    D²ᵢⱼ = Σₖ (x̃ᵢₖ − zⱼₖ)²,      S = softmax(−D),

from differences, so that rows on points lose no digits. The backward kernel computes them again
and writes cᵢⱼ = (∂/∂Dᵢⱼ)/Dᵢⱼ in float64. What is left are sums over the rows,

    ∂/∂zⱼ = zⱼ Σᵢ cᵢⱼ − Σᵢ cᵢⱼ x̃ᵢ,     Σᵢ x̃ᵢₖ ∂/∂x̃ᵢₖ = Σᵢ x̃²ᵢₖ Σⱼ cᵢⱼ − Σⱼ zⱼₖ Σᵢ cᵢⱼ x̃ᵢₖ,

one product in float64, in which the cancellation between x̃ and z does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import triton
import triton.language as tl
from torch import Tensor

from softki.interpolation.weights import Interpolated, WeightGradient, temperature_gradient

# From so many rows on, a product by parts in bfloat16 is faster than one in float32.
_MANY_ROWS = 8192
# Products of bfloat16 with results in float32 came with torch 2.8.
_FLOAT32_FROM_BFLOAT16 = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)


@triton.jit
def _distances(x, z, rows, columns, here, m, d, BN: tl.constexpr, BM: tl.constexpr):
    """D (BN, BM) and ‖x̃‖² (BN,)."""
    squared = tl.zeros((BN, BM), dtype=tl.float32)
    norm = tl.zeros((BN,), dtype=tl.float32)
    for k in range(d):
        xk = tl.load(x + rows * d + k, mask=here, other=0.0)
        zk = tl.load(z + k * m + columns, mask=columns < m, other=0.0)
        difference = xk[:, None] - zk[None, :]
        squared += difference * difference
        norm += xk * xk
    return tl.sqrt_rn(squared), norm


@triton.jit
def _softmax(distance, columns, m):
    logits = tl.where(columns[None, :] < m, -distance, float("-inf"))
    powers = tl.exp(logits - tl.max(logits, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit(do_not_specialize=["n"])
def _forward(x, z, weights, n, m, d, SPLIT: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    columns = tl.arange(0, BM)
    here = rows < n
    distance, _ = _distances(x, z, rows, columns, here, m, d, BN, BM)
    S = _softmax(distance, columns, m)
    mask = here[:, None] & (columns[None, :] < m)
    if SPLIT:
        # S = s1 + s2 + s3, in the order of `_split_columns`.
        s1 = S.to(tl.bfloat16)
        rest = S - s1.to(tl.float32)
        s2 = rest.to(tl.bfloat16)
        s3 = (rest - s2.to(tl.float32)).to(tl.bfloat16)
        place = weights + rows[:, None] * (6 * m) + columns[None, :]
        tl.store(place, s1, mask=mask)
        tl.store(place + m, s1, mask=mask)
        tl.store(place + 2 * m, s1, mask=mask)
        tl.store(place + 3 * m, s2, mask=mask)
        tl.store(place + 4 * m, s2, mask=mask)
        tl.store(place + 5 * m, s3, mask=mask)
    else:
        place = weights + rows[:, None] * m + columns[None, :]
        tl.store(place, S.to(weights.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n"])
def _backward(
    x, z, dense, left, right, mean, c, c_sum, n, m, d, r,
    HAS_DENSE: tl.constexpr, HAS_MEAN: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    columns = tl.arange(0, BM)
    here = rows < n
    distance, norm = _distances(x, z, rows, columns, here, m, d, BN, BM)
    S = _softmax(distance, columns, m)
    mask = here[:, None] & (columns[None, :] < m)
    place = rows[:, None] * m + columns[None, :]
    gradient = tl.zeros((BN, BM), dtype=tl.float32)
    if HAS_DENSE:
        gradient += tl.load(dense + place, mask=mask, other=0.0)
    for j in range(r):
        u = tl.load(left + rows * r + j, mask=here, other=0.0)
        if HAS_MEAN:
            mu = tl.load(mean + j * m + columns, mask=columns < m, other=0.0)
            u -= tl.sum(S * mu[None, :], 1)
        v = tl.load(right + j * m + columns, mask=columns < m, other=0.0)
        gradient += u[:, None] * v[None, :]
    weighted = S * gradient
    pull = S * tl.sum(weighted, 1)[:, None] - weighted
    # A distance at the level of rounding is zero: its direction means nothing.
    apart = distance > 9.5e-7 * tl.sqrt_rn(norm)[:, None]
    result = tl.where(mask & apart, pull / distance, 0.0).to(tl.float64)
    tl.store(c + place, result, mask=mask)
    tl.store(c_sum + rows, tl.sum(result, 1), mask=here)


def _split_columns(matrix: Tensor) -> Tensor:
    """The parts p1, p2, p3 of a matrix (m, c) in bfloat16, against those of S: (6m, c).

    S·P = s1(p1 + p2 + p3) + s2(p1 + p2) + s3 p1 up to 2⁻²⁴: products of bfloat16 are exact in
    float32, and the tensor cores add them up in it.
    """
    p1 = matrix.bfloat16()
    rest = matrix - p1
    p2 = rest.bfloat16()
    p3 = (rest - p2).bfloat16()
    return torch.cat([p1, p2, p3, p1, p2, p1])


class FusedBackend:
    """Interpolation by the kernels above, for float32 rows on a CUDA device."""

    name = "Triton kernels"

    def __init__(self, z: Tensor, temperature: Tensor | None) -> None:
        self._z, self._temperature = z.T.contiguous(), temperature
        self._exact_z = z.double()

    def interpolate(self, x: Tensor) -> Interpolated:
        """The rows x (n, d) with all that the gradient needs."""
        scaled = self._scaled(x)
        extended = torch.cat([scaled.double(), scaled.new_ones(len(x), 1)], 1)
        square = extended[:, :-1].square()
        return _Fused(scaled, extended, square, self._z, self._exact_z, self._temperature)

    def weights(self, x: Tensor) -> Tensor:
        """S (n, m), computed in float32 and written in float64, for sums over rows."""
        return _interpolated(self._scaled(x), self._z, torch.float64)

    def _scaled(self, x: Tensor) -> Tensor:
        return (x if self._temperature is None else x / self._temperature).contiguous()


@dataclass(frozen=True)
class _Fused:
    x: Tensor  # x/T, (n, d)
    extended: Tensor  # [x/T 1], (n, d + 1), in float64
    square: Tensor  # (x/T)², (n, d), in float64
    z: Tensor  # (d, m)
    exact_z: Tensor  # (m, d), in float64
    temperature: Tensor | None

    @cached_property
    def weights(self) -> Tensor:
        return _interpolated(self.x, self.z, torch.float32)

    def times(self, matrix: Tensor) -> Tensor:
        if len(self.x) < _MANY_ROWS or not _FLOAT32_FROM_BFLOAT16:
            return self.weights @ matrix
        split = _interpolated(self.x, self.z, torch.bfloat16)
        return torch.mm(split, _split_columns(matrix), out_dtype=torch.float32)

    def pull_back(self, gradient: WeightGradient) -> tuple[Tensor, Tensor]:
        (n, d), m = self.x.shape, self.z.shape[1]
        dense, left, mean = gradient.dense, gradient.left.contiguous(), gradient.mean
        right = gradient.right.T.contiguous()
        mu = right if mean is None else mean.T.contiguous()
        c = torch.empty((n, m), dtype=torch.float64, device=self.x.device)
        c_sum = torch.empty(n, dtype=torch.float64, device=self.x.device)
        grid, shape = _launch(n, m)
        some = left if dense is None else dense
        _backward[grid](
            self.x, self.z, some, left, right, mu, c, c_sum, n, m, d, left.shape[1],
            HAS_DENSE=dense is not None, HAS_MEAN=mean is not None, **shape,
        )  # fmt: skip
        sums = c.T @ self.extended  # (m, d + 1)
        c_x, z = sums[:, :-1], self.exact_z
        moment = c_sum @ self.square - (z * c_x).sum(0)
        z_gradient = torch.addcmul(-c_x, sums[:, -1:], z)
        return z_gradient, temperature_gradient(moment, self.temperature)


def _interpolated(x: Tensor, z: Tensor, dtype: torch.dtype) -> Tensor:
    """S (n, m) of x/T (n, d) over z (d, m); in bfloat16, its parts (n, 6m)."""
    (n, d), m, split = x.shape, z.shape[1], dtype == torch.bfloat16
    weights = torch.empty((n, 6 * m if split else m), dtype=dtype, device=x.device)
    grid, shape = _launch(n, m)
    _forward[grid](x, z, weights, n, m, d, SPLIT=split, **shape)
    return weights


def _launch(n: int, m: int) -> tuple[tuple[int], dict[str, int]]:
    """The grid, and rows and columns of a program's block."""
    columns = max(16, triton.next_power_of_2(m))
    rows = min(8, max(2, 8192 // columns))
    warps = 4 if rows * columns <= 8192 else 8
    return (triton.cdiv(n, rows),), {"BN": rows, "BM": columns, "num_warps": warps}
