"""Fitted estimators in files: one of our own to load again, or an ONNX graph.

What is offered here knows the estimator, whose fits keep checkpoints in sealed files: so it is
imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softki.storage.estimator_file import load, load_with_metadata, read_metadata, save
    from softki.storage.onnx_export import export_onnx

__all__ = ["export_onnx", "load", "load_with_metadata", "read_metadata", "save"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "onnx_export" if name == "export_onnx" else "estimator_file"
    return getattr(import_module(f"{__name__}.{home}"), name)
