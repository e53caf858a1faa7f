from __future__ import annotations

from typing import get_args

import gpytorch
import mpmath
import pytest
import torch
from gpytorch.kernels import InducingPointKernel, MaternKernel, ScaleKernel

from softki.exceptions import ConvergenceWarning, InvalidInputError, NumericalError
from softki.solvers import Solver, solve, statistics_for
from softki.statistics import Features, GramStatistics, SquareRootStatistics

import dense
from dense import F64, relative_error

SOLVERS = get_args(Solver)


def solved(p: dense.Problem, noise_variance: float, solver: Solver, tolerance: float = 1e-10):  # type: ignore[no-untyped-def]
    statistics = statistics_for(solver).from_block(Features(p.S, p.Y, p.noise_std))
    return solve(p.K, statistics, torch.tensor(noise_variance, dtype=F64), solver, tolerance)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("noisy_rows", [False, True])
@pytest.mark.parametrize("n", [1, 2, 8, 40])
def test_posterior_of_u_equals_the_dense_one(
    solver: Solver, targets: int, noisy_rows: bool, n: int
) -> None:
    p = dense.problem(n=n, targets=targets, noisy_rows=noisy_rows)
    gp, solution = p.gp(0.1), solved(p, 0.1, solver)
    tolerance = 1e-6 if solver == "cg" else 1e-9
    assert relative_error(p.S_new @ solution.mean, gp.mean(p.S_new)) < tolerance
    covariance = p.S_new @ solution.root.T @ solution.root @ p.S_new.T
    assert relative_error(covariance, gp.covariance(p.S_new)) < tolerance
    if solution.log_likelihood is not None:
        assert float(solution.log_likelihood) == pytest.approx(
            float(gp.log_likelihood()), rel=1e-10
        )


@pytest.mark.parametrize("noise_variance", [1e-2, 1e-4, 1e-6])
def test_qr_needs_no_digits_for_small_noise(noise_variance: float) -> None:
    """Against the same algebra in 60 digits."""
    p = dense.problem(n=24, m=8)
    mpmath.mp.dps = 60
    S, K, Y = (mpmath.matrix(a.tolist()) for a in (p.S, p.K, p.Y))
    D = S * K * S.T + mpmath.mpf(noise_variance) * mpmath.eye(len(p.S))
    exact = K * S.T * mpmath.lu_solve(D, Y)
    expected = torch.tensor([float(value) for value in exact], dtype=F64)[:, None]
    assert relative_error(solved(p, noise_variance, "qr").mean, expected) < 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_ill_conditioned_kernel_never_gives_a_negative_variance(solver: Solver) -> None:
    p = dense.problem(n=200, m=30, d=1)
    p.lengthscale = torch.full((1,), 50.0, dtype=F64)
    try:
        root = solved(p, 1e-6, solver, tolerance=1e-4).root
    except NumericalError:
        assert solver == "cholesky"
        return
    variance = (p.S_new @ root.T).square().sum(1)
    assert bool(variance.isfinite().all())
    assert bool((variance >= 0).all())


def test_the_papers_cholesky_fails_where_qr_does_not() -> None:
    """Single precision, a smooth kernel: Ĉ is not positive definite, B is."""
    p = dense.problem(n=200, m=40, d=1)
    p.lengthscale = torch.full((1,), 5.0, dtype=F64)
    K = p.K.float()
    noise = torch.tensor(1e-3)
    block = Features(p.S, p.Y)
    gram = GramStatistics.from_block(block)
    single = GramStatistics(
        gram.count, 0.0, gram.gram.float(), gram.cross.float(), gram.target_square.float()
    )
    with pytest.raises(NumericalError, match=r"Ĉ = K \+ KGK/β² is not positive definite"):
        solve(K, single, noise, "cholesky")
    root = SquareRootStatistics.from_block(block)
    root = SquareRootStatistics(root.count, 0.0, root.factor.float(), root.points)
    mean = p.S_new.float() @ solve(K, root, noise, "qr").mean
    assert relative_error(mean, p.gp(1e-3).mean(p.S_new)) < 1e-3


def test_cg_says_when_it_did_not_converge() -> None:
    p = dense.problem(n=200, m=40, d=1)
    p.lengthscale = torch.full((1,), 5.0, dtype=F64)
    with pytest.warns(ConvergenceWarning, match="did not reach the tolerance 1e-12"):
        solved(p, 1e-6, "cg", tolerance=1e-12)


def test_errors() -> None:
    p = dense.problem()
    gram = GramStatistics.from_block(Features(p.S, p.Y))
    with pytest.raises(InvalidInputError, match="'qr' needs SquareRootStatistics"):
        solve(p.K, gram, torch.tensor(0.1), "qr")
    with pytest.raises(
        InvalidInputError, match="unknown solver 'choleski', did you mean 'cholesky'"
    ):
        solve(p.K, gram, torch.tensor(0.1), "choleski")  # type: ignore[arg-type]
    with pytest.raises(NumericalError, match="kernel matrix K is not positive definite"):
        solve(-p.K, gram, torch.tensor(0.1, dtype=F64), "whitened")


@pytest.mark.parametrize("solver", ["qr", "whitened", "cholesky", "solve"])
def test_with_nystrom_weights_it_is_sgpr(solver: Solver) -> None:
    """S = K_xz K_zz⁻¹ turns SoftKI into GPyTorch's SGPR without its diagonal correction."""
    p = dense.problem(n=60, m=10)
    base = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=3)).double()
    base.base_kernel.lengthscale = p.lengthscale
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.05

    class SGPR(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(p.x, p.Y[:, 0], likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = InducingPointKernel(base, p.z.clone(), likelihood)

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    sgpr = SGPR().double().eval()
    with torch.no_grad(), gpytorch.settings.sgpr_diagonal_correction(False):
        theirs = sgpr(p.x_new)
        expected_mean, expected_covariance = theirs.mean, theirs.covariance_matrix
        K = base(p.z).to_dense()
        S, S_new = (torch.linalg.solve(K, base(p.z, x).to_dense()).T for x in (p.x, p.x_new))
        statistics = statistics_for(solver).from_block(Features(S, p.Y))
        solution = solve(K, statistics, likelihood.noise[0].detach(), solver)
    assert relative_error((S_new @ solution.mean)[:, 0], expected_mean) < 1e-6
    ours = S_new @ solution.root.T @ solution.root @ S_new.T
    assert relative_error(ours, expected_covariance) < 1e-4
