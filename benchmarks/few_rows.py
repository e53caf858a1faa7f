"""Variants of the fit to up to 1,000 rows, judged on other training rows.

    SOFTKI_DATA=folder .venv/bin/python benchmarks/few_rows.py [--data concrete,kin40k] [--seeds 3]

A fit gets 800 training rows of a split, or nine tenths if there are fewer; 2,000 of the others, or
all, judge it. Prints the mean over splits of RMSE and NLL on standardised targets, and those of
each split; at the end, for each variant, the mean over data sets of its RMSE as a multiple of that
of the defaults, and of the difference in NLL.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from softki import FitSettings, SoftKIRegressor
from softki.bench.datasets import load
from softki.bench.splits import SPLITS
from softki.estimator.defaults import Size, sizes_for
from softki.metrics import gaussian_nll, rmse
from softki.training import trainer as adam

ROWS, JUDGED = 800, 2000
DATA = "concrete,energy,airfoil,kin40k,pol,elevators,protein,pumadyn32nm,ethanol/inverse"
# Name: parameters of the estimator, what differs in the size, and the rate of the points.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "defaults": ({}, {}, 1.0),
    "a tenth held out": ({"held_out": 0.1}, {}, 1.0),
    "a fifth held out": ({"held_out": 0.2}, {}, 1.0),
    "cap 3": ({}, {"max_lengthscale": 3.0}, 1.0),
    "cap 10": ({}, {"max_lengthscale": 10.0}, 1.0),
    "half the points": ({}, {"points": 0.5}, 1.0),
    "a quarter of the points": ({}, {"points": 0.25}, 1.0),
    "twice the points": ({}, {"points": 2.0}, 1.0),
    "half the points, cap 3": ({}, {"points": 0.5, "max_lengthscale": 3.0}, 1.0),
    "250 steps": ({}, {"steps": 250}, 1.0),
    "rate 0.1, 150 steps": ({"learning_rate": 0.1}, {"steps": 150}, 1.0),
    "rate 0.02, 400 steps": ({"learning_rate": 0.02}, {"steps": 400}, 1.0),
    "points × 0.3": ({}, {}, 0.3),
    "points × 0.1": ({}, {}, 0.1),
    "matern52": ({"kernel": "matern52"}, {}, 1.0),
}


def figures(data: str, seed: int, variant: str) -> tuple[float, float]:
    """RMSE and NLL on training rows of a split that the fit does not get."""
    parameters, size, share = VARIANTS[variant]
    observations = load(data)
    train, _ = SPLITS["90/10"](len(observations.y), seed)
    order = np.random.RandomState(seed + 100).permutation(len(train))
    rows = min(ROWS, 9 * len(train) // 10)
    inner, judged = order[:rows], order[rows : rows + JUDGED]
    X, y = observations.X[train], observations.y[train]
    y = (y - y[inner].mean()) / y[inner].std()

    def sizes(rows: int, on_cuda: bool) -> list[Size]:
        first = sizes_for(rows, on_cuda)[0]
        points = int(first.points * size.get("points", 1.0))
        return [replace(first, **(size | {"points": points}))]

    def point_rate(settings: FitSettings, columns: int) -> float:
        return share * rate(settings, columns)

    rate = adam.point_rate
    with ExitStack() as stack:
        stack.enter_context(patch("softki.estimator.defaults.sizes_for", sizes))
        stack.enter_context(patch("softki.training.trainer.point_rate", point_rate))
        model = SoftKIRegressor(device="cpu", random_state=seed, **parameters)
        model.fit(X[inner], y[inner])
    mean, std = model.predict(X[judged], return_std=True)
    residual, variance = torch.from_numpy(y[judged] - mean), torch.from_numpy(std).square()
    return rmse(residual), float(gaussian_nll(residual, variance))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--variants", default=",".join(VARIANTS).replace(", ", ";"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    changes: dict[str, list[tuple[float, float]]] = {}
    for data in arguments.data.split(","):
        usual = None
        for variant in arguments.variants.split(","):
            variant = variant.replace(";", ", ")
            found = np.array([figures(data, seed, variant) for seed in range(arguments.seeds)])
            mean = found.mean(0)
            usual = mean if usual is None else usual
            changes.setdefault(variant, []).append((mean[0] / usual[0], mean[1] - usual[1]))
            splits = "  ".join(f"{error:.3f} {nll:+.2f}" for error, nll in found)
            print(f"{data:13} {variant:24} {mean[0]:.4f} {mean[1]:+.3f}   {splits}", flush=True)
    print()
    for variant, pairs in changes.items():
        ratio, difference = np.array(pairs).mean(0)
        print(f"{variant:24} {ratio:.3f} {difference:+.3f}")


if __name__ == "__main__":
    main()
