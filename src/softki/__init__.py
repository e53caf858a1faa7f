"""Gaussian-process regression by soft kernel interpolation (SoftKI).

The public names are listed in `__init__.pyi`, and are loaded when they are first used.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import lazy_loader

from softki._moved import MovedModules

_load_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
sys.meta_path.append(MovedModules())


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package, loaded when it is first used."""
    if name in __all__:
        return _load_name(name)
    if not name.startswith("_") and find_spec(f"softki.{name}") is not None:
        return import_module(f"softki.{name}")
    raise AttributeError(f"module 'softki' has no attribute {name!r}")
