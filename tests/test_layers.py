"""A wrong import breaks a contract of `pyproject.toml`, wherever and however it is written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
IN_A_FUNCTION = (
    "\n\ndef later() -> None:\n    from softki.estimator.regressor import SoftKIRegressor\n"
)
FOR_TYPES = "\nif TYPE_CHECKING:\n    from softki.training.settings import FitSettings\n"


def found_by_the_contracts(folder: Path) -> str:
    """What import-linter prints of the package in a folder, in lines that are not wrapped."""
    done = subprocess.run(
        [LINT_IMPORTS, "--config", ROOT / "pyproject.toml", "--no-cache", "--no-logo"],
        cwd=folder,
        env={"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts:" in done.stdout, done.stdout + done.stderr
    assert done.returncode == ("BROKEN" in done.stdout)
    return done.stdout


@pytest.fixture(scope="module")
def before() -> str:
    return found_by_the_contracts(ROOT / "src")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "kernels/stationary.py",
            "\nimport softki.model\n",
            "softki.kernels is not allowed to import softki.model",
        ),
        (
            "data/writers.py",
            IN_A_FUNCTION,
            "softki.data is not allowed to import softki.estimator",
        ),
        (
            "solvers.py",
            FOR_TYPES,
            "softki.solvers is not allowed to import softki.training",
        ),
        (
            "linalg/products.py",
            "\nfrom softki.files import digest\n",
            "softki.linalg is not allowed to import softki.files",
        ),
        (
            "likelihood.py",
            "\nfrom softki import fit\n",
            "softki.likelihood is not allowed to import softki:",
        ),
        (
            "plots/_axes.py",
            "\nimport softki.plots.points\n",
            "No cycles are allowed in softki.plots.",
        ),
        ("novelty.py", '"""In no layer."""\n', "- softki.novelty"),
    ],
    ids=["upwards", "in a function", "for types", "beside", "from the root", "cycle", "no layer"],
)
def test_a_wrong_import_is_found(
    file: str, text: str, message: str, before: str, tmp_path: Path
) -> None:
    assert message not in before
    shutil.copytree(ROOT / "src" / "softki", tmp_path / "softki")
    with (tmp_path / "softki" / file).open("a") as source:
        source.write(text)
    assert message in found_by_the_contracts(tmp_path)
