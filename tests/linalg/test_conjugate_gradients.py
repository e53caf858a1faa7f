"""Conjugate gradients against direct solves."""

import pytest
import torch

from softki.exceptions import NumericalError
from softki.linalg.conjugate_gradients import conjugate_gradients

F64 = torch.float64


def positive_definite(n: int, condition: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(n, n, dtype=F64, generator=generator)).Q
    return (Q * torch.logspace(0, torch.tensor(condition).log10().item(), n, dtype=F64)) @ Q.T


def right_hand_sides(n: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    # Columns of very different size, which the relative residual does not see.
    scale = torch.logspace(-8, 8, columns, dtype=F64)
    return scale * torch.randn(n, columns, dtype=F64, generator=generator)


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_it_solves_every_column(columns: int, preconditioned: bool) -> None:
    A, right = positive_definite(60, 1e3), right_hand_sides(60, columns)
    inverse = torch.linalg.inv(A + torch.eye(60, dtype=F64))
    solution, converged = conjugate_gradients(
        A.matmul, right, 1e-11, 500, inverse.matmul if preconditioned else None
    )
    assert converged
    direct = torch.linalg.solve(A, right)
    error = torch.linalg.vector_norm(solution - direct, dim=0)
    assert bool((error < 1e-8 * torch.linalg.vector_norm(direct, dim=0)).all())


def test_a_column_of_zeros_and_one_that_is_solved_at_once_stay_as_they_are() -> None:
    A = positive_definite(30, 1e2)
    right = right_hand_sides(30, 3)
    right[:, 1] = 0
    right[:, 2] = torch.linalg.eigh(A).eigenvectors[:, 0]
    solution = conjugate_gradients(A.matmul, right, 1e-12, 200).solution
    assert solution.isfinite().all()
    assert not solution[:, 1].any()
    assert torch.allclose(A @ solution, right, rtol=1e-9)


def test_it_says_whether_it_got_there() -> None:
    A, right = positive_definite(60, 1e4), right_hand_sides(60, 2)
    assert not conjugate_gradients(A.matmul, right, 1e-10, 3).converged
    assert conjugate_gradients(A.matmul, right, 1e-10, 500).converged


def test_a_matrix_that_is_not_positive_definite_gives_no_infinite_solution() -> None:
    A = positive_definite(20, 1e2)
    solution, converged = conjugate_gradients((-A).matmul, right_hand_sides(20, 2), 1e-6, 50)
    assert solution.isfinite().all()
    assert not converged


def test_a_column_is_left_as_it_is_once_the_matrix_is_not_positive_definite_in_it() -> None:
    Q = torch.linalg.qr(
        torch.randn(20, 20, dtype=F64, generator=torch.Generator().manual_seed(0))
    ).Q
    values = torch.linspace(1, 10, 20, dtype=F64)
    values[7] = -3
    A, right = (Q * values) @ Q.T, right_hand_sides(20, 3)
    size = torch.linalg.vector_norm(right, dim=0)
    early, late = (conjugate_gradients(A.matmul, right, 1e-9, n).solution / size for n in (25, 90))
    torch.testing.assert_close(early, late, rtol=0, atol=0)
    assert bool((torch.linalg.vector_norm(A @ late - right / size, dim=0) > 1e-9).all())


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_the_size_of_a_right_hand_side_does_not_matter(scale: float, dtype: torch.dtype) -> None:
    scale = scale if dtype == torch.float32 else scale**6
    A, right = torch.diag(torch.tensor([1.0, 2.0, 4.0], dtype=dtype)), torch.ones(3, 2, dtype=dtype)
    solution, converged = conjugate_gradients(A.matmul, scale * right, 1e-5, 20)
    assert converged
    torch.testing.assert_close(solution / scale, 1 / A.diagonal()[:, None].expand(3, 2))


def test_nothing_to_solve_and_no_steps() -> None:
    A = torch.eye(3, dtype=F64)
    assert conjugate_gradients(A.matmul, torch.ones(3, 0, dtype=F64), 1e-6, 10).converged
    solution, converged = conjugate_gradients(A.matmul, torch.ones(3, 1, dtype=F64), 1e-6, 0)
    assert not converged
    assert not solution.any()


@pytest.mark.parametrize("where", ["matrix", "right"])
def test_what_is_not_finite_is_an_error(where: str) -> None:
    A, right = positive_definite(20, 1e2), right_hand_sides(20, 2)
    (A if where == "matrix" else right)[3, 1] = torch.nan
    with pytest.raises(NumericalError, match="is not finite"):
        conjugate_gradients(A.matmul, right, 1e-6, 50)
