"""What runs on a CPU runs on a GPU, with the same result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from softki import Event, FitSettings, SoftKIRegressor, fit, load
from softki.batches import Batch, Data
from softki.data import robot_arm
from softki.interpolation import backends
from softki.interpolation.backends import backend_for
from softki.interpolation.weights import Backend, PlainBackend, WeightGradient
from softki.kernels import matrix as kernels
from softki.kernels.matrix import kernel_matrix
from softki.kernels.stationary import KERNELS, Matern32
from softki.linalg import products
from softki.linalg.products import gram, lower_solver
from softki.model import SoftKI
from softki.objective.exact_likelihood import Objective, backward, exact
from softki.objective.hutchinson import Hutchinson
from softki.storage import save
from softki.training import cuda_graph
from softki.training.cuda_graph import GraphSteps, IndexedRows
from softki.training.initialization import initial_points
from softki.training.trainer import make_adam

import dense
from dense import F64, relative_error

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def gradients(device: str, dtype: torch.dtype, objective: Objective) -> dict[str, torch.Tensor]:
    p = dense.problem(n=200, m=40)
    p.z[:10] = p.x[:10] / p.temperature + 0.01  # points close to rows: near pairs
    model = SoftKI(p.z, Matern32(3), p.temperature).to(device)
    batch = Batch(p.x.to(device, dtype), p.Y.to(device, dtype))
    backward(model, [batch], objective)
    return {name: parameter.grad.cpu() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-8), (torch.float32, 1e-3)])
def test_gradients_equal_those_of_the_cpu(dtype: torch.dtype, tolerance: float) -> None:
    expected = gradients("cpu", F64, exact)
    for name, gradient in gradients("cuda", dtype, exact).items():
        assert relative_error(gradient, expected[name]) < tolerance, name


def test_the_pseudoloss_runs() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    hutchinson = Hutchinson(probes=4000, tolerance=1e-6, generator=generator)
    expected = gradients("cpu", F64, exact)
    for name, gradient in gradients("cuda", F64, hutchinson).items():
        assert relative_error(gradient, expected[name]) < 0.1, name


def test_kmeans_on_the_device() -> None:
    x = torch.randn(5000, 3, device="cuda")
    points = initial_points(x, 50, torch.Generator().manual_seed(0))
    assert points.shape == (50, 3)
    assert points.is_cuda
    distance = torch.cdist(x.double(), points).min(1).values.mean()
    assert distance < torch.cdist(x.double(), x[:50].double()).min(1).values.mean()


@pytest.mark.parametrize("batch_size", [256, None])
def test_fit_is_deterministic_and_as_good_as_on_the_cpu(batch_size: int | None) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 4, generator=g)
    y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * torch.randn(3000, generator=g)
    settings = FitSettings(points=64, steps=100, batch_size=batch_size)
    here, first, second = (fit(x, y, settings=settings, device=d) for d in ("cpu", "cuda", "cuda"))
    assert first.report.device.startswith("cuda")
    for left, right in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(left, right)
    best = [min(f.rmse for f in r.report.history) for r in (here, first)]
    assert best[1] < 1.2 * best[0]
    moved = first.posterior.to("cpu")
    mean, variance = moved.predict(x.double())
    on_device = first.posterior.predict(x.double().cuda())
    assert relative_error(on_device[0].cpu(), mean) < 1e-9
    assert relative_error(on_device[1].cpu(), variance) < 1e-6


def test_memory_above_the_data_does_not_grow_with_the_rows() -> None:
    settings = FitSettings(points=64, steps=2, batch_size=None, held_out=0.0)
    peaks = []
    for n in (1_000_000, 2_000_000):
        data = Data(torch.randn(n, 4, device="cuda"), torch.randn(n, 1, device="cuda"))
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        model = SoftKI(torch.randn(64, 4), Matern32(4), torch.ones(4)).to("cuda")
        fit(data.x, data.y, settings=settings, model=model)
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del data
    assert peaks[1] < 1.2 * peaks[0]


def test_the_estimator_takes_and_gives_tensors_where_they_are() -> None:
    g = torch.Generator().manual_seed(0)
    X = 100 + 10 * torch.randn(2000, 4, generator=g)
    y = torch.sin(X[:, 0] / 5) + 0.1 * torch.randn(2000, generator=g)
    model = SoftKIRegressor(points=64, steps=100, random_state=0).fit(X.cuda(), y.cuda())
    assert model.fit_report_.device.startswith("cuda")
    assert model.score(X.numpy(), y.numpy()) > 0.9
    expected = model.predict(X.double().numpy(), return_std=True)
    for dtype, tolerance in ((torch.float32, 1e-5), (F64, 1e-12)):
        for left, right in zip(
            model.predict(X.cuda().to(dtype), return_std=True), expected, strict=True
        ):
            assert left.is_cuda
            assert left.dtype == dtype
            assert relative_error(left.cpu(), torch.from_numpy(right)) < tolerance
    functions = model.sample_functions(3)
    assert functions(X[:5].cuda()).shape == (5, 3)
    assert relative_error(functions(X[:5]).cpu(), functions(X[:5].cuda()).cpu()) < 1e-6
    assert model.partial_fit(X.cuda(), y.cuda()).fit_report_.rows == 4000


def test_a_fit_on_a_gpu_loads_there_and_on_a_cpu(tmp_path: Path) -> None:
    x, y = robot_arm(500)
    model = SoftKIRegressor(points=16, steps=50, random_state=0, device="cuda").fit(x, y)
    path = tmp_path / "model.softki"
    save(model, path)

    def results(model: SoftKIRegressor) -> list[Any]:
        return [
            *model.predict(x, return_std=True),
            model.predict(x, return_std=True, of="f")[1],
            model.predict(x[:70], return_cov=True)[1],
            model.predict_quantiles(x),
            model.sample_y(x[:70], 3, random_state=5),
            model.sample_functions(2, random_state=6)(x),
            model.predict_gradient(x),
            model.log_marginal_likelihood(),
            model.feature_relevance_,
        ]

    for again, before in zip(results(load(path)), results(model), strict=True):
        np.testing.assert_array_equal(again, before)
    assert replace(load(path).fit_report_, seconds={}) == replace(model.fit_report_, seconds={})
    here = load(path, device="cpu")
    np.testing.assert_allclose(here.predict(x), model.predict(x), rtol=1e-9)
    save(here, path)
    np.testing.assert_array_equal(load(path, device="cuda").predict(x), model.predict(x))


@pytest.mark.parametrize("m", [1, 130, 512])
def test_symmetric_products_of_many_rows_equal_the_plain_ones(m: int) -> None:
    A = torch.randn(20_000, m, dtype=F64, device="cuda")
    assert relative_error(gram(A), A.T @ A) < 1e-14


@pytest.mark.parametrize("m", [1, 32, 96, 512, 2000, 2048, 2100])
def test_triangular_solves_equal_those_of_the_cpu(m: int) -> None:
    A, right = torch.randn(m, 2 * m, dtype=F64), torch.randn(m, 5, dtype=F64)
    L = torch.linalg.cholesky(A @ A.T)
    expected = torch.linalg.solve_triangular(L, right, upper=False)
    for layout in (L.cuda(), L.cuda().T.contiguous().T):
        assert relative_error(lower_solver(layout)(right.cuda()).cpu(), expected) < 1e-11


@pytest.mark.parametrize(
    ("n", "m", "d"), [(300, 40, 3), (1000, 500, 33), (20_000, 128, 5), (50, 10, 70), (70, 9000, 2)]
)
@pytest.mark.parametrize("dense_part", [True, False])
@pytest.mark.parametrize("mean_part", [True, False])
def test_triton_kernels_equal_plain_torch(
    n: int, m: int, d: int, dense_part: bool, mean_part: bool
) -> None:
    torch.manual_seed(0)
    x, T = torch.randn(n, d, dtype=F64), torch.rand(d, dtype=F64) + 0.5
    z = torch.randn(m, d, dtype=F64)
    z[:5] = x[:5] / T  # on rows
    z[5:10] = x[5:10] / T + 1e-3  # and near them
    x, z, T = (value.float().cuda() for value in (x, z, T))
    left, right, mean = (torch.randn(k, 2, device="cuda") for k in (n, m, m))
    P = torch.randn(m, m, device="cuda") if dense_part else None

    def results(backend: type[Backend], dtype: torch.dtype) -> list[torch.Tensor]:
        block = backend(z.to(dtype), T.to(dtype)).interpolate(x.to(dtype))
        product = None if P is None else block.times(P.to(dtype))
        parts = (left.to(dtype), right.to(dtype), mean.to(dtype) if mean_part else None)
        extra = [] if product is None else [product]
        return [block.weights, *extra, *block.pull_back(WeightGradient(product, *parts))]

    assert backend_for(x, m) is not PlainBackend
    for ours, exactly in zip(
        results(backend_for(x, m), torch.float32), results(PlainBackend, F64), strict=True
    ):
        assert relative_error(ours, exactly) < 1e-4
    weights = backend_for(x, m)(z, T).weights(x)
    assert weights.dtype == F64
    assert relative_error(weights, results(PlainBackend, F64)[0]) < 1e-5


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_covariances_by_triton_equal_plain_torch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    kernel = KERNELS[name](7).cuda()
    kernel.lengthscale = torch.rand(7) + 0.5
    kernel.outputscale = 1.7
    z = torch.randn(130, 7, dtype=F64, device="cuda", requires_grad=True)
    with torch.no_grad():
        z[3] = z[4]
    W = torch.randn(130, 130, dtype=F64, device="cuda")
    leaves = [z, *kernel.parameters()]

    def results() -> list[torch.Tensor]:
        K = kernel_matrix(kernel, z, 1e-3)
        return [K.detach(), *torch.autograd.grad(K, leaves, W + W.T)]

    fused = results()
    monkeypatch.setattr(kernels, "triton_trouble", lambda: "not asked for")
    for ours, exactly in zip(fused, results(), strict=True):
        assert relative_error(ours, exactly) < 1e-12


def training_data() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 4, generator=g)
    y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * torch.randn(3000, generator=g)
    return x.cuda(), y.cuda()


@pytest.mark.parametrize("batch_size", [256, None])
@pytest.mark.parametrize("targets", [1, 3])
def test_a_graph_makes_the_steps_that_are_made_without(
    batch_size: int | None, targets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = training_data()
    y = torch.stack([y.roll(k) for k in range(targets)], 1)
    settings = FitSettings(points=64, steps=40, batch_size=batch_size, held_out=0.0)
    events: list[Event] = []
    graphed = fit(x, y, settings=settings, callbacks=[events.append])
    assert graphed.report.backend == "Triton kernels in a CUDA graph"
    assert [event.step for event in events] == list(range(1, 41))
    assert graphed.report.plain_steps == 3  # before the graph is captured
    assert "in a CUDA graph but for 3 step(s)" in str(graphed.report)
    monkeypatch.setattr(cuda_graph, "why_not", lambda *arguments: "asked for")
    plain_events: list[Event] = []
    eager = fit(x, y, settings=settings, callbacks=[plain_events.append])
    assert eager.report.backend == "Triton kernels, no CUDA graph: asked for"
    assert eager.report.plain_steps == 40
    for left, right in zip(graphed.model.parameters(), eager.model.parameters(), strict=True):
        assert relative_error(left, right) < 1e-3
    for event, other in zip(events, plain_events, strict=True):
        assert event.log_likelihood == pytest.approx(other.log_likelihood, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("held_out", [0.0, 0.1])
def test_a_fit_that_was_left_goes_on_in_a_new_graph(held_out: float, tmp_path: Path) -> None:
    x, y = training_data()
    settings = FitSettings(points=64, steps=240, batch_size=512, held_out=held_out, patience=None)

    def leave(event: Event) -> None:
        if event.step == 150:
            raise RuntimeError("left")

    whole = fit(x, y, settings=settings)
    with pytest.raises(RuntimeError, match="left"):
        fit(x, y, settings=settings, callbacks=[leave], checkpoint=tmp_path)
    events: list[Event] = []
    resumed = fit(x, y, settings=settings, callbacks=[events.append], checkpoint=tmp_path)
    assert resumed.report.backend == "Triton kernels in a CUDA graph"
    assert [event.step for event in events] == list(range(141, 241))
    mean, expected = (result.posterior.mean(x.double()) for result in (resumed, whole))
    assert relative_error(mean, expected) < 0.05


def test_without_triton_the_plain_backend_is_taken_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = training_data()
    for module in (kernels, backends, products):
        monkeypatch.setattr(module, "triton_trouble", lambda: "Triton is not installed")
    result = fit(x, y, settings=FitSettings(points=32, steps=10))
    assert result.report.backend == "plain PyTorch, no CUDA graph: Triton is not installed"


def test_what_cannot_be_captured_is_done_without_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def reading(*arguments: object) -> None:
        raise RuntimeError("operation not permitted\nmore")

    x, y = training_data()
    monkeypatch.setattr(GraphSteps, "_step", reading)
    result = fit(x, y, settings=FitSettings(points=32, steps=10))
    assert result.report.steps == 10
    assert result.report.backend == (
        "Triton kernels, no CUDA graph: it could not be captured (operation not permitted)"
    )


def test_a_step_that_fails_in_a_graph_is_done_again_without() -> None:
    """A target that is NaN makes the gradient of its batch NaN, as a failed factorisation does."""
    x, y = training_data()
    data = Data(x, y[:, None].clone())
    data.y[0] = torch.nan
    model = SoftKI(x[:32].double(), Matern32(4), torch.ones(4)).cuda()
    optimizer = make_adam(model, FitSettings(learning_rate=0.01), x.device)
    good, bad = torch.arange(1, 257, device="cuda"), torch.arange(256, device="cuda")
    for _ in range(3):
        optimizer.zero_grad()
        backward(model, [data.take(good)], exact)
        optimizer.step()
    rows = IndexedRows(data, lambda i: bad if i == 5 else good)
    steps = GraphSteps(model, rows, optimizer, lambda step: None, 1)
    assert dict(steps.run(range(1, 4))) == {1: None, 2: None, 3: None}  # before it is captured
    before = [p.detach().clone() for p in model.parameters()]
    outcomes = dict(steps.run(range(6, 7)))
    assert outcomes == {6: None}
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    outcomes = dict(steps.run(range(7, 8)))
    assert outcomes[7] is not None
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_factorisation_that_fails_in_a_graph_is_noticed() -> None:
    x, y = training_data()
    data = Data(x, y[:, None])
    z = x[:32].double()
    z[1] = z[0]  # K is singular, and the jitter makes it indefinite
    model = SoftKI(z, Matern32(4), torch.ones(4), jitter=-1e-9).cuda()
    model.points.requires_grad_(False)
    optimizer = make_adam(model, FitSettings(learning_rate=0.01), x.device)
    index = torch.arange(256, device="cuda")
    rows = IndexedRows(data, lambda i: index)
    steps = GraphSteps(model, rows, optimizer, lambda step: None, 1)
    assert dict(steps.run(range(1, 4))) == {1: None, 2: None, 3: None}  # before it is captured
    assert dict(steps.run(range(6, 7))) == {6: None}
    assert steps.trouble is None


def test_a_product_by_parts_needs_all_three_of_them() -> None:
    """With two, as emulated on a CPU, it would be off by more."""
    x, z = torch.randn(20_000, 5, device="cuda"), torch.randn(128, 5, device="cuda")
    P = torch.randn(128, 128, device="cuda")
    block = backend_for(x, 128)(z, None).interpolate(x)
    assert relative_error(block.times(P), block.weights.double() @ P.double()) < 3e-6
