"""Files of an earlier version (`data/README.md`): a model loads, a checkpoint is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import softki
from softki import InvalidInputError, SoftKIRegressor
from softki.storage import read_metadata

DATA = Path(__file__).parent / "data"
PARAMETERS: dict[str, Any] = {
    "points": 6,
    "steps": 50,
    "held_out": 0.1,
    "random_state": 0,
    "device": "cpu",
}
# Another processor or another BLAS rounds otherwise; 6 points leave this much of float64.
ROUNDING = 1e-9


def rows(count: int, first: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Inputs, targets and known noise variances."""
    t = np.arange(first, first + count)
    x = np.column_stack([t * 0.618034 % 1, 100 * (t * 0.414214 % 1)])
    y = np.sin(6 * x[:, 0]) + x[:, 1] / 50
    return pd.DataFrame(x, columns=["share", "per cent"]), y, 0.5 + t % 3


def test_a_model_predicts_what_it_did_and_takes_rows() -> None:
    expected = json.loads((DATA / "version_1.json").read_text())
    model = softki.load(DATA / "version_1.softki", device="cpu")
    x, _, _ = rows(5, 500)
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=ROUNDING)
    np.testing.assert_allclose(std, expected["std"], rtol=ROUNDING)
    assert model.log_marginal_likelihood() == pytest.approx(expected["log p"], rel=ROUNDING)
    mean, std = model.partial_fit(*rows(30, 200)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, expected["later mean"], rtol=ROUNDING)
    np.testing.assert_allclose(std, expected["later std"], rtol=ROUNDING)


def test_a_model_keeps_its_parameters_and_its_report() -> None:
    model = softki.load(DATA / "version_1.softki", device="cpu")
    assert PARAMETERS.items() <= model.get_params().items()
    assert list(model.feature_names_in_) == ["share", "per cent"]
    assert (model.fit_report_.rows, model.fit_report_.held_out_rows) == (120, 12)
    assert model.fit_report_.backend == "plain PyTorch"
    assert read_metadata(DATA / "version_1.softki")["softki"] == "0.0.9"


def test_a_checkpoint_is_refused_by_its_version_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(DATA / "checkpoint", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    message = (
        rf"another fit, with version of softki: 0\.0\.9, not {softki.__version__}.*: give another "
        "folder, or delete this one to start anew"
    )
    with pytest.raises(InvalidInputError, match=message):
        SoftKIRegressor(**PARAMETERS, checkpoint=folder).fit(*rows(120, 0))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_checkpoint_is_no_model() -> None:
    (path,) = (DATA / "checkpoint").iterdir()
    with pytest.raises(InvalidInputError, match="is a checkpoint of a fit that was not done"):
        softki.load(path)
