"""One method on one split of one data set, as a record; and many of them, each once."""

from __future__ import annotations

import gc
import logging
import platform
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import gpytorch
import numpy as np
import sklearn
import torch
from sklearn.preprocessing import StandardScaler

from softki._version import __version__
from softki.bench.datasets import Observations, load
from softki.bench.memory import PeakMemory
from softki.bench.methods import METHODS, make
from softki.bench.record import Record
from softki.bench.registry import DataSet
from softki.bench.results import Results
from softki.bench.splits import SPLITS, USUAL_SPLIT
from softki.exceptions import InvalidInputError
from softki.metrics import coverage, gaussian_nll, rmse
from softki.validation.parameters import check_choice

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """Which runs: every method on every split of every data set.

    A setting is one of at least one of the methods, and goes to those that have it.
    """

    data: Sequence[DataSet]
    methods: Sequence[str]
    seeds: Sequence[int] = (0,)
    split: str = USUAL_SPLIT
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    limit: float | None = None  # seconds a run
    folder: Path | None = None  # of the data
    download: bool = False

    def __post_init__(self) -> None:
        for method in self.methods:
            check_choice("method", method, METHODS)
        known = list(dict.fromkeys(name for m in self.methods for name in METHODS[m].defaults))
        for name, value in self.settings.items():
            check_choice("setting", name, known)
            for method in self.methods:
                if name in METHODS[method].defaults:
                    METHODS[method].check_setting(name, value)

    def settings_of(self, method: str) -> dict[str, Any]:
        """Those of the settings that the method has, and that are not its defaults."""
        known = METHODS[method].defaults
        return {
            name: value
            for name, value in self.settings.items()
            if name in known and value != known[name]
        }

    def runs_on(self, dataset: DataSet) -> list[Record]:
        """The records of the data set's runs, still without what comes out."""
        return [
            Record(
                dataset.name,
                method,
                seed,
                self.split,
                self.settings_of(method),
                device_kind=torch.device(_device_of(method, self.device)).type,
            )
            for seed in self.seeds
            for method in self.methods
        ]


def run_all(
    plan: Plan,
    results: Results,
    force: bool = False,
    read: Callable[[DataSet], Observations | None] | None = None,
) -> Iterator[Record]:
    """Do the runs that the results do not have yet, and yield each once it is written.

    Args:
        plan: which runs.
        results: to add to; that they can be written is made sure of first.
        force: do those that the results have, too.
        read: gives the numbers of a data set, or None to leave that out. By default, one that
            cannot be read raises, before anything is run on it.
    """
    wanted = [
        (dataset, [run for run in plan.runs_on(dataset) if force or not results.done(run.key)])
        for dataset in plan.data
    ]
    wanted = [(dataset, runs) for dataset, runs in wanted if runs]
    if wanted:
        results.check_writable()
    for dataset, runs in wanted:
        data = read(dataset) if read else load(dataset, plan.folder, plan.download)
        if data is None:
            continue
        for blank in runs:
            record = run_one(data, blank, plan.device, plan.limit)
            results.append(record)
            yield record


def run_one(data: Observations, blank: Record, device: str, limit: float | None = None) -> Record:
    """The record filled in: what went wrong is a status, not an exception.

    Inputs and target are standardised by the training rows; the figures are in these units.
    """
    train, test = SPLITS[blank.split](len(data.y), blank.seed)
    X, y = _standardised(data.X, train), _standardised(data.y[:, None], train)[:, 0]
    sizes = {"rows": len(train), "test_rows": len(test), "columns": X.shape[1]}
    device = _device_of(blank.method, device)
    kind = torch.device(device).type
    where = {"device": device_name(device), "device_kind": kind, "versions": versions()}
    try:
        METHODS[blank.method].check_size(len(train), X.shape[1])
        with _quiet(), _time_limit(limit):
            figures = _measured(blank, device, X, y, train, test)
        outcome: dict[str, Any] = {"status": "ok", **figures}
    except InvalidInputError as error:
        outcome = {"status": "refused", "error": str(error)}
    except (torch.OutOfMemoryError, MemoryError) as error:
        outcome = {"status": "out of memory", "error": _first_line(error)}
    except Exception as error:
        _log.info("%s on %s failed", blank.method, blank.data, exc_info=True)
        outcome = {"status": "failed", "error": f"{type(error).__name__}: {_first_line(error)}"}
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return blank.replace(**sizes, **where, **outcome)


def _measured(
    blank: Record, device: str, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray
) -> dict[str, Any]:
    method = make(blank.method, device, blank.seed, **blank.settings)
    # That of a process depends on what ran before, so there is none on a CPU.
    peak = PeakMemory(method.device) if method.device.type == "cuda" else None
    start = time.perf_counter()
    method.fit(X[train], y[train])
    _wait(method.device)
    fitted = time.perf_counter()
    mean, std = method.predict(X[test])
    predicted = time.perf_counter()
    residual, variance = torch.from_numpy(y[test] - mean), torch.from_numpy(std).square()
    if not bool(residual.isfinite().all() and variance.isfinite().all()):
        raise FloatingPointError("predictions are not finite")
    epochs, training = method.facts.get("epochs"), method.facts.get("training_seconds")
    return {
        "rmse": rmse(residual),
        "nll": float(gaussian_nll(residual, variance)),
        "coverage": coverage(residual, variance),
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "seconds_per_epoch": training / epochs if epochs and training else None,
        "peak_memory": peak.bytes() if peak else None,
        "facts": {**method.facts, "settings": method.settings},
    }


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    return {
        "softki": __version__,
        "torch": torch.__version__,
        "gpytorch": gpytorch.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }


def device_name(device: str) -> str:
    """What a reader of the results should know of the machine."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{threads} CPU thread{'s' if threads > 1 else ''}"


def _device_of(method: str, device: str) -> str:
    return "cpu" if METHODS[method].cpu_only else device


def _standardised(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = StandardScaler().fit(values[train]).transform(values)
    return scaled


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings of the methods, which are many, do not hide the lines of the runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TimeoutError` in the body after so many seconds, where signals can do that."""
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
