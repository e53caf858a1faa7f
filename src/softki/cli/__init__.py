"""The command line: `softki fit`, `predict`, `evaluate`, `info` and `plot`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_PACKAGES = ("typer", "rich", "pyarrow")


def main() -> None:
    """Run the command line, and exit with 0 (done), 1 (failed), 2 (wrong usage) or 130 (Ctrl-C)."""
    try:
        absent = [name for name in _PACKAGES if find_spec(name) is None]
        if absent:
            name = absent[0]
            sys.stderr.write(
                f"error: the command line needs the package {name}: pip install 'softki[cli]'\n"
            )
            sys.exit(1)
        from softki.cli.app import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # while the packages are imported
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
