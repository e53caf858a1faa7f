"""Rows larger than memory: seconds and memory of `softki fit` and `softki predict` on the CPU.

    OMP_NUM_THREADS=2 .venv/bin/python benchmarks/streaming.py [--rows 20000000] [--folder /tmp]

Writes a Parquet file of so many rows of a robot arm with 10 joints, in float32, and prints what a
plain pass over it takes, what `softki fit` with default settings and `softki predict` take, and the
most memory that they have beyond that of Python with torch, pyarrow and softki. Then it fits the
same 1,000,000 rows twice, in memory and as a stream, with the same settings. Every figure is that
of a process of its own; the files are removed at the end. Other options, such as `--points 64`, are
passed on to `softki fit`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import softki
from softki.data import robot_arm

JOINTS, BLOCK = 10, 1 << 18
COLUMNS = [f"angle{k}" for k in range(JOINTS)]
SETTINGS = {"points": 512, "batch_size": 2048, "steps": 100, "device": "cpu", "random_state": 0}
COMPARED_ROWS = 1_000_000

_CHILD = """
import json, sys, time
import torch, pyarrow.parquet, softki, softki.cli.app
import numpy as np
from pathlib import Path
def memory(name):
    return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0]) / 1e6
before, start, busy, result = memory("VmRSS"), time.perf_counter(), time.process_time(), {{}}
{body}
result["seconds"], result["busy"] = time.perf_counter() - start, time.process_time() - busy
print(json.dumps({{"gigabytes": memory("VmHWM") - before, **result}}))
"""
_PASS = """
from softki.streaming import open_source
for block in open_source({path!r}, "reach").blocks():
    pass
"""
_COMMAND = """
if softki.cli.app.run({arguments!r}) != 0:
    sys.exit("the command failed")
"""
_IN_MEMORY = """
table = pyarrow.parquet.read_table({path!r})
y = table["reach"].to_numpy()
X = np.column_stack([table[name].to_numpy() for name in {columns!r}])
del table
start, busy = time.perf_counter(), time.process_time()
model = softki.SoftKIRegressor(**{settings!r}).fit(X, y)
result = {{"steps": model.fit_report_.steps, "rmse": model.fit_report_.best.rmse}}
"""
_STREAMED = """
import softki.estimator.rows
softki.estimator.rows.IN_MEMORY_BYTES = 0
model = softki.SoftKIRegressor(**{settings!r}).fit({path!r}, "reach")
result = {{"steps": model.fit_report_.steps, "rmse": model.fit_report_.best.rmse}}
"""


def blocks_of_rows(rows: int) -> Iterator[pa.Table]:
    """The rows, in blocks: angles and reach in float32."""
    for block, start in enumerate(range(0, rows, BLOCK)):
        x, y = robot_arm(min(BLOCK, rows - start), seed=block, joints=JOINTS)
        columns = dict(zip(COLUMNS, x.astype(np.float32).T, strict=True))
        yield pa.table({**columns, "reach": y.astype(np.float32)})


def write_rows(path: Path, rows: int) -> None:
    """A Parquet file of them, a block a row group."""
    schema = pa.schema([(name, pa.float32()) for name in (*COLUMNS, "reach")])
    with pq.ParquetWriter(path, schema) as writer:
        for table in blocks_of_rows(rows):
            writer.write_table(table, row_group_size=BLOCK)


def in_own_process(body: str) -> dict[str, Any]:
    """Run the code; its seconds, the most memory it took beyond the imports, and its result."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(body=body)], stdout=subprocess.PIPE, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return result


def show(name: str, rows: int, result: dict[str, Any]) -> None:
    rate = rows / result["seconds"]
    print(
        f"{name:26}{rows:>12,}{result['seconds']:>9.1f}{result['busy']:>9.1f}{rate:>13,.0f}"
        f"{result['gigabytes']:>8.2f}",
        flush=True,
    )


def measure_commands(folder: Path, rows: int, more: list[str]) -> None:
    path, model = str(folder / "rows.parquet"), str(folder / "arm.softki")
    start = time.perf_counter()
    write_rows(Path(path), rows)
    size = Path(path).stat().st_size / 1e9
    print(f"wrote {rows:,} × {JOINTS} rows, {size:.2f} GB, {time.perf_counter() - start:.0f} s\n")
    print(f"{'':26}{'rows':>12}{'seconds':>9}{'CPU s':>9}{'rows/s':>13}{'GB':>8}", flush=True)
    show("a plain pass", rows, in_own_process(_PASS.format(path=path)))
    fit = ["fit", path, "--target", "reach", "--device", "cpu", "-o", model, "-q", *more]
    show(" ".join(["softki fit", *more]), rows, in_own_process(_COMMAND.format(arguments=fit)))
    predict = ["predict", model, path, "--device", "cpu", "-q", "-o", str(folder / "out.parquet")]
    show("softki predict", rows, in_own_process(_COMMAND.format(arguments=predict)))


def compare(folder: Path) -> None:
    path = folder / "compared.parquet"
    write_rows(path, COMPARED_ROWS)
    own = {"path": str(path), "settings": SETTINGS, "columns": COLUMNS}
    results = {}
    for name, body in (("in memory", _IN_MEMORY), ("streamed", _STREAMED)):
        results[name] = result = in_own_process(body.format(**own))
        show(f"{name}, {result['steps']} steps", COMPARED_ROWS, result)
        print(f"{'':4}held-out RMSE {result['rmse']:.4f}")
    wall, busy = (
        results["streamed"][key] / results["in memory"][key] for key in ("seconds", "busy")
    )
    print(f"streamed / in memory: {wall:.2f} times the seconds, {busy:.2f} times those of CPUs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument(
        "--folder", default=None, help="for the files; by default, that of tempfile"
    )
    options, more = parser.parse_known_args()
    print(
        f"softki {softki.__version__}, torch {torch.__version__}, pyarrow {pa.__version__}, "
        f"{torch.get_num_threads()} threads\n"
        "CPU s: of all threads; GB: the most memory beyond that of Python with its imports\n"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure_commands(Path(folder), options.rows, more)
        print()
        compare(Path(folder))


if __name__ == "__main__":
    main()
