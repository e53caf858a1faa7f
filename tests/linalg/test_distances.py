from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from softki.interpolation.weights import interpolation_weights
from softki.linalg import distances
from softki.linalg.distances import pairs_between, pairwise_distance

from dense import F64, relative_error


def direct(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x[:, None].double() - z[None].double()).square().sum(-1).sqrt()


def test_distances_equal_the_direct_formula() -> None:
    x, z = torch.randn(30, 5, dtype=F64), torch.randn(9, 5, dtype=F64)
    torch.testing.assert_close(pairwise_distance(x, z), direct(x, z), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("spread", [1e-4, 1e-2, 1.0])
def test_float32_distances_keep_their_digits_where_points_meet(
    offset: float, spread: float
) -> None:
    torch.manual_seed(0)
    z = offset + torch.randn(20, 6)
    x = z.repeat(3, 1) + spread * torch.randn(60, 6)
    distance = pairs_between(x, z).distance
    assert (distance.double() - direct(x, z)).abs().max() < 4e-6 * (1 + spread)


def test_equal_points_have_distance_zero_and_gradient_zero() -> None:
    z = torch.randn(4, 3, dtype=F64)
    x = z[:1].clone().requires_grad_()
    distance = pairwise_distance(x, z)
    assert distance[0, 0] == 0
    (gradient,) = torch.autograd.grad(distance[0, 0], x)
    assert torch.equal(gradient, torch.zeros_like(x))


def test_gradient_of_near_pairs_in_float32() -> None:
    """The unit vector from z to x, also where x − z is far smaller than x."""
    torch.manual_seed(0)
    z = 3 + torch.randn(8, 4)
    x = (z + 1e-3 * torch.randn(8, 4)).requires_grad_()
    pairwise_distance(x, z).diagonal().sum().backward()
    difference = (x.detach() - z).double()
    unit = difference / difference.norm(dim=1, keepdim=True)
    assert relative_error(x.grad, unit) < 1e-6


def test_near_pairs_are_recomputed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = 1 + 1e-4 * torch.randn(20, 3)
    z = 1 + 1e-4 * torch.randn(5, 3)
    z[0] = -1  # so that the shift by the mean does not spread the others apart
    upstream = torch.randn(20, 5)

    def result() -> list[torch.Tensor]:
        leaves = x.clone().requires_grad_(), z.clone().requires_grad_()
        distance = pairwise_distance(*leaves)
        return [distance.detach(), *torch.autograd.grad(distance, leaves, upstream)]

    whole = result()
    assert len(pairs_between(x, z).rows) >= 80
    monkeypatch.setattr(distances, "_PAIR_BLOCK", 7)
    torch.testing.assert_close(result(), whole)
    assert relative_error(whole[0], direct(x, z)) < 1e-6


def test_no_tensor_of_rows_times_points_times_columns() -> None:
    n, m, d = 60, 50, 200
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return result

    x, z = torch.randn(n, d), torch.randn(m, d, requires_grad=True)
    with Sizes():
        interpolation_weights(x, z).square().sum().backward()
    assert largest == max(n * m, n * d, m * d)
