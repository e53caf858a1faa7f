"""Tables in files, their encoding as numbers, a synthetic data set, and splits."""

from softki.data.datasets import robot_arm, ski_split_indices, split_indices

__all__ = ["robot_arm", "ski_split_indices", "split_indices"]
