from __future__ import annotations

import gpytorch
import pytest
import torch

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import Matern32, make_kernel
from softki.model import SoftKI

import dense
from dense import F64


def test_jitter_is_relative_to_the_output_scale() -> None:
    z = torch.zeros(3, 2, dtype=F64)
    for outputscale in (0.01, 100.0):
        K = SoftKI(z, Matern32(2, outputscale=outputscale), jitter=1e-3).kernel_matrix()
        expected = outputscale * (torch.ones(3, 3) + 1e-3 * torch.eye(3)).double()
        torch.testing.assert_close(K.detach(), expected)


def test_weights_have_the_precision_of_the_data_and_parameters_stay_in_float64() -> None:
    model = SoftKI(torch.randn(4, 2), Matern32(2), torch.ones(2))
    assert model.weights(torch.randn(3, 2)).dtype == torch.float32
    assert model.weights(torch.randn(3, 2, dtype=F64)).dtype == F64
    assert all(parameter.dtype == F64 for parameter in model.parameters())


@pytest.mark.parametrize("temperature", [None, torch.tensor(0.5), torch.tensor([0.5, 2.0])])
def test_temperature_none_one_or_per_dimension(temperature: torch.Tensor | None) -> None:
    z, x = torch.randn(4, 2, dtype=F64), torch.randn(6, 2, dtype=F64)
    model = SoftKI(z, Matern32(2), temperature)
    expected = dense.weights(x, z, 1.0 if temperature is None else temperature.double())
    torch.testing.assert_close(model.weights(x).detach(), expected)
    assert ("log_temperature" in dict(model.named_parameters())) == (temperature is not None)


def test_a_composed_gpytorch_kernel_gets_gradients() -> None:
    kernels = gpytorch.kernels
    kernel = make_kernel(kernels.ScaleKernel(kernels.RBFKernel() + kernels.LinearKernel()), 2)
    model = SoftKI(torch.randn(5, 2), kernel)
    model.kernel_matrix().sum().backward()
    assert all(bool((p.grad != 0).all()) for p in model.kernel.parameters())


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Matern32(3), "the kernel is for 3 columns, the points have 2"),
        (gpytorch.kernels.RBFKernel(ard_num_dims=3), "RBFKernel .* give it ard_num_dims=2"),
        (
            gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=5)),
            "ScaleKernel .* 2 columns: give it ard_num_dims=2",
        ),
        (
            gpytorch.kernels.RBFKernel(active_dims=(0,))
            + gpytorch.kernels.RBFKernel(active_dims=(1, 2)),
            r"AdditiveKernel has active_dims=\(1, 2\).* between 0 and 1",
        ),
        (
            gpytorch.kernels.RBFKernel(ard_num_dims=2, active_dims=(1,)),
            "or as many as its active_dims",
        ),
        (gpytorch.kernels.RBFKernelGrad(), "derivative kernels do not serve here"),
    ],
)
def test_a_kernel_for_other_columns_is_refused(kernel: torch.nn.Module, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SoftKI(torch.randn(3, 2), kernel.double())


def test_a_kernel_of_some_columns_serves() -> None:
    kernel = gpytorch.kernels.RBFKernel(ard_num_dims=1, active_dims=(1,)).double()
    z = torch.randn(3, 2, dtype=F64)
    other = gpytorch.kernels.RBFKernel().double()
    torch.testing.assert_close(
        SoftKI(z, kernel, jitter=0.0).kernel_matrix(), other(z[:, 1:]).to_dense()
    )


def test_errors() -> None:
    z = torch.zeros(3, 2)
    with pytest.raises(InvalidInputError, match=r"shape \(\) or \(2,\), got \(3,\)"):
        SoftKI(z, Matern32(2), torch.ones(3))
    with pytest.raises(InvalidInputError, match="temperature must be above 0"):
        SoftKI(z, Matern32(2), torch.tensor([1.0, 0.0]))
    with pytest.raises(InvalidInputError, match="noise_variance must be above 1e-07, got 0"):
        SoftKI(z, Matern32(2), noise_variance=0.0)
