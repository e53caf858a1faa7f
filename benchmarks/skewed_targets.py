"""Skewed targets: fitted as they are, as logarithms, and by normal quantiles.

    SOFTKI_DATA=folder .venv/bin/python benchmarks/skewed_targets.py

Each is a monotone function g: the fit is to g(y), and quantiles go back through its inverse. All
figures are in units of y/std(y), on test rows: errors of the median, how many rows are in the 95%
intervals, of all rows and of those with the lowest and highest fifth of medians, and the median
width of these intervals.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer

from softki import SoftKIRegressor
from softki.bench.datasets import load

TRANSFORMS = {
    "as it is": FunctionTransformer(),
    "logarithm": FunctionTransformer(np.log, np.exp),
    "quantiles": QuantileTransformer(output_distribution="normal", random_state=0),
}


def simulated(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-normal around a smooth function, over several orders of magnitude."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 4))
    log = 2 * np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.4 * rng.standard_normal(rows)
    return X, np.exp(log)


def power(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The electric power of houseelectric, in kilowatts."""
    data = load("houseelectric")
    some = np.random.RandomState(0).permutation(len(data.y))[:rows]
    return data.X[some], np.exp(data.y[some])


SETS = {"simulated": simulated, "houseelectric": power}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--rows", type=int, default=10_000)
    arguments = parser.parse_args()
    print(f"{'':14} {'':10}   RMSE    MAE  covered  lowest  highest   width")
    for name in arguments.data.split(","):
        X, y = SETS[name](arguments.rows)
        n = int(0.8 * len(y))
        for how, transform in TRANSFORMS.items():
            z = transform.fit_transform(y[:n, None])[:, 0]
            model = SoftKIRegressor(random_state=0).fit(X[:n], z)
            low, middle, high = (
                transform.inverse_transform(quantile[:, None])[:, 0] / y[:n].std()
                for quantile in model.predict_quantiles(X[n:], [0.025, 0.5, 0.975]).T
            )
            truth = y[n:] / y[:n].std()
            error, inside = middle - truth, (low <= truth) & (truth <= high)
            fifth = np.quantile(middle, [0.2, 0.8])
            parts = [inside, inside[middle <= fifth[0]], inside[middle >= fifth[1]]]
            figures = [np.sqrt(np.mean(error**2)), np.mean(np.abs(error)), *map(np.mean, parts)]
            print(
                f"{name:14} {how:10} {figures[0]:6.3f} {figures[1]:6.3f}   {figures[2]:.3f}   "
                f"{figures[3]:.3f}    {figures[4]:.3f}  {np.median(high - low):6.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
