"""Does feature_relevance_ rank irrelevant columns last? RMS gradient against 1/(T·lengthscale).

    .venv/bin/python benchmarks/relevance.py

Each line: the smallest relevance of a column that matters over the largest of one that does not.
Below 1, a column that matters is ranked behind one that does not.
"""

from __future__ import annotations

import numpy as np

from softki import SoftKIRegressor
from softki.data import robot_arm
from softki.kernels.stationary import StationaryKernel


def functions(x: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, int]]:
    """Targets, each with the number of leading columns that it depends on."""
    noise = rng.standard_normal(len(x))
    return {
        "mixed": (np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * x[:, 3] + 0.1 * noise, 4),
        "linear": (3 * x[:, 0] + x[:, 1] + 0.5 * x[:, 2] + 0.5 * noise, 3),
        "smooth": (np.sin(x[:, 0]) + x[:, 1] ** 2 + 0.1 * noise, 2),
    }


def separation(relevance: np.ndarray, relevant: list[int]) -> float:
    irrelevant = np.setdiff1d(np.arange(len(relevance)), relevant)
    return float(relevance[relevant].min() / relevance[irrelevant].max())


def compare(name: str, x: np.ndarray, y: np.ndarray, relevant: list[int]) -> None:
    model = SoftKIRegressor(points=128, steps=300, random_state=0).fit(x, y)
    kernel, temperature = model.fit_.model.kernel, model.fit_.posterior.temperature
    assert isinstance(kernel, StationaryKernel)
    assert temperature is not None
    inverse = (1 / (temperature * kernel.lengthscale)).detach().cpu().numpy()
    gradient = separation(model.feature_relevance_, relevant)
    print(f"{name:24}{gradient:12.2f}{separation(inverse, relevant):12.2f}", flush=True)


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{'':24}{'gradient':>12}{'1/(T·l)':>12}")
    for n, d in ((300, 6), (1000, 6), (4000, 10), (4000, 30)):
        x = rng.standard_normal((n, d))
        for name, (y, count) in functions(x, rng).items():
            compare(f"{name}, {n} × {d}", x, y, list(range(count)))
    x, y = robot_arm(4000)  # the reach of the arm does not depend on its first joint
    x = np.hstack([x, rng.uniform(size=(4000, 3))])
    compare("robot arm, 4000 × 11", x, y, list(range(1, 8)))


if __name__ == "__main__":
    main()
