from __future__ import annotations

from typing import Any

import pytest
import torch

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import Matern32
from softki.objective.hutchinson import Hutchinson
from softki.training.settings import FitSettings

# Values of a type or size that a parameter cannot have.
WRONG: dict[str, list[Any]] = {
    "points": ["512", 12.5, None, True, 0, torch.tensor(5)],
    "kernel": [3, None, Matern32, torch.nn.Linear(2, 2), ["rbf"]],
    "max_lengthscale": ["3", None, True, float("nan"), 1.0, torch.tensor(3.0)],
    "temperature": [1, 0.5, None, ["one"], {}],
    "objective": [3, None, "likelihood", Hutchinson],
    "batch_size": ["64", 1.5, 0, False],
    "steps": [None, 10.0, -1, "many"],
    "learning_rate": ["0.1", None, True, 0, -1.0, float("nan"), [0.1]],
    "point_learning_rate": ["0.1", -1.0, True],
    "schedule": [None, 1, "linear"],
    "held_out": [None, "0.1", True, 1.0, -0.1],
    "folds": [None, 1, 2.5, True],
    "patience": ["8", 0, 1.5, True],
    "solver": [None, 1, "lu"],
    "cg_tolerance": [None, "1e-4", -1.0, True],
    "dtype": ["float32", float, None, torch.float16],
    "seed": [None, "0", 1.5, -1, 2**63, True],
}


def test_every_parameter_is_tried() -> None:
    assert WRONG.keys() == vars(FitSettings()).keys()


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"\b{name}\b"):
        FitSettings(**{name: value})
