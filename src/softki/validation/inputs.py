"""The rows of a fit, checked: shapes, numbers of rows, known noise, scale, and the device.

Every check is written once and takes tensors and NumPy arrays: the functions `check_…` here, with
`softki.validation.tables.check_finite`. The functions `checked_…` begin with what a user gives.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softki.batches import Data
from softki.exceptions import InvalidInputError, ScaleWarning, warn_caller
from softki.validation.tables import as_tensor, check_finite, column_names


def check_matrix(x: Any, name: str = "X") -> None:
    """Raise unless x has the shape (rows, columns); the messages begin as scikit-learn's do."""
    shape = tuple(x.shape)
    if len(shape) != 2:
        raise InvalidInputError(
            f"Expected 2D array, got {len(shape)}D array instead: {name} has the shape {shape}, "
            f"not (rows, columns). Reshape your data with {name}.reshape(-1, 1) if it is one "
            f"column, {name}.reshape(1, -1) if it is one row."
        )
    for count, what in zip(shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise InvalidInputError(
                f"Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required: "
                f"{name} is empty."
            )


def check_shapes(x: Any, y: Any, noise_variance: Any = None, x_name: str = "X") -> None:
    """Raise unless x is (n, d), y is (n,) or (n, t), and the known noise is (n,).

    Example:
        >>> check_shapes(np.ones((3, 2)), np.ones(2))
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: X has 3 rows and y has 2
    """
    check_matrix(x, x_name)
    n = len(x)
    if len(y.shape) not in (1, 2) or 0 in y.shape:
        raise InvalidInputError(
            f"y must have the shape (rows,) or (rows, targets), got {tuple(y.shape)}"
        )
    if len(y) != n:
        raise InvalidInputError(f"{x_name} has {n} rows and y has {len(y)}")
    if noise_variance is not None and tuple(noise_variance.shape) != (n,):
        raise InvalidInputError(
            f"noise_variance must have the shape ({n},), got {tuple(noise_variance.shape)}"
        )


def check_noise(
    values: Tensor | np.ndarray, name: str = "noise_variance", first_row: int = 0
) -> None:
    """Raise unless all noise variances (n,) are finite and positive.

    Example:
        >>> check_noise(np.array([1.0, 0.0]), first_row=10)
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: noise_variance must be positive, got 0.0 in row 11
    """
    check_finite(values, name, first_row=first_row)
    if len(values) and float(values.min()) <= 0:
        row = int((values <= 0).nonzero()[0][0])
        raise InvalidInputError(
            f"{name} must be positive, got {float(values[row])} in row {first_row + row}"
        )


def checked_data(
    x: Any,
    y: Any,
    noise_variance: Any,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Data:
    """The rows as tensors on the device, or an error that says what is wrong with them."""
    x, y = as_tensor(x, "x"), as_tensor(y, "y")
    device = checked_device(x.device if device is None else device)
    noise = _noise(noise_variance)
    check_shapes(x, y, noise, x_name="x")
    if noise is not None:
        check_noise(noise)
    x, y = _checked_scale("x", x, dtype), _checked_scale("y", y.reshape(len(x), -1), dtype)
    return Data(
        x.to(device), y.to(device), None if noise is None else noise.sqrt().to(device, dtype)
    )


def checked_table(X: Any, y: Any, noise_variance: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """The numbers of a user's X (n, d), y (n,) or (n, t), and known noise (n,)."""
    matrix = checked_matrix(X)
    if y is None:
        raise InvalidInputError(
            "This SoftKIRegressor estimator requires y to be passed, but the target y is None"
        )
    targets, noise = as_tensor(y, "y"), _noise(noise_variance)
    check_shapes(matrix, targets, noise)
    if noise is not None:
        check_noise(noise)
    check_finite(targets, "y", column_names(y))
    return matrix, targets, noise


def checked_matrix(X: Any) -> Tensor:
    """The numbers of X (n, d)."""
    matrix = as_tensor(X, "X")
    check_matrix(matrix)
    check_finite(matrix, "X", column_names(X))
    return matrix


def _noise(noise_variance: Any) -> Tensor | None:
    """The known noise in float64, if there is one."""
    return None if noise_variance is None else as_tensor(noise_variance, "noise_variance").double()


def _checked_scale(name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
    """The values in the precision of the fit, with a warning if they are far from standardised."""
    check_finite(values, name)
    if values.is_inference():
        with torch.inference_mode(False):
            values = values.clone()
    limit = torch.finfo(dtype).max ** 0.4  # distances square it and sum over columns
    low, high = values.aminmax(dim=0)
    largest = torch.maximum(-low, high)
    if bool((largest > limit).any()):
        column = int(largest.argmax())
        raise InvalidInputError(
            f"{name} has values up to {float(largest[column]):.3g} in column {column}, too large "
            f"for {dtype}: standardise it"
        )
    std, mean = torch.std_mean(values, dim=0, correction=0)
    far = (mean.abs() > 10) | (std > 10)
    if bool(far.any()):
        column = int(far.nonzero()[0])
        warn_caller(
            f"{name} column {column} has mean {float(mean[column]):.3g} and standard deviation "
            f"{float(std[column]):.3g}; fit expects about 0 and 1, and means, error bars and noise "
            "rely on it: standardise the data first",
            ScaleWarning,
        )
    return values.to(dtype)


def checked_device(device: torch.device | str) -> torch.device:
    """The device, if it can be used; "auto" is a CUDA device where there is one, else the CPU.

    Where `torchrun` has started several processes, "cuda" is a different device in each of them.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = f"cuda:{local % max(1, torch.cuda.device_count())}"
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidInputError(
            f"unknown device {device!r}: it is 'auto', 'cpu', 'cuda' or 'cuda:0', for example"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError(
            "device 'cuda' was asked for, but torch finds no CUDA device: use 'cpu'"
        )
    try:
        torch.empty(0, dtype=torch.float64, device=device)  # parameters need float64
    except (RuntimeError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise InvalidInputError(f"device {str(device)!r} cannot be used: {why}") from error
    return device
