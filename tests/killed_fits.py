"""Fits in processes that are killed, for `test_checkpoints`.

As a program, it forks a process for each line of JSON that it reads: torch is imported only once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import softki.training.checkpoints
from softki import Event, Fit, FitSettings, SoftKIRegressor, fit, fit_rows
from softki.data import robot_arm
from softki.exceptions import ProcessError
from softki.files import atomic
from softki.files.digest import digest_of
from softki.objective.hutchinson import Hutchinson
from softki.parallel.groups import joined_processes
from softki.streaming import StreamedRows, open_source

SETTINGS = FitSettings(points=12, steps=48, batch_size=64, patience=None, seed=3)
CASES = ("memory", "hutchinson", "several", "all rows", "parquet", "known noise")


def rows(count: int = 500) -> tuple[np.ndarray, np.ndarray]:
    X, y = robot_arm(count)
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def fit_case(case: str, data: str, **options: Any) -> Fit:
    X, y = rows()
    if case == "hutchinson":
        objective = Hutchinson(probes=4, preconditioner_rank=8)
        return fit(X, y, settings=replace(SETTINGS, objective=objective), **options)
    if case == "several":
        sizes = [replace(SETTINGS, points=m, steps=24) for m in (4, 16, 24)]
        return fit(X, y, settings=sizes, **options)
    if case == "all rows":
        return fit(X, y, settings=replace(SETTINGS, held_out=0.0, batch_size=None), **options)
    if case in ("parquet", "two processes"):
        with joined_processes() as group:
            source = StreamedRows.open(open_source(data, "reach"), SETTINGS.seed, processes=group)
            return fit_rows(source, settings=SETTINGS, **options)
    if case == "estimator":
        model = SoftKIRegressor(points=12, steps=60, checkpoint=options["checkpoint"])
        return model.fit(data, "reach").fit_
    noise = np.linspace(0.5, 2, len(X)) if case == "known noise" else None
    return fit(X, y, noise, settings=SETTINGS, **options)


def result_of(fitted: Fit) -> dict[str, Any]:
    """Everything but times, with every bit."""
    posterior = [v for v in vars(fitted.posterior).values() if torch.is_tensor(v)]
    report = vars(fitted.report) | {
        "seconds": sorted(fitted.report.seconds),
        "trials": [trial._replace(seconds=0) for trial in fitted.report.trials],
    }
    return {
        "model": digest_of(fitted.model.state_dict().values()),
        "posterior": digest_of(posterior),
        "report": {name: repr(value) for name, value in report.items()},
    }


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at_step(number: int) -> dict[str, Any]:
    """Callbacks that kill the process after so many steps, of all trainings together."""
    left = number

    def count(event: Event) -> None:
        nonlocal left
        left -= 1
        if not left:
            kill()

    return {"callbacks": [count]}


def kill_in_writing(number: int, moment: str) -> None:
    """Be killed at a moment of writing a checkpoint."""
    original, left = os.replace, number

    def rename(temporary: Path, target: Path) -> None:
        nonlocal left
        left -= 1
        if not left and moment == "half":
            os.truncate(temporary, os.path.getsize(temporary) // 2)
            kill()
        original(temporary, target)
        if not left:
            kill()

    atomic.os.replace = rename  # type: ignore[attr-defined]


def kill_in_finishing() -> None:
    """Be killed when the first checkpoint of a fit that is done is removed."""
    original = softki.training.checkpoints.CheckpointFolder.finish

    def finish(self: Any) -> None:
        softki.training.checkpoints._remove(softki.training.checkpoints._files(self.folder)[:1])
        kill()
        original(self)

    softki.training.checkpoints.CheckpointFolder.finish = finish  # type: ignore[method-assign]


def join(rank: int, job: dict[str, Any]) -> None:
    """Be one of several processes."""
    meeting = f"file://{job['out']}.{os.getppid()}.{job['number']}"
    limit = timedelta(seconds=30)
    dist.init_process_group("gloo", meeting, limit, world_size=job["processes"], rank=rank)


def run(rank: int, job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    options: dict[str, Any] = {}
    if job["processes"] > 1:
        join(rank, job)
        if rank != job["processes"] - 1:  # the last one is killed
            job["kind"] = "none"
    if job["kind"] == "step":
        options = killed_at_step(*job["arguments"])
    elif job["kind"] == "write":
        kill_in_writing(*job["arguments"])
    elif job["kind"] == "finish":
        kill_in_finishing()
    fitted = fit_case(job["case"], job["data"], checkpoint=job["folder"], **options)
    if not rank:
        Path(job["out"]).write_text(json.dumps(result_of(fitted)))


def serve() -> None:
    torch.set_num_threads(1)
    fit_case("memory", "")  # what is imported late need not be so in every process
    for line in sys.stdin:
        job = json.loads(line)
        pids = [begin(rank, job) for rank in range(job["processes"])]
        sys.stdout.write(f"{pids[-1]}\n")
        sys.stdout.flush()
        ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        sys.stdout.write(f"{ends[-1]}\n")
        sys.stdout.flush()


def begin(rank: int, job: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        run(rank, job)
    except ProcessError:
        os._exit(3)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Server:
    """The other end of `serve`."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def begin(self, job: dict[str, Any]) -> int:
        """The id of the process that does the job."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> int:
        """How it ended."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


if __name__ == "__main__":
    serve()
