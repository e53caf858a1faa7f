"""Tables in files, their encoding as numbers, synthetic data sets, and splits."""

from softki.data.datasets import (
    large_d,
    large_n,
    ricker,
    ricker_wavelet,
    robot_arm,
    ski_split_indices,
    split_indices,
)

__all__ = [
    "large_d",
    "large_n",
    "ricker",
    "ricker_wavelet",
    "robot_arm",
    "ski_split_indices",
    "split_indices",
]
