"""What surrounds a fit: its own random numbers, and its warnings as facts."""

from __future__ import annotations

import time
import warnings
from collections import Counter
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


@contextmanager
def timed(facts: dict[str, Any], device: torch.device) -> Iterator[None]:
    """Note the seconds of the block, in which the device finishes, as `training_seconds`."""
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    facts["training_seconds"] = time.perf_counter() - start
