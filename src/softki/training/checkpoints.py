"""A folder in which a fit is saved while it goes on, so that the same call can go on later.

Each file is sealed (`softki.files.container`) and appears whole or not at all; the newest two are
kept. A file says what fit it is of, and only that fit goes on from it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from softki._version import __version__
from softki.exceptions import CheckpointWarning, InvalidInputError, InvalidTypeError, warn_caller
from softki.files.atomic import checked_path, write_atomically
from softki.files.container import DamagedFileError, plain_number, seal, unseal
from softki.files.digest import digest_of
from softki.model import SoftKI
from softki.training.data import TrainingData
from softki.training.documents import (
    State,
    is_own,
    parameters_document,
    with_tensors,
    without_tensors,
)
from softki.training.settings import FitSettings

if TYPE_CHECKING:
    from softki.parallel.processes import Processes

Fingerprint = dict[str, Any]

# Where an object is in memory differs from one process to the next.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_VALUES = "other values in the rows"
# Longer values are not shown.
_SHOWN = 40


def fit_fingerprint(
    candidates: Sequence[FitSettings], data: TrainingData, model: SoftKI | None
) -> Fingerprint:
    """The fingerprint of a fit in JSON: its rows, its settings, and a model to start from.

    A fit that was left goes on only as itself. Files that are read anew are known by their sizes
    and by what was found in them, not by name and time, so that a copy on another machine will do.
    """
    fingerprint = {
        "version of softki": __version__,
        "rows": len(data),
        "columns": data.dimension,
        "targets": data.targets,
        "known noise": data.knows_noise,
        "streamed": data.is_streamed,
        "device": data.device.type,
        "settings": [_described(settings) for settings in candidates],
        "another model to start from": None if model is None else _digest_of_module(model),
        _VALUES: data.digest(),
    }
    plain: Fingerprint = json.loads(json.dumps(fingerprint, default=plain_number))
    return plain


def differences(saved: Fingerprint, asked: Fingerprint) -> str:
    """In what two fits differ, in words.

    Example:
        >>> there = {"rows": 100, "settings": [{"steps": 60}], "other values in the rows": "a"}
        >>> here = {"rows": 200, "settings": [{"steps": 40}], "other values in the rows": "b"}
        >>> differences(there, here)
        'rows: 100, not 200; steps: 60, not 40'
    """
    found = list(dict.fromkeys(_differences(saved, asked)))
    more = [one for one in found if one != _VALUES]  # other rows have other values, of course
    return "; ".join(more or found)


def _digest_of_module(module: nn.Module) -> str:
    state = module.state_dict()
    return digest_of(state.values(), *state)


def _described(settings: FitSettings) -> Fingerprint:
    document = parameters_document(vars(settings))
    kernel, objective = settings.kernel, document["objective"]
    if isinstance(kernel, nn.Module) and not is_own(kernel):
        document["kernel"] |= {"values": _digest_of_module(kernel)}
    if not isinstance(objective, str):
        document["objective"] = _ADDRESS.sub("", objective["stored"])
    return document


def _differences(saved: Fingerprint, asked: Fingerprint) -> Iterator[str]:
    for name in asked:
        before, now = saved.get(name), asked[name]
        if before == now:
            continue
        if name == "settings" and before is not None:
            if len(before) != len(now):
                yield f"{len(before)} settings to choose from, not {len(now)}"
            else:
                for one, other in zip(before, now, strict=True):
                    yield from _differences(one, other)
        elif name.startswith(("other", "another")):
            yield name
        elif max(len(str(before)), len(str(now))) > _SHOWN:
            yield f"another {name}"
        else:
            yield f"{name}: {before}, not {now}"


Folder = str | PathLike[str]


def checkpoints_of(
    folder: Folder, candidates: Sequence[FitSettings], data: TrainingData, model: SoftKI | None
) -> CheckpointFolder | SharedCheckpoints:
    """The checkpoints of a fit that is about to start."""
    fingerprint = fit_fingerprint(candidates, data, model)
    if data.processes is None:
        return CheckpointFolder(folder, fingerprint)
    return SharedCheckpoints(folder, fingerprint, data.processes)


# One to go on from, and one in case that it is damaged.
_KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{8})\.softki")
# Checkpoints of fits that are done, where these are to be removed later.
_done: ContextVar[list[CheckpointFolder] | None] = ContextVar("_done", default=None)


class _Found(NamedTuple):
    """The checkpoints in a folder."""

    fingerprint: Fingerprint | None  # of the newest file that can be read
    state: State | None
    damaged: dict[Path, str]  # newer files that cannot be read, with the reasons


class CheckpointFolder:
    """Checkpoints in a folder, which are those of one fit.

    Args:
        folder: folder of the files; it is made if it is not there.
        fingerprint: fingerprint of the fit, see `fit_fingerprint`.

    Attributes:
        found: state to go on from, if there is one.

    Example:
        >>> import torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     before = CheckpointFolder(folder, {"rows": 3})
        ...     before.save(lambda: {"step": 7, "points": torch.zeros(2)})
        ...     after = CheckpointFolder(folder, {"rows": 3})
        ...     after.finish()
        >>> after.found["step"], after.found["points"].shape
        (7, torch.Size([2]))
    """

    def __init__(self, folder: Folder, fingerprint: Fingerprint) -> None:
        self.folder, self.fingerprint = _path(folder), fingerprint
        found = self._look()
        self._damaged = set(found.damaged)
        self._number = max((_number(path) for path in _files(self.folder)), default=0)
        self.found = found.state
        for path, why in found.damaged.items():
            then = "starts anew" if self.found is None else "goes on from the one before"
            warn_caller(
                f"the checkpoint {path} cannot be used, and the fit {then}: {why}",
                CheckpointWarning,
            )

    def save(self, make: Callable[[], State]) -> None:
        """Write a new file, and remove all but the newest two.

        Where that fails, as on a full disk, the fit goes on with a warning, and older files stay.
        """
        state, tensors = without_tensors(make())
        document = {"checkpoint": state, "identity": self.fingerprint}
        self._number += 1
        path = self.folder / f"checkpoint-{self._number:08}.softki"
        try:
            write_atomically(path, seal(document, tensors))
            usable = [path for path in _files(self.folder) if path not in self._damaged]
            _remove([*usable[:-_KEPT], *self._damaged])
            self._damaged.clear()
        except (InvalidInputError, OSError) as error:
            warn_caller(f"the fit goes on, and could not be saved: {error}", CheckpointWarning)

    def finish(self) -> None:
        """Remove the files of a fit that is done; the folder stays."""
        done = _done.get()
        if done is not None:
            done.append(self)
        else:
            _remove(_files(self.folder))

    def _look(self) -> _Found:
        """The newest checkpoint, or an error if it is of another fit."""
        checked_folder(self.folder)
        found = _look_into(self.folder)
        if found.fingerprint is not None and found.fingerprint != self.fingerprint:
            raise InvalidInputError(
                f"the folder {self.folder} has checkpoints of another fit, with "
                f"{differences(found.fingerprint, self.fingerprint)}: give another folder, or "
                "delete this one to start anew"
            )
        _remove(self.folder.glob(".softki-*.tmp"))  # of a process that was killed in writing
        return found


class SharedCheckpoints:
    """The checkpoints of a fit of several processes: process 0 writes, all go on from them.

    Args:
        folder: folder that the checkpoints are in.
        fingerprint: fingerprint of the fit, see `fit_fingerprint`.
        processes: processes of the fit.
    """

    def __init__(self, folder: Folder, fingerprint: Fingerprint, processes: Processes) -> None:
        own = processes.together(
            lambda: CheckpointFolder(folder, fingerprint) if processes.is_rank_zero else None
        )
        self._folder = own
        self.found: State | None = processes.broadcast(own.found if own else None)

    def save(self, make: Callable[[], State]) -> None:
        """Write a checkpoint, in process 0."""
        if self._folder is not None:
            self._folder.save(make)

    def finish(self) -> None:
        """Remove the checkpoints of a fit that is done, in process 0."""
        if self._folder is not None:
            self._folder.finish()


@contextmanager
def kept_until_the_end() -> Iterator[None]:
    """Let fits that are done within leave their checkpoints, to be removed if all ends well."""
    done: list[CheckpointFolder] = []
    token = _done.set(done)
    try:
        yield
    finally:
        _done.reset(token)
    for checkpoints in done:
        checkpoints.finish()


def checked_folder(folder: Folder) -> Path:
    """The folder, made if it is not there, if files can be written to it."""
    path = _path(folder)
    try:
        if path.exists() and not path.is_dir():
            raise OSError("it is a file; give the name of a folder")
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InvalidInputError(
            f"cannot write checkpoints to {path}: {error.strerror or error}"
        ) from error
    return path


def _path(folder: Folder) -> Path:
    try:
        return checked_path(folder)
    except InvalidTypeError as error:
        raise InvalidTypeError(
            f"checkpoint must be the name of a folder, got {type(folder).__name__}"
        ) from error


def saved_seed(folder: Folder) -> int | None:
    """The seed of the fit that is saved in a folder, if there is one."""
    fingerprint = _look_into(Path(folder)).fingerprint
    return None if fingerprint is None else fingerprint["settings"][0]["seed"]


def _look_into(folder: Path) -> _Found:
    """The newest file that is whole, and newer ones that are not."""
    damaged: dict[Path, str] = {}
    for path in reversed(_files(folder)):
        try:
            file = unseal(path)
            state = with_tensors(file.document["checkpoint"], file.tensors())
            return _Found(file.document["identity"], state, damaged)
        except DamagedFileError as error:
            damaged[path] = str(error)
        except KeyError as error:
            damaged[path] = f"it has no {error}, and is no checkpoint"
    return _Found(None, None, damaged)


def _files(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest last."""
    if not folder.is_dir():
        return []
    return sorted(filter(_number, folder.iterdir()), key=_number)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            warn_caller(
                f"the checkpoint {path} could not be removed: {error.strerror or error}",
                CheckpointWarning,
            )


def _number(path: Path) -> int:
    """The number of a checkpoint, from 1; 0 for any other file."""
    name = _NAME.fullmatch(path.name)
    return int(name[1]) if name else 0
