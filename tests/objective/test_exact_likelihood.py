from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softki.batches import Batch, Data
from softki.exceptions import InvalidInputError, NumericalError
from softki.features import WeightedBatches
from softki.interpolation.weights import Interpolated, PlainBackend
from softki.kernels.stationary import Matern32
from softki.model import SoftKI
from softki.objective.exact_likelihood import Adjoint, Objective, Stabilised, backward, exact
from softki.objective.hutchinson import Hutchinson
from softki.training.initialization import initial_model
from softki.training.settings import FitSettings

import dense
from dense import F64, DenseGP, relative_error


def model_for(p: dense.Problem, noise_variance: float = 0.1, jitter: float = 1e-6) -> SoftKI:
    kernel = Matern32(p.x.shape[1], outputscale=1.3)
    kernel.lengthscale = p.lengthscale
    return SoftKI(p.z, kernel, p.temperature, noise_variance, jitter)


def split(p: dense.Problem, parts: int, dtype: torch.dtype = F64) -> list[Batch]:
    scale = p.noise_std
    scales = [None] * parts if scale is None else torch.tensor_split(scale.to(dtype), parts)
    return [
        Batch(x.to(dtype), y.to(dtype), s)
        for x, y, s in zip(
            torch.tensor_split(p.x, parts), torch.tensor_split(p.Y, parts), scales, strict=True
        )
    ]


def gradients(
    p: dense.Problem,
    objective: Objective,
    noise_variance: float = 0.1,
    parts: int = 1,
    dtype: torch.dtype = F64,
) -> dict[str, torch.Tensor]:
    model = model_for(p, noise_variance)
    backward(model, split(p, parts, dtype), objective)
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def dense_gradients(p: dense.Problem, noise_variance: float = 0.1) -> dict[str, torch.Tensor]:
    """By autograd through n×n matrices, per observed value."""
    model = model_for(p, noise_variance)
    K = dense.with_jitter(
        dense.matern32(model.points, model.kernel.lengthscale, model.kernel.outputscale)
    )
    S = dense.weights(p.x, model.points, model.temperature)
    gp = DenseGP(S, K, p.Y, model.noise_variance, p.noise_std)
    (-gp.log_likelihood() / p.Y.numel()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_close(
    ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float
) -> None:
    assert ours.keys() == expected.keys()
    errors = {name: relative_error(ours[name], expected[name]) for name in expected}
    assert max(errors.values()) < tolerance, errors


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("noisy_rows", [False, True])
@pytest.mark.parametrize("noise_variance", [0.1, 1e-4])
def test_every_gradient_equals_the_dense_one(
    parts: int, targets: int, noisy_rows: bool, noise_variance: float
) -> None:
    p = dense.problem(targets=targets, noisy_rows=noisy_rows)
    expected = dense_gradients(p, noise_variance)
    assert len(expected) == 5
    assert_close(gradients(p, exact, noise_variance, parts), expected, 1e-8)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("noisy_rows", [False, True])
def test_float32_gradients(parts: int, noisy_rows: bool) -> None:
    p = dense.problem(noisy_rows=noisy_rows)
    ours = gradients(p, exact, parts=parts, dtype=torch.float32)
    assert_close(ours, dense_gradients(p), 1e-4)


def test_the_value_is_the_log_likelihood_per_observed_value() -> None:
    p = dense.problem(targets=2, noisy_rows=True)
    adjoint = backward(model_for(p), split(p, 2), exact)
    model = model_for(p)
    gp = DenseGP(
        p.S, model.kernel_matrix().detach(), p.Y, torch.tensor(0.1, dtype=F64), p.noise_std
    )
    assert adjoint.log_likelihood() == pytest.approx(
        float(gp.log_likelihood()) / p.Y.numel(), rel=1e-9
    )


@given(seed=st.integers(0, 1000), parts=st.integers(1, 6))
def test_row_order_and_chunks_do_not_matter(seed: int, parts: int) -> None:
    p = dense.problem(n=12, m=5, d=2, seed=seed)
    shuffled = dense.problem(n=12, m=5, d=2, seed=seed)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    shuffled.x, shuffled.Y = p.x[order], p.Y[order]
    assert_close(gradients(shuffled, exact, parts=parts), gradients(p, exact), 1e-9)


def unit_probes(objective: Hutchinson) -> Objective:
    """The probes √n·eⱼ, for which E[w wᵀ] = I holds exactly."""

    def with_unit_probes(
        rows: WeightedBatches, K: torch.Tensor, noise_variance: torch.Tensor
    ) -> Adjoint:
        n = len(rows.targets)
        probes = n**0.5 * torch.eye(n, dtype=F64)
        return objective.with_probes(rows, K, noise_variance, probes)

    return with_unit_probes


@pytest.mark.parametrize("rank", [0, 5, 12])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("noisy_rows", [False, True])
def test_the_pseudoloss_gradient_over_unit_probes_is_the_exact_one(
    rank: int, parts: int, targets: int, noisy_rows: bool
) -> None:
    p = dense.problem(targets=targets, noisy_rows=noisy_rows)
    hutchinson = Hutchinson(tolerance=1e-13, max_iterations=500, preconditioner_rank=rank)
    ours = gradients(p, unit_probes(hutchinson), parts=parts)
    assert_close(ours, dense_gradients(p), 1e-8)


def test_the_pseudoloss_has_no_value_and_draws_from_its_generator() -> None:
    p = dense.problem()

    def run(seed: int) -> tuple[Adjoint, torch.Tensor]:
        model = model_for(p)
        generator = torch.Generator().manual_seed(seed)
        adjoint = backward(model, split(p, 1), Hutchinson(generator=generator))
        return adjoint, model.points.grad

    adjoint, gradient = run(0)
    assert adjoint.log_likelihood() is None
    assert adjoint.objective == "hutchinson"
    assert torch.equal(gradient, run(0)[1])
    assert not torch.equal(gradient, run(1)[1])


def test_many_gaussian_probes_come_close_to_the_exact_gradient() -> None:
    p = dense.problem()
    generator = torch.Generator().manual_seed(0)
    hutchinson = Hutchinson(probes=20_000, tolerance=1e-8, generator=generator)
    assert_close(gradients(p, hutchinson), dense_gradients(p), 0.05)


def test_the_preconditioner_saves_iterations() -> None:
    p = dense.problem(n=300, m=60)
    products = []

    class Counted(WeightedBatches):
        def transposed_matmul(self, vectors: torch.Tensor) -> torch.Tensor:
            products[-1] += 1
            return super().transposed_matmul(vectors)

    model = model_for(p, noise_variance=1e-4)
    K, noise = model.kernel_matrix().detach(), model.noise_variance.detach()
    for rank in (0, 40):
        products.append(0)
        rows = Counted(model, split(p, 1))
        Hutchinson(preconditioner_rank=rank, tolerance=1e-6, max_iterations=500)(rows, K, noise)
    plain, preconditioned = products
    assert preconditioned < plain / 2


def test_unconverged_solves_are_counted() -> None:
    p = dense.problem(n=300, m=60)
    hutchinson = Hutchinson(max_iterations=2, preconditioner_rank=0)
    gradients(p, hutchinson, noise_variance=1e-4)
    assert hutchinson.unconverged == 1


def test_stabilised_is_exact_while_that_is_stable() -> None:
    p = dense.problem()
    stabilised = Stabilised(Hutchinson())
    assert_close(gradients(p, stabilised), gradients(p, exact), 1e-15)
    assert stabilised.fallbacks.total() == 0


def test_stabilised_falls_back_and_counts_why() -> None:
    """Two equal points and a jitter below zero: K is indefinite, the pseudoloss works on."""
    p = dense.problem()
    p.z[1] = p.z[0]
    model = model_for(p, jitter=-1e-9)
    stabilised = Stabilised(Hutchinson())
    adjoint = backward(model, split(p, 1), stabilised)
    assert adjoint.objective == "hutchinson"
    (reason, count), *rest = stabilised.fallbacks.items()
    assert "kernel matrix K is not positive definite" in reason
    assert (count, rest) == (1, [])
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())


def test_memory_is_a_block_of_rows_times_points() -> None:
    """No tensor during the gradient on all rows has as many as n·m elements."""
    from torch.utils._python_dispatch import TorchDispatchMode

    n, m = 4000, 30
    data = Data(torch.randn(n, 2), torch.randn(n, 1))
    batches = [data.take(slice(start, start + 100)) for start in range(0, n, 100)]
    model = SoftKI(torch.randn(m, 2), Matern32(2), torch.ones(2))
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = function(*args, **(kwargs or {}))
            sizes.extend(
                tensor.numel()
                for tensor in (result if isinstance(result, tuple | list) else [result])
                if isinstance(tensor, torch.Tensor)
            )
            return result

    with Sizes():
        backward(model, batches, exact)
    assert max(sizes) <= 100 * m


def test_blocks_of_weights_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most two blocks are alive at any time, whatever the number of blocks."""
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0
    interpolate, weights = PlainBackend.interpolate, PlainBackend.weights

    def track(S: torch.Tensor) -> None:
        nonlocal most
        alive.append(weakref.ref(S))
        most = max(most, sum(reference() is not None for reference in alive))

    def interpolated(self: PlainBackend, x: torch.Tensor) -> Interpolated:
        block = interpolate(self, x)
        track(block.weights)
        return block

    def weighted(self: PlainBackend, x: torch.Tensor) -> torch.Tensor:
        S = weights(self, x)
        track(S)
        return S

    monkeypatch.setattr(PlainBackend, "interpolate", interpolated)
    monkeypatch.setattr(PlainBackend, "weights", weighted)
    p = dense.problem(n=200)
    backward(model_for(p), split(p, 20), exact)
    backward(model_for(p), split(p, 20), Hutchinson())
    assert len(alive) > 80
    assert most <= 2


def test_stabilised_falls_back_from_a_gradient_that_is_not_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(rows: WeightedBatches, K: torch.Tensor, noise_variance: torch.Tensor) -> Adjoint:
        nan = torch.tensor(torch.nan)
        return replace(exact(rows, K, noise_variance), noise=lambda: nan)

    monkeypatch.setattr("softki.objective.exact_likelihood.exact", broken)
    stabilised = Stabilised(Hutchinson())
    p = dense.problem()
    assert backward(model_for(p), split(p, 1), stabilised).objective == "hutchinson"
    assert stabilised.fallbacks == {"the exact gradient is not finite": 1}


def test_when_the_fallback_fails_too_both_reasons_are_given() -> None:
    def failing(rows: WeightedBatches, K: torch.Tensor, noise_variance: torch.Tensor) -> Adjoint:
        raise NumericalError("probes failed")

    p = dense.problem()
    p.z[1] = p.z[0]
    with pytest.raises(NumericalError, match=r"K is not positive.*in the fallback, probes failed"):
        backward(model_for(p, jitter=-1e-9), split(p, 1), Stabilised(failing))


@pytest.mark.parametrize("noise_variance", [1e-4, 1e-6])
def test_the_pseudoloss_keeps_its_digits_with_float32_rows(noise_variance: float) -> None:
    p = dense.problem(n=200, m=20)
    hutchinson = Hutchinson(tolerance=1e-10, max_iterations=2000, preconditioner_rank=20)
    ours = gradients(p, unit_probes(hutchinson), noise_variance, dtype=torch.float32)
    double = gradients(p, unit_probes(hutchinson), noise_variance)
    assert_close(ours, double, 1e-2)


def test_frozen_parameters_get_no_gradient() -> None:
    p = dense.problem()
    model = model_for(p)
    expected = gradients(p, exact)
    for frozen in ("points", "raw_noise_variance", "log_temperature"):
        dict(model.named_parameters())[frozen].requires_grad_(False)
        model.zero_grad()
        backward(model, split(p, 2), exact)
        assert dict(model.named_parameters())[frozen].grad is None
        assert (
            relative_error(model.kernel.raw_lengthscale.grad, expected["kernel.raw_lengthscale"])
            < 1e-9
        )


def test_points_on_rows_get_no_gradient_from_those_rows_in_float32() -> None:
    """As at the start of every fit with no more distinct rows than points."""
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    settings = FitSettings(points=30)
    model = initial_model(x, settings, torch.Generator().manual_seed(0))
    y = torch.sin(x.sum(1, keepdim=True))

    def gradient(dtype: torch.dtype) -> torch.Tensor:
        model.zero_grad()
        backward(model, [Batch(x.to(dtype), y.to(dtype))], exact)
        return model.points.grad.clone()

    assert relative_error(gradient(torch.float32), gradient(F64)) < 1e-3


@pytest.mark.parametrize("how", ["chunks", "batch", "list"])
def test_no_rows_are_named(how: str) -> None:
    data = Data(torch.zeros(0, 3), torch.zeros(0, 1))
    batches = {
        "chunks": data.chunks(8),
        "batch": data.batch(torch.zeros(0, dtype=torch.long)),
        "list": [Batch(data.x, data.y)],
    }[how]
    with pytest.raises(InvalidInputError, match="no rows were given"):
        backward(model_for(dense.problem()), batches, exact)
