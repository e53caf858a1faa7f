"""Tensors with their layout in memory, which a file does not keep.

Products round differently with the layout of their factors. A tensor that is to give the same
bits as before needs its strides, and memory that torch has aligned.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Strides = dict[str, list[int]]


def strides_of(tensors: Mapping[str, Tensor]) -> Strides:
    """The strides of tensors by name, for a document; of an expanded one, those of a copy."""
    return {
        name: list(torch.empty_like(tensor, device="meta").stride())
        for name, tensor in tensors.items()
    }


def rows_first(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors as a file takes them: on the CPU, contiguous, with own memory."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def placed(
    tensors: Mapping[str, Tensor], strides: Strides, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """The tensors of a file on the device, each in the layout it had.

    Example:
        >>> columns_first = {"a": torch.arange(6.0).reshape(2, 3).T}
        >>> placed(rows_first(columns_first), strides_of(columns_first))["a"].stride()
        (1, 3)
    """
    return {
        name: torch.empty_strided(
            tensor.shape, strides[name], dtype=tensor.dtype, device=device
        ).copy_(tensor)
        for name, tensor in tensors.items()
    }
