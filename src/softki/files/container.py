"""A sealed file: a JSON document and tensors, with a checksum over all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from softki.exceptions import InvalidInputError
from softki.files.atomic import checked_path

FORMAT = "softki"
FORMAT_VERSION = 1

_BLANK = b"0" * 64
_MAX_HEADER = 100_000_000  # bytes; safetensors reads no more


class MissingFileError(InvalidInputError, FileNotFoundError):
    """A file that does not exist."""


class DamagedFileError(InvalidInputError):
    """A file whose content is not the one that was written."""


class Sealed(NamedTuple):
    """The content of a file whose checksum is right."""

    document: dict[str, Any]
    data: bytes  # the whole file

    def tensors(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The tensors by name, on the device, each with the strides it had."""
        strides = self.document["strides"]
        return {
            name: torch.empty_strided(
                tensor.shape, strides[name], dtype=tensor.dtype, device=device
            ).copy_(tensor)
            for name, tensor in safetensors.torch.load(self.data).items()
        }


def seal(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a file that holds the document and the tensors.

    safetensors takes contiguous tensors only. Products of matrices may differ in the last bit with
    the strides, which are therefore kept in the document, as `strides`.

    Example:
        >>> import tempfile
        >>> columns_first = torch.arange(6.0).reshape(2, 3).T
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "a")
        ...     _ = path.write_bytes(seal({}, {"a": columns_first}))
        ...     unseal(path).tensors()["a"].stride()
        (1, 3)
    """
    # The strides of an expanded tensor are those of a copy.
    strides = {
        name: torch.empty_like(tensor, device="meta").stride() for name, tensor in tensors.items()
    }
    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "sha256": _BLANK.decode(),
        "document": json.dumps({**document, "strides": strides}, default=plain_number),
    }
    # Copies, as tensors of a file may share no memory.
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    data = safetensors.torch.save(copies, metadata)
    size = int.from_bytes(data[:8], "little")
    if size > _MAX_HEADER:
        raise InvalidInputError(
            f"the names and `extra` take {size} bytes, more than the {_MAX_HEADER} of a file: "
            "give less in `extra`"
        )
    digest = hashlib.sha256(data).hexdigest().encode()
    place = data.index(b'"sha256":"' + _BLANK) + len(b'"sha256":"')
    return data[:place] + digest + data[place + len(digest) :]


def unseal(path: str | PathLike[str]) -> Sealed:
    """Read a file that `seal` made, or raise an error that says what is wrong with it."""
    path = checked_path(path)
    try:
        with open(path, "rb") as file:
            head, metadata = _read_head(path, file)
            rest = file.read()
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise InvalidInputError(f"{path} is a folder: give the name of a file") from error
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error}") from error
    digest = metadata["sha256"].encode()
    computed = hashlib.sha256(head.replace(digest, _BLANK, 1))
    computed.update(rest)
    if computed.hexdigest().encode() != digest:
        raise _damaged(path)
    return Sealed(json.loads(metadata["document"]), head + rest)


def _read_head(path: Path, file: BinaryIO) -> tuple[bytes, dict[str, str]]:
    """The bytes of length and header, and the metadata in the header."""
    start = file.read(10)
    if not start:
        raise DamagedFileError(f"{path} is empty: give a file that model.save(path) wrote")
    size = int.from_bytes(start[:8], "little")
    if size > _MAX_HEADER or start[8:] != b'{"':
        raise _foreign(path)
    head = start + file.read(max(size - 2, 0))
    try:
        header = json.loads(head[8:])
        metadata: dict[str, str] = header["__metadata__"]
        kind, version = metadata["format"], metadata["version"]
    except (ValueError, RecursionError) as error:
        raise _damaged(path) from error
    except (KeyError, TypeError) as error:
        raise _foreign(path) from error
    if kind != FORMAT or not all(isinstance(value, str) for value in metadata.values()):
        raise _foreign(path)
    if not version.isdecimal() or not {"sha256", "document"} <= metadata.keys():
        raise _damaged(path)
    if int(version) > FORMAT_VERSION:
        raise InvalidInputError(
            f"{path} has version {version} of the format, and this softki reads up to "
            f"{FORMAT_VERSION}: install a newer one, with pip install --upgrade softki"
        )
    return head, metadata


def plain_number(value: Any) -> bool | int | float:
    """A number of NumPy as one of Python."""
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _foreign(path: Path) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is not a softki model, or its beginning is damaged: give a file that "
        "model.save(path) wrote"
    )


def _damaged(path: Path) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is damaged, cut short or changed since it was written: take another copy of it, "
        "or save the model again"
    )
