from __future__ import annotations

import gpytorch
import pytest
import torch

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import Matern32, StationaryKernel, make_kernel
from softki.likelihood import log_marginal_likelihood
from softki.model import SoftKI
from softki.statistics import Features, GramStatistics, SquareRootStatistics, Statistics
from softki.training.refit import refit, refit_scales

import dense
from dense import F64


@pytest.fixture(params=[(1, False), (2, True)], ids=["one target", "two noisy targets"])
def p(request: pytest.FixtureRequest) -> dense.Problem:
    targets, noisy_rows = request.param
    return dense.problem(n=300, m=20, d=2, targets=targets, noisy_rows=noisy_rows)


def model_for(p: dense.Problem) -> SoftKI:
    return SoftKI(p.z, Matern32(2, outputscale=5.0), p.temperature, noise_variance=0.5)


def statistics_of(p: dense.Problem, form: type[Statistics]) -> Statistics:
    return form.from_block(Features(p.S, p.Y, p.noise_std))


def likelihood(model: SoftKI, statistics: Statistics) -> float:
    with torch.no_grad():
        value = log_marginal_likelihood(model.kernel_matrix(), statistics, model.noise_variance)
    return float(value) / (statistics.count * statistics.targets)


@pytest.mark.parametrize("form", [GramStatistics, SquareRootStatistics])
def test_refit_reaches_a_maximum_of_the_likelihood(
    p: dense.Problem, form: type[Statistics]
) -> None:
    model, statistics = model_for(p), statistics_of(p, form)
    before = likelihood(model, statistics)
    points = model.points.detach().clone()
    after = refit(model, statistics, max_iterations=200)
    assert after == pytest.approx(likelihood(model, statistics), rel=1e-9)
    assert after > before + 0.1
    assert torch.equal(model.points, points)
    for name, parameter in model.named_parameters():
        if "kernel" in name or "noise" in name:
            with torch.no_grad():
                parameter += 0.02
                assert likelihood(model, statistics) <= after + 1e-6, name
                parameter -= 0.04
                assert likelihood(model, statistics) <= after + 1e-6, name
                parameter += 0.02


def test_refit_of_the_scales_alone(p: dense.Problem) -> None:
    model, statistics = model_for(p), statistics_of(p, SquareRootStatistics)
    lengthscale = model.kernel.lengthscale.detach().clone()
    value = refit_scales(model, statistics)
    assert value == pytest.approx(likelihood(model, statistics), rel=1e-9)
    assert torch.equal(model.kernel.lengthscale, lengthscale)

    other = model_for(p)
    other.kernel.raw_lengthscale.requires_grad_(False)
    grid = [
        likelihood(_with(other, scale, noise), statistics)
        for scale in torch.logspace(-2, 2, 25, dtype=F64)
        for noise in torch.logspace(-4, 0, 25, dtype=F64)
    ]
    assert max(grid) <= value + 1e-6


def _with(model: SoftKI, outputscale: torch.Tensor, noise: torch.Tensor) -> SoftKI:
    model.kernel.outputscale, model.noise_variance = outputscale, noise
    return model


def test_refits_leave_frozen_noise_alone(p: dense.Problem) -> None:
    model, statistics = model_for(p), statistics_of(p, SquareRootStatistics)
    model.raw_noise_variance.requires_grad_(False)
    with torch.no_grad():
        first = refit_scales(model, statistics)
    assert refit(model, statistics) >= first
    assert float(model.noise_variance) == pytest.approx(0.5)
    only_noise = model_for(p)
    only_noise.kernel.requires_grad_(False)
    assert refit(only_noise, statistics) == pytest.approx(refit_scales(only_noise, statistics))
    model.kernel.requires_grad_(False)
    outputscale = model.kernel.outputscale.clone()
    assert refit_scales(model, statistics) == pytest.approx(refit(model, statistics), rel=1e-9)
    assert torch.equal(model.kernel.outputscale, outputscale)
    with pytest.raises(InvalidInputError, match="refit_scales needs SquareRootStatistics"):
        refit_scales(model, statistics_of(p, GramStatistics))  # type: ignore[arg-type]


def test_gpytorch_kernels_refit_too(p: dense.Problem) -> None:
    scaled = make_kernel(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), 2)
    statistics = statistics_of(p, SquareRootStatistics)
    model = SoftKI(p.z, scaled, p.temperature, noise_variance=0.5)
    before = likelihood(model, statistics)
    middle = refit_scales(model, statistics)
    assert before < middle == pytest.approx(likelihood(model, statistics), rel=1e-6)
    assert refit(model, statistics) > middle

    bare = SoftKI(p.z, make_kernel(gpytorch.kernels.RBFKernel(), 2), p.temperature)
    with pytest.raises(
        InvalidInputError, match=r"RBFKernel has no single outputscale.*ScaleKernel"
    ):
        refit_scales(bare, statistics)
    assert not isinstance(bare.kernel, StationaryKernel)
    before = likelihood(bare, statistics)
    assert refit(bare, statistics) > before


def test_statistics_of_other_points_are_refused(p: dense.Problem) -> None:
    statistics = statistics_of(p, SquareRootStatistics)
    model = SoftKI(p.z[:-1], Matern32(2), p.temperature)
    for function in (refit, refit_scales):
        with pytest.raises(InvalidInputError, match="over 20 points, and K has 19: take them"):
            function(model, statistics)
