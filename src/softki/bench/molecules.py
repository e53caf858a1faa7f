"""The geometries of a molecule as columns of numbers."""

from __future__ import annotations

import numpy as np

from softki.exceptions import InvalidInputError

# Differences of atoms that are held at once, as a number of floats: 32 MB.
_AT_ONCE = 2**22


def flat_coordinates(positions: np.ndarray) -> np.ndarray:
    """The coordinates of all atoms side by side, as in the paper: (n, 3·atoms).

    They change when the molecule turns or moves, though its energy does not.

    Args:
        positions: of the atoms, (n, atoms, 3).

    Example:
        >>> flat_coordinates(np.arange(6).reshape(1, 2, 3))
        array([[0., 1., 2., 3., 4., 5.]])
    """
    _check_positions(positions)
    return positions.reshape(len(positions), -1).astype(np.float64)


def inverse_distances(positions: np.ndarray) -> np.ndarray:
    """The inverse distances of all pairs of atoms: (n, atoms·(atoms − 1)/2), in float64.

        xᵢⱼ = 1/‖rᵢ − rⱼ‖,    i < j, in the order 01, 02, …, 12, 13, …

    They stay the same when the molecule turns or moves.

    Args:
        positions: of the atoms, (n, atoms, 3).

    Example:
        >>> inverse_distances(np.array([[[0, 0, 0], [2, 0, 0], [0, 4, 3]]])).round(3)
        array([[0.5  , 0.2  , 0.186]])
    """
    _check_positions(positions)
    first, second = np.triu_indices(positions.shape[1], k=1)
    inverse = np.empty((len(positions), len(first)))
    step = max(1, _AT_ONCE // (3 * max(1, len(first))))
    for start in range(0, len(positions), step):
        chunk = positions[start : start + step].astype(np.float64)
        distance = np.linalg.norm(chunk[:, first] - chunk[:, second], axis=2)
        if not distance.all():
            frame, pair = np.argwhere(distance == 0)[0]
            raise InvalidInputError(
                f"atoms {first[pair]} and {second[pair]} of frame {start + frame} are in one place"
            )
        inverse[start : start + step] = 1 / distance
    return inverse


def _check_positions(positions: np.ndarray) -> None:
    if positions.ndim != 3 or positions.shape[2] != 3:
        raise InvalidInputError(f"positions must be (n, atoms, 3), got {positions.shape}")
