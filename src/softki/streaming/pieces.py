"""Tables in files as pieces that are read from their start: row groups, or whole files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softki.data.arrow import pa
from softki.data.csv_types import understood
from softki.data.readers import PARQUET_BYTES, Batches, file_format, read_batches
from softki.exceptions import InvalidInputError


class Piece(ABC):
    """Record batches of one file, or of a part of it.

    Attributes:
        path: of the file.
        columns: that are read.
        first_row: the number of its first row in the file.
        count: of its rows, if that is known before it is read.
    """

    def __init__(
        self, path: Path, columns: Sequence[str], first_row: int = 0, count: int | None = None
    ) -> None:
        self.path, self.columns = path, list(columns)
        self.first_row, self.count = first_row, count

    def batches(self, size: int) -> Iterator[Any]:
        """Its record batches, of no more than so many rows; the same in every pass."""
        with naming(str(self.path), self.columns):
            for batch in self._batches(size):
                for start in range(0, len(batch), size):
                    yield batch.slice(start, size)

    @abstractmethod
    def _batches(self, size: int) -> Iterable[Any]:
        """Batches of about so many rows."""


class RowGroup(Piece):
    """A row group of a Parquet file, whose metadata are given."""

    def __init__(
        self, path: Path, columns: Sequence[str], metadata: Any, group: int, first_row: int
    ) -> None:
        super().__init__(path, columns, first_row, metadata.row_group(group).num_rows)
        self._metadata, self._group = metadata, group

    def _batches(self, size: int) -> Iterator[Any]:
        with pa.parquet.ParquetFile(
            str(self.path),
            metadata=self._metadata,
            pre_buffer=False,
            buffer_size=PARQUET_BYTES,
            page_checksum_verification=True,
        ) as file:
            yield from file.iter_batches(size, [self._group], self.columns)


class WholeFile(Piece):
    """All of a CSV or Arrow file; the advice is for where a CSV file has no number."""

    def __init__(self, reader: Batches, advice: str) -> None:
        super().__init__(reader.path, reader.columns)
        self._reader, self._advice = reader, advice

    def _batches(self, size: int) -> Iterator[Any]:
        try:
            yield from self._reader
        except InvalidInputError as error:
            if str(error).endswith("is not a number"):
                raise InvalidInputError(f"{error}: {self._advice}") from error
            raise


def table_pieces(reader: Batches, columns: Sequence[str], advice: str) -> list[Piece]:
    """The pieces of all files of a table, of some of the columns that are read."""
    pieces: list[Piece] = []
    for file in reader.files:
        types = {field.name: [field.type] for field in file.schema}
        pieces += pieces_of(read_batches(file.path, columns, types), advice)
    return pieces


def pieces_of(reader: Batches, advice: str) -> list[Piece]:
    """The pieces of a file."""
    if file_format(reader.path) != "parquet":
        return [WholeFile(reader, advice)]
    with naming(reader.name, reader.columns):
        metadata = pa.parquet.read_metadata(reader.name)
    pieces: list[Piece] = []
    first_row = 0
    for group in range(metadata.num_row_groups):
        pieces.append(RowGroup(reader.path, reader.columns, metadata, group, first_row))
        first_row += metadata.row_group(group).num_rows
    return pieces


@contextmanager
def naming(name: str, columns: Sequence[str]) -> Iterator[None]:
    """Errors of pyarrow and of the system as errors of softki that name the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{name}: {understood(error, columns)}") from error
