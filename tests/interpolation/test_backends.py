from __future__ import annotations

import pytest
import torch

from softki.interpolation.backends import backend_for
from softki.interpolation.weights import PlainBackend, WeightGradient, interpolation_weights

from dense import F64, relative_error


def gradient_for(n: int, m: int, dense: bool = True, mean: bool = True) -> WeightGradient:
    return WeightGradient(
        torch.randn(n, m, dtype=F64) if dense else None,
        torch.randn(n, 2, dtype=F64),
        torch.randn(m, 2, dtype=F64),
        torch.randn(m, 2, dtype=F64) if mean else None,
    )


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("temperature", [torch.tensor(0.7), torch.tensor([0.3, 1.0, 4.0])])
def test_the_way_back_is_that_of_autograd(
    temperature: torch.Tensor, dense: bool, mean: bool
) -> None:
    x, z = torch.randn(40, 3, dtype=F64), torch.randn(9, 3, dtype=F64)
    temperature = temperature.double()
    z[0] = x[0] / temperature  # on a row
    gradient = gradient_for(40, 9, dense, mean)
    leaves = [z.clone().requires_grad_(), temperature.clone().requires_grad_()]
    S = interpolation_weights(x, *leaves)
    S.backward(gradient.full(S.detach()))

    block = PlainBackend(z, temperature).interpolate(x)
    torch.testing.assert_close(block.weights, S.detach())
    of_z, of_temperature = block.pull_back(gradient)
    assert relative_error(of_z, leaves[0].grad) < 1e-10
    if temperature.ndim == 0:
        of_temperature = of_temperature.sum()
    assert relative_error(of_temperature, leaves[1].grad) < 1e-10


def test_float32_with_rows_near_points() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    z = torch.cat([x[:20] + 1e-3 * torch.randn(20, 4), torch.randn(20, 4)])
    gradient = gradient_for(200, 40)
    single = WeightGradient(*(part.float() for part in gradient if part is not None))
    expected = PlainBackend(z.double(), None).interpolate(x.double()).pull_back(gradient)
    for ours, exact in zip(
        PlainBackend(z, None).interpolate(x).pull_back(single), expected, strict=True
    ):
        assert relative_error(ours, exact) < 1e-4


def test_a_cpu_takes_plain_torch() -> None:
    assert backend_for(torch.randn(3, 2), 5) is PlainBackend


@pytest.mark.parametrize("n", [50, 1024])
def test_weights_times_a_matrix_that_is_not_symmetric(n: int) -> None:
    z, matrix = torch.randn(200, 3), torch.randn(200, 200)
    block = PlainBackend(z, None).interpolate(torch.randn(n, 3))
    expected = block.weights.double() @ matrix.double()
    assert relative_error(block.times(matrix), expected) < 1e-6
