"""The state of torch and of the process during a fit: precision, threads, memory, time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import joblib
import torch

# The largest block after which malloc adapts (DEFAULT_MMAP_THRESHOLD_MAX of 64-bit glibc), less
# what malloc itself adds to it.
_BLOCK = (1 << 25) - (1 << 16)


@contextmanager
def prepared() -> Iterator[None]:
    """Exact float32 products, no more threads than processors, freed memory used again.

    The shorter formats of float32 that GPUs multiply in would ruin the gradient. Torch starts a
    thread for each processor of the machine, also where the process may use only a few of them (a
    container, a batch job, an affinity); `joblib.cpu_count` knows these limits. A smaller number
    that the user has set stays. Precision and threads are restored afterwards.

    Example:
        >>> threads = torch.get_num_threads()
        >>> with prepared():
        ...     torch.get_num_threads() <= joblib.cpu_count()
        True
        >>> torch.get_num_threads() == threads
        True
    """
    threads = torch.get_num_threads()
    fewer = min(threads, joblib.cpu_count())
    put_back = _exact_float32()
    try:
        if fewer < threads:
            torch.set_num_threads(fewer)
        _keep_freed_memory()
        yield
    finally:
        put_back()
        if fewer < threads:
            torch.set_num_threads(threads)


@contextmanager
def timed(seconds: dict[str, float], stage: str, device: torch.device) -> Iterator[None]:
    """Record the seconds that the body takes, to the end of its work on the device."""
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds[stage] = time.perf_counter() - start


def _exact_float32() -> Callable[[], None]:
    """Turn shorter formats of float32 off, and return a function that restores them.

    Torch has two interfaces for this, and refuses the older where the newer has been used.
    """
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        parts = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
        formats = [part.fp32_precision for part in parts]
        for part in parts:
            part.fp32_precision = "ieee"

        def put_back() -> None:
            for part, precision in zip(parts, formats, strict=True):
                part.fp32_precision = precision

        return put_back
    torch.set_float32_matmul_precision("highest")
    return lambda: torch.set_float32_matmul_precision(before)


def _keep_freed_memory() -> None:
    """Let the process keep the memory of arrays of up to 32 MB, to use it again.

    malloc of glibc hands such blocks back to the system, and each new one costs a page fault for
    every 4 kB: thousands in a step of training. It stops doing so once a block of that size has
    been freed, which this does. The block is never written to; with another malloc, nothing
    happens.
    """
    torch.empty(_BLOCK, dtype=torch.uint8, device="cpu")
