from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softki.bench.memory import PeakMemory
from softki.exceptions import InvalidInputError
from softki.kernels.stationary import Matern32
from softki.model import SoftKI
from softki.posterior import functions as posterior_module
from softki.posterior.calibration import Calibration
from softki.posterior.extrapolation import Edge
from softki.posterior.functions import Function, Posterior
from softki.solvers import solve
from softki.statistics import Features, SquareRootStatistics
from softki.training.fit import prepared

import dense
from dense import F64, relative_error


def posterior_for(p: dense.Problem, noise_variance: float = 0.1) -> Posterior:
    kernel = Matern32(p.x.shape[1])
    kernel.lengthscale = p.lengthscale
    model = SoftKI(p.z, kernel, p.temperature, noise_variance)
    with torch.no_grad():
        statistics = SquareRootStatistics.from_block(Features(model.weights(p.x), p.Y, p.noise_std))
        solution = solve(model.kernel_matrix(), statistics, model.noise_variance)
    return Posterior.from_solution(model, solution)


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("noisy_rows", [False, True])
def test_mean_variance_and_covariance_equal_the_dense_ones(targets: int, noisy_rows: bool) -> None:
    p = dense.problem(targets=targets, noisy_rows=noisy_rows)
    posterior, gp = posterior_for(p), p.gp(0.1)
    mean, variance = posterior.predict(p.x_new)
    covariance = gp.covariance(p.S_new)
    assert mean.shape == (7, targets)
    assert relative_error(mean, gp.mean(p.S_new)) < 1e-8
    assert relative_error(posterior.mean(p.x_new), gp.mean(p.S_new)) < 1e-8
    assert relative_error(variance, covariance.diagonal()) < 1e-8
    assert relative_error(posterior.variance(p.x_new), covariance.diagonal()) < 1e-8
    assert relative_error(posterior.covariance(p.x_new), covariance) < 1e-8
    cross = posterior.covariance(p.x_new[:2], p.x_new[2:])
    torch.testing.assert_close(cross, posterior.covariance(p.x_new)[:2, 2:])


def test_float32_predictions() -> None:
    p = dense.problem()
    posterior, gp = posterior_for(p).to(torch.float32), p.gp(0.1)
    mean, variance = posterior.predict(p.x_new.float())
    assert mean.dtype == torch.float32
    assert relative_error(mean, gp.mean(p.S_new)) < 1e-4
    assert relative_error(variance, gp.covariance(p.S_new).diagonal()) < 1e-4


@given(
    seed=st.integers(0, 1000),
    noise=st.floats(-6, 0),
    lengthscale=st.floats(0.1, 2.9),
    single=st.booleans(),
)
def test_variance_is_never_negative(
    seed: int, noise: float, lengthscale: float, single: bool
) -> None:
    p = dense.problem(n=30, m=15, d=1, seed=seed)
    p.lengthscale = torch.full((1,), lengthscale, dtype=F64)
    posterior = posterior_for(p, 10**noise).to(torch.float32 if single else F64)
    variance = posterior.variance(10 * p.x_new)
    assert bool(variance.isfinite().all())
    assert bool((variance >= 0).all())
    assert torch.linalg.eigvalsh(posterior.covariance(p.x)).min() > -1e-6


def all_coefficients(function: Function) -> torch.Tensor:
    """u of the mean or of draws, where nothing is shrunk."""
    if function.deviation is None:
        return function.coefficients
    return function.coefficients + function.deviation.coefficients


def test_root_is_the_covariance_of_the_draws() -> None:
    p = dense.problem(targets=2)
    posterior = posterior_for(p, 1.0)
    functions = posterior.sample_functions(200_000, torch.Generator().manual_seed(0))
    u = all_coefficients(functions)  # (m, count, t)
    assert u.shape == (12, 200_000, 2)
    assert relative_error(u.mean(1), posterior.mean_coefficients) < 0.02
    covariance = posterior.root.T @ posterior.root
    for target in range(2):
        assert relative_error(torch.cov(u[:, :, target]), covariance) < 0.02
    between = (u[..., 0] - u[..., 0].mean(1, keepdim=True)) @ (u[..., 1]).T / 200_000
    assert between.abs().max() < 0.02 * covariance.abs().max()


def test_a_draw_is_one_function_everywhere() -> None:
    p = dense.problem()
    functions = posterior_for(p).sample_functions(3, torch.Generator().manual_seed(0))
    values = functions(p.x_new)
    assert values.shape == (7, 3, 1)
    torch.testing.assert_close(functions(p.x_new[4:]), values[4:])
    again = posterior_for(p).sample_functions(3, torch.Generator().manual_seed(0))
    assert torch.equal(again(p.x_new), values)


def test_gradients_of_mean_and_draws_against_autograd_of_the_definition() -> None:
    p = dense.problem(targets=2)
    posterior = posterior_for(p)
    draws = posterior.sample_functions(3, torch.Generator().manual_seed(0))
    for function, shape in ((posterior.mean, (7, 2, 3)), (draws, (7, 3, 2, 3))):
        x = p.x_new.clone().requires_grad_()
        values = dense.weights(x, p.z, p.temperature) @ all_coefficients(function).flatten(1)
        expected = torch.stack(
            [torch.autograd.grad(v.sum(), x, retain_graph=True)[0] for v in values.unbind(1)], 1
        )
        gradient = function.gradient(p.x_new)
        assert gradient.shape == shape
        assert relative_error(gradient.flatten(1, -2), expected) < 1e-8


def test_predictions_can_be_differentiated() -> None:
    p = dense.problem()
    posterior = posterior_for(p)
    x = p.x_new.clone().requires_grad_()
    posterior.variance(x).sum().backward()
    y = p.x_new.clone().requires_grad_()
    p.gp(0.1).covariance(dense.weights(y, p.z, p.temperature)).diagonal().sum().backward()
    assert relative_error(x.grad, y.grad) < 1e-6


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    p = dense.problem(n=30)
    posterior = posterior_for(p)
    results = [posterior.predict(p.x), posterior.covariance(p.x), posterior.mean.gradient(p.x)]
    monkeypatch.setattr(posterior_module, "chunk_rows", lambda points, device: 7)
    again = [posterior.predict(p.x), posterior.covariance(p.x), posterior.mean.gradient(p.x)]
    torch.testing.assert_close(again, results)


def test_calibration_reaches_everything() -> None:
    """All of it is that of a dense computation: a·v and b, shrunk by α = (1 + v²)^(−½)."""
    p = dense.problem()
    plain = posterior_for(p)
    calibration = Calibration(60.0, 0.7, nll=0.0, target_variance=1.0)
    posterior = plain.calibrated(calibration)
    covariance = 60 * plain.covariance(p.x_new)
    share = (1 + covariance.diagonal() ** 2) ** -0.5
    assert 0.1 < float(share.min()) < 0.8  # it does matter here
    root = share.sqrt()
    shrunk = root[:, None] * covariance * root
    torch.testing.assert_close(posterior.covariance(p.x_new), shrunk)
    torch.testing.assert_close(posterior.variance(p.x_new), shrunk.diagonal())
    mean = share[:, None] * plain.mean(p.x_new)
    torch.testing.assert_close(posterior.mean(p.x_new), mean)
    torch.testing.assert_close(posterior.predict(p.x_new)[0], mean)
    assert float(posterior.noise_variance) == pytest.approx(0.7)
    draws = posterior.sample_functions(20_000, torch.Generator().manual_seed(0))(p.x_new)[..., 0]
    torch.testing.assert_close(draws.mean(1), mean[:, 0], atol=0.05, rtol=0)
    torch.testing.assert_close(torch.cov(draws), shrunk, atol=0.05, rtol=0)


@pytest.mark.parametrize("targets", [1, 2])
def test_gradients_of_a_shrunk_mean_and_of_draws(targets: int) -> None:
    p = dense.problem(n=30, targets=targets)
    calibration = Calibration(30.0, 0.1, nll=0.0, target_variance=1.0)
    posterior = posterior_for(p).calibrated(calibration).within(edge_near(p.x_new))
    draws = posterior.sample_functions(3, torch.Generator().manual_seed(0))
    x, step = p.x_new[:1], 1e-6
    shifts = step * torch.eye(x.shape[1], dtype=x.dtype)
    for function in (posterior.mean, draws):
        numeric = (function(x + shifts) - function(x - shifts)) / (2 * step)  # (d, …)
        gradient = function.gradient(x)[0].movedim(-1, 0)
        torch.testing.assert_close(gradient, numeric, rtol=1e-5, atol=1e-6)


def test_a_shrunk_posterior_with_an_edge_in_both_precisions() -> None:
    """Covariance and draws agree where α, κ and two targets matter, in float32 too."""
    p = dense.problem(targets=2)
    calibration = Calibration(60.0, 0.7, nll=0.0, target_variance=1.0)
    posterior = posterior_for(p).calibrated(calibration).within(edge_near(p.x_new))
    mean, variance = posterior.predict(p.x_new)
    assert float(variance.max()) > 1  # beyond the edge, which adds up to 1
    assert variance.tolist() == pytest.approx(posterior.covariance(p.x_new).diagonal().tolist())
    draws = posterior.sample_functions(20_000, torch.Generator().manual_seed(0))(p.x_new)
    torch.testing.assert_close(draws.mean(1), mean, atol=0.05, rtol=0)
    for target in range(2):
        torch.testing.assert_close(draws[..., target].var(1), variance, atol=0.05, rtol=0.03)
    single = posterior.to(torch.float32)
    for value, exact in zip(single.predict(p.x_new), (mean, variance), strict=True):
        torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-5)


def edge_near(x: torch.Tensor) -> Edge:
    """An edge that some of these rows are beyond."""
    return Edge(torch.tensor(0.3, dtype=x.dtype), torch.tensor(1.0, dtype=x.dtype))


def test_no_rows_and_wrong_columns() -> None:
    p = dense.problem()
    posterior = posterior_for(p)
    mean, variance = posterior.predict(p.x[:0])
    assert (mean.shape, variance.shape) == ((0, 1), (0,))
    with pytest.raises(InvalidInputError, match=r"shape \(n, 3\), got \(7, 2\)"):
        posterior.predict(p.x_new[:, :2])
    with pytest.raises(InvalidInputError, match=r"shape \(n, 3\), got \(3,\)"):
        posterior.mean(p.x_new[0])


def test_no_draws_have_no_gradient() -> None:
    p = dense.problem()
    none = posterior_for(p).sample_functions(0)
    assert none(p.x_new).shape == (7, 0, 1)
    assert none.gradient(p.x_new).shape == (7, 0, 1, 3)


def test_memory_does_not_grow_with_the_rows_that_are_predicted() -> None:
    """Nor do the results of chunks keep the memory of their temporaries from being used again."""
    generator = torch.Generator().manual_seed(0)
    posterior = Posterior(
        points=torch.randn(512, 2, generator=generator, dtype=F64),
        temperature=None,
        mean_coefficients=torch.zeros(512, 1, dtype=F64),
        root=torch.eye(512, dtype=F64),
        noise_variance=torch.tensor(0.1, dtype=F64),
    )
    x = torch.randn(40_000, 2, generator=generator, dtype=F64)
    peaks = []
    with prepared():
        for _ in range(2):
            peak = PeakMemory(torch.device("cpu"))
            posterior.predict(x)
            peaks.append(peak.bytes())
    if None in peaks:
        pytest.skip("the peak of memory is not known here")
    assert max(peaks) < 150e6
