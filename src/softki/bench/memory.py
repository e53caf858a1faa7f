"""The most memory a piece of work had at a time."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """From here on, on a CUDA device or, under Linux, of the process, above what there is now.

    Example:
        >>> import mmap  # memory that is surely new, where malloc may have some left
        >>> peak = PeakMemory(torch.device("cpu"))
        >>> ones = torch.frombuffer(mmap.mmap(-1, 1 << 26), dtype=torch.uint8).fill_(1)
        >>> peak.bytes() is None or peak.bytes() > 1 << 25
        True
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._start = device, 0
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self._start = torch.cuda.memory_allocated(device)
        elif self._resettable():
            self._start = _resident("VmRSS") or 0

    def bytes(self) -> int | None:
        """The peak so far; None where it cannot be known."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) - self._start
        peak = _resident("VmHWM") if self._start else None
        return None if peak is None else peak - self._start

    @staticmethod
    def _resettable() -> bool:
        try:
            _CLEAR.write_text("5")  # lets the high-water mark begin anew
        except OSError:
            return False
        return True


def _resident(field: str) -> int | None:
    try:
        found = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None
