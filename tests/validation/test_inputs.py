from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from softki.exceptions import InvalidInputError
from softki.validation.inputs import check_matrix, check_noise, check_shapes


@pytest.mark.parametrize("make", [np.ones, torch.ones])
def test_shapes_of_arrays_and_tensors(make: Callable[[Any], Any]) -> None:
    x = make((4, 2))
    for shape in ((4,), (4, 3)):
        check_shapes(x, make(shape))
        check_shapes(x, make(shape), make((4,)))
    for y, noise, message in (
        (make((4, 1, 1)), None, r"y must have the shape \(rows,\).*got \(4, 1, 1\)"),
        (make((4, 0)), None, r"y must have the shape \(rows,\).*got \(4, 0\)"),
        (make((3,)), None, "X has 4 rows and y has 3"),
        (make((4,)), make((3,)), r"noise_variance must have the shape \(4,\), got \(3,\)"),
        (make((4,)), make((4, 1)), r"noise_variance must have the shape \(4,\), got \(4, 1\)"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            check_shapes(x, y, noise)
    for shape, message in (
        ((4,), r"Expected 2D array, got 1D array instead: rows has the shape \(4,\)"),
        ((0, 2), r"Found array with 0 sample\(s\).*: rows is empty"),
        ((4, 0), r"Found array with 0 feature\(s\)"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            check_matrix(make(shape), "rows")


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_noise_is_finite_and_positive(kind: Callable[[Any], Any]) -> None:
    check_noise(kind([1e-9, 2.0]))
    check_noise(kind([1.0])[:0])
    for values, message in (
        ([1.0, -0.5, 0.0], "noise_variance must be positive, got -0.5 in row 11"),
        ([1.0, 0.0], "noise_variance must be positive, got 0.0 in row 11"),
        ([1.0, np.nan], "noise_variance contains NaN in row 11"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            check_noise(kind(values), first_row=10)
