"""Seconds until softki is there: its imports, and the command line's help and version.

    .venv/bin/python benchmarks/startup.py

Each is the median of 5 processes. Imports are timed inside the process, commands from outside. The
estimator is given as a ratio to the packages that it is made of, which were timed in turn with it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

REPEATS = 5
IMPORTS = {
    "import softki": "import softki",
    "from softki import SoftKIRegressor": "from softki import SoftKIRegressor",
    "import torch, sklearn.base": "import torch, sklearn.base",
}
COMMANDS = {"softki --help": ["--help"], "softki --version": ["--version"]}


def import_seconds(statement: str) -> float:
    code = (
        f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def command_seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "softki", *arguments]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in [*IMPORTS, *COMMANDS]}
    for repeat in range(REPEATS + 1):
        for name, statement in IMPORTS.items():
            seconds[name].append(import_seconds(statement))
        for name, arguments in COMMANDS.items():
            seconds[name].append(command_seconds(arguments))
        if not repeat:  # the first of each may read from the disk, and writes byte code
            seconds = {name: [] for name in seconds}
    medians = {name: median(values) for name, values in seconds.items()}
    for name, value in medians.items():
        print(f"{name:36}{value:.3f} s")
    ratio = medians["from softki import SoftKIRegressor"] / medians["import torch, sklearn.base"]
    print(f"{'the estimator to torch and sklearn':36}{ratio:.2f}")


if __name__ == "__main__":
    main()
