"""The road of a default fit: modules, functions and the depth of the stack of a fit and predict.

    .venv/bin/python benchmarks/road.py [--list]

3,000 rows of eight columns are fitted four times: from arrays, from .npy files, from these as a
stream, as if they were too large for memory, and by the command line from a CSV file. Imports are
not counted. `--list` names the modules and the deepest stack.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

import softki
from softki import SoftKIRegressor
from softki.data import robot_arm

PACKAGE = str(Path(softki.__file__).parent)
# Modules that import others by their names.
IMPORTS = ("softki/__init__.py", "softki/_moved.py")


class Road:
    """What of the package is called while the tracing is on."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        self.functions: set[tuple[str, str]] = set()
        self.deepest: list[str] = []
        self._stacks = threading.local()

    def __enter__(self) -> Road:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        """Keep the stack of the functions of the package, of each thread; imports do not count."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_filename.endswith(IMPORTS):
            return
        stack: list[str] = self._stacks.__dict__.setdefault("stack", [])
        if code.co_name == "<module>":
            self._stacks.importing = getattr(self._stacks, "importing", 0) + (
                1 if event == "call" else -1
            )
            return
        if getattr(self._stacks, "importing", 0):
            return
        if event == "return":
            if stack:
                stack.pop()
            return
        module = _module(code.co_filename)
        stack.append(f"{module}.{code.co_qualname}")
        self.modules[module] += 1
        self.functions.add((module, code.co_qualname))
        if len(stack) > len(self.deepest):
            self.deepest = list(stack)

    def show(self, what: str, with_list: bool) -> None:
        print(
            f"{what:<14} {len(self.modules):3} modules  {len(self.functions):4} functions  "
            f"stack {len(self.deepest):3}"
        )
        if with_list:
            print("  " + " ".join(sorted(self.modules)))
            print("  deepest: " + " > ".join(self.deepest))


def _module(file: str) -> str:
    name = file.removeprefix(PACKAGE + "/").removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def arrays(folder: Path) -> None:
    x, y = (np.load(folder / f"{name}.npy") for name in "xy")
    SoftKIRegressor(random_state=0).fit(x, y).predict(x, return_std=True)


def files(folder: Path) -> None:
    paths = folder / "x.npy", folder / "y.npy"
    model = SoftKIRegressor(random_state=0).fit(*map(str, paths))
    model.predict(np.load(paths[0]), return_std=True)


def streamed(folder: Path) -> None:
    with patch("softki.estimator.rows.IN_MEMORY_BYTES", 0):
        files(folder)


def command_line(folder: Path) -> None:
    from softki.cli.app import run

    model, output = str(folder / "m.softki"), str(folder / "p.csv")
    csv = str(folder / "rows.csv")
    for command in (
        ["fit", csv, "--target", "reach", "-o", model, "--seed", "0"],
        ["predict", model, csv, "-o", output],
    ):
        if run(command):
            raise SystemExit(f"softki {' '.join(command)} failed")


WAYS: dict[str, Callable[[Path], None]] = {
    "arrays": arrays,
    ".npy files": files,
    "streamed": streamed,
    "command line": command_line,
}


def write(folder: Path) -> None:
    x, y = robot_arm(3000)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    header = ",".join([*(f"angle{k}" for k in range(x.shape[1])), "reach"])
    np.savetxt(
        folder / "rows.csv", np.column_stack([x, y]), delimiter=",", header=header, comments=""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name modules and the deepest stack")
    parser.add_argument("--way", choices=WAYS, help="only this one, in this process")
    arguments = parser.parse_args()
    if arguments.way is None:  # each way in a process of its own, as what is loaded stays loaded
        more = ["--list"] if arguments.list else []
        for way in WAYS:
            subprocess.run([sys.executable, __file__, "--way", way, *more], check=True)
        return
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        write(folder)
        with Road() as road:
            WAYS[arguments.way](folder)
    sys.stdout.flush()
    road.show(arguments.way, arguments.list)


if __name__ == "__main__":
    main()
