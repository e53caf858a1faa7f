"""What each of several processes does in `test_processes.py`, which starts this file.

The first gives the figures that the test compares; whatever must hold in every process is checked
here, as a process that fails makes the test fail.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist

from softki import FitSettings, SoftKIRegressor, cli, fit_rows
from softki.data import robot_arm
from softki.exceptions import InvalidInputError, NumericalError, ProcessError, TrainingWarning
from softki.kernels.stationary import Matern52
from softki.model import SoftKI
from softki.objective import exact_likelihood as objective
from softki.parallel.groups import joined_processes
from softki.parallel.processes import Processes, process_count, process_rank
from softki.streaming import StreamedRows
from softki.streaming.arrays import array_source
from softki.training import trainer
from softki.training.report import Event

N = 1500
X, Y = robot_arm(N)
BOTH = np.stack([Y, Y**2], 1)
NOISE = np.random.default_rng(0).uniform(0.5, 2.0, N)
# Where the rows of each process begin and end: of three, the first has no held-out rows, and the
# second none at all.
CUTS = {1: [0, N], 2: [0, 400, N], 3: [0, 3, 3, N]}
Figures = dict[str, np.ndarray]


def regressor(**parameters: Any) -> SoftKIRegressor:
    defaults = {"points": 24, "steps": 10, "random_state": 0, "held_out": 0.1}
    return SoftKIRegressor(**(defaults | parameters))


def full(**parameters: Any) -> SoftKIRegressor:
    return regressor(batch_size=None, dtype="float64", **parameters)


def own() -> slice:
    cuts = CUTS[process_count()]
    return slice(*cuts[process_rank() : process_rank() + 2])


def figures_of(model: SoftKIRegressor) -> Figures:
    names = getattr(model, "feature_names_in_", None)
    some = X[:100] if names is None else pd.DataFrame(X[:100], columns=names)
    mean, std = model.predict(some, return_std=True)
    state = {name: value.numpy() for name, value in model.fit_.model.state_dict().items()}
    return state | {
        "mean": mean,
        "std": std,
        "held out": model.fit_.held_out.numpy(),
        "log p": np.array(model.log_marginal_likelihood()),
        "relevance": model.feature_relevance_,
        "rmse": np.array(model.fit_report_.history[-1].rmse),
    }


def file_figures(folder: Path, solver: str) -> Figures:
    model = full(solver=solver).fit(folder / "arm.parquet", "reach")
    assert model.fit_report_.processes == process_count()
    assert model.fit_report_.rows == N
    return figures_of(model)


def csv_figures(folder: Path) -> Figures:
    return figures_of(full().fit(folder / "arm.csv", "reach"))


def table_figures(folder: Path) -> Figures:
    return figures_of(full().fit(open_if_alone(X[own()]), Y[own()]))


def batch_figures(folder: Path) -> Figures:
    """Several targets with known noise, and then more rows."""

    class Batches:
        def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
            rows = range(N)[own()]
            starts = range(rows.start, rows.stop, 500) or [rows.start]  # one of no rows
            for k in starts:
                part = slice(k, min(k + 500, rows.stop))
                yield X[part], BOTH[part], NOISE[part]

    model = full().fit(Batches())
    more = slice(0, 300) if process_rank() == process_count() - 1 else slice(0, 0)
    model.partial_fit(X[more] + 0.1, BOTH[more], NOISE[more])
    assert model.fit_report_.rows == N + 300
    return figures_of(model)


def minibatch_figures(folder: Path) -> Figures:
    steps = {"steps": 60, "batch_size": 200}
    return figures_of(regressor(**steps).fit(open_if_alone(X[own()]), Y[own()]))


def few_figures(folder: Path) -> Figures:
    part = [slice(0, 40), slice(40, 150), slice(150, 150)][process_rank()]
    part = slice(0, 150) if process_count() == 1 else part
    model = full(held_out="auto").fit(X[part], Y[part])
    assert model.fit_report_.folds == 5
    assert model.fit_report_.rows == 150
    return figures_of(model)


def open_if_alone(x: np.ndarray) -> Any:
    """A process alone would fit to an array in memory, with other held-out rows."""
    if process_count() > 1:
        return x
    path = Path(os.environ["SOFTKI_TEST_FOLDER"], "x.npy")
    np.save(path, x)
    return path


FIGURES: dict[str, Callable[[Path], Figures]] = {
    "qr": lambda folder: file_figures(folder, "qr"),
    "whitened": lambda folder: file_figures(folder, "whitened"),
    "csv": csv_figures,
    "table": table_figures,
    "batches": batch_figures,
    "minibatches": minibatch_figures,
    "few": few_figures,
}


def check_errors(folder: Path) -> None:
    """They are raised in every process, and name the one where something is wrong."""
    last, rank = process_count() - 1, process_rank()
    x, y = X[rank::3], Y[rank::3].copy()
    refused(
        f"number of columns is 7 in process {last}, and 8 in process 0",
        full(),
        x[:, bool(rank == last) :],
        y,
    )
    mixed = regressor(dtype="float64" if rank == last else "float32")
    refused(f"dtype is float64 in process {last}, and float32 in process 0", mixed, x, y)
    kernel = regressor(kernel="rbf" if rank == last else "matern52")
    refused(f"kernel is rbf in process {last}, and matern52 in process 0", kernel, x, y)
    saving = regressor(checkpoint=None if rank else folder / "first alone")
    refused("a checkpoint is False in process 1, and True in process 0", saving, x, y)
    refused("the objective hutchinson is for one process", full(objective="hutchinson"), x, y)
    y[5] = np.nan if rank == last else y[5]
    refused(r"a missing value|y contains NaN|NaN", full(), x, y)
    refused("no process has any rows", full(), x[:0], y[:0])
    refused("no such file", full(), folder / "no.parquet", "reach")


def refused(message: str, model: SoftKIRegressor, *data: Any) -> None:
    with pytest.raises(InvalidInputError, match=message):
        model.fit(*data)


def rows_of(processes: Processes | None) -> StreamedRows:
    source = array_source(X[own()], Y[own()], may_be_empty=True)
    return StreamedRows.open(source, processes=processes)


def check_interrupts(folder: Path) -> None:
    """Ctrl-C in one process ends the training of all after the same step."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    steps: list[int] = []

    def interrupt(event: Event) -> None:
        steps.append(event.step)
        if event.step == 3 and process_rank() == process_count() - 1:
            signal.raise_signal(signal.SIGINT)

    with joined_processes() as processes, warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        settings = FitSettings(points=16, steps=30)
        result = fit_rows(rows_of(processes), settings=settings, callbacks=[interrupt])
        assert processes is not None
        assert len(set(processes.gather(len(steps)))) == 1
    assert result.report.stopped == "interrupted"
    assert result.report.steps == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def check_skips(folder: Path) -> None:
    """A step that one process cannot do is skipped in all of them, also where points are fixed."""
    check_skip(None)
    fixed = SoftKI(torch.randn(16, 8), Matern52(8))
    fixed.points.requires_grad_(False)
    check_skip(fixed)


def check_skip(model: SoftKI | None) -> None:
    factorise, calls = objective.factorise, 0

    def failing(K: torch.Tensor, name: str) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 4 and process_rank() == process_count() - 1:
            raise NumericalError("K is not positive definite here")
        return factorise(K, name)

    objective.factorise = failing
    try:
        with joined_processes() as processes:
            settings = FitSettings(points=16, steps=8)
            result = fit_rows(rows_of(processes), settings=settings, model=model)
    finally:
        objective.factorise = factorise
    ((reason, count),) = result.report.skipped.items()
    assert count == 1
    assert "no fallback" in reason or "1 other process" in reason, reason
    assert not result.report.fallbacks


def check_threads(folder: Path) -> None:
    """A fit need not be in the main thread."""
    found: list[SoftKIRegressor] = []
    thread = threading.Thread(target=lambda: found.append(regressor().fit(X[own()], Y[own()])))
    thread.start()
    thread.join()
    assert found[0].fit_report_.processes == process_count()


def check_death(folder: Path) -> None:
    """The others stop at once, and rank 0 names the process that died."""
    last, start = process_count() - 1, 0.0

    def die(event: Event) -> None:
        nonlocal start
        start = time.monotonic()
        if event.step == 3 and process_rank() == last:
            os._exit(17)

    lost = "another process" if process_rank() else f"process {last}"
    named = f"{lost} of {last + 1} died"
    with pytest.raises(ProcessError, match=named), joined_processes(time_limit=20) as processes:
        fit_rows(rows_of(processes), settings=FitSettings(points=16), callbacks=[die])
    assert time.monotonic() - start < 30


CHECKS = [check_errors, check_interrupts, check_skips, check_threads, check_death]


def main() -> None:
    folder = Path(os.environ["SOFTKI_TEST_FOLDER"])
    torch.set_num_threads(1)
    if os.environ.get("WORLD_SIZE"):
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for name, make in FIGURES.items():
        figures = make(folder)
        with joined_processes() as processes:
            assert processes is not None
            for other in processes.gather(figures):
                for key, value in figures.items():
                    np.testing.assert_allclose(other[key], value, rtol=1e-12, err_msg=key)
        if process_rank() == 0:
            np.savez(folder / f"{name}-{process_count()}.npz", **figures)
    for check in CHECKS:
        check(folder)
    sys.stdout.write("done")
    sys.stdout.flush()
    os._exit(0)  # the group is broken, and is not to be closed


def command_line() -> None:
    """`softki` with the arguments that are given; a process is killed if it was not before."""
    calls = 0

    def killed(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 12:
            sys.stderr.write(f"killed in step {calls}\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return backward(*arguments)

    backward = objective.backward
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        trainer.backward = killed  # type: ignore[attr-defined]
    cli.main()


if __name__ == "__main__":
    command_line() if len(sys.argv) > 1 else main()
