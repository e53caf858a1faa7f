"""Covariance kernels between the interpolation points, and their matrices."""

from softki.kernels.matrix import kernel_matrix
from softki.kernels.stationary import (
    KERNELS,
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    StationaryKernel,
    make_kernel,
)

__all__ = [
    "KERNELS",
    "RBF",
    "Matern12",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "StationaryKernel",
    "kernel_matrix",
    "make_kernel",
]
