"""The rows that a model is fitted to: in memory, or as a stream where they may not fit."""

from __future__ import annotations

from typing import Any

from softki.cli.column_choice import ColumnChoice
from softki.cli.console import Console
from softki.cli.training_stream import TrainingStream
from softki.cli.training_table import TrainingTable
from softki.data.column_encoding import MAX_CATEGORIES
from softki.data.column_kinds import kind_of
from softki.data.encoding import Missing
from softki.data.readers import Batches
from softki.processes import process_count

# Bytes of encoded numbers, as they are estimated, up to which a table is read into memory.
IN_MEMORY_BYTES = 1 << 28
# How much smaller text usually is once it is gzipped.
_GZIP = 4


def training_rows(
    choice: ColumnChoice, missing: Missing, console: Console, test: float, seed: int
) -> TrainingTable | TrainingStream:
    """The chosen columns, split and encoded; what is missing is refused, dropped or filled in.

    Several processes read a stream, of which each takes its part.

    Args:
        choice: of the columns.
        missing: what becomes of rows with missing values.
        console: for notes, warnings and bars.
        test: share of the rows to test on.
        seed: which those are.
    """
    reader = choice.reader()
    if process_count() == 1 and estimated_bytes(reader) <= IN_MEMORY_BYTES:
        return TrainingTable.read(choice, reader, missing, console, test, seed)
    return TrainingStream(choice, reader, missing, console, test, seed)


def estimated_bytes(reader: Batches) -> float:
    """Memory that the columns would take as numbers in float64, should text have many categories.

    Where a file does not say how many rows it has, its size stands for that of plain numbers.
    """
    return sum(_bytes_of(file) for file in reader.files)


def _bytes_of(file: Batches) -> float:
    widths = [_width(field) for field in file.schema]
    if file.count is not None:
        return 8.0 * file.count * sum(widths)
    size = file.path.stat().st_size * (_GZIP if file.path.suffix.lower() == ".gz" else 1)
    return size * sum(widths) / len(widths)


def _width(field: Any) -> int:
    """Encoded columns that a column may become."""
    return MAX_CATEGORIES if kind_of(field, field.name) == "category" else 1
