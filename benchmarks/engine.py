"""How fast the engine is, and how that compares with the hardware and with other methods.

    .venv/bin/python benchmarks/engine.py [--device cuda] [--json FILE]
    .venv/bin/python benchmarks/engine.py --growth [--device cuda] [--json FILE]
    .venv/bin/python benchmarks/engine.py --draw growth.json growth.png
    SOFTKI_DATA=folder .venv/bin/python benchmarks/engine.py --accuracy [--device cuda] [--seeds 3]

Steps, exact gradients on all rows, posteriors and predictions, on generated rows; beside them a
plain re-implementation of the published kit's step, and GPyTorch's SGPR and SVGP. Or only time
against n, m and d (--growth), or the seconds until a test error is reached (--accuracy).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import gpytorch
import torch
from rivals import SGPR, SVGP, PublishedStep
from torch import Tensor, nn
from uci import print_versions

from softki import FitSettings, SoftKI
from softki.batches import Data
from softki.bench.memory import PeakMemory
from softki.interpolation.backends import backend_for
from softki.kernels.stationary import Matern32
from softki.objective.exact_likelihood import backward, exact
from softki.posterior.functions import Posterior
from softki.training.cuda_graph import GraphSteps, IndexedRows, why_not
from softki.training.data import InMemoryRows
from softki.training.fit import prepared
from softki.training.inference import posterior_of, statistics_of
from softki.training.trainer import make_adam

DIMENSIONS = {"cpu": (8, 26, 128), "cuda": (8, 32, 385)}
# As in softki.interpolation._triton, which needs Triton to be read.
_MANY_ROWS = 8192


@dataclass
class Line:
    """One line of the table."""

    what: str
    milliseconds: float
    share: float | None = None  # of the rate of matrix products, where those decide
    gigabytes: float | None = None  # above the data, at most
    ratio: float | None = None  # to softki's line above


class Bench:
    """Times on one device, printed as they come."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.lines: list[Line] = []
        self.kit: dict[int, Line] = {}  # the published kit's steps, by d
        dtypes = [torch.float32, torch.float64]
        if self.device.type == "cuda":
            dtypes.append(torch.bfloat16)
        self.rates = {dtype: self._rate(dtype) for dtype in dtypes}
        for dtype, rate in self.rates.items():
            print(f"matrix products in {dtype}: {rate / 1e12:.2f} Tflop/s")

    def time(self, work: Callable[[], object], repeats: int) -> float:
        """Median seconds of one call."""
        for _ in range(3):
            work()
        seconds = []
        for _ in range(repeats):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return sorted(seconds)[repeats // 2]

    def line(
        self,
        what: str,
        work: Callable[[], object],
        repeats: int = 20,
        operations: dict[torch.dtype, float] | None = None,
        beside: Line | None = None,
        calls: int = 1,
    ) -> Line:
        """Time the work, which may be several calls in one, and print a line of the table."""
        work()  # what is set up at first use does not count
        peak = PeakMemory(self.device)
        seconds = self.time(work, repeats) / calls
        most = peak.bytes()
        memory = None if most is None else most / 1e9
        least = sum(count / self.rates[dtype] for dtype, count in (operations or {}).items())
        ratio = None if beside is None else 1e3 * seconds / beside.milliseconds
        line = Line(what, 1e3 * seconds, least / seconds if operations else None, memory, ratio)
        self.lines.append(line)
        cells = [
            f"{line.milliseconds:10.3f} ms",
            "" if line.share is None else f"{line.share:5.0%} of the products' rate",
            "" if line.ratio is None else f"{line.ratio:6.1f} × softki",
            "" if line.gigabytes is None else f"{line.gigabytes:6.2f} GB",
        ]
        print(f"{what:58}" + "  ".join(cell for cell in cells if cell), flush=True)
        return line

    def against_kit(self, line: Line, d: int) -> None:
        """Note how many times as long the published kit takes for that step."""
        kit = self.kit[d]
        kit.ratio = kit.milliseconds / line.milliseconds
        print(f"{'  the published kit, above:':58}{kit.ratio:10.1f} × softki", flush=True)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _rate(self, dtype: torch.dtype) -> float:
        size = 4096 if self.device.type == "cuda" else 1024
        A = torch.randn(size, size, dtype=dtype, device=self.device)
        product = A @ A if dtype != torch.bfloat16 else None

        def work() -> Tensor:
            if product is not None:
                return torch.mm(A, A, out=product)
            return torch.mm(A, A, out_dtype=torch.float32)

        return 2 * size**3 / self.time(work, 10)


def problem(bench: Bench, n: int, m: int, d: int) -> tuple[Data, SoftKI]:
    g = torch.Generator(bench.device).manual_seed(0)
    x = torch.randn(n, d, device=bench.device, generator=g)
    y = torch.sin(2 * x[:, :1]) + 0.1 * torch.randn(n, 1, device=bench.device, generator=g)
    T = 0.2 * math.sqrt(d)
    z = torch.randn(m, d, device=bench.device, generator=g) / T
    return Data(x, y), SoftKI(z, Matern32(d), torch.full((d,), T), 0.01).to(bench.device)


def step_operations(bench: Bench, b: int, m: int) -> dict[torch.dtype, float]:
    """Of a step: as `product_operations`, and the m×m algebra in float64.

    LᵀG and LᵀGL of a triangular L (4/3 m³), two factorisations (m³/3 each), two triangular solves
    (m³ each), and the symmetric ZᵀZ and P (m³ each).
    """
    operations = product_operations(bench, b, m)
    operations[torch.float64] += 6 * m**3
    return operations


def product_operations(bench: Bench, n: int, m: int) -> dict[torch.dtype, float]:
    """Of the exact gradient: SᵀS in float64 (it is symmetric), SP in float32.

    With many rows on a GPU, SP is six products of parts in bfloat16.
    """
    if bench.device.type == "cuda" and n >= _MANY_ROWS:
        return {torch.float64: n * m**2, torch.bfloat16: 12 * n * m**2}
    return {torch.float64: n * m**2, torch.float32: 2 * n * m**2}


def step(bench: Bench, b: int, m: int, d: int) -> Line:
    data, model = problem(bench, 20_000, m, d)
    optimizer = make_adam(model, FitSettings(learning_rate=1e-3), bench.device)
    index = torch.randperm(len(data), device=bench.device)[:b]

    def eager() -> None:
        optimizer.zero_grad()
        backward(model, [data.take(index)], exact)
        optimizer.step()

    name = f"step, b={b}, m={m}, d={d}: softki"
    if why_not(model, InMemoryRows.whole(data), "exact", True, backend_for(data.x, m)) is not None:
        return bench.line(name, eager, 15, step_operations(bench, b, m))
    rows = IndexedRows(data, lambda step: index)
    steps = GraphSteps(model, rows, optimizer, lambda step: None, longest=20)

    def graphed() -> None:
        for _, log_likelihood in steps.run(range(100, 120)):
            if log_likelihood is None:  # the first steps are left to the caller
                eager()
        assert steps.trouble is None

    return bench.line(name, graphed, 20, step_operations(bench, b, m), calls=20)


def optimising(
    loss: Callable[[], Tensor], parameters: Iterator[nn.Parameter]
) -> Callable[[], None]:
    optimizer = torch.optim.Adam(parameters, 1e-3)

    def work() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return work


def published(bench: Bench, b: int, m: int, d: int) -> Callable[[], None]:
    data, _ = problem(bench, b, m, d)
    model = PublishedStep(data.x, m).to(bench.device)
    return optimising(lambda: model(data.x, data.y[:, 0]), model.parameters())


def svgp(bench: Bench, b: int, d: int, beside: Line) -> None:
    data, _ = problem(bench, b, 8, d)
    model = SVGP(torch.randn(1024, d)).to(bench.device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(bench.device)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, 100_000)
    parameters = [*model.parameters(), *likelihood.parameters()]
    work = optimising(lambda: -bound(model(data.x), data.y[:, 0]), iter(parameters))
    bench.line("  GPyTorch SVGP, m=1024", work, 7, beside=beside)


def sgpr(bench: Bench, n: int, m: int, d: int, beside: Line) -> None:
    data, _ = problem(bench, n, m, d)
    model = SGPR(data.x, data.y[:, 0], m).to(bench.device)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    work = optimising(lambda: -bound(model(data.x), data.y[:, 0]), model.parameters())
    try:
        bench.line(f"  GPyTorch SGPR, m={m}", work, 3, beside=beside)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        print(f"  GPyTorch SGPR, m={m}: failed: {str(error).splitlines()[0][:80]}", flush=True)


def full_gradient(bench: Bench, n: int, m: int, d: int, repeats: int = 3) -> Line:
    data, model = problem(bench, n, m, d)

    def work() -> None:
        model.zero_grad()
        backward(model, data.chunks(m), exact)

    name = f"exact gradient, {n:,} × {d}, m={m}: softki"
    return bench.line(name, work, repeats, product_operations(bench, n, m))


def posterior_and_prediction(bench: Bench, n: int, rows: int, m: int, d: int) -> None:
    data, model = problem(bench, n, m, d)
    for solver in ("whitened", "qr"):
        settings = FitSettings(solver=solver)

        def work(settings: FitSettings = settings) -> Posterior:
            return posterior_of(model, statistics_of(model, data, settings), settings)

        bench.line(f"posterior, {n:,} × {d}, m={m}, {solver}", work, 3)
    posterior = work()
    x = problem(bench, rows, m, d)[0].x
    for dtype in (torch.float64, torch.float32):
        ours = posterior.to(dtype)
        name = f"mean and variance, {rows:,} × {d}, m={m}, {dtype}"
        bench.line(name, partial(ours.predict, x), 3, {dtype: 2 * rows * m**2})


def growth(bench: Bench, json_file: Path | None) -> None:
    n0 = 500_000 if bench.device.type == "cuda" else 20_000
    curves = {
        "n": [(n, 512, 8) for n in (10_000, 50_000, 200_000, 1_000_000, 2_000_000)],
        "m": [(n0, m, 8) for m in (128, 256, 512, 1024, 2048)],
        "d": [(n0, 512, d) for d in (4, 16, 64, 256)],
    }
    result: dict[str, list[tuple[int, int, int, float, float | None]]] = {
        axis: [] for axis in curves
    }
    for axis, sizes in curves.items():
        for n, m, d in sizes:
            line = full_gradient(bench, n, m, d)
            result[axis].append((n, m, d, line.milliseconds, line.gigabytes))
            print(f"{'':58}{1e3 * line.milliseconds / n:10.3f} µs a row", flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps(result))


def draw(measured: Path, picture: Path) -> None:
    """The curves of `--growth --json FILE` as a picture."""
    import matplotlib.pyplot as plt
    import numpy as np

    curves = json.loads(measured.read_text())
    figure, (memory, *axes) = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
    for ax, (axis, points), column in zip(axes, curves.items(), range(3), strict=True):
        sizes, times = [p[column] for p in points], [p[3] for p in points]
        fixed = " ".join(f"{name}={points[0][k]:,}" for k, name in enumerate("nmd") if name != axis)
        ax.set(xlabel=axis, title=fixed, ylabel="ms")
        power, name = {"n": (1, "n"), "m": (2, "m²"), "d": (1, "d")}[axis]
        shape = np.stack([np.ones(len(sizes)), np.power(sizes, float(power))], 1)
        relative = shape / np.array(times)[:, None]
        start, slope = np.linalg.lstsq(relative, np.ones(len(sizes)), rcond=None)[0]
        ax.loglog(sizes, times, "o-", color="#0072B2")
        label = f"{start:.2g} + {slope:.2g} {name}"
        ax.loglog(sizes, shape @ (start, slope), "k--", linewidth=1, label=label)
        ax.set_ylim(1, None)
        ax.legend()
    points = curves["n"]
    memory.semilogx([p[0] for p in points], [p[4] for p in points], "o-", color="#D55E00")
    memory.set(xlabel="n", ylabel="GB above the data", title=f"m={points[0][1]}", ylim=(0, None))
    for ax, column in ((memory, 0), (axes[0], 0), (axes[1], 1), (axes[2], 2)):
        sizes = [p[column] for p in curves["nmd"[column]]]
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=40, ha="right")
        ax.minorticks_off()
    figure.savefig(picture, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--growth", action="store_true", help="only time against n, m and d")
    parser.add_argument("--accuracy", action="store_true", help="only time to a test error")
    parser.add_argument("--seeds", type=int, default=1, help="of --accuracy")
    parser.add_argument("--limit", type=float, default=60, help="of --accuracy: seconds, at most")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--draw", type=Path, nargs=2, metavar="FILE", help="JSON of --growth, PNG")
    arguments = parser.parse_args()
    if arguments.draw:
        return draw(*arguments.draw)
    print_versions(arguments.device)
    bench = Bench(arguments.device)
    if not (arguments.growth or arguments.accuracy):
        # Before anything that softki asks of the process: the kit does not ask for it.
        for d in DIMENSIONS[arguments.device]:
            name = f"step, b=1024, m=512, d={d}: the published kit's"
            bench.kit[d] = bench.line(name, published(bench, 1024, 512, d), 7)
    with prepared():
        measure(bench, arguments)


def measure(bench: Bench, arguments: argparse.Namespace) -> None:
    if arguments.growth:
        return growth(bench, arguments.json)
    if arguments.accuracy:
        from time_to_accuracy import measure_accuracy

        figures = measure_accuracy(arguments.device, arguments.seeds, arguments.limit)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(figures, indent=1))
        return
    if arguments.device == "cpu":
        for d in DIMENSIONS["cpu"]:
            bench.against_kit(step(bench, 1024, 512, d), d)
        line = full_gradient(bench, 36_000, 512, 8)
        print(f"{'':58}{1e3 * line.milliseconds / 36_000:10.2f} µs a row")
    else:
        for b, d in ((1024, 8), (1024, 32), (1024, 385), (4096, 8), (4096, 32)):
            line = step(bench, b, 512, d)
            if b == 1024:
                bench.against_kit(line, d)
                svgp(bench, b, d, line)
        sgpr(bench, 200_000, 512, 11, full_gradient(bench, 200_000, 512, 11))
        full_gradient(bench, 2_000_000, 512, 11)
        full_gradient(bench, 2_000_000, 2048, 11)
        full_gradient(bench, 40_000, 8192, 11)
        posterior_and_prediction(bench, 2_000_000, 1_000_000, 512, 11)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(line) for line in bench.lines], indent=1))


if __name__ == "__main__":
    main()
