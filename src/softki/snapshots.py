"""What stands still of something that goes on: a JSON document and tensors, by name.

A checkpoint is one such, made of those of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from torch import Tensor


class Snapshot(NamedTuple):
    """Everything that is needed to go on.

    Example:
        >>> import torch
        >>> training = Snapshot({"step": 3}, {"points": torch.zeros(2)})
        >>> whole = Snapshot.of({"trials": 1}, training=training)
        >>> whole.document, list(whole.tensors)
        ({'trials': 1, 'training': {'step': 3}}, ['training.points'])
        >>> whole.part("training").document
        {'step': 3}
    """

    document: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, document: Mapping[str, Any], **parts: Self) -> Self:
        """A document, and others under their names."""
        return cls(
            {**document, **{name: part.document for name, part in parts.items()}},
            {
                f"{name}.{key}": tensor
                for name, part in parts.items()
                for key, tensor in part.tensors.items()
            },
        )

    def has(self, name: str) -> bool:
        """Whether there is such a part."""
        return name in self.document

    def part(self, name: str) -> Self:
        """One of those that it was made of."""
        prefix = f"{name}."
        return type(self)(
            self.document[name],
            {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)},
        )
