from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import softki
from softki._moved import MOVED
from softki.data import robot_arm, split_indices

ROOT = Path(__file__).parent.parent


def in_a_new_process(code: str) -> str:
    """What a program prints that has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_packages_and_names_need_only_the_declared_packages() -> None:
    """After nothing but `import softki`, which loads them when they are used."""
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
    packages = "kernels.Matern32 interpolation objective.exact posterior metrics.rmse streaming"
    uses = "; ".join(f"softki.{name}" for name in [*packages.split(), *softki.__all__])
    in_a_new_process(
        f"import sys; sys.modules.update(dict.fromkeys({absent})); import softki; {uses}"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = {re.split(r"[>=<\s]", requirement)[0] for requirement in project["dependencies"]}
    declared = "torch numpy scikit-learn joblib lazy-loader safetensors gpytorch tqdm"
    assert runtime == set(declared.split())


def test_import_loads_nothing_of_weight() -> None:
    loaded = in_a_new_process("import softki, sys; print(*sys.modules)").split()
    assert {name for name in loaded if name.startswith("softki")} == {"softki", "softki._moved"}
    assert not {"torch", "numpy", "sklearn", "scipy", "gpytorch", "joblib"} & set(loaded)


def test_completion_shows_the_public_names_alone() -> None:
    before = in_a_new_process("import softki; print(*dir(softki))").split()
    import_module("softki.kernels")
    assert before == dir(softki) == sorted(softki.__all__)
    assert len(before) == 33


def test_every_public_name_is_the_one_of_the_stub_and_has_a_docstring() -> None:
    """Type checkers read the stub, and the names are loaded by it."""
    stub = ast.parse((ROOT / "src" / "softki" / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    names = {alias.name: node.module for node in imports for alias in node.names}
    assert sorted(names) == sorted(softki.__all__)
    for name, module in names.items():
        value = getattr(softki, name)
        assert value is getattr(import_module(f"softki.{module}"), name), name
        assert value.__doc__, name


@pytest.mark.parametrize("name", ["nothing", "_nothing", "Kernels", "tests"])
def test_an_unknown_name_is_an_error_of_python(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'softki' has no attribute '{name}'"):
        getattr(softki, name)
    with pytest.raises(ImportError, match=f"cannot import name '{name}'"):
        exec(f"from softki import {name}")


@pytest.mark.parametrize("former", sorted(MOVED))
def test_a_module_is_found_by_its_former_name(former: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, former, raising=False)
    with pytest.warns(FutureWarning, match=f"^{former} is {MOVED[former]} now"):
        found = import_module(former)
    assert found is import_module(MOVED[former])
    monkeypatch.delitem(sys.modules, former)
    monkeypatch.delattr(softki, former.removeprefix("softki."))
    with pytest.warns(FutureWarning, match="goes with the next release"):
        assert getattr(softki, former.removeprefix("softki.")) is found


def test_the_wheel_is_typed(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"softki/__init__.py", "softki/__init__.pyi", "softki/py.typed"} <= names
    assert not [name for name in names if name.startswith("tests")]


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
