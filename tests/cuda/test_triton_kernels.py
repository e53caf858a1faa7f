"""The Triton kernels against automatic differentiation of plain PyTorch in float64.

They run on a CUDA device, and without one through Triton's interpreter, which is asked for before
Triton is first imported: `tests/test_triton_interpreter.py` runs this file in a process of its own.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

import pytest
import torch
from torch import Tensor

from softki.kernels.stationary import KERNELS, RationalQuadratic

from dense import F64, relative_error

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if IS_INTERPRETED else "cuda"

pytestmark = [
    pytest.mark.skipif(
        not (IS_INTERPRETED or torch.cuda.is_available()), reason="there is no CUDA device"
    ),
    # Where a row lies on a point, a kernel divides by zero and selects the other branch. The
    # interpreter divides with NumPy, which warns of it.
    pytest.mark.filterwarnings("ignore:.* encountered in divide:RuntimeWarning"),
]

# Rows, points and columns: less than a block of any, one more than a block, and not a multiple.
SHAPES = [(1, 1, 1), (7, 3, 2), (9, 17, 1), (37, 33, 5), (20, 1030, 3)]


@pytest.fixture(scope="module")
def interpolation() -> ModuleType:
    return import_module("softki.interpolation._triton")


def distances(x: Tensor, z: Tensor) -> Tensor:
    """‖xᵢ − zⱼ‖ (n, m), with a gradient of zero where they meet."""
    squared = (x[:, None, :] - z[None, :, :]).square().sum(-1)
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)


def rows_and_points(n: int, m: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """x (n, d), z (m, d) and T (d,) in float32; some points lie on rows, x/T, and some near them.

    T has powers of two, so that x/T is the same in float64.
    """
    x, z = torch.randn(n, d), torch.randn(m, d)
    T = 2.0 ** torch.randint(-1, 2, (d,))
    z[: m // 3] = (x / T)[torch.arange(m // 3) % n]
    z[m // 3 : m // 2] = (x / T)[torch.arange(m // 2 - m // 3) % n] + 1e-3
    return x.to(DEVICE), z.to(DEVICE), T.to(DEVICE)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_temperature", [True, False])
def test_the_weights(
    shape: tuple[int, int, int], has_temperature: bool, interpolation: ModuleType
) -> None:
    x, z, T = rows_and_points(*shape)
    backend = interpolation.FusedBackend(z, T if has_temperature else None)
    scaled = x.double() / T if has_temperature else x.double()
    expected = torch.softmax(-distances(scaled, z.double()), 1)
    S = backend.interpolate(x).weights
    assert S.dtype == torch.float32
    torch.testing.assert_close(S.double(), expected, rtol=2e-6, atol=1e-12)
    for_sums = backend.weights(x)
    assert for_sums.dtype == F64
    torch.testing.assert_close(for_sums, expected, rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_dense", [True, False])
@pytest.mark.parametrize("has_mean", [True, False])
def test_the_gradient_of_points_and_temperature(
    shape: tuple[int, int, int], has_dense: bool, has_mean: bool, interpolation: ModuleType
) -> None:
    """float32 has seven digits; a column of ∂/∂z sums n·(r + 1) products of them."""
    (n, m, _), r = shape, 2
    x, z, T = rows_and_points(*shape)
    dense = torch.randn(n, m, device=DEVICE) if has_dense else None
    left, right, mean = (torch.randn(k, r, device=DEVICE) for k in (n, m, m))
    gradient = interpolation.WeightGradient(dense, left, right, mean if has_mean else None)
    ours = interpolation.FusedBackend(z, T).interpolate(x).pull_back(gradient)

    leaves = [z.double().requires_grad_(), T.double().requires_grad_()]
    S = torch.softmax(-distances(x.double() / leaves[1], leaves[0]), 1)
    by_weights = left.double()
    if has_mean:
        by_weights = by_weights - S.detach() @ mean.double()
    by_weights = by_weights @ right.double().T
    if dense is not None:
        by_weights = by_weights + dense.double()
    expected = torch.autograd.grad(S, leaves, by_weights)
    for value, reference in zip(ours, expected, strict=True):
        scale = reference.abs().max().clamp_min(1e-3)  # with one point, S = 1 and ∂/∂z = 0
        assert float((value.double() - reference).abs().max() / scale) < 1e-4


def test_a_distance_at_the_level_of_rounding_has_no_direction(interpolation: ModuleType) -> None:
    x, z, T = rows_and_points(5, 9, 3)
    gradient = interpolation.WeightGradient(*(torch.randn(k, 9, device=DEVICE) for k in (5, 5, 9)))
    results = []
    for step in (0.0, 2.0**-23):
        z[:5] = x / T * (1 + step)
        results.append(interpolation.FusedBackend(z, T).interpolate(x).pull_back(gradient))
    for near, on in zip(*results, strict=True):
        assert relative_error(near, on) < 1e-5


@pytest.mark.parametrize(("n", "m"), [(3, 1), (37, 33)])
def test_the_parts_of_a_product_in_bfloat16(n: int, m: int, interpolation: ModuleType) -> None:
    """s1 + s2 + s3 = S to 2⁻²⁴, and six products of parts are the product of both sums."""
    x, z, _ = rows_and_points(n, m, 3)
    P = torch.randn(m, m, device=DEVICE)
    S = interpolation._interpolated(x, z.T.contiguous(), torch.float32)
    parts = interpolation._interpolated(x, z.T.contiguous(), torch.bfloat16)
    first, again, more, second, twice, third = parts.double().chunk(6, 1)
    assert torch.equal(first, again)
    assert torch.equal(first, more)
    assert torch.equal(second, twice)
    torch.testing.assert_close(first + second + third, S.double(), rtol=2**-24, atol=1e-12)
    product = parts.double() @ interpolation._split_columns(P).double()
    assert relative_error(product, S.double() @ P.double()) < 1e-6


@pytest.mark.parametrize("name", sorted(KERNELS))
@pytest.mark.parametrize(("m", "d"), [(1, 1), (33, 2), (65, 7)])
def test_the_covariance_and_its_gradient(name: str, m: int, d: int) -> None:
    covariance = import_module("softki.kernels._triton")
    kernel = KERNELS[name](d).to(DEVICE)
    kernel.lengthscale, kernel.outputscale = torch.rand(d) + 0.5, 1.7
    if isinstance(kernel, RationalQuadratic):
        kernel.log_alpha.data.fill_(0.5)
    assert covariance.knows(kernel)
    z = torch.randn(m, d, dtype=F64, device=DEVICE)
    z[1:2], z[3:4] = z[:1], z[2:3] + 1e-6  # a pair of points that meet, and one close by
    z.requires_grad_()
    leaves = [z, *kernel.parameters()]
    W = torch.randn(m, m, dtype=F64, device=DEVICE)

    scaled = z / kernel.lengthscale
    eye = torch.eye(m, dtype=F64, device=DEVICE)
    plain = kernel.outputscale * (kernel.correlation(distances(scaled, scaled)) + 1e-3 * eye)
    fused = covariance.covariance(kernel, z, 1e-3)
    torch.testing.assert_close(fused, plain, rtol=1e-13, atol=1e-13)
    for ours, exactly in zip(
        torch.autograd.grad(fused, leaves, W + W.T),
        torch.autograd.grad(plain, leaves, W + W.T),
        strict=True,
    ):
        # ρ'(r)/r of a rough kernel is 1e6 for a pair 1e-6 apart: six of sixteen digits cancel.
        torch.testing.assert_close(ours, exactly, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("m", "size"), [(16, 16), (64, 32)])
def test_the_inverses_of_triangular_blocks(m: int, size: int, is_transposed: bool) -> None:
    triangular = import_module("softki.linalg._triton")
    L = torch.randn(m, m, dtype=F64, device=DEVICE).tril(-1) / m
    L = L + torch.diag(torch.rand(m, dtype=F64, device=DEVICE) + 0.5)
    inverse = triangular.inverted_blocks(L.T.contiguous().T if is_transposed else L, size)
    blocks = [torch.linalg.inv(L[k : k + size, k : k + size]) for k in range(0, m, size)]
    torch.testing.assert_close(inverse, torch.block_diag(*blocks), rtol=1e-12, atol=1e-12)
