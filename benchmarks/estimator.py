"""Seconds and memory of the estimator as people call it: a fit with defaults, a large prediction.

    .venv/bin/python benchmarks/estimator.py [--device cuda]

Prints the time of `SoftKIRegressor().fit` on 15,000 × 26 rows and of `predict(return_std=True)` on
1,000,000 × 8 rows with 512 points, with the memory above the data that the prediction took.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import torch

import softki
from softki import SoftKIRegressor
from softki.bench.memory import PeakMemory
from softki.data import robot_arm


def wide_table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The robot arm's reach, with columns of noise beside its 8 joints."""
    x, y = robot_arm(rows)
    noise = np.random.default_rng(1).standard_normal((rows, columns - x.shape[1]))
    return np.hstack([x, noise]), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    device = parser.parse_args().device
    name = (
        torch.cuda.get_device_name()
        if device.startswith("cuda")
        else f"{torch.get_num_threads()} threads"
    )
    print(f"softki {softki.__version__}, torch {torch.__version__}, {name}")

    x, y = wide_table(15_000, 26)
    start = time.perf_counter()
    model = SoftKIRegressor(device=device, random_state=0).fit(x, y)
    seconds = time.perf_counter() - start
    print(f"fit, 15,000 × 26, defaults: {seconds:.1f} s, {model.fit_report_.steps} steps")

    x, y = robot_arm(20_000)
    model = SoftKIRegressor(device=device, random_state=0).fit(x, y)
    x, _ = robot_arm(1_000_000, seed=1)
    peak = PeakMemory(torch.device("cpu"))
    start = time.perf_counter()
    mean, std = model.predict(x, return_std=True)
    seconds = time.perf_counter() - start
    above = (peak.bytes() or math.nan) / 1e9
    print(
        f"predict with std, 1,000,000 × 8, 512 points: {seconds:.1f} s, "
        f"at most {above:.2f} GB above the data"
    )
    assert mean.shape == std.shape == (1_000_000,)


if __name__ == "__main__":
    main()
