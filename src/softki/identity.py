"""What makes a fit the same fit: rows, settings, and a model to start from.

A fit that was left goes on only as itself. Files that are read anew are known by their sizes and
by what was found in them, not by name and time, so that a copy on another machine will do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from softki._version import __version__
from softki.digest import digest_of
from softki.model import SoftKI
from softki.settings import FitSettings
from softki.storage.documents import is_own, parameters_document
from softki.storage.sealed import plain_number
from softki.training_data import TrainingData

Identity = dict[str, Any]

# Where an object is in memory differs from one process to the next.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_VALUES = "other values in the rows"
# Longer values are not shown.
_SHOWN = 40


def identity_of(
    candidates: Sequence[FitSettings], data: TrainingData, model: SoftKI | None
) -> Identity:
    """The identity of a fit that is about to start, in JSON."""
    identity = {
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
    plain: Identity = json.loads(json.dumps(identity, default=plain_number))
    return plain


def differences(saved: Identity, asked: Identity) -> str:
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


def _described(settings: FitSettings) -> Identity:
    document = parameters_document(vars(settings))
    kernel, objective = settings.kernel, document["objective"]
    if isinstance(kernel, nn.Module) and not is_own(kernel):
        document["kernel"] |= {"values": _digest_of_module(kernel)}
    if not isinstance(objective, str):
        document["objective"] = _ADDRESS.sub("", objective["stored"])
    return document


def _differences(saved: Identity, asked: Identity) -> Iterator[str]:
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
