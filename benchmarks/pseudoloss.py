"""A gradient of Hutchinson's pseudoloss, beside linear_operator's conjugate gradients.

    .venv/bin/python benchmarks/pseudoloss.py [--device cuda]

1,024 rows of the robot arm, a model that was fitted to others, 16 probes, a residual of 1e-3. Times
are of the two solves of the same system: ours with Nyström's preconditioner, and `linear_cg` with
`pivoted_cholesky`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from linear_operator import pivoted_cholesky
from linear_operator.utils.linear_cg import linear_cg
from torch import Tensor
from uci import print_versions

from softki import FitSettings, fit
from softki.batches import Batch
from softki.data import robot_arm
from softki.features import WeightedBatches
from softki.linalg.conjugate_gradients import Map, conjugate_gradients
from softki.objective.hutchinson import covariance_of, woodbury_preconditioner

PROBES, RANK, TOLERANCE, STEPS = 16, 64, 1e-3, 200


class Counted:
    """A product with a matrix that knows how often it was asked for."""

    def __init__(self, matmul: Map) -> None:
        self.matmul, self.count = matmul, 0

    def __call__(self, v: Tensor) -> Tensor:
        self.count += 1
        return self.matmul(v)


def ours(rows: WeightedBatches, K: Tensor, noise: Tensor, right: Tensor) -> tuple[Tensor, int]:
    preconditioner = woodbury_preconditioner(
        rows, K, noise, torch.randn(len(K), RANK, dtype=K.dtype, device=K.device)
    )
    matmul = Counted(covariance_of(rows, K, noise))
    return conjugate_gradients(matmul, right, TOLERANCE, STEPS, preconditioner)[0], matmul.count


def theirs(rows: WeightedBatches, K: Tensor, noise: Tensor, right: Tensor) -> tuple[Tensor, int]:
    F = rows.matmul(pivoted_cholesky(K, rank=RANK))
    inner = F.T @ (F / noise)
    inner.diagonal().add_(1)
    L = torch.linalg.cholesky(inner)

    def precondition(v: Tensor) -> Tensor:
        v = v / noise
        return v - (F @ torch.cholesky_solve(F.T @ v, L)) / noise

    matmul = Counted(lambda v: rows.matmul(K @ rows.transposed_matmul(v)) + noise * v)
    solved = linear_cg(
        matmul,
        right,
        tolerance=TOLERANCE,
        max_iter=STEPS,
        max_tridiag_iter=0,
        preconditioner=precondition,
        eps=torch.finfo(right.dtype).tiny,
        stop_updating_after=TOLERANCE / 100,
    )
    return solved, matmul.count


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    seconds = []
    for _ in range(12):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 1e3 * sorted(seconds[2:])[5]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    print_versions(str(device))
    torch.manual_seed(0)
    x, y = (
        torch.as_tensor((part - part.mean(0)) / part.std(0), dtype=torch.float32, device=device)
        for part in robot_arm(12_000)
    )
    settings = FitSettings(points=512, steps=200)
    model = fit(x[1024:], y[1024:], settings=settings, device=str(device)).model
    for noise_variance in (model.noise_variance.item(), 1e-3, 1e-4):
        model.noise_variance = noise_variance
        with torch.no_grad():
            K = model.kernel_matrix()
            rows = WeightedBatches(model, [Batch(x[:1024], y[:1024, None])])
            noise = model.noise_variance * rows.noise_square
            probes = torch.randn(1024, PROBES, dtype=K.dtype, device=device)
            right = torch.cat([rows.targets, probes], 1)
            D = covariance_of(rows, K, noise)
            for name, solve in (("softki", ours), ("linear_operator", theirs)):
                system = partial(solve, rows, K, noise, right)
                solved, products = system()
                residual = (D(solved) - right).norm(dim=0) / right.norm(dim=0)
                ms = milliseconds(system, device)
                print(
                    f"noise variance {noise_variance:.0e}  {name:16} {ms:8.1f} ms  "
                    f"{products:4} products  mean residual {residual.mean():.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
