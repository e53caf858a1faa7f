"""What stands in, after a load, for objects of the user's that a file without code cannot hold."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from softki.exceptions import InvalidInputError


class StoredKernel(Kernel):
    """The covariance of a kernel between the points of one fit, and no other.

    All that a fitted model needs of its kernel is k(z, z), for the points no longer move.

    Args:
        description: of the kernel it stands for.
        points: z, (m, d); none for a kernel that is only a parameter.
        matrix: k(z, z), (m, m).
    """

    def __init__(
        self, description: str, points: Tensor | None = None, matrix: Tensor | None = None
    ) -> None:
        super().__init__()
        self.description = description
        nothing = torch.empty(0, 0, dtype=torch.float64, device="cpu")
        self.register_buffer("points", nothing if points is None else points)
        self.register_buffer("matrix", nothing if matrix is None else matrix)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """k(z, z) where both are the points of the fit."""
        if not torch.equal(x1, self.points) or not torch.equal(x2, self.points):
            raise InvalidInputError(
                f"the kernel {self.description} was not stored, only its covariance between the "
                "points of the fit: to fit again, give the kernel, as in set_params(kernel=…)"
            )
        matrix: Tensor = self.matrix
        return matrix.diagonal() if diag else matrix

    def __repr__(self) -> str:
        return f"StoredKernel({self.description!r})"


class StoredObjective:
    """The name of an objective that was used for a fit; it cannot be used for another.

    Args:
        description: of the objective it stands for.
    """

    def __init__(self, description: str) -> None:
        self.description = description

    def __call__(self, *arguments: Any) -> Any:
        """Refuse."""
        raise InvalidInputError(
            f"the objective {self.description} was not stored: to fit again, give it, as in "
            "set_params(objective=…)"
        )

    def __repr__(self) -> str:
        return f"StoredObjective({self.description!r})"


def describe(value: Any) -> str:
    """One line about the object; of a stand-in, about what it stands for.

    Example:
        >>> describe(StoredObjective("Mine()"))
        'Mine()'
    """
    if isinstance(value, StoredKernel | StoredObjective):
        return value.description
    return " ".join(repr(value).split())
