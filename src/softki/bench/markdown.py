"""Tables of text, in Markdown and for a terminal, with footnotes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Cell:
    """What stands in a cell: `value (beside)`, marked if it is the best, with footnotes."""

    value: str = ""
    beside: str = ""
    best: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table with remarks below it.

    Example:
        >>> rows = [(Cell("pol"), Cell("0.06", "0.07", best=True, notes=("epochs=5",)))]
        >>> print(Table("test RMSE", ("data", "softki"), rows).text())
        test RMSE
        <BLANKLINE>
        data  softki
        ----  --------------
        pol   0.06* (0.07) ¹
        <BLANKLINE>
        ¹ epochs=5
        >>> print(Table("test RMSE", ("data", "softki"), rows).markdown())
        **test RMSE**
        <BLANKLINE>
        | data | softki            |
        | :--- | :---------------- |
        | pol  | **0.06** (0.07) ¹ |
        <BLANKLINE>
        ¹ epochs=5
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    remarks: tuple[str, ...] = ()
    best_remark: str = ""  # what the best of a row is, said where one is marked
    right: Collection[int] = ()  # the columns that are aligned to the right

    def markdown(self) -> str:
        """For a page: the best in bold."""
        notes = _Footnotes()
        rows = [
            [notes.marked(cell, escaped(cell.value), "**", "**") for cell in row]
            for row in self.rows
        ]
        body = markdown_table([escaped(name) for name in self.header], rows, self.right)
        below = [escaped(line) for line in (*notes.lines(), *self._remarks("Bold"))]
        return "\n\n".join([f"**{escaped(self.title)}**", body, *below])

    def text(self) -> str:
        """For a terminal: the best with a star."""
        notes = _Footnotes()
        rows = [[notes.marked(cell, cell.value, "", "*") for cell in row] for row in self.rows]
        body = text_table(self.header, rows, self.right)
        below = "\n".join([*notes.lines(), *self._remarks("*")])
        return "\n\n".join(part for part in (self.title, body, below) if part)

    def _remarks(self, mark: str) -> list[str]:
        marked = any(cell.best for row in self.rows for cell in row)
        best = [f"{mark}: {self.best_remark}"] if marked and self.best_remark else []
        return [*best, *self.remarks]


class _Footnotes:
    """Notes get their numbers as they come; the same note keeps its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def marked(self, cell: Cell, value: str, before: str, after: str) -> str:
        """The text of a cell, with marks before and after the value if it is the best."""
        if cell.best:
            value = f"{before}{value}{after}"
        numbers = (self._numbers.setdefault(note, len(self._numbers) + 1) for note in cell.notes)
        raised = " ".join(str(number).translate(_RAISED) for number in numbers)
        beside = f"({cell.beside})" if cell.beside else ""
        return " ".join(part for part in (value, beside, raised) if part)

    def lines(self) -> list[str]:
        return [
            f"{str(number).translate(_RAISED)} {note}" for note, number in self._numbers.items()
        ]


def escaped(text: str) -> str:
    r"""The text, with what Markdown takes for markup made plain.

    Example:
        >>> print(escaped("a|b *c* softki_mll"))
        a\|b \*c\* softki_mll
    """
    return re.sub(r"([\\|*<`])", r"\\\1", text)


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> str:
    """A Markdown table whose source is aligned, too."""
    widths = [max(width, 3) for width in _widths([header, *rows])]
    rule = [
        "-" * (width - 1) + ":" if j in right else ":" + "-" * (width - 1)
        for j, width in enumerate(widths)
    ]
    lines = [_aligned(row, widths, right) for row in (header, *rows)]
    lines.insert(1, rule)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> str:
    """A table of plain text.

    Example:
        >>> print(text_table(["data", "n"], [["pol", "13,500"]], right={1}))
        data       n
        ----  ------
        pol   13,500
    """
    widths = _widths([header, *rows])
    lines = [_aligned(row, widths, right) for row in (header, *rows)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _aligned(row: Sequence[str], widths: list[int], right: Collection[int]) -> list[str]:
    return [
        cell.rjust(width) if j in right else cell.ljust(width)
        for j, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
