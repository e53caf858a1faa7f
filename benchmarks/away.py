"""Error bars away from the data: a sine on [−2, 2], and a robot arm that turns too far.

.venv/bin/python benchmarks/away.py [--picture docs/images/away.png]
"""

from __future__ import annotations

import argparse
from copy import copy
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from softki import SoftKIRegressor
from softki.data import robot_arm

SCALES = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)


def without_edge(model: SoftKIRegressor) -> SoftKIRegressor:
    plain = replace(model.fit_.posterior, reach=None, width=None)
    other = copy(model)
    other.fit_ = replace(model.fit_, posterior=plain)
    return other


def sine(ax: Axes) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(400)
    y = (y - y.mean()) / y.std()
    model = SoftKIRegressor(random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(Matern(1.0, nu=1.5) + WhiteKernel(0.01)).fit(X, y)
    exact.kernel_.k2.noise_level = 1e-9  # the std of f, not of y
    grid = np.linspace(-6, 6, 601)[:, None]
    for name, of_f, colour in (
        ("exact GP, variance 1", lambda x: exact.predict(x, return_std=True), "#999999"),
        ("without", lambda x: without_edge(model).predict(x, return_std=True, of="f"), "#D55E00"),
        ("softki", lambda x: model.predict(x, return_std=True, of="f"), "#0072B2"),
    ):
        mean, std = of_f(grid)
        ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=colour, alpha=0.3, lw=0)
        ax.plot(grid[:, 0], mean, color=colour, label=name)
        print(f"sine, x = 5: std of f {of_f(np.array([[5.0]]))[1][0]:.3f}  {name}")
    ax.plot(X[:, 0], y, ".", color="black", markersize=1)
    ax.set(xlabel="x", ylabel="f, ± 2 std")
    ax.legend()


def arm(ax: Axes) -> None:
    X, y = robot_arm(6000)
    model = SoftKIRegressor(random_state=0).fit(X, y)
    covered: dict[str, list[float]] = {}
    for scale in SCALES:
        turned, truth = robot_arm(2000, seed=1, turn=scale)
        for name, regressor in (("softki", model), ("without", without_edge(model))):
            mean, std = regressor.predict(turned, return_std=True)
            share = float(np.mean(np.abs(truth - mean) < 1.96 * std))
            error, spread = (truth - mean) / y.std(), std / y.std()
            nll = np.mean(error**2 / spread**2 / 2 + np.log(spread) + np.log(2 * np.pi) / 2)
            covered.setdefault(name, []).append(share)
            print(f"robot arm, angles × {scale:4}: 95% covers {share:.3f}, NLL {nll:7.3f}  {name}")
    ax.axhline(0.95, color="black", linewidth=0.8, linestyle=":")
    for name, colour in (("softki", "#0072B2"), ("without", "#D55E00")):
        ax.plot(SCALES, covered[name], "o-", color=colour, label=name)
    ax.set(xlabel="angles, times those of training", ylabel="in 95% intervals", ylim=(0, 1.02))
    ax.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path)
    picture = parser.parse_args().picture
    torch.manual_seed(0)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
    sine(left)
    arm(right)
    if picture is not None:
        figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main()
