"""What runs on a CPU runs on a GPU, with the same result."""

from __future__ import annotations

import pytest
import torch

from softki import FitSettings, SoftKIRegressor, fit
from softki.batches import Batch, Data
from softki.hutchinson import Hutchinson
from softki.initialization import initial_points
from softki.kernels import Matern32
from softki.model import SoftKI
from softki.objective import Objective, backward, exact

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
    assert best[1] == pytest.approx(best[0], rel=0.2)
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
