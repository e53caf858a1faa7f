from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest

import softki
from softki.data import robot_arm, split_indices

ROOT = Path(__file__).parent.parent


def test_import_needs_only_the_declared_packages() -> None:
    absent = [
        "matplotlib",
        "onnx",
        "pandas",
        "polars",
        "pyarrow",
        "pytest",
        "rich",
        "tqdm",
        "typer",
    ]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import softki"
    subprocess.run([sys.executable, "-c", code], check=True)
    runtime = {re.split(r"[>=<\s]", r)[0] for r in requires("softki") or [] if "extra" not in r}
    declared = "torch numpy scikit-learn scipy joblib lazy-loader safetensors gpytorch tqdm"
    assert runtime == set(declared.split())


def test_everything_public_exists_and_has_a_docstring() -> None:
    for name in softki.__all__:
        assert getattr(softki, name).__doc__, name
    assert (ROOT / "src" / "softki" / "py.typed").exists()


def test_the_constraints_pin_what_was_tested() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    assert pins["torch"] == "2.13.0"
    assert {"numpy", "scikit-learn", "safetensors", "gpytorch"} <= pins.keys()


def test_robot_arm_reach() -> None:
    """A straight arm reaches as far as its links are long; the noise is as large as asked."""
    from softki.data import datasets as synthetic

    x, y = robot_arm(5000, noise=0.0, seed=3)
    assert x.shape == (5000, 8)
    assert np.abs(x).max() <= np.pi / 2
    length = sum(0.8**k for k in range(8))
    assert y.min() >= 0
    assert y.max() <= length + 1
    noisy = robot_arm(5000, noise=0.1, seed=3)[1]
    assert (noisy - y).std() / y.std() == pytest.approx(0.1, rel=0.05)
    quarter = synthetic._turn(np.array([[1.0, 0.0, 2.0]]), np.array([np.pi / 2]), (0, 1))
    np.testing.assert_allclose(quarter, [[0.0, 1.0, 2.0]], atol=1e-12)


def test_splits_are_those_of_the_benchmarks() -> None:
    train, test = split_indices(1000, seed=7)
    order = np.random.RandomState(7).permutation(1000)
    np.testing.assert_array_equal(np.concatenate([train, test]), order)
    assert len(train) == 900


def test_the_version_is_the_same_everywhere() -> None:
    for name in ("pyproject.toml", "CITATION.cff"):
        text = (ROOT / name).read_text()
        assert re.search(
            rf'^version[:=\s]+"?{re.escape(softki.__version__)}"?$', text, re.MULTILINE
        )
