"""Rows in numbered groups that can be read in any order, again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from softki.exceptions import InvalidInputError
from softki.streaming.blocks import Block, RawRows
from softki.streaming.layout import Layout


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
    """Rows that are read from their start: a file, a row group, a stretch of an array.

    Attributes:
        name: for messages.
        file: that it is read from, if it is one.
        first_row: the number of its first row in what the name says.
        sizes: rows of its groups, where they are known before it is read.
        stays: whether its numbers are the same in every pass, so that one look at them is enough.
    """

    name: str
    file: Path | None = None
    first_row: int = 0
    sizes: Sequence[int] | None = None
    stays: bool = True

    @abstractmethod
    def read(self) -> Iterator[RawRows]:
        """Its groups, in order; the same in every pass."""


class Source:
    """Rows in numbered groups, in parts.

    Args:
        parts: of the rows, in order.
        columns: names of the inputs.
        targets: names of the targets.
        noise: name of the known noise variance, if there is one.
        single_target: whether the targets are one column, and not a table of one.
        files: that must not change while they are read, or what they were like before.
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
        self._seen: set[tuple[Part, int]] = set()  # groups whose numbers were looked at
        known = [part.sizes for part in self.parts if part.sizes is not None]
        if len(known) == len(self.parts):
            self._layout = self._checked(known)

    @property
    def knows_layout(self) -> bool:
        """Whether the number of rows is known: it may take a pass to find out."""
        return self._layout is not None

    @property
    def layout(self) -> Layout:
        """The groups; where they are not known yet, this reads all rows."""
        if self._layout is None:
            for _ in self.blocks():
                pass
        assert self._layout is not None
        return self._layout

    def __len__(self) -> int:
        """Number of rows."""
        return self.layout.total

    def start_at(self, position: int) -> None:
        """Let positions begin there: after the rows of other processes."""
        self._layout = self.layout.starting_at(position)

    def up_to(self, count: int) -> RawRows | None:
        """All rows at once, if they are no more than so many."""
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

    def blocks(self, groups: Iterable[int] | None = None) -> Iterator[Block]:
        """Read the groups, in this order; by default all, in order.

        Groups of a part that come in order are read as it goes on, and others from its start.
        Every such iterator reads for itself, so that several may be alive, in several threads.
        """
        if groups is not None:
            return self._chosen(groups, self.layout)
        return self._first() if self._layout is None else self._chosen(None, self._layout)

    def between(self, stretch: range) -> Iterator[Block]:
        """The rows of a stretch of positions, in order."""
        for block in self.blocks(self.layout.groups_of(stretch).tolist()):
            yield block.within(stretch)

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

    def _chosen(self, groups: Iterable[int] | None, layout: Layout) -> Iterator[Block]:
        readers: dict[int, tuple[Iterator[RawRows], int]] = {}  # by part, with the next index
        for group in range(len(layout)) if groups is None else groups:
            number, index = int(layout.part[group]), int(layout.index[group])
            part = self.parts[number]
            reader, ahead = readers.pop(number, (None, 0))
            if reader is None or ahead > index:
                reader, ahead = self._read(part), 0
            rows = next((rows for k, rows in enumerate(reader, ahead) if k == index), None)
            if rows is None or len(rows) != layout.rows[group]:
                raise InvalidInputError(
                    f"{part.name}: gave {0 if rows is None else len(rows)} rows where it had "
                    f"{layout.rows[group]} before: the rows must be the same in every pass"
                )
            is_last = group + 1 == len(layout) or layout.part[group + 1] != number
            if not is_last:
                readers[number] = reader, index + 1
            if len(readers) > OPEN_PARTS:
                del readers[next(iter(readers))]
            yield Block(int(layout.position[group]), rows)

    def _read(self, part: Part) -> Iterator[RawRows]:
        """The groups of a part, checked."""
        row = part.first_row
        with self._naming_a_change(part):
            for index, rows in enumerate(part.read()):
                if len(rows):
                    self.files.check_unchanged(part.file)
                    _check_shape(part.name, rows, len(self.columns), len(self.targets))
                    _check_noise(part.name, rows, self.noise is not None)
                    if (part, index) not in self._seen:
                        self._check_values(part.name, row, rows)
                    if part.stays:
                        self._seen.add((part, index))
                    row += len(rows)
                    yield rows

    @contextmanager
    def _naming_a_change(self, part: Part) -> Iterator[None]:
        """An error in a file that changed is said to be that."""
        try:
            yield
        except InvalidInputError:
            self.files.check_unchanged(part.file)
            raise

    def _check_values(self, name: str, first_row: int, rows: RawRows) -> None:
        noise = None if rows.noise is None else rows.noise[:, None]
        for values, names in (
            (rows.x, self.columns),
            (rows.y, self.targets),
            (noise, [self.noise or "noise"]),
        ):
            if values is not None and not _sum_is_finite(values):
                _refuse_not_finite(name, first_row, values, names)
        if noise is not None and noise.min() <= 0:
            row = int(noise[:, 0].argmin())
            raise InvalidInputError(
                f"{name}: the known noise variance {self.noise or 'noise'!r} must be positive, "
                f"got {noise[row, 0]:g} in row {first_row + row}, counted from 0"
            )

    def _checked(self, sizes: Sequence[Sequence[int]]) -> Layout:
        if not self.may_be_empty and not sum(map(sum, sizes)):
            names = self.parts[0].name if self.parts else "the source"
            raise InvalidInputError(f"{names}: has no rows")
        return Layout.of(sizes)


def _check_shape(name: str, rows: RawRows, columns: int, targets: int) -> None:
    x, y, noise = rows.x, rows.y, rows.noise
    if x.shape != (len(y), columns) or y.shape[1:] != (targets,):
        raise InvalidInputError(
            f"{name}: has x of shape {x.shape} and y of shape {y.shape} where (rows, {columns}) "
            f"and (rows, {targets}) are expected"
        )
    if noise is not None and noise.shape != (len(x),):
        raise InvalidInputError(f"{name}: has {len(x)} rows and noise of shape {noise.shape}")


def _check_noise(name: str, rows: RawRows, is_known: bool) -> None:
    if (rows.noise is not None) != is_known:
        raise InvalidInputError(
            f"{name}: some rows have a known noise variance and others have none: give it for all "
            "of them, or for none"
        )


def _sum_is_finite(values: np.ndarray) -> bool:
    """False where any value is not finite; a sum that overflows is looked at again."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))


def _refuse_not_finite(name: str, first_row: int, values: np.ndarray, names: Sequence[str]) -> None:
    strange = np.argwhere(~np.isfinite(values))
    if not len(strange):
        return
    row, column = map(int, strange[0])
    kind = "a missing value" if np.isnan(values[row, column]) else "infinity"
    raise InvalidInputError(
        f"{name}: column {names[column]!r} has {kind} in row {first_row + row}, counted from 0: "
        "remove such rows, or replace the value by a number"
    )
