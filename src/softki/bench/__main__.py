"""`python -m softki.bench`, which `softki bench` is too."""

from __future__ import annotations

import sys

from softki.bench.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
