from __future__ import annotations

import pytest
import torch

from softki import products
from softki.products import congruence, gram, gram_and_cross, lower_solver

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
