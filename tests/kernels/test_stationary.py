from __future__ import annotations

import subprocess
import sys

import gpytorch
import pytest
import torch

from softki.estimator.defaults import Size
from softki.exceptions import InvalidInputError
from softki.kernels.matrix import kernel_matrix
from softki.kernels.stationary import (
    KERNELS,
    RBF,
    Matern32,
    StationaryKernel,
    make_kernel,
)
from softki.training.settings import FitSettings

from dense import F64

GPYTORCH = {
    "matern12": lambda: gpytorch.kernels.MaternKernel(nu=0.5, ard_num_dims=3),
    "matern32": lambda: gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=3),
    "matern52": lambda: gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=3),
    "rbf": lambda: gpytorch.kernels.RBFKernel(ard_num_dims=3),
    "rq": lambda: gpytorch.kernels.RQKernel(ard_num_dims=3),
}


@pytest.fixture
def z() -> torch.Tensor:
    return torch.randn(10, 3, dtype=F64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", KERNELS)
def test_agrees_with_gpytorch_in_value_and_gradient(name: str, z: torch.Tensor) -> None:
    lengthscale = torch.tensor([0.5, 1.0, 2.5], dtype=F64)
    theirs = gpytorch.kernels.ScaleKernel(GPYTORCH[name]()).double()
    theirs.base_kernel.lengthscale, theirs.outputscale = lengthscale, 2.5
    ours = make_kernel(name, 3)
    ours.lengthscale, ours.outputscale = lengthscale, torch.tensor(2.5)
    if name == "rq":
        theirs.base_kernel.alpha = 1.7
        ours.log_alpha.data.fill_(1.7).log_()

    upstream = torch.randn(10, 10, dtype=F64)
    upstream = upstream + upstream.T

    def value_and_gradient(kernel: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        points = z.clone().requires_grad_()
        K = kernel_matrix(kernel, points)
        K.backward(upstream)
        return K.detach(), points.grad

    for mine, other in zip(value_and_gradient(ours), value_and_gradient(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_against_finite_differences(name: str, z: torch.Tensor) -> None:
    kernel = make_kernel(name, 3)
    parameters = dict(kernel.named_parameters())

    def matrix(points: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(kernel, named, (points,))

    leaves = [p.detach().clone().requires_grad_() for p in parameters.values()]
    assert torch.autograd.gradcheck(matrix, [z[:5].clone().requires_grad_(), *leaves])


@pytest.mark.parametrize("name", KERNELS)
def test_coincident_points_have_finite_gradients(name: str) -> None:
    kernel = make_kernel(name, 2)
    z = torch.zeros(3, 2, dtype=F64, requires_grad=True)
    kernel(z).sum().backward()
    assert torch.equal(z.grad, torch.zeros_like(z))
    assert all(bool(p.grad.isfinite().all()) for p in kernel.parameters())


def test_lengthscale_stays_under_its_cap(z: torch.Tensor) -> None:
    kernel = Matern32(3, lengthscale=2.9)
    optimizer = torch.optim.Adam([kernel.raw_lengthscale], lr=1.0)
    for _ in range(50):
        optimizer.zero_grad()
        (-kernel(z).sum()).backward()
        optimizer.step()
    assert bool(((kernel.lengthscale > 2.99) & (kernel.lengthscale <= 3)).all())
    assert Matern32(2, lengthscale=7.0, max_lengthscale=10.0).lengthscale.tolist() == [7.0, 7.0]
    with pytest.raises(InvalidInputError, match="between 0 and max_lengthscale"):
        RBF(2, lengthscale=3.0)


def test_the_cap_of_a_kernel_is_that_of_a_fit() -> None:
    assert (
        Matern32(2).max_lengthscale
        == FitSettings().max_lengthscale
        == Size(1, 1, 1).max_lengthscale
    )
    assert make_kernel("rbf", 2).max_lengthscale == 3.0


def test_gpytorch_kernels_serve_composed_ones_too(z: torch.Tensor) -> None:
    kernels = gpytorch.kernels
    theirs = (
        kernels.ScaleKernel(kernels.RBFKernel() * kernels.PeriodicKernel()) + kernels.LinearKernel()
    )
    copied = make_kernel(theirs, 3)
    assert all(parameter.dtype == F64 for parameter in copied.parameters())
    assert all(parameter.dtype == torch.float32 for parameter in theirs.parameters())
    expected = theirs.double()(z).to_dense()
    torch.testing.assert_close(kernel_matrix(copied, z), expected)


def test_gpytorch_is_recognised_without_being_imported() -> None:
    code = (
        "import sys\n"
        "from softki import FitSettings, SoftKIRegressor\n"
        "FitSettings(kernel='rbf'), SoftKIRegressor()\n"
        "heavy = {'gpytorch', 'linear_operator', 'sklearn.cluster'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
        "from gpytorch.kernels import RBFKernel\n"
        "FitSettings(kernel=RBFKernel())\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_names() -> None:
    assert isinstance(make_kernel("rbf", 2), RBF)
    with pytest.raises(
        InvalidInputError, match="unknown kernel 'matern-32', did you mean 'matern32'"
    ):
        make_kernel("matern-32", 2)
    with pytest.raises(InvalidInputError, match=r"or a gpytorch\.kernels"):
        make_kernel(3, 2)  # type: ignore[arg-type]


def test_the_base_class_wants_a_correlation() -> None:
    with pytest.raises(TypeError, match="abstract method"):
        StationaryKernel(1)  # type: ignore[abstract]


def test_setters_take_numbers_and_check_them() -> None:
    kernel = Matern32(2)
    kernel.lengthscale, kernel.outputscale = 2.0, 3.0
    assert kernel.lengthscale.tolist() == pytest.approx([2.0, 2.0])
    assert float(kernel.outputscale.detach()) == pytest.approx(3.0)
    with pytest.raises(InvalidInputError, match="between 0 and max_lengthscale = 3"):
        kernel.lengthscale = torch.tensor([1.0, 6.0])
    with pytest.raises(InvalidInputError, match="outputscale must be above 0, got -1"):
        Matern32(2, outputscale=-1.0)


@pytest.mark.parametrize("name", ["matern32", "matern52", "rbf"])
@pytest.mark.parametrize("twice", [False, True])
def test_the_covariance_in_few_passes_equals_the_one_by_autograd(name: str, twice: bool) -> None:
    torch.manual_seed(0)
    kernel = KERNELS[name](3, lengthscale=0.7, outputscale=1.7)
    z = torch.randn(20, 3, dtype=torch.float64)
    if twice:  # a pair at distance zero, and one close by
        z[1], z[3] = z[0], z[2] + 1e-6
    z.requires_grad_()
    W = torch.randn(20, 20, dtype=torch.float64)
    leaves = [z, *kernel.parameters()]
    jittered = kernel(z) + 1e-3 * kernel.outputscale * torch.eye(20, dtype=torch.float64)
    quick = kernel_matrix(kernel, z, jitter=1e-3)
    torch.testing.assert_close(quick, jittered, rtol=1e-12, atol=1e-12)
    for ours, exactly in zip(
        torch.autograd.grad(quick, leaves, W + W.T),
        torch.autograd.grad(jittered, leaves, W + W.T),
        strict=True,
    ):
        torch.testing.assert_close(ours, exactly, rtol=1e-9, atol=1e-9)


class Flat(Matern32):
    """Another correlation under the name of a kernel that has a profile."""

    def correlation(self, r: torch.Tensor) -> torch.Tensor:
        return 1 / (1 + r.square())


class Shifted(RBF):
    """Another covariance altogether."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return super().forward(z) + 1


class Wide(Flat):
    """A profile of its own, which is used."""

    def profile(self, r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full_like(r, 0.5), torch.zeros_like(r)


def test_a_subclass_is_computed_by_what_it_overrides(z: torch.Tensor) -> None:
    r = (z[:, None] - z[None]).norm(dim=-1)
    torch.testing.assert_close(kernel_matrix(Flat(3), z), 1 / (1 + r.square()))
    torch.testing.assert_close(kernel_matrix(Shifted(3), z), 1 + torch.exp(-r.square() / 2))
    torch.testing.assert_close(kernel_matrix(Wide(3), z), torch.full_like(r, 0.5))
    points = z.clone().requires_grad_()
    kernel_matrix(Flat(3), points).sum().backward()
    exactly = z.clone().requires_grad_()
    Flat(3)(exactly).sum().backward()
    torch.testing.assert_close(points.grad, exactly.grad)
