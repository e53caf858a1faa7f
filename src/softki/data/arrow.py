"""PyArrow, or one clear error where it is not installed."""

from __future__ import annotations

from softki.exceptions import SoftKIError

try:
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.ipc
    import pyarrow.parquet  # noqa: F401
except ImportError as error:
    raise SoftKIError(
        "tables in files need the package pyarrow: pip install 'softki[cli]'"
    ) from error

__all__ = ["pa"]
