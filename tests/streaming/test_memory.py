"""`softki fit` and `softki predict` take no more memory for more rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COLUMNS, BLOCK = 10, 1 << 17

# Prints the most memory beyond that after the imports, in MB, of a fit and then of a prediction.
_COMMANDS = """
import sys
import torch, pyarrow.parquet, softki, softki.cli.app, softki.estimator.rows
from pathlib import Path
softki.estimator.rows.IN_MEMORY_BYTES = 0
def memory(name):
    return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0]) / 1024
before, (data, folder) = memory("VmRSS"), sys.argv[1:]
model, small = f"{folder}/m.softki", ["--points", "16", "--steps", "20", "--batch-size", "256"]
for line in (
    ["fit", data, "--target", "y", "-o", model, *small],
    ["predict", model, data, "-o", f"{folder}/out.parquet"],
):
    assert softki.cli.app.run([*line, "-q"]) == 0
    print(memory("VmHWM") - before)
assert softki.load(model).fit_report_.is_streamed
"""


def write_rows(path: Path, count: int) -> None:
    """So many rows, of which a block is in memory at a time."""
    names = [*(f"x{k}" for k in range(COLUMNS)), "y"]
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.schema([(name, pa.float32()) for name in names])) as writer:
        for start in range(0, count, BLOCK):
            x = rng.standard_normal((COLUMNS, min(BLOCK, count - start)), dtype=np.float32)
            writer.write_table(pa.table(dict(zip(names, [*x, np.sin(x[0]) + x[1]], strict=True))))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_commands_stay_within_a_ceiling_that_does_not_grow(tmp_path: Path) -> None:
    """2,000,000 rows are 88 MB, and 176 MB in float64."""
    peaks = []
    for count in (500_000, 2_000_000):
        write_rows(tmp_path / "rows.parquet", count)
        done = subprocess.run(
            [sys.executable, "-c", _COMMANDS, str(tmp_path / "rows.parquet"), str(tmp_path)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert pq.read_metadata(tmp_path / "out.parquet").num_rows == count
        peaks.append([float(line) for line in done.stdout.split()])
    (fit_of_few, both_of_few), (fit, both) = peaks
    assert max(fit, both) < 450
    assert fit < fit_of_few + 50
    assert both < both_of_few + 50
