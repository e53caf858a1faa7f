"""`SoftKIRegressor()` on every data set, beside what it should reach; and each default turned off.

    SOFTKI_DATA=folder .venv/bin/python benchmarks/defaults.py --device cuda --seeds 3
    SOFTKI_DATA=folder .venv/bin/python benchmarks/defaults.py --device cuda --off all --data pol
    .venv/bin/python benchmarks/defaults.py --device cuda --show --results b.jsonl --before a.jsonl

Runs are kept in a file of results (as by `softki bench run`) and not repeated; `--show` shows what
is there. Runs of `exact` in it are subtracted, on the same rows. `--before` compares with the runs
of another version.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
from torch import Tensor

from softki.bench.paired import paired
from softki.bench.record import Record
from softki.bench.registry import select
from softki.bench.results import Results
from softki.bench.runner import Plan, run_all
from softki.kernels.stationary import make_kernel
from softki.posterior.calibration import Calibration, HeldOutRows, calibrate_row_weights

Said = Mapping[float, tuple[HeldOutRows, Tensor]]

# Test RMSE / NLL to reach on one H200; small sets are compared with an exact GP instead.
REACH = {
    "pol": (0.066, -1.38),
    "elevators": (0.351, 0.378),
    "bike": (0.008, -3.3),
    "kin40k": (0.110, -0.80),
    "protein": (0.540, 0.80),
    "keggdirected": (0.082, -1.08),
    "keggundirected": (0.116, -0.73),
    "houseelectric": (0.045, -1.60),
    "aspirin/inverse": (0.150, -0.50),
    "c14/inverse": (0.036, -1.9),
}
SMALL = ("airfoil", "concrete", "energy", "pumadyn32nm")
BESIDE_EXACT = (1.1, 0.15)  # times its RMSE, and above its NLL


def _nll(figures: object) -> float:
    return figures.calibration.nll  # type: ignore[attr-defined]


def _calibrated_by(change: Callable[[Said], Said]) -> object:
    """Calibrate by other predictions than the posteriors'."""
    return patch(
        "softki.training.inference.calibrate_row_weights",
        lambda said: calibrate_row_weights(change(said)),
    )


# What is patched to turn a default off.
OFF: dict[str, Callable[[], object]] = {
    "error in the score": lambda: patch("softki.training.report.HeldOut.score", property(_nll)),
    "shrinkage": lambda: patch("softki.posterior.calibration.TARGET_VARIANCE", 1e300),
    "slower points": lambda: patch("softki.training.trainer._POINT_COLUMNS", math.inf),
    "weight in the variance": lambda: _calibrated_by(
        lambda said: {weight: (unseen, said[1.0][1]) for weight, (unseen, _) in said.items()}
    ),
    "weight in the mean": lambda: _calibrated_by(
        lambda said: {weight: (said[1.0][0], variance) for weight, (_, variance) in said.items()}
    ),
    "widening": lambda: patch.multiple(
        "softki.posterior.calibration", _BELIEVED=math.inf, _FITTED=0
    ),
    "start of the noise": lambda: patch(
        "softki.training.initialization.set_initial_noise", lambda *_: None
    ),
    "cap on lengthscales": lambda: patch(
        "softki.training.initialization.make_kernel",
        lambda kernel, columns, cap: make_kernel(kernel, columns, 5.0),
    ),
    "smooth candidate": lambda: patch(
        "softki.estimator.defaults._SMOOTH_ROWS", {True: 0, False: 0}
    ),
    "variance of the training rows": lambda: patch.object(
        Calibration, "for_more_rows", lambda self, share: self
    ),
    "folds": lambda: patch("softki.estimator.defaults.FEW_ROWS", 0),
}
FIXED = {"points": 512, "batch_size": 1024, "steps": 600}


def runs(
    results: Results,
    data: str,
    seeds: int,
    device: str,
    show: bool = False,
    settings: dict[str, int] | None = None,
) -> list[Record]:
    """The runs of the defaults, those that are missing made now."""
    plan = Plan(select(data), ["softki"], range(seeds), settings=settings or {}, device=device)
    for record in () if show else run_all(plan, results):
        figures = f"{record.rmse:.4f} {record.nll:.3f}" if record.status == "ok" else record.error
        print(f"  {record.data} seed {record.seed}: {figures}, {record.fit_seconds or 0:.1f} s")
    wanted = {run.key for dataset in plan.data for run in plan.runs_on(dataset)}
    return [record for record in results if record.key in wanted and record.status == "ok"]


def of(records: Sequence[Record], name: str) -> list[Record]:
    return [record for record in records if record.data == name]


def line(name: str, records: Sequence[Record], results: Results) -> str:
    """Mean ± standard deviation, what was to be reached, and whether it was."""
    figures = np.array([[record.rmse, record.nll] for record in records], dtype=float)
    mean, std = figures.mean(0), figures.std(0)
    exact = [record for record in results if record.data == name and record.method == "exact"]
    exact = [record for record in exact if record.status == "ok" and record.split == "90/10"]
    goal = REACH.get(name)
    if goal is None and exact:
        theirs = np.array([[record.rmse, record.nll] for record in exact], dtype=float).mean(0)
        goal = (BESIDE_EXACT[0] * theirs[0], theirs[1] + BESIDE_EXACT[1])
    covered = float(np.mean([record.coverage for record in records]))
    tested = sum(record.test_rows or 0 for record in records)
    allowed = 0.02 + 2 * math.sqrt(0.95 * 0.05 / tested)
    cells = [
        f"{name:16} {len(records)}",
        f"{mean[0]:.4f} ± {std[0]:.4f}  {mean[1]:7.3f} ± {std[1]:.3f}",
        f"{goal[0]:.4f} {goal[1]:7.3f}" if goal else f"{'':14}",
        *(_verdict(value, aim) for value, aim in zip(mean, goal or (math.nan,) * 2, strict=True)),
        f"{covered:.3f} {'yes' if abs(covered - 0.95) <= allowed else 'NO':3}",
        f"{max(record.fit_seconds or 0 for record in records):6.1f} s",
    ]
    for metric in ("rmse", "nll"):
        differences = paired(results, metric, "softki", "exact")
        cells += [str(difference) for difference in differences if difference.data == name]
    return "  ".join(cells)


def _verdict(value: float, aim: float) -> str:
    if math.isnan(aim):
        return "   "
    return "yes" if value <= aim else "NO "


def ablations(names: Sequence[str]) -> Iterator[tuple[str, ExitStack, dict[str, int]]]:
    """A name, what turns the default off while it is entered, and settings instead of `auto`."""
    for name in names:
        stack = ExitStack()
        if name != "sizes":
            stack.enter_context(OFF[name]())  # type: ignore[arg-type]
        yield name, stack, FIXED if name == "sizes" else {}


def compare(records: Sequence[Record], others: Sequence[Record], names: Sequence[str]) -> None:
    """Print the RMSE of the others as a multiple, and their NLL less ours, on the same splits."""
    for data in names:
        pairs = [(a, b) for a in of(records, data) for b in of(others, data) if a.seed == b.seed]
        pairs = [(a, b) for a, b in pairs if a != b]  # the same run says nothing
        if pairs:
            ratio = np.mean([b.rmse / a.rmse for a, b in pairs if a.rmse and b.rmse])
            change = np.mean(
                [b.nll - a.nll for a, b in pairs if a.nll is not None and b.nll is not None]
            )
            print(f"{data:16} {ratio:.3f}  {change:+.3f}  ({len(pairs)})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=",".join((*REACH, *SMALL)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=Path("defaults.jsonl"))
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--before", type=Path, help="results of another version, to compare with")
    parser.add_argument("--off", help=f"defaults to turn off, or all: sizes,{','.join(OFF)}")
    arguments = parser.parse_args()
    names = arguments.data.split(",")
    results = Results(arguments.results)
    how = (arguments.data, arguments.seeds, arguments.device, arguments.show)
    records = runs(results, *how)
    print("data  runs  RMSE  NLL  to reach  reached  95% covers  slowest fit  paired with exact")
    for name in names:
        if of(records, name):
            print(line(name, of(records, name), results))
    if arguments.before:
        print(f"\n{arguments.before.name}: RMSE as a multiple, NLL as a difference")
        before = runs(Results(arguments.before), *how[:3], show=True)
        compare(records, before, names)
    if not arguments.off:
        return
    chosen = ["sizes", *OFF] if arguments.off == "all" else arguments.off.split(",")
    for name, stack, settings in ablations(chosen):
        with stack:
            file = arguments.results.with_suffix(f".without-{name.replace(' ', '-')}.jsonl")
            without = runs(Results(file), *how, settings)
        print(f"\nwithout {name}: RMSE as a multiple, NLL as a difference")
        compare(records, without, names)


if __name__ == "__main__":
    main()
