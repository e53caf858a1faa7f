"""Seconds of training until the test error passes the paper's: `benchmarks/engine.py --accuracy`.

The test rows are looked at to report only: nothing is chosen by them, a run ends once they say that
the error is reached, and the time of looking is not counted. For each method the settings are one
and the same on all data sets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

import gpytorch
import torch
from rivals import SGPR, SVGP
from torch import Tensor
from uci import load

from softki import Event, FitReport, FitSettings
from softki.batches import Data
from softki.training.data import InMemoryRows, Split
from softki.training.initialization import initial_model
from softki.training.trainer import Trainer

TARGETS = {"kin40k": 0.169, "protein": 0.596, "pol": 0.075, "houseelectric": 0.047}


class StopTraining(Exception):  # noqa: N818
    """The error is below the paper's, or time is up."""


class Clock:
    """Training time, without that of looking at test rows."""

    def __init__(self, target: float, limit: float) -> None:
        self.target, self.limit, self.seconds, self.best = target, limit, 0.0, math.inf
        self.start = time.perf_counter()

    def stop(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self.start

    def look(self, rmse: float) -> None:
        """After `stop`: note an error, and end if it is low enough; then time runs again."""
        self.best = min(self.best, rmse)
        if rmse <= self.target or self.seconds > self.limit:
            raise StopTraining
        self.start = time.perf_counter()


def softki(batch_size: int | None, steps: int) -> Callable[..., None]:
    def run(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, clock: Clock) -> None:
        data = Data(torch.cat([x, x_test]), torch.cat([y, y_test])[:, None])
        rows = torch.arange(len(data))
        settings = FitSettings(batch_size=batch_size, steps=steps, patience=None)
        generator = torch.Generator().manual_seed(0)
        clock.start = time.perf_counter()
        model = initial_model(x, settings, generator)
        report = FitReport(
            len(data), len(x_test), x.shape[1], 1, 512, str(x.device), "", "", "qr", 0.0, steps
        )

        def look(event: Event) -> None:
            if event.held_out is not None:
                clock.stop()
                clock.seconds = time.perf_counter() - begin - report.seconds["evaluation"]
                clock.look(event.held_out.rmse)

        parts = InMemoryRows(data, Split(rows[: len(x)], rows[len(x) :]))
        begin = clock.start
        Trainer(model, parts, settings, report, [look]).run()

    return run


def looking(
    every: int, model: gpytorch.models.GP, x: Tensor, y: Tensor, clock: Clock
) -> Callable[[int], None]:
    """A function of the step that looks at the test rows from time to time."""

    def look(step: int) -> None:
        if step % every == every - 1:
            clock.stop()
            model.eval()
            with torch.no_grad():
                mean = torch.cat([model(part).mean for part in x.split(4096)])
            model.train()
            clock.look(float((mean - y).square().mean().sqrt()))

    return look


def sgpr(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, clock: Clock) -> None:
    model = SGPR(x, y, 512).to(x.device)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)

    look = looking(10, model, x_test, y_test, clock)
    clock.start = time.perf_counter()
    for step in range(1000):
        optimizer.zero_grad()
        (-bound(model(x), y)).backward()
        optimizer.step()
        look(step)


def svgp(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, clock: Clock) -> None:
    model = SVGP(x[torch.randperm(len(x))[:1024]].clone()).to(x.device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(x.device)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(x))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], 0.01)

    look = looking(100, model, x_test, y_test, clock)
    clock.start = time.perf_counter()
    for step in range(100_000):
        index = torch.randint(0, len(x), (1024,), device=x.device)
        optimizer.zero_grad()
        (-bound(model(x[index]), y[index])).backward()
        optimizer.step()
        look(step)


METHODS = {
    "softki, b=4096": softki(4096, 1500),
    "softki, all rows": softki(None, 600),
    "SGPR, m=512": sgpr,
    "SVGP, m=1024": svgp,
}


def measure_accuracy(device: str, seeds: int, limit: float) -> list[dict[str, object]]:
    """One line for every data set, method and split, printed as it comes."""
    x, y = torch.randn(8192, 4, device=device), torch.randn(8192, device=device)
    with suppress(StopTraining):  # starts CUDA, compiles the kernels
        softki(4096, 20)(x, y, x[:64], y[:64], Clock(0.0, limit))
    figures: list[dict[str, object]] = []
    for name, target in TARGETS.items():
        for seed in range(seeds):
            x, y, x_test, y_test = (part.float().to(device) for part in load(name, seed))
            for method, run in METHODS.items():
                clock = Clock(target, limit)
                torch.manual_seed(seed)
                try:
                    run(x, y, x_test, y_test, clock)
                    outcome = "not reached"
                except StopTraining:
                    outcome = "reached" if clock.best <= target else "not reached"
                except (RuntimeError, gpytorch.utils.errors.NanError) as error:
                    outcome = f"failed: {str(error).splitlines()[0][:60]}"
                figures.append(
                    {
                        "data": name,
                        "target": target,
                        "seed": seed,
                        "method": method,
                        "outcome": outcome,
                        "seconds": clock.seconds,
                        "best": clock.best,
                    }
                )
                print(
                    f"{name:14} {target:.3f}  seed {seed}  {method:18} {outcome:12} "
                    f"{clock.seconds:7.2f} s, best RMSE {clock.best:.4f}",
                    flush=True,
                )
    return figures
