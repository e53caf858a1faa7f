"""Products and factorisations on a CPU as softki does them, beside torch's own way.

    .venv/bin/python benchmarks/products.py

Products of rows in float32 (`softki.linalg.products.linear` and `cross`), Cholesky factors in
float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from uci import print_versions

from softki.linalg.products import cholesky, cross, linear
from softki.training.fit import prepared


def milliseconds(work: Callable[[], object], repeats: int = 15) -> float:
    """Median of one call."""
    for _ in range(3):
        work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return 1e3 * sorted(seconds)[repeats // 2]


def compare(what: str, ours: Callable[[], object], plain: Callable[[], object]) -> None:
    """One line: both times, and how many times as long torch's own way takes."""
    one, other = milliseconds(ours), milliseconds(plain)
    print(
        f"{what:44} softki {one:8.3f} ms   torch {other:8.3f} ms   {other / one:5.2f} ×", flush=True
    )


def main() -> None:
    print_versions("cpu")
    print(f"{torch.backends.cpu.get_cpu_capability()} instructions")
    with prepared():
        for n, k, m in (
            (64, 512, 512),
            (1024, 8, 512),
            (1024, 26, 512),
            (1024, 128, 512),
            (1024, 512, 512),
            (1024, 2048, 2048),
        ):
            A, B, C = torch.randn(n, k), torch.randn(m, k), torch.randn(n, m)
            what = f"A Bᵀ, ({n} × {k}) ({k} × {m})"
            compare(what, partial(linear, A, B), partial(torch.matmul, A, B.T))
            what = f"CᵀA, ({m} × {n}) ({n} × {k})"
            compare(what, partial(cross, C, A), partial(torch.matmul, C.T, A))
        for m in (500, 512, 1000, 1024, 1536, 2048):
            A = torch.randn(m, m, dtype=torch.float64)
            A = A @ A.T / m + torch.eye(m)
            plain = partial(torch.linalg.cholesky_ex, A, upper=True)
            compare(f"upper Cholesky factor, m = {m}", partial(cholesky, A), plain)


if __name__ == "__main__":
    main()
