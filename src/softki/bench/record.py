"""One run of the comparison: a record, and the line of JSON that keeps it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from softki.exceptions import InvalidInputError
from softki.validation.parameters import check_choice

STATUSES = ("ok", "failed", "out of memory", "refused")


class Key(NamedTuple):
    """What makes a run this run and no other."""

    data: str
    method: str
    seed: int
    split: str
    settings: str  # those that differ from the defaults, as JSON with sorted names
    device_kind: str


@dataclass(frozen=True)
class Record:
    """What was run, and what came out; figures are on the standardised target.

    A figure that was not measured, or is not finite, is None.

    Example:
        >>> record = Record("pol", "svgp", seed=0, split="90/10", settings={"epochs": 5}, rmse=0.1)
        >>> record.key.settings, record.key.device_kind
        ('{"epochs": 5}', 'cpu')
        >>> Record.from_json(record.to_json()) == record
        True
    """

    data: str
    method: str
    seed: int
    split: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from the defaults
    status: str = "ok"
    error: str | None = None
    rows: int | None = None  # of the training data
    test_rows: int | None = None
    columns: int | None = None
    rmse: float | None = None
    nll: float | None = None
    coverage: float | None = None  # share of test rows in the central 95% interval
    fit_seconds: float | None = None
    predict_seconds: float | None = None
    seconds_per_epoch: float | None = None
    peak_memory: int | None = None  # bytes
    device: str | None = None  # its name
    device_kind: str = ""  # such as "cuda"; what the name says unless given
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("status", self.status, STATUSES)
        if not self.device_kind:
            on_cpu = self.device is None or "cpu" in self.device.lower()
            object.__setattr__(self, "device_kind", "cpu" if on_cpu else "cuda")
        for name in _NAMES:  # in the form that a file gives back
            object.__setattr__(self, name, _plain(getattr(self, name)))

    @property
    def key(self) -> Key:
        """Two records with the same key are two runs of the same thing."""
        settings = json.dumps(self.settings, sort_keys=True)
        return Key(self.data, self.method, self.seed, self.split, settings, self.device_kind)

    @property
    def final(self) -> bool:
        """Whether to run it again would bring nothing new.

        It may where the run ended at the time limit. A method that refuses the data would do so
        again, until it or what is installed is another.
        """
        return self.status != "failed" or not (self.error or "").startswith("TimeoutError")

    def replace(self, **changes: Any) -> Self:
        """This record with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """One line of JSON without its end; fields that are None are null."""
        return json.dumps({name: getattr(self, name) for name in _NAMES}, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """The record of a line; fields that it does not know are left out.

        Example:
            >>> Record.from_json('{"data": "pol"}')
            Traceback (most recent call last):
                ...
            softki.exceptions.InvalidInputError: no record of a run: it lacks method, seed, split
            >>> Record.from_json('{"data": "pol", "method": "svgp", "seed": "0", "split": "90/10"}')
            Traceback (most recent call last):
                ...
            softki.exceptions.InvalidInputError: no record of a run: seed must be ...
        """
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"no record of a run: {error}") from error
        if not isinstance(found, dict):
            raise InvalidInputError(f"no record of a run: an object is needed, got {line[:40]}")
        lacking = [name for name in ("data", "method", "seed", "split") if found.get(name) is None]
        if lacking:
            raise InvalidInputError(f"no record of a run: it lacks {', '.join(lacking)}")
        known = {name: found[name] for name in _NAMES if found.get(name) is not None}
        for name, value in known.items():
            _check_kind(name, value, *_KINDS[name])
        for package, version in known.get("versions", {}).items():
            _check_kind(f"the version of {package}", version, *_JSON["str"])
        return cls(**known)


_JSON: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "text"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "Mapping": (dict, "an object"),
}
# By the first word of a field's type: that of "float | None" is float.
_KINDS = {one.name: _JSON[re.split(r"\W", str(one.type))[0]] for one in dataclasses.fields(Record)}
_NAMES = tuple(_KINDS)


def _check_kind(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise InvalidInputError(f"no record of a run: {name} must be {words}, got {value!r:.40}")


def _plain(value: Any) -> Any:
    """The value as JSON has it: arrays and tuples as lists, None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # of NumPy or torch
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
