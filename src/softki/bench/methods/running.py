"""What surrounds a fit: its own random numbers, its warnings as facts, when it may stop."""

from __future__ import annotations

import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from softki.exceptions import SoftKIWarning

# GPyTorch's NumericalWarning is a RuntimeWarning.
_NUMERICAL = (RuntimeWarning, ConvergenceWarning, SoftKIWarning)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch for the block, and leave its generators as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def noted_warnings(facts: dict[str, Any]) -> Iterator[None]:
    """Count the warnings of the block about numbers in `facts["warnings"]`, by first line.

    Added jitter, or a solver that did not converge, belongs to the result, not to the screen.
    What libraries say about the age of their own code does not.

    Example:
        >>> facts: dict[str, Any] = {}
        >>> with noted_warnings(facts):
        ...     warnings.warn("overflow", RuntimeWarning)
        >>> facts
        {'warnings': {'RuntimeWarning: overflow': 1}}
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        for category in _NUMERICAL:
            warnings.simplefilter("always", category)
        try:
            yield
        finally:
            counts = Counter(facts.get("warnings", {}))
            for one in caught:
                first = (str(one.message).strip().splitlines() or [""])[0]
                counts[f"{one.category.__name__}: {first[:120]}"] += 1
            if counts:
                facts["warnings"] = dict(counts)


class Settled:
    """Whether an objective has come to rest: its latest values differ by `tolerance` at most.

    Their largest difference, not that of the first and the last: Adam can be on its way up where
    it was on its way down.

    Args:
        tolerance: in units of the objective, which is per row.
        steps: that the values lie apart, the first and the last.

    Example:
        >>> settled = Settled(tolerance=0.1, steps=2)
        >>> [settled(value) for value in (3.0, 2.0, 1.05, 1.0, 1.0)]
        [False, False, False, False, True]
        >>> round(settled.change, 3)
        0.05
    """

    def __init__(self, tolerance: float = 1e-4, steps: int = 20) -> None:
        self.tolerance = tolerance
        self._values: deque[float] = deque(maxlen=steps + 1)

    def __call__(self, value: float) -> bool:
        """Take the next value."""
        self._values.append(value)
        return len(self._values) == self._values.maxlen and self.change <= self.tolerance

    @property
    def change(self) -> float:
        """The largest difference between the latest values."""
        return max(self._values) - min(self._values)


@contextmanager
def timed(facts: dict[str, Any], device: torch.device) -> Iterator[None]:
    """Note the seconds of the block, in which the device finishes, as `training_seconds`."""
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    facts["training_seconds"] = time.perf_counter() - start
