from __future__ import annotations

import pytest
import torch

from softki.linalg import _cpu_tricks, products
from softki.linalg.products import (
    cholesky,
    congruence,
    cross,
    gram,
    gram_and_cross,
    linear,
    lower_solver,
)

from dense import F64, relative_error


@pytest.mark.parametrize("m", [3, 256, 301])
def test_products_equal_the_plain_ones(m: int) -> None:
    A = torch.randn(2 * m, m, dtype=F64)
    assert relative_error(gram(A), A.T @ A) < 1e-14
    assert relative_error(gram(A.T.contiguous().T), A.T @ A) < 1e-14
    L, G = torch.tril(torch.randn(m, m, dtype=F64)), A.T @ A
    left, result = congruence(L, G)
    assert relative_error(left, L.T @ G) < 1e-13
    assert relative_error(result, L.T @ G @ L) < 1e-13
    torch.testing.assert_close(result, result.T, rtol=1e-12, atol=1e-9 * float(result.abs().max()))


@pytest.mark.parametrize("m", [3, 301])
def test_rows_in_float32_are_multiplied_in_float64(m: int) -> None:
    A, Y = torch.randn(2 * m, m), torch.randn(2 * m, 2, dtype=F64)
    G, V = gram_and_cross(A, Y)
    assert relative_error(G, A.double().T @ A.double()) < 1e-14
    assert relative_error(V, A.double().T @ Y) < 1e-14


def test_autograd_passes_through_products_of_many_points() -> None:
    A = torch.randn(300, 280, dtype=F64, requires_grad=True)
    L = torch.eye(280, dtype=F64, requires_grad=True)
    (gram(A).sum() + congruence(L, gram(A))[1].sum() + lower_solver(L)(A.T).sum()).backward()
    assert A.grad is not None
    assert L.grad is not None


@pytest.mark.parametrize("m", [1, 32, 100, 512])
def test_the_inverse_by_doubling(m: int) -> None:
    """What a GPU does, on any device."""
    A = torch.randn(m, 2 * m, dtype=F64)
    L = torch.linalg.cholesky(A @ A.T)
    right = torch.randn(m, 5, dtype=F64)
    expected = torch.linalg.solve_triangular(L, right, upper=False)
    assert (
        relative_error(products._lower_inverse(products._padded(L))[:m, :m] @ right, expected)
        < 1e-11
    )
    assert relative_error(lower_solver(L)(right), expected) < 1e-14


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions also where they are not faster, and also for a small product."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.backends.mkldnn, "conv")):
        pytest.skip("this torch has no oneDNN, or does not tell its precision")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(_cpu_tricks, "MANY_PRODUCTS", 1)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1024, 128, 512), (5000, 65, 77), (257, 80, 1)])
def test_a_product_is_as_exact_by_convolution(shape: tuple[int, int, int], threads: int) -> None:
    n, k, m = shape
    A, B, bias = torch.randn(n, k), torch.randn(m, k), torch.randn(m)
    assert _cpu_tricks.convolution_pays(A, B) == (n > 3)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        product, strided = linear(A, B, bias), linear(A.T.contiguous().T, B.T.contiguous().T)
    finally:
        torch.set_num_threads(before)
    exact = A.double() @ B.double().T
    assert product.is_contiguous()
    # Of k products that are rounded, and of their sums, to 6e-8.
    limit = 1e-6 * torch.linalg.norm(A.double(), dim=1)[:, None] * torch.linalg.norm(B, dim=1)
    assert ((strided - exact).abs() <= limit).all()
    assert ((product - exact - bias).abs() <= limit + 1e-6).all()


@pytest.mark.usefixtures("onednn")
def test_what_is_not_left_to_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = torch.randn(2048, 128), torch.randn(256, 128)
    assert _cpu_tricks.convolution_pays(A, B)
    assert not _cpu_tricks.convolution_pays(A.double(), B.double())
    assert not _cpu_tricks.convolution_pays(A[:200], B)  # few rows
    assert not _cpu_tricks.convolution_pays(A[:, :8], B[:, :8])  # a small image
    assert not _cpu_tricks.convolution_pays(A, B.requires_grad_())
    with torch.no_grad():
        assert _cpu_tricks.convolution_pays(A, B)
        torch.backends.mkldnn.set_flags(_enabled=False)
        try:
            assert not _cpu_tricks.convolution_pays(A, B)
        finally:
            torch.backends.mkldnn.set_flags(_enabled=True)

    convolved: list[int] = []
    monkeypatch.setattr(_cpu_tricks, "convolved", lambda A, B, bias: convolved.append(len(A)))
    monkeypatch.setattr(_cpu_tricks, "MANY_PRODUCTS", 2048 * 128 * 256)
    linear(A, B.detach())
    linear(A[:2047], B.detach())  # one row fewer
    assert convolved == [2048]


@pytest.mark.usefixtures("onednn")
def test_fewer_bits_are_not_asked_for() -> None:
    """A user may have convolutions in bfloat16; which processors heed that is another matter."""
    A, B = torch.randn(2048, 128), torch.randn(256, 128)
    convolutions = torch.backends.mkldnn.conv  # type: ignore[attr-defined]
    convolutions.fp32_precision = "bf16"
    try:
        assert not _cpu_tricks.convolution_pays(A, B)
    finally:
        convolutions.fp32_precision = "none"


def test_a_torch_that_does_not_tell_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backend:
        @staticmethod
        def is_available() -> bool:
            return True

    monkeypatch.setattr(torch.backends, "mkldnn", Backend)
    assert not _cpu_tricks.convolution_pays(torch.randn(2048, 128), torch.randn(256, 128))
    assert linear(torch.randn(2048, 128), torch.randn(256, 128)).shape == (2048, 256)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("shape", [(4, 3, 5), (1024, 512, 26), (5000, 65, 77)])
def test_a_cross_product_is_as_exact_by_convolution(shape: tuple[int, int, int]) -> None:
    n, k, m = shape
    A, B = torch.randn(n, k), torch.randn(n, m)
    assert _cpu_tricks.convolution_pays(B, A) == (n > 4)
    limit = 1e-6 * torch.linalg.norm(A, dim=0)[:, None] * torch.linalg.norm(B, dim=0)
    for left in (A, A.T.contiguous().T):
        assert ((cross(left, B) - A.double().T @ B.double()).abs() <= limit).all()
    assert relative_error(cross(A.double(), B.double()), A.double().T @ B.double()) < 1e-14


@pytest.mark.parametrize("m", [40, 512, 1024])
def test_a_cholesky_factor_with_or_without_a_border(m: int) -> None:
    A = torch.randn(m, m, dtype=F64)
    A = A @ A.T / m + 1e-6 * torch.eye(m, dtype=F64)
    L, info = cholesky(A)
    assert int(info) == 0
    assert torch.equal(L, L.tril())
    assert relative_error(L @ L.T, A) < 1e-14
    A[m // 2, m // 2] = -1
    assert int(cholesky(A)[1]) == m // 2 + 1


def test_autograd_passes_through_a_cholesky_factor() -> None:
    A = (2 * torch.eye(512, dtype=F64)).requires_grad_()
    cholesky(A)[0].sum().backward()
    expected = torch.eye(512, dtype=F64, requires_grad=True)
    (torch.linalg.cholesky(2 * expected)).sum().backward()
    assert A.grad is not None
    torch.testing.assert_close(2 * A.grad, expected.grad)


def test_a_large_product_is_differentiable() -> None:
    A, B = torch.randn(2048, 128, requires_grad=True), torch.randn(256, 128)
    linear(A, B).sum().backward()
    torch.testing.assert_close(A.grad, B.sum(0).expand(2048, 128), rtol=1e-4, atol=1e-4)
