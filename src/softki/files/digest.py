"""A checksum of tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from torch import Tensor

# Bytes of a tensor that are copied and hashed at once.
_BLOCK = 1 << 26


def digest_of(tensors: Iterable[Tensor | None], *others: object) -> str:
    """SHA-256 of tensors, a block at a time, and of the `repr` of other objects.

    Example:
        >>> import torch
        >>> digest_of([torch.zeros(3)]) == digest_of([torch.zeros(3)])
        True
        >>> digest_of([torch.zeros(3)]) == digest_of([torch.zeros(3).double()])
        False
    """
    digest = hashlib.sha256(repr(others).encode())
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
            continue
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        rows = tensor.detach().reshape(len(tensor) if tensor.ndim else 1, -1)
        size = max(1, _BLOCK // max(1, rows.element_size() * rows.shape[1]))
        for block in rows.split(size):
            digest.update(block.cpu().contiguous().numpy())
    return digest.hexdigest()
