from __future__ import annotations

import mpmath
import pytest
import torch

from softki.exceptions import InvalidInputError
from softki.likelihood import likelihood_gradient, log_marginal_likelihood
from softki.statistics import Features, GramStatistics, SquareRootStatistics, Statistics

import dense
from dense import F64, DenseGP, relative_error

FORMS = [GramStatistics, SquareRootStatistics]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("noisy_rows", [False, True])
@pytest.mark.parametrize("noise_variance", [1.0, 1e-2, 1e-4])
def test_value_and_gradient_equal_the_dense_ones(
    form: type[Statistics], targets: int, noisy_rows: bool, noise_variance: float
) -> None:
    p = dense.problem(targets=targets, noisy_rows=noisy_rows)
    K, noise = p.K.requires_grad_(), torch.tensor(noise_variance, dtype=F64, requires_grad=True)
    loss = -DenseGP(p.S, K, p.Y, noise, p.noise_std).log_likelihood()
    K_gradient, noise_gradient = torch.autograd.grad(loss, [K, noise])
    expected = -loss.item()

    statistics = form.from_block(Features(p.S, p.Y, p.noise_std))
    ours = likelihood_gradient(K.detach(), statistics, noise.detach())
    assert float(ours.log_likelihood) == pytest.approx(expected, rel=1e-10)
    assert relative_error(ours.kernel, (K_gradient + K_gradient.T) / 2) < 1e-8
    assert relative_error(ours.noise, noise_gradient) < 1e-8
    value = log_marginal_likelihood(K.detach(), statistics, noise.detach())
    assert float(value) == pytest.approx(expected, rel=1e-10)


def test_the_kernel_gradient_survives_an_ill_conditioned_kernel() -> None:
    """The textbook ½[K⁻¹ − K⁻¹(P + μμᵀ)K⁻¹] would lose what K's condition number takes."""
    p = dense.problem(n=60, m=20, d=1)
    p.lengthscale = torch.full((1,), 20.0, dtype=F64)
    K = dense.with_jitter(dense.matern32(p.z, p.lengthscale), 1e-9)
    assert torch.linalg.cond(K) > 1e8
    D_inverse = torch.linalg.inv(DenseGP(p.S, K, p.Y, torch.tensor(0.1, dtype=F64)).D)
    a = p.S.T @ D_inverse @ p.Y
    expected = (p.S.T @ D_inverse @ p.S - a @ a.T) / 2

    statistics = GramStatistics.from_block(Features(p.S, p.Y))
    ours = likelihood_gradient(K, statistics, torch.tensor(0.1, dtype=F64))
    assert relative_error(ours.kernel, expected) < 1e-10
    P, mean = ours.solution.root.T @ ours.solution.root, ours.solution.mean
    K_inverse = torch.linalg.inv(K)
    textbook = (K_inverse - K_inverse @ (P + mean @ mean.T) @ K_inverse) / 2
    assert relative_error(textbook, expected) > 1e-8


@pytest.mark.parametrize(
    ("form", "tolerance"), [(GramStatistics, 1e-3), (SquareRootStatistics, 1e-7)]
)
def test_the_square_root_form_needs_no_digits_for_many_rows_and_little_noise(
    form: type[Statistics], tolerance: float
) -> None:
    """n = 2·10⁶ rows and β² = 1e-6, against the same algebra in 60 digits."""
    mpmath.mp.dps = 60
    p = dense.problem(n=40, m=6)
    repeats, noise_variance = 50_000, 1e-6
    # Each row repeated r times is one row with r times smaller noise, but for the spread of y.
    scale = torch.full((40,), repeats**-0.5, dtype=F64)
    S, K, Y = (mpmath.matrix(a.tolist()) for a in (p.S, p.K, p.Y))
    D = S * K * S.T + mpmath.mpf(noise_variance) / repeats * mpmath.eye(40)
    inverse = D**-1
    a = S.T * inverse * Y
    exact = (S.T * inverse * S - a * a.T) / 2
    expected = torch.tensor([[float(v) for v in row] for row in exact.tolist()], dtype=F64)
    statistics = form.from_block(Features(p.S, p.Y, scale))
    ours = likelihood_gradient(p.K, statistics, torch.tensor(noise_variance, dtype=F64))
    assert relative_error(ours.kernel, expected) < tolerance
    u = inverse * Y
    trace = sum(inverse[i, i] for i in range(40))
    noise = float((trace - (u.T * u)[0]) / (2 * repeats))
    assert float(ours.noise) == pytest.approx(noise, rel=tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_the_noise_may_be_a_number(form: type[Statistics]) -> None:
    p = dense.problem(n=40, m=6)
    statistics = form.from_block(Features(p.S, p.Y))
    as_tensor = torch.tensor(0.1, dtype=F64)
    for function in (log_marginal_likelihood, likelihood_gradient):
        with pytest.raises(InvalidInputError, match=r"noise_variance must be above 0, got -0\.1"):
            function(p.K, statistics, -0.1)
    value = log_marginal_likelihood(p.K, statistics, 0.1)
    assert torch.equal(value, log_marginal_likelihood(p.K, statistics, as_tensor))
    gradient = likelihood_gradient(p.K, statistics, 0.1)
    assert torch.equal(gradient.kernel, likelihood_gradient(p.K, statistics, as_tensor).kernel)


@pytest.mark.parametrize("form", FORMS)
def test_statistics_of_other_points_are_refused(form: type[Statistics]) -> None:
    p = dense.problem(n=40, m=6)
    statistics = form.from_block(Features(p.S, p.Y))
    for function in (log_marginal_likelihood, likelihood_gradient):
        with pytest.raises(InvalidInputError, match="over 6 points, and K has 5: take them"):
            function(p.K[:5, :5], statistics, 0.1)
