"""A fitted estimator in one file, and back: tensors and JSON, no code, no training rows.

The file is that of `softki.files.container`. It holds what is needed to predict, with the same
bits as before on the same machine, and to add rows. A file names the class of its estimator. The
classes are above this package: the module that turns an estimator into a document and tensors and
back calls `register` when it is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from softki._version import __version__
from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.files.atomic import write_atomically
from softki.files.container import seal, unseal
from softki.validation.inputs import checked_device

Document = dict[str, Any]
Tensors = dict[str, Tensor]


class Form(NamedTuple):
    """The form that fitted estimators of a class have in a file."""

    kind: type
    contents: Callable[[Any], tuple[Document, Tensors]]
    restored: Callable[[Document, Tensors], Any]


# The modules that register a class, for files that are read before these are imported.
_MODULES = {"SoftKIRegressor": "softki.estimator.files"}
_forms: dict[str, Form] = {}


def register(form: Form) -> None:
    """Let estimators of a class be saved, and be loaded by the name of the class."""
    _forms[form.kind.__name__] = form


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
    form = _form_of(estimator)
    check_is_fitted(estimator)
    contents, tensors = form.contents(estimator)
    document = {
        "softki": __version__,
        "class": form.kind.__name__,
        **contents,
        "extra": _checked_extra(extra),
    }
    write_atomically(path, seal(document, tensors))


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
        # The first files name no class.
        form = _form_named(file.document.get("class", "SoftKIRegressor"))
        return form.restored(file.document, file.tensors(place)), file.document
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
    the standardised target), `extra`, as it was given to `save`, or empty, and `strides` (of the
    tensors).
    """
    return unseal(path).document


def _form_named(name: str) -> Form:
    if name not in _forms and name in _MODULES:
        import_module(_MODULES[name])
    if name not in _forms:
        raise InvalidInputError(f"it holds a {name}, which is not known")
    return _forms[name]


def _form_of(estimator: object) -> Form:
    forms = [_form_named(name) for name in _MODULES | _forms]
    for form in forms:
        if isinstance(estimator, form.kind):
            return form
    kinds = " or ".join(form.kind.__name__ for form in forms)
    raise InvalidTypeError(f"save takes a {kinds}, got {type(estimator).__name__}")


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
