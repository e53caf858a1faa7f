"""What a fit costs: operations, bytes and messages, fitted to measurements, and 10⁹ rows by that.

    .venv/bin/python benchmarks/cost_model.py

The gradient of all n rows takes  a + n (b + c m + e m² + f m d)  seconds, with the constants by
non-negative least squares on relative errors, from `benchmarks/results/growth-h200.json`, which
`benchmarks/engine.py --growth` wrote; a posterior is as long as half of that (one pass of two, Gram
form). Reading is so many bytes a second and process, which depends on disks
(`benchmarks/streaming.py`), and a message of k numbers in float64 takes  latency + 8 k / bandwidth,
which is assumed, not measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

RESULTS = Path(__file__).parent / "results"
# Bytes of float32 values that a process of two cores reads a second: see streaming-cpu.txt.
READ = 900e6
# Assumed of the links between GPUs, and between a host and its GPU.
LATENCY, LINK = 50e-6, 50e9
STEP = 1e-3  # of a minibatch of 4,096 rows at m = 512 in a graph: see engine-h200.txt


@dataclass
class Model:
    constants: np.ndarray  # of 1, n, n·m, n·m², n·m·d

    @classmethod
    def fitted(cls, file: Path) -> Model:
        points = [point for curve in json.loads(file.read_text()).values() for point in curve]
        shape = np.array([terms(n, m, d) for n, m, d, *_ in points])
        seconds = np.array([point[3] / 1e3 for point in points])
        constants = nnls(shape / seconds[:, None], np.ones(len(points)))[0]
        worst = np.abs(shape @ constants / seconds - 1).max()
        print(f"fitted to {len(points)} gradients, at most {worst:.0%} off")
        return cls(constants)

    def gradient(self, n: float, m: int, d: int) -> float:
        """Seconds of the gradient of n rows."""
        return float(np.dot(terms(n, m, d), self.constants))


def terms(n: float, m: int, d: int) -> list[float]:
    return [1.0, n, n * m, n * m**2, n * m * d]


def message(numbers: float) -> float:
    return LATENCY + 8 * numbers / LINK


def predict(model: Model, n: float, d: int, m: int, gpus: int, steps: int = 1200) -> None:
    """A minibatch fit: a pass for the moments, the steps, and a pass for the posterior."""
    rows, size = n / gpus, 4 * (d + 1)
    read = rows * size / READ
    copy = rows * size / LINK
    compute = model.gradient(rows, m, d) / 2
    sent = message(m * m + m) + message(m * d + d)
    training = steps * (STEP + sent)
    print(
        f"{n:.0e} × {d}, m={m}, {gpus:2} GPUs: pass {read:6.0f} s to read from files, "
        f"{copy:5.2f} s from host memory, posterior {compute:6.2f} s, {steps} steps "
        f"{training:4.1f} s ({1e3 * sent:.2f} ms of each sent); "
        f"fit {2 * read + training:6.0f} s from files, "
        f"{copy + max(copy, compute) + training:5.1f} s from host memory"
    )


def main() -> None:
    model = Model.fitted(RESULTS / "growth-h200.json")
    parts = zip(model.constants, ("1", "n", "n m", "n m²", "n m d"), strict=True)
    print("seconds:", " + ".join(f"{constant:.3g} {term}" for constant, term in parts))
    for gpus in (8, 64):
        predict(model, 1e9, 100, 512, gpus)


if __name__ == "__main__":
    main()
