"""The command line: `softki fit`, `predict`, `evaluate`, `info` and `plot`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_PACKAGES = ("typer", "rich", "pyarrow")


def main() -> None:
    """Run the command line, and exit with 0 (done), 1 (failed), 2 (wrong usage) or 130 (Ctrl-C)."""
    try:
        sys.exit(_run())
    except KeyboardInterrupt:  # while the packages below are imported
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)


def _run() -> int:
    absent = [name for name in _PACKAGES if not _is_there(name)]
    if absent:
        sys.stderr.write(
            f"error: the command line needs the package {absent[0]}: pip install 'softki[cli]'\n"
        )
        return 1
    from softki.cli.app import run

    return run(sys.argv[1:])


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return find_spec(name) is not None
