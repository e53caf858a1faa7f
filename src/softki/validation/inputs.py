"""What a fit is given, checked: rows, noise and device."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from softki.batches import Data
from softki.exceptions import InvalidInputError, ScaleWarning, warn_caller
from softki.validation.tables import as_tensor, check_finite, column_names


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
    if x.ndim != 2 or x.numel() == 0:
        raise InvalidInputError(
            f"x must be a table of shape (n, d) with rows and columns, got {tuple(x.shape)}"
        )
    if y.ndim not in (1, 2) or len(y) != len(x) or y.numel() == 0:
        raise InvalidInputError(
            f"y must have the shape ({len(x)},) or ({len(x)}, targets) to match x, "
            f"got {tuple(y.shape)}"
        )
    x, y = _checked_scale("x", x, dtype), _checked_scale("y", y.reshape(len(x), -1), dtype)
    scale = None
    if noise_variance is not None:
        scale = checked_noise(noise_variance, len(x)).sqrt().to(device, dtype)
    return Data(x.to(device), y.to(device), scale)


def checked_table(X: Any, y: Any, noise_variance: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """The numbers of a user's X (n, d), y (n,) or (n, t), and known noise (n,)."""
    matrix, targets = checked_matrix(X), checked_targets(y)
    if len(matrix) != len(targets):
        raise InvalidInputError(f"X has {len(matrix)} rows and y has {len(targets)}")
    noise = None if noise_variance is None else checked_noise(noise_variance, len(matrix))
    return matrix, targets, noise


def checked_matrix(X: Any) -> Tensor:
    """The numbers of X (n, d); the messages begin as scikit-learn's do."""
    matrix = as_tensor(X, "X")
    if matrix.ndim != 2:
        raise InvalidInputError(
            f"Expected 2D array, got {matrix.ndim}D array instead: X has the shape "
            f"{tuple(matrix.shape)}, not (rows, columns). Reshape your data with "
            "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row."
        )
    for count, what in zip(matrix.shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise InvalidInputError(
                f"Found array with 0 {what}(s) (shape={tuple(matrix.shape)}) while a minimum "
                "of 1 is required: X is empty."
            )
    check_finite(matrix, "X", column_names(X))
    return matrix


def checked_targets(y: Any) -> Tensor:
    """The numbers of y, (n,) or (n, t)."""
    if y is None:
        raise InvalidInputError(
            "This SoftKIRegressor estimator requires y to be passed, but the target y is None"
        )
    targets = as_tensor(y, "y")
    if targets.ndim not in (1, 2) or targets.numel() == 0:
        raise InvalidInputError(
            f"y must have the shape (rows,) or (rows, targets), got {tuple(targets.shape)}"
        )
    check_finite(targets, "y", column_names(y))
    return targets


def _checked_scale(name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
    """The values in the precision of the fit; a warning if they are far from standardised."""
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


def checked_noise(noise_variance: Any, count: int) -> Tensor:
    """The known noise of the rows (n,) in float64, positive."""
    noise = as_tensor(noise_variance, "noise_variance").double()
    if noise.shape != (count,):
        raise InvalidInputError(
            f"noise_variance must have the shape ({count},), got {tuple(noise.shape)}"
        )
    check_finite(noise, "noise_variance")
    if not bool((noise > 0).all()):
        row = int((noise <= 0).nonzero()[0])
        raise InvalidInputError(
            f"noise_variance must be positive, got {float(noise[row])} in row {row}"
        )
    return noise


def checked_device(device: torch.device | str) -> torch.device:
    """The device, if it can be used; "auto" is CUDA where there is a device, else the CPU.

    Where `torchrun` has started several processes, "cuda" is another device in each of them.
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
