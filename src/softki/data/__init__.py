"""Data sets that the package makes itself, and splits."""

from softki.data.splits import split_indices
from softki.data.synthetic import robot_arm

__all__ = ["robot_arm", "split_indices"]
