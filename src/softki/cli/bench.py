"""`softki bench`, whose own commands are in `softki.bench.commands`."""

from __future__ import annotations

import typer

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def bench(context: typer.Context) -> None:
    """Run the paper's experiments, and make their tables and figures."""
    from softki.bench.commands import main

    raise typer.Exit(main(context.args or ["--help"], "softki bench"))
