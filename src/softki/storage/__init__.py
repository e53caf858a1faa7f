"""Fitted estimators in files: one of our own to load again, or an ONNX graph."""

from softki.storage.estimator_file import load, load_with_metadata, read_metadata, save
from softki.storage.onnx_export import export_onnx

__all__ = ["export_onnx", "load", "load_with_metadata", "read_metadata", "save"]
