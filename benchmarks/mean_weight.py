"""How much a row should count in the mean: each weight, judged on a tenth of the training rows.

    SOFTKI_DATA=folder .venv/bin/python benchmarks/mean_weight.py --data pol,elevators

Prints, for each weight w in the mean (of a posterior whose noise variance is β²/w), RMSE and score
(NLL + log RMSE) of the held-out rows of the fit, and RMSE and NLL of rows that the fit has not
seen: all beside those of w = 1. `chosen` marks the weight that the fit took, by that score with the
prior of w, after f was shrunk, if it was.
"""

from __future__ import annotations

import argparse
import math
from unittest.mock import patch

import numpy as np
import torch

from softki import SoftKIRegressor
from softki.bench.datasets import load
from softki.bench.splits import SPLITS
from softki.metrics import gaussian_nll, rmse
from softki.posterior.calibration import (
    ROW_WEIGHTS,
    Calibration,
    HeldOutRows,
    calibrate_row_weights,
)
from softki.training.inference import posterior_of

Said = dict[float, tuple[HeldOutRows, torch.Tensor]]


def run(data: str, seed: int) -> None:
    """Fit to nine tenths of the training rows, and print a line for each weight."""
    observations = load(data)
    X, y = observations.X, observations.y
    train, _ = SPLITS["90/10"](len(y), seed)
    order = np.random.RandomState(1000 + seed).permutation(train)
    rows, judged = np.split(order, [int(0.9 * len(order))])
    seen: list[Said] = []

    def calibrate(said: Said) -> Calibration:
        seen.append(said)
        return calibrate_row_weights(said)

    with patch("softki.training.inference.calibrate_row_weights", calibrate):
        model = SoftKIRegressor(random_state=seed, device="cpu").fit(X[rows], y[rows])
    fit, [said] = model.fit_, seen
    chosen = fit.report.calibration
    assert chosen is not None
    share = chosen.row_weight / calibrate_row_weights(said).row_weight
    x = model.x_standardizer_.transform(torch.as_tensor(X[judged]))
    target = model.y_standardizer_.transform(torch.as_tensor(y[judged, None]))
    base = None
    for weight in ROW_WEIGHTS:
        unseen = said[weight][0]
        fixed = calibrate_row_weights({w: (unseen, v) for w, (_, v) in said.items()})
        held_out = rmse(unseen.target - unseen.mean)
        fixed = fixed._replace(mean_row_weight=weight).for_more_rows(share)
        posterior = posterior_of(fit.model, fit.statistics, fit.settings, fixed)
        mean, variance = posterior.predict(x)
        residual, total = target - mean, (variance + posterior.noise_variance)[:, None]
        figures = np.array(
            [
                math.log(held_out),
                fixed.nll + math.log(held_out),
                math.log(rmse(residual)),
                float(gaussian_nll(residual, total)),
            ]
        )
        base = figures if base is None else base
        error, score, judged_error, nll = figures - base
        mark = "  chosen" if weight == chosen.mean_row_weight else ""
        print(
            f"{data:16} {seed}  w={weight:<6g} held out × {math.exp(error):.4f}, score "
            f"{score:+.4f}   judged × {math.exp(judged_error):.4f}, NLL {nll:+.4f}{mark}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", default="elevators,pol,protein,kin40k,airfoil,aspirin/inverse,bike"
    )
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    for data in arguments.data.split(","):
        for seed in range(arguments.seeds):
            run(data, seed)


if __name__ == "__main__":
    main()
