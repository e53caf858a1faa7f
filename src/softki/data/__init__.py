"""Data sets that the package makes itself, and splits."""

from softki.data.splits import ski_split_indices, split_indices
from softki.data.synthetic import large_d, large_n, ricker, ricker_wavelet, robot_arm

__all__ = [
    "large_d",
    "large_n",
    "ricker",
    "ricker_wavelet",
    "robot_arm",
    "ski_split_indices",
    "split_indices",
]
