"""The system of Hutchinson's pseudoloss and its preconditioner, against dense matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from softki.batches import Batch
from softki.features import WeightedBatches
from softki.kernels.stationary import Matern32
from softki.model import SoftKI
from softki.objective.hutchinson import covariance_of, woodbury_preconditioner

from dense import F64, relative_error

M = 12


def system(n: int) -> tuple[WeightedBatches, Tensor, Tensor, Tensor]:
    """Rows with known noise, K, the noise variance of each row, and the dense D."""
    torch.manual_seed(0)
    model = SoftKI(torch.randn(M, 2), Matern32(2), 0.5, noise_variance=0.1)
    x, y = torch.randn(n, 2, dtype=F64), torch.randn(n, 1, dtype=F64)
    rows = WeightedBatches(model, [Batch(x, y, torch.rand(n, dtype=F64) + 0.5)])
    K = model.kernel_matrix().detach()
    noise = model.noise_variance.detach() * rows.noise_square
    S = model.weights(x).detach()
    return rows, K, noise, S @ K @ S.T + torch.diag(noise[:, 0])


@pytest.mark.parametrize("n", [10, 2 * M, 2 * M + 1, 100])
def test_products_with_the_covariance_are_those_of_the_dense_one(n: int) -> None:
    rows, K, noise, D = system(n)
    v = torch.randn(n, 3, dtype=F64)
    with torch.no_grad():
        assert relative_error(covariance_of(rows, K, noise)(v), D @ v) < 1e-12


@pytest.mark.parametrize("n", [10, 100])
def test_with_as_many_directions_as_points_the_preconditioner_is_the_inverse(n: int) -> None:
    rows, K, noise, D = system(n)
    with torch.no_grad():
        inverse = woodbury_preconditioner(rows, K, noise, torch.randn(M, M, dtype=F64))
    assert inverse is not None
    v = torch.randn(n, 3, dtype=F64)
    assert relative_error(inverse(v), torch.linalg.solve(D, v)) < 1e-8


def test_fewer_directions_bring_the_eigenvalues_together() -> None:
    rows, K, noise, D = system(100)
    with torch.no_grad():
        inverse = woodbury_preconditioner(rows, K, noise, torch.randn(M, 6, dtype=F64))
    assert inverse is not None

    def spread(matrix: Tensor) -> float:
        values = torch.linalg.eigvals(matrix).real
        assert bool((values > 0).all())
        return float(values.max() / values.min())

    assert spread(inverse(D)) < spread(D / noise) / 2


def test_there_is_no_preconditioner_for_a_matrix_that_is_not_positive() -> None:
    rows, K, noise, _ = system(20)
    with torch.no_grad():
        assert woodbury_preconditioner(rows, -K, noise, torch.randn(M, M, dtype=F64)) is None
