"""Rows in numbered blocks that can be read in any order, again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from softki.exceptions import InvalidInputError
from softki.streaming.blocks import Block, RawRows
from softki.streaming.layout import Layout
from softki.validation.inputs import check_noise
from softki.validation.tables import check_finite


class Files:
    """Size and time of change of files when they were opened.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "rows.csv")
        ...     _ = path.write_text("x")
        ...     files = Files([path])
        ...     _ = path.write_text("another text")
        ...     try:
        ...         files.check_unchanged()
        ...     except InvalidInputError as error:
        ...         print(str(error).removeprefix(folder))
        /rows.csv: changed while it was read: fit again, to a file that stays as it is
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self.fingerprint = {path: _state(path) for path in paths}

    def check_unchanged(self, path: Path | None = None) -> None:
        """Raise if the file, or any of them, is no longer what it was."""
        for known in self.fingerprint if path is None else [path]:
            if known in self.fingerprint and _state(known) != self.fingerprint[known]:
                what = "changed" if known.exists() else "was removed"
                raise InvalidInputError(
                    f"{known}: {what} while it was read: fit again, to a file that stays as it is"
                )


def _state(path: Path) -> tuple[int, int] | None:
    """Size and time of change; None where there is no such file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


# Parts that are open at the same time, each at its own place.
OPEN_PARTS = 4


class Part(ABC):
    """Rows that are read from their start: a file, a row group, or a range of an array.

    Attributes:
        name: name for messages.
        file: path of the file that they are read from, if there is one.
        first_row: number of the first row in what the name says.
        sizes: numbers of rows of its blocks, where they are known before they are read.
        stays: whether the numbers are the same in every pass, so that one check of them is enough.
    """

    name: str
    file: Path | None = None
    first_row: int = 0
    sizes: Sequence[int] | None = None
    stays: bool = True

    @abstractmethod
    def read(self) -> Iterator[RawRows]:
        """The rows, a block at a time, in order; the same in every pass."""


class Source:
    """Rows in numbered blocks, in parts.

    Args:
        parts: parts of the rows, in order.
        columns: names of the inputs.
        targets: names of the targets.
        noise: name of the known noise variance, if there is one.
        single_target: whether the targets are one column, and not a table of one.
        files: files that must not change while they are read, or their state before.
        is_named: whether the names of the inputs are the user's.
        is_shared: whether these are the rows of all processes, where there are several, and not
            those of this process.
        may_be_empty: whether there may be no rows, as in one process of several.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        columns: Sequence[str],
        targets: Sequence[str],
        noise: str | None = None,
        single_target: bool = True,
        files: Iterable[Path] | Files = (),
        is_named: bool = True,
        is_shared: bool = True,
        may_be_empty: bool = False,
    ) -> None:
        self.parts = list(parts)
        self.files = files if isinstance(files, Files) else Files(files)
        self.columns, self.targets, self.noise = list(columns), list(targets), noise
        self.single_target, self.is_named, self.is_shared = single_target, is_named, is_shared
        self.may_be_empty = may_be_empty
        self._layout: Layout | None = None
        self._seen: set[tuple[Part, int]] = set()  # blocks whose numbers were checked
        known = [part.sizes for part in self.parts if part.sizes is not None]
        if len(known) == len(self.parts):
            self._layout = self._checked(known)

    @property
    def knows_layout(self) -> bool:
        """True if the number of rows is known: it may take a pass to find out."""
        return self._layout is not None

    @property
    def layout(self) -> Layout:
        """The sizes of all blocks; where they are not known yet, this reads all rows."""
        if self._layout is None:
            for _ in self.blocks():
                pass
        assert self._layout is not None
        return self._layout

    def __len__(self) -> int:
        """Number of rows."""
        return self.layout.total

    def start_at(self, position: int) -> None:
        """Let positions begin after the rows of other processes."""
        self._layout = self.layout.starting_at(position)

    def up_to(self, count: int) -> RawRows | None:
        """All rows at once, if they are no more than the count."""
        if self._layout is not None and len(self) > count:
            return None
        found: list[RawRows] = []
        for block in self.blocks():
            found.append(block.rows)
            if sum(map(len, found)) > count:
                return None
        return RawRows.join(found)

    def check_unchanged(self) -> None:
        """Raise if one of the files changed since the source was opened."""
        self.files.check_unchanged()

    def blocks(self, numbers: Iterable[int] | None = None) -> Iterator[Block]:
        """Read the blocks with these numbers, in this order; by default all, in order.

        Blocks of a part that come in order are read as it goes on, and others from its start.
        Every iterator reads for itself, so that several may be alive, in several threads.
        """
        if numbers is None and self._layout is None:
            return self._first()
        return self._chosen(range(len(self.layout)) if numbers is None else numbers, self.layout)

    def between(self, shard: range) -> Iterator[Block]:
        """The rows of a range of positions, in order."""
        for block in self.blocks(self.layout.blocks_of(shard)):
            yield block.within(shard)

    def _first(self) -> Iterator[Block]:
        """All blocks, before their sizes are known."""
        sizes: list[list[int]] = []
        position = 0
        for part in self.parts:
            sizes.append([])
            for rows in self._read(part):
                sizes[-1].append(len(rows))
                yield Block(position, rows)
                position += len(rows)
        self._layout = self._checked(sizes)

    def _chosen(self, numbers: Iterable[int], layout: Layout) -> Iterator[Block]:
        readers: dict[int, tuple[Iterator[RawRows], int]] = {}  # by part, with the next index
        for block in numbers:
            number, index = int(layout.part[block]), int(layout.index[block])
            part = self.parts[number]
            reader, ahead = readers.pop(number, (None, 0))
            if reader is None or ahead > index:
                reader, ahead = self._read(part), 0
            rows = next((rows for k, rows in enumerate(reader, ahead) if k == index), None)
            if rows is None or len(rows) != layout.rows[block]:
                raise InvalidInputError(
                    f"{part.name}: gave {0 if rows is None else len(rows)} rows where it had "
                    f"{layout.rows[block]} before: the rows must be the same in every pass"
                )
            is_last = block + 1 == len(layout) or layout.part[block + 1] != number
            if not is_last:
                readers[number] = reader, index + 1
            if len(readers) > OPEN_PARTS:
                del readers[next(iter(readers))]
            yield Block(int(layout.position[block]), rows)

    def _read(self, part: Part) -> Iterator[RawRows]:
        """The blocks of a part, checked; an error in a file that changed is said to be that."""
        row = part.first_row
        try:
            for index, rows in enumerate(part.read()):
                if len(rows):
                    self.files.check_unchanged(part.file)
                    self._check_shape(part.name, rows)
                    if (part, index) not in self._seen:
                        self._check_values(part.name, row, rows)
                    if part.stays:
                        self._seen.add((part, index))
                    row += len(rows)
                    yield rows
        except InvalidInputError:
            self.files.check_unchanged(part.file)
            raise

    def _check_shape(self, name: str, rows: RawRows) -> None:
        x, y, noise = rows.x, rows.y, rows.noise
        columns, targets = len(self.columns), len(self.targets)
        if x.shape != (len(y), columns) or y.shape[1:] != (targets,):
            raise InvalidInputError(
                f"{name}: has x of shape {x.shape} and y of shape {y.shape} where (rows, {columns})"
                f" and (rows, {targets}) are expected"
            )
        if (noise is not None) != (self.noise is not None):
            raise InvalidInputError(
                f"{name}: some rows have a known noise variance and others have none: give it for "
                "all of them, or for none"
            )
        if noise is not None and noise.shape != (len(x),):
            raise InvalidInputError(f"{name}: has {len(x)} rows and noise of shape {noise.shape}")

    def _check_values(self, name: str, row: int, rows: RawRows) -> None:
        check_finite(rows.x, name, self.columns, row)
        check_finite(rows.y, name, self.targets, row)
        if rows.noise is not None:
            check_noise(rows.noise, f"{name}: the known noise variance {self.noise!r}", row)

    def _checked(self, sizes: Sequence[Sequence[int]]) -> Layout:
        if not self.may_be_empty and not sum(map(sum, sizes)):
            names = self.parts[0].name if self.parts else "the source"
            raise InvalidInputError(f"{names}: has no rows")
        return Layout.of(sizes)
