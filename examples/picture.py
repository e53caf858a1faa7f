"""Draws docs/images/one_dimension.png: the posterior of a fit in one dimension, and the weights.

python examples/picture.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch

from softki import FitSettings, fit
from softki.interpolation.weights import interpolation_weights

TARGET = Path(__file__).parent.parent / "docs" / "images" / "one_dimension.png"


def wave(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(3 * x) * torch.exp(-x.square() / 4)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 6 * torch.rand(400, 1, generator=generator, dtype=torch.float64) - 3
    y = wave(x) + 0.15 * torch.randn(400, 1, generator=generator, dtype=torch.float64)
    result = fit(x, y, settings=FitSettings(points=16, steps=400, dtype=torch.float64))
    posterior = result.posterior
    grid = torch.linspace(-3, 3, 500, dtype=torch.float64)[:, None]
    mean, variance = posterior.predict(grid)
    spread = 1.96 * (variance + posterior.noise_variance).sqrt()
    draws = posterior.sample_functions(6, generator)(grid)[..., 0]
    weights = interpolation_weights(grid, posterior.points, posterior.temperature)
    centres = (posterior.points * posterior.temperature)[:, 0]

    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(8, 5), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    top.plot(x, y, ".", color="0.65", markersize=4, label="data")
    band = (mean[:, 0] - spread, mean[:, 0] + spread)
    top.fill_between(grid[:, 0], *band, color="tab:blue", alpha=0.15, label="95% of y")
    top.plot(grid, draws, color="tab:blue", linewidth=0.6, alpha=0.6)
    top.plot(grid, mean, color="tab:blue", linewidth=2, label="mean, and draws of f")
    top.plot(grid, wave(grid), "--", color="black", linewidth=1, label="truth")
    top.legend(loc="upper right", fontsize=8, ncols=2)
    top.set_ylabel("y")
    bottom.plot(grid, weights, linewidth=1)
    bottom.plot(centres, torch.zeros(len(centres)), "k^", markersize=5)
    bottom.set(xlabel="x", ylabel="weights s(x)", xlim=(-3, 3))
    TARGET.parent.mkdir(exist_ok=True)
    figure.savefig(TARGET, dpi=110)
    print(f"wrote {TARGET.relative_to(Path(__file__).parent.parent)}")


if __name__ == "__main__":
    main()
