"""The classes whose fitted objects can be in a file, by the name that the file gives them.

A class above this package says here how its objects become a document and tensors and back: the
module that does so calls `register` when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from torch import Tensor

from softki.exceptions import InvalidInputError, InvalidTypeError

Document = dict[str, Any]
Tensors = dict[str, Tensor]


class Form(NamedTuple):
    """The form that fitted objects of a class have in a file."""

    kind: type
    contents: Callable[[Any], tuple[Document, Tensors]]
    restored: Callable[[Document, Tensors], Any]


# The modules that register a class, for files that are read before these are imported.
_MODULES = {"SoftKIRegressor": "softki.estimator.files"}
_forms: dict[str, Form] = {}


def register(form: Form) -> None:
    """Let objects of a class be saved, and be loaded by the name of the class."""
    _forms[form.kind.__name__] = form


def form_named(name: str) -> Form:
    """The form of a class that a file names."""
    if name not in _forms and name in _MODULES:
        import_module(_MODULES[name])
    if name not in _forms:
        raise InvalidInputError(f"it holds a {name}, which is not known")
    return _forms[name]


def form_of(fitted: object) -> Form:
    """The form of the class of an object."""
    forms = [form_named(name) for name in {**_MODULES, **_forms}]
    for form in forms:
        if isinstance(fitted, form.kind):
            return form
    kinds = " or ".join(form.kind.__name__ for form in forms)
    raise InvalidTypeError(f"save takes a {kinds}, got {type(fitted).__name__}")
