"""The command line: `softki fit`, `predict`, `evaluate`, `info` and `plot`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_PACKAGES = ("typer", "rich", "pyarrow")


def main() -> None:
    """Run the command line, and exit with 0 (done), 1 (failed) or 2 (wrong usage)."""
    absent = [name for name in _PACKAGES if not _is_there(name)]
    if absent:
        sys.stderr.write(
            f"error: the command line needs the package {absent[0]}: pip install 'softki[cli]'\n"
        )
        sys.exit(1)
    from softki.cli.app import run

    sys.exit(run(sys.argv[1:]))


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return find_spec(name) is not None
