"""The Triton kernels on a machine without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL_TESTS = Path(__file__).parent / "cuda" / "test_triton_kernels.py"


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is published for Linux alone")
def test_the_kernels_through_the_interpreter() -> None:
    """In a process of its own: Triton reads the variable when it is first imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(KERNEL_TESTS)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"\d+ passed in", run.stdout), run.stdout  # and none was skipped
