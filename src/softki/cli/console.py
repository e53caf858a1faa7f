"""Output of the command line: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import rich.box
import rich.console
import rich.table
import typer

from softki.exceptions import SoftKIWarning


@dataclass
class Console:
    """Tables or JSON on stdout; notes, warnings and progress bars on stderr.

    Attributes:
        quiet: if true, show only warnings, errors, and JSON if it was asked for.
        json: if true, give the result as one JSON object, and no table.
        silent: if true, show nothing, as in processes of rank 1 and above.
        warnings: warnings so far, which are part of the JSON.
    """

    quiet: bool = False
    json: bool = False
    silent: bool = False
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of_process(cls, rank: int, quiet: bool, json: bool) -> Self:
        """The console of one of several processes, which is silent but for rank 0."""
        return cls(quiet=True, silent=True) if rank else cls(quiet, json)

    @property
    def shows_progress(self) -> bool:
        """True if bars are drawn, as on a terminal."""
        return not self.quiet and not self.json and sys.stderr.isatty()

    def bar(self, rows: int | None, delay: float = 0.0) -> Any:
        """A progress bar that appears after the delay in seconds; `rows` is None if unknown."""
        from tqdm.auto import tqdm

        hidden = not self.shows_progress
        return tqdm(total=rows, unit="row", unit_scale=True, disable=hidden, delay=delay)

    def note(self, text: str) -> None:
        """Show a remark, on stderr."""
        if not self.quiet and not self.json:
            typer.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Show a warning, on stderr."""
        self.warnings.append(text)
        if not self.silent:
            typer.echo(f"warning: {text}", err=True)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1) -> None:
        """Show a table on stdout; columns after the first `text` hold numbers, to the right."""
        if self.quiet or self.json:
            return
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for position, name in enumerate(header):
            table.add_column(name, justify="left" if position < text else "right", overflow="fold")
        for row in rows:
            table.add_row(*row)
        # Names of columns are not markup.
        out = rich.console.Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
        out.print(table)

    def facts(self, facts: Mapping[str, str]) -> None:
        """Show names and values on stdout, a line each."""
        if self.quiet or self.json:
            return
        width = max(map(len, facts))
        for name, fact in facts.items():
            typer.echo(f"{name:{width}}  {fact}")

    def line(self) -> None:
        """Show an empty line between two tables."""
        if not self.quiet and not self.json:
            typer.echo()

    def result(self, document: Mapping[str, Any]) -> None:
        """Show the result as JSON on stdout, if that was asked for."""
        if self.json:
            whole = {**document, "warnings": self.warnings}
            typer.echo(json.dumps(_finite(whole), indent=2, ensure_ascii=False))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Show softki's warnings as single lines."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", SoftKIWarning)
            show = warnings.showwarning

            def show_line(message: Any, category: Any, *where: Any, **options: Any) -> None:
                if issubclass(category, SoftKIWarning):
                    self.warn(" ".join(str(message).split()))
                else:
                    show(message, category, *where, **options)

            warnings.showwarning = show_line
            yield


def number(value: float | None, digits: int = 4) -> str:
    """A figure for a table, or a dash.

    Example:
        >>> number(0.123456), number(None)
        ('0.1235', '–')
    """
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def share(value: float | None) -> str:
    """A share in per cent, or a dash."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.1f}%"


def _finite(value: Any) -> Any:
    """The value with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
