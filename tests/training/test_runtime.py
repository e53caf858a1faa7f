from __future__ import annotations

import subprocess
import sys

import joblib
import pytest
import torch

from softki.training.fit import prepared

STEPS = """
import resource, sys, torch
from softki.training.fit import prepared
def work():
    for _ in range(20):
        torch.ones(1 << 18, dtype=torch.float64) + torch.ones(1 << 18, dtype=torch.float64)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
work()
plain = faults()
with prepared():
    work()
    print(plain, faults())
"""


def test_threads_beyond_the_processors_are_taken_away_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, asked = torch.get_num_threads(), []
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    with pytest.raises(KeyError), prepared():
        raise KeyError
    assert asked == [1, 64]
    monkeypatch.undo()
    assert torch.get_num_threads() == before


def test_fewer_threads_that_were_asked_for_stay() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with prepared():
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform != "linux", reason="about malloc of glibc")
def test_freed_memory_is_used_again() -> None:
    """Page faults of one process, before and after."""
    result = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True)
    plain, kept = map(int, result.stdout.split())
    if plain < 1000:
        pytest.skip(f"this malloc keeps memory anyway: {plain} page faults")
    assert kept < plain / 10


@pytest.mark.skipif(
    not hasattr(torch.backends.mkldnn, "matmul"), reason="this torch has the older interface only"
)
def test_precision_set_by_the_newer_interface_is_put_back() -> None:
    code = (
        "import torch\n"
        "from softki.training.fit import prepared\n"
        "parts = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul\n"
        "parts[0].fp32_precision = 'tf32'\n"
        "before = [part.fp32_precision for part in parts]\n"
        "with prepared():\n"
        "    assert parts[0].fp32_precision == parts[1].fp32_precision == 'ieee'\n"
        "assert [part.fp32_precision for part in parts] == before\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_precision_set_by_the_older_interface_is_put_back() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with prepared():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
