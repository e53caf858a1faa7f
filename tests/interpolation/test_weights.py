from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from softki.exceptions import InvalidInputError
from softki.interpolation.weights import interpolation_weights

import dense
from dense import F64, relative_error

sizes = st.integers(1, 12)


@given(
    n=sizes, m=sizes, d=sizes, scale=st.floats(-6, 6), seed=st.integers(0, 99), double=st.booleans()
)
def test_weights_are_a_distribution(
    n: int, m: int, d: int, scale: float, seed: int, double: bool
) -> None:
    torch.manual_seed(seed)
    dtype = torch.float64 if double else torch.float32
    x, z = 10**scale * torch.randn(n, d, dtype=dtype), torch.randn(m, d, dtype=dtype)
    weights = interpolation_weights(x, z)
    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights.sum(1), torch.ones(n, dtype=dtype), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("temperature", [None, torch.tensor(0.7), torch.tensor([0.3, 1.0, 4.0])])
def test_weights_equal_the_definition(temperature: torch.Tensor | None) -> None:
    x, z = torch.randn(50, 3, dtype=F64), torch.randn(8, 3, dtype=F64)
    temperature = None if temperature is None else temperature.double()
    expected = dense.weights(x, z, 1.0 if temperature is None else temperature)
    torch.testing.assert_close(
        interpolation_weights(x, z, temperature), expected, rtol=1e-12, atol=1e-14
    )


def test_moving_inputs_and_points_together_changes_nothing() -> None:
    x, z, shift = (torch.randn(k, 4, dtype=F64) for k in (20, 6, 1))
    moved = interpolation_weights(x + 100 * shift, z + 100 * shift)
    torch.testing.assert_close(moved, interpolation_weights(x, z), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("distance", [1e-5, 1.0, 1e3, 1e6, 1e12])
def test_float32_at_every_distance(distance: float) -> None:
    """Far away all distances are nearly equal; their differences still count."""
    torch.manual_seed(0)
    z = torch.randn(30, 5)
    x = z[:20] + distance * torch.nn.functional.normalize(torch.randn(20, 5))
    weights = interpolation_weights(x, z)
    far = x.double()
    if distance > 1e6:  # float64 itself cancels: the weights of the limit, exp(z·x/‖x‖)
        expected = torch.softmax(torch.nn.functional.normalize(far) @ z.double().T, 1)
    else:
        expected = dense.weights(far, z.double())
    assert relative_error(weights, expected) < 3e-6


def test_float32_with_points_on_repeated_rows() -> None:
    torch.manual_seed(0)
    rows = torch.randn(25, 8)
    x, z = rows.repeat(4, 1) / 0.3, rows / 0.3
    weights = interpolation_weights(x, z)
    assert relative_error(weights, dense.weights(x.double(), z.double())) < 2e-6


@pytest.mark.parametrize("temperature", [None, torch.tensor(0.7), torch.tensor([0.3, 1.0, 4.0])])
def test_gradients_against_finite_differences(temperature: torch.Tensor | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, dtype=F64, requires_grad=True)
    z = torch.randn(4, 3, dtype=F64, requires_grad=True)
    inputs = [x, z]
    if temperature is not None:
        inputs.append(temperature.double().requires_grad_())
    assert gradcheck(interpolation_weights, inputs)


def test_gradient_is_finite_where_a_row_is_a_point() -> None:
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=F64, requires_grad=True)
    x = torch.zeros(1, 2, dtype=F64, requires_grad=True)
    interpolation_weights(x, z)[0, 0].backward()
    assert bool(x.grad.isfinite().all())
    assert bool(z.grad.isfinite().all())
    assert z.grad[1, 0] != 0
    assert torch.equal(z.grad[0], torch.zeros(2, dtype=F64))


def test_float32_gradient_with_points_near_rows() -> None:
    torch.manual_seed(0)
    rows = torch.randn(40, 6)
    z = rows[:15] + 1e-3 * torch.randn(15, 6)
    upstream = torch.randn(40, 15)

    def gradient(dtype: torch.dtype, weights) -> torch.Tensor:  # type: ignore[no-untyped-def]
        points = z.to(dtype).requires_grad_()
        weights(rows.to(dtype), points).backward(upstream.to(dtype))
        return points.grad

    expected = gradient(F64, dense.weights)
    assert relative_error(gradient(torch.float32, interpolation_weights), expected) < 1e-5


def test_errors() -> None:
    x, z = torch.randn(5, 2), torch.randn(3, 2)
    whole = torch.arange(10).reshape(5, 2)
    with pytest.raises(InvalidInputError, match=r"x has the type torch.int64.*pass x.double\(\)"):
        interpolation_weights(whole, z)
    with pytest.raises(InvalidInputError, match=r"z has the type torch.int64.*pass z.double\(\)"):
        interpolation_weights(x, whole)
    with pytest.raises(InvalidInputError, match=r"float32 and z has torch.float64: give"):
        interpolation_weights(x, z.double())
    with pytest.raises(InvalidInputError, match=r"x must have the shape \(n, 2\), got \(5, 3\)"):
        interpolation_weights(torch.randn(5, 3), z)
    with pytest.raises(InvalidInputError, match=r"z must have the shape \(m, d\), got \(2,\)"):
        interpolation_weights(x, z[0])
    torch.testing.assert_close(
        interpolation_weights(whole, z, torch.tensor(2.0)), interpolation_weights(whole / 2, z)
    )
