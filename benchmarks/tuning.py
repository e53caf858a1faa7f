"""Variants of the fit, judged on a tenth of the training rows: what the defaults were chosen by.

    SOFTKI_DATA=folder .venv/bin/python benchmarks/tuning.py --data elevators --seed 0 --device cuda
    .venv/bin/python benchmarks/tuning.py --show benchmarks/results/tuning-h200.jsonl

A run is a line of JSON. `--show` prints, for each data set, the RMSE as a multiple of that of the
baseline and the NLL above it, the mean over splits: 512 points, 1,024 rows a step and lengthscales
up to 5, or (2k) 2,048 points and 4,096 rows a step on larger data; or the defaults, whose variants
have the sizes that `softki.estimator.defaults` gives. `--data kin40k:900` fits to 900 rows only.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sklearn.linear_model import LinearRegression

from softki import SoftKIRegressor
from softki.bench.datasets import load
from softki.bench.splits import SPLITS
from softki.estimator.defaults import Size
from softki.metrics import coverage, gaussian_nll, rmse
from softki.training import trainer as adam
from softki.training.initialization import new_report
from softki.training.report import HeldOut
from softki.training.trainer import Trainer

SMALL = {"points": 512, "batch_size": 1024, "steps": 1200, "max_lengthscale": 5.0}
LARGE = SMALL | {"points": 2048, "batch_size": 4096}
HUGE = SMALL | {"points": 4096, "batch_size": 8192, "steps": 800}
FULL = SMALL | {"batch_size": 4096}


class Averaged(Trainer):
    """Judges, and keeps, the average of the parameters over about the last 50 steps."""

    decay = 0.98

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        parameters = [parameter.detach() for parameter in self.model.parameters()]
        self._average = [parameter.clone() for parameter in parameters]
        step = self.optimizer.step

        def averaging(*arguments: Any, **named: Any) -> Any:
            result = step(*arguments, **named)
            torch._foreach_lerp_(self._average, parameters, 1 - self.decay)
            return result

        self.optimizer.step = averaging  # type: ignore[method-assign]

    def _evaluate(self, step: int) -> HeldOut | None:
        raw = [parameter.detach().clone() for parameter in self.model.parameters()]
        self._set(self._average)
        figures = super()._evaluate(step)
        self._set(raw)
        return figures

    @torch.no_grad()
    def _set(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self.model.parameters(), values, strict=True):
            parameter.copy_(value)


class AveragedLonger(Averaged):
    """The same over about the last 100 steps."""

    decay = 0.99


class Cooled(Trainer):
    """Goes on from the best parameters, half as many steps again, at a rate that falls to zero."""

    is_again = False

    def run(self, save: Callable[[], object] | None = None) -> None:
        super().run(save)
        if self.is_again or self.best is None or self.best.step >= 0.9 * self.settings.steps:
            return
        share = adam._share_of_peak(self.settings, self.best.step)
        columns = self.model.points.shape[1]
        settings = replace(
            self.settings,
            steps=max(100, self.best.step // 2),
            learning_rate=share * self.settings.learning_rate,
            point_learning_rate=share * adam.point_rate(self.settings, columns),
            seed=self.settings.seed + 1,
            patience=None,
        )
        before = copy.deepcopy(self.model.state_dict())
        again = type(self)(
            self.model, self.data, settings, new_report(self.model, self.data, settings, {})
        )
        again.is_again = True
        again.run()
        assert again.best is not None
        if again.best.score < self.best.score:
            self.report.history = [replace(again.best, step=self.best.step)]
        else:
            self.model.load_state_dict(before)


class CooledAverage(Cooled, Averaged):
    """Both."""


TRAINERS = {
    "average": Averaged,
    "average of 100": AveragedLonger,
    "cooled": Cooled,
    "cooled average": CooledAverage,
}
# Name: the size, and what else differs.
VARIANTS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "baseline": (SMALL, {}),
    "average": (SMALL, {"trainer": "average"}),
    "average of 100": (SMALL, {"trainer": "average of 100"}),
    "cooled": (SMALL, {"trainer": "cooled"}),
    "cooled average": (SMALL, {"trainer": "cooled average"}),
    "cap 3": (SMALL | {"max_lengthscale": 3.0}, {}),
    "cap 100": (SMALL | {"max_lengthscale": 100.0}, {}),
    "cap 20, average": (SMALL | {"max_lengthscale": 20.0}, {"trainer": "average"}),
    "cap 100, average": (SMALL | {"max_lengthscale": 100.0}, {"trainer": "average"}),
    "points × 0.2": (SMALL, {"points": 0.2}),
    "points × 0.5": (SMALL, {"points": 0.5}),
    "points × 2": (SMALL, {"points": 2.0}),
    "rate 0.1": (SMALL, {"rate": 0.1}),
    "rate 0.1, average": (SMALL, {"rate": 0.1, "trainer": "average"}),
    "rate 0.02, average": (SMALL, {"rate": 0.02, "trainer": "average"}),
    "matern52, average": (SMALL, {"kernel": "matern52", "trainer": "average"}),
    "512 rows": (SMALL | {"batch_size": 512}, {}),
    "1024 points": (SMALL | {"points": 1024}, {}),
    "1024/2048, average": (SMALL | {"points": 1024, "batch_size": 2048}, {"trainer": "average"}),
    "4096 rows": (FULL, {}),
    "4096 rows, average": (FULL, {"trainer": "average"}),
    "4096 rows, 256 points": (FULL | {"points": 256}, {}),
    "4096 rows, cap 3": (FULL | {"max_lengthscale": 3.0}, {}),
    "4096 rows, points × 0.2": (FULL, {"points": 0.2}),
    "4096 rows, points × 0.5": (FULL, {"points": 0.5}),
    "4096 rows, points × 2": (FULL, {"points": 2.0}),
    "4096 rows, rate 0.1": (FULL, {"rate": 0.1}),
    "4096 rows, rate 0.02": (FULL, {"rate": 0.02}),
    "2k baseline": (LARGE, {}),
    "2k average": (LARGE, {"trainer": "average"}),
    "2k cooled average": (LARGE, {"trainer": "cooled average"}),
    "2k cap 3": (LARGE | {"max_lengthscale": 3.0}, {}),
    "2k cap 100, average": (LARGE | {"max_lengthscale": 100.0}, {"trainer": "average"}),
    "2k points × 0.2": (LARGE, {"points": 0.2}),
    "2k points × 0.5": (LARGE, {"points": 0.5}),
    "2k 2048 rows": (LARGE | {"batch_size": 2048}, {}),
    "2k 8192 rows": (LARGE | {"batch_size": 8192}, {}),
    "2k rate 0.1, average": (LARGE, {"rate": 0.1, "trainer": "average"}),
    "2k rate 0.02, average": (LARGE, {"rate": 0.02, "trainer": "average"}),
    "2k matern12, average": (LARGE, {"kernel": "matern12", "trainer": "average"}),
    "2k matern52, average": (LARGE, {"kernel": "matern52", "trainer": "average"}),
    "4k average": (HUGE, {"trainer": "average"}),
    "4k 1600 steps": (HUGE | {"steps": 1600}, {}),
    "4k 1600 steps, average": (HUGE | {"steps": 1600}, {"trainer": "average"}),
    "4k 1600 steps, cap 3": (HUGE | {"steps": 1600, "max_lengthscale": 3.0}, {}),
    "4k 1600 steps, points × 0.2": (HUGE | {"steps": 1600}, {"points": 0.2}),
    "defaults": (None, {}),
    "defaults, average": (None, {"trainer": "average"}),
    "defaults, rate 0.1": (None, {"rate": 0.1}),
    "defaults, rate 0.1, average": (None, {"rate": 0.1, "trainer": "average"}),
    "defaults, points × 2": (None, {"points": 2.0}),
    "defaults, linear mean": (None, {"mean": "linear"}),
}
BASELINES = ("baseline", "2k baseline", "defaults")


def run(data: str, seed: int, variant: str, device: str) -> dict[str, Any]:
    """Fit to nine tenths of the training rows; figures on the others, which no fit has seen."""
    name, _, most = data.partition(":")
    observations = load(name)
    X, y = observations.X, observations.y
    train, _ = SPLITS["90/10"](len(y), seed)
    order = np.random.RandomState(1000 + seed).permutation(train)
    rows, judged = np.split(order, [min(int(0.9 * len(order)), int(most or len(order)))])
    judged, unit = judged[:5000], y[rows].std()
    size, other = VARIANTS[variant]
    rate, kernel = other.get("rate", 0.05), other.get("kernel", "matern32")
    point_rate, factor = adam.point_rate, other.get("points", 1.0)
    start = time.perf_counter()
    trainer = TRAINERS.get(other.get("trainer", ""), Trainer)
    held_out: Any = "auto" if size is None else 0.1
    with ExitStack() as stack:
        for change in (
            patch("softki.training.trainer.point_rate", lambda *given: factor * point_rate(*given)),
            patch("softki.training.model_selection.Trainer", trainer),
        ):
            stack.enter_context(change)
        if size is not None:
            only = Size(**size)
            sizes = patch(
                "softki.estimator.defaults.sizes_for", lambda count, _: [only.within(count)]
            )
            stack.enter_context(sizes)
        trend = LinearRegression().fit(X[rows], y[rows]).predict(X)
        y = y - trend if other.get("mean") == "linear" else y
        model = SoftKIRegressor(
            learning_rate=rate, kernel=kernel, device=device, random_state=seed, held_out=held_out
        ).fit(X[rows], y[rows])
    mean, std = model.predict(X[judged], return_std=True)
    residual = torch.as_tensor((y[judged] - mean) / unit)[:, None]
    variance = torch.as_tensor((std / unit) ** 2)[:, None]
    return {
        "data": data,
        "seed": seed,
        "variant": variant,
        "rmse": rmse(residual),
        "nll": float(gaussian_nll(residual, variance)),
        "coverage": coverage(residual, variance),
        "seconds": time.perf_counter() - start,
        "best_step": model.fit_report_.best_step,
    }


def show(file: Path) -> None:
    """Each variant beside the baseline, on the splits that both were run on."""
    found: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
    for line in file.read_text().splitlines():
        record = json.loads(line)
        found[record["data"], record["seed"]][record["variant"]] = record
    cells: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for (data, _), runs in found.items():
        base = next((runs[name] for name in BASELINES if name in runs), None)
        for name, record in runs.items():
            if base is not None:
                pair = math.log(record["rmse"] / base["rmse"]), record["nll"] - base["nll"]
                cells[name][data].append(pair)
    names = list(dict.fromkeys(data for data, _ in found))
    print(f"{'':28}" + "".join(f"{name:>22}" for name in names))
    for variant in VARIANTS:
        if variant in cells:
            print(f"{variant:28}" + "".join(_cell(cells[variant][name]) for name in names))


def _cell(pairs: list[tuple[float, float]]) -> str:
    if not pairs:
        return " " * 22
    ratio, nll = np.mean(pairs, 0)
    return f"{math.exp(ratio):.3f} {nll:+.3f} ({len(pairs)})".rjust(22)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", help="names, separated by semicolons; by default all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=Path("tuning.jsonl"))
    parser.add_argument("--show", type=Path, help="a file of results, and run nothing")
    arguments = parser.parse_args()
    if arguments.show is not None:
        return show(arguments.show)
    if arguments.data is None:
        parser.error("--data or --show is needed")
    chosen = arguments.variants.split(";") if arguments.variants else VARIANTS
    for variant in chosen:
        record = run(arguments.data, arguments.seed, variant, arguments.device)
        print(f"{variant:28} {record['rmse']:.4f} {record['nll']:7.3f} {record['seconds']:6.1f} s")
        with arguments.results.open("a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
