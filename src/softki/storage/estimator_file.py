"""A fitted estimator in one file, and back: tensors and JSON, no code, no training rows.

The file is that of `softki.files.container`. It holds what is needed to predict, with the same
bits as before on the same machine, and to add rows. The classes of estimators register themselves
in `softki.storage.registry`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from safetensors import SafetensorError
from sklearn.utils.validation import check_is_fitted

from softki._version import __version__
from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.files.atomic import write_atomically
from softki.files.container import placed, rows_first, seal, strides_of, unseal
from softki.storage.registry import Document, form_named, form_of
from softki.validation.inputs import checked_device

# The class in files of softki 0.1, which do not name it.
_FIRST_CLASS = "SoftKIRegressor"


def save(estimator: Any, path: str | PathLike[str], extra: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator to one file; an old file is replaced only by a complete new one.

    Args:
        estimator: fitted estimator.
        path: name of the file, by custom with the ending `.softki`.
        extra: anything in JSON to be kept with it, for `read_metadata`.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from softki import SoftKIRegressor
        >>> X = np.linspace(0, 6, 100)[:, None]
        >>> model = SoftKIRegressor(points=16, steps=50, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/sine.softki")
        ...     again = load(f"{folder}/sine.softki")
        >>> bool((again.predict(X) == model.predict(X)).all())
        True
    """
    form = form_of(estimator)
    check_is_fitted(estimator)
    contents, tensors = form.contents(estimator)
    document = {
        "softki": __version__,
        "class": form.kind.__name__,
        **contents,
        "strides": strides_of(tensors),
        "extra": _checked_extra(extra),
    }
    write_atomically(path, seal(document, rows_first(tensors)))


def load(path: str | PathLike[str], device: str | torch.device = "auto") -> Any:
    """The estimator that `save` wrote; the arguments are those of `softki.load`."""
    return load_with_metadata(path, device)[0]


@torch.inference_mode(False)
@torch.no_grad()
def load_with_metadata(
    path: str | PathLike[str], device: str | torch.device = "auto"
) -> tuple[Any, Document]:
    """The estimator, and what `read_metadata` gives, from one reading of the file."""
    place, file = checked_device(device), unseal(path)
    if "checkpoint" in file.document:
        raise InvalidInputError(
            f"{path} is a checkpoint of a fit that was not done: to go on with it, fit again with "
            "its folder as checkpoint"
        )
    try:
        form = form_named(file.document.get("class", _FIRST_CLASS))
        tensors = placed(file.tensors(), file.document["strides"], place)
        return form.restored(file.document, tensors), file.document
    except torch.cuda.OutOfMemoryError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise InvalidInputError(
            f"{path} was written by softki {file.document.get('softki')}, and softki "
            f"{__version__} cannot read it: {error}"
        ) from error


def read_metadata(path: str | PathLike[str]) -> Document:
    """All of a file but its tensors.

    The keys are `softki` (the version that wrote it), `class`, `columns` (names, or None),
    `n_features`, `single_target`, `noise_unit`, `feature_relevance`, `parameters` (of the
    constructor), `settings`, `kernel` (as learned), `jitter`, `statistics`, `report` (in units of
    the standardised target), `strides`, and `extra`, as it was given to `save`, or empty.
    """
    return unseal(path).document


def _checked_extra(extra: Mapping[str, Any] | None) -> Document:
    if extra is None:
        return {}
    if not isinstance(extra, Mapping):
        raise InvalidTypeError(f"extra must be a mapping, got {type(extra).__name__}")
    try:
        json.dumps(dict(extra))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"extra must hold nothing but JSON: {error}") from error
    return dict(extra)
