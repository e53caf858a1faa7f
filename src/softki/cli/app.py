"""The application: its commands, and the exit codes and messages of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from softki._version import __version__
from softki.cli import evaluate, fit, info, plot, predict
from softki.cli.options import DONE, FAILED, INTERRUPTED, WRONG_USAGE, UsageError, explained
from softki.cli.process_group import launched_rank

_BENCH_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def bench(context: typer.Context) -> None:
    """Run the paper's experiments, and make their tables and figures."""
    from softki.bench.commands import main

    raise typer.Exit(main(context.args or ["--help"], "softki bench"))


# typer has no name of its own for the base of its usage errors.
_TyperUsageError: Any = typer.BadParameter.__base__

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(epilog=fit.EXAMPLES)(fit.fit)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=info.EXAMPLES)(info.info)
app.command(epilog=plot.EXAMPLES)(plot.plot)
app.command(context_settings=_BENCH_SETTINGS, add_help_option=False)(bench)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softki {__version__}")
        raise typer.Exit


EXAMPLES = """\b
Examples:
  softki fit train.parquet --target price -o price.softki
  softki predict price.softki new.csv -o predictions.parquet
  softki evaluate price.softki test.csv
  softki info price.softki
  softki plot price.softki test.csv -o pictures
  softki bench run --data uci --methods softki,svgp
"""


@app.callback(epilog=EXAMPLES)
def _softki(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Gaussian-process regression for large tables."""


def run(arguments: Sequence[str]) -> int:
    """Run a command, and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name may not fit the terminal's encoding
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="softki", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # The reader of a pipe has closed it, for which typer raises SystemExit. Nothing more can
        # be written, not even at exit.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        return _failure(error, debug="--debug" in arguments)
    if code == INTERRUPTED:  # newer versions of typer return it
        typer.echo("error: interrupted", err=True)
    return code if isinstance(code, int) else DONE


def _failure(error: Exception, debug: bool) -> int:
    """Print the error, and return the exit code.

    A wrong command line is the same in all processes: the one of rank 0 prints the error.
    """
    rank = launched_rank()
    if rank and isinstance(error, _TyperUsageError | UsageError):
        return WRONG_USAGE
    if isinstance(error, _TyperUsageError):
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        typer.echo(f"error: {' '.join(message.split())} (--help shows the options)", err=True)
        return WRONG_USAGE
    if debug:
        import traceback

        traceback.print_exception(error)
    where = f" in process {rank}" if rank else ""
    typer.echo(f"error{where}: {explained(error)}", err=True)
    return WRONG_USAGE if isinstance(error, UsageError) else FAILED
