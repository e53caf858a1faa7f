"""The methods of the comparison, by name."""

from __future__ import annotations

from typing import Any

from softki.bench.method import Method
from softki.bench.methods.exact import Exact
from softki.bench.methods.sgpr import SGPR, SGPRByQR
from softki.bench.methods.ski import SKI, SKIP
from softki.bench.methods.sklearn_gpr import SklearnGPR
from softki.bench.methods.softki import SoftKI, SoftKIHutchinson, SoftKIMLL, SoftKIPaper
from softki.bench.methods.svgp import SVGP
from softki.bench.methods.trees import ExtraTrees, HistGradientBoosting
from softki.bench.methods.vecchia import GPBoostVecchia
from softki.bench.methods.vnngp import VNNGP
from softki.validation.parameters import check_choice

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        SoftKI,
        SoftKIPaper,
        SoftKIMLL,
        SoftKIHutchinson,
        Exact,
        SGPR,
        SGPRByQR,
        SVGP,
        SKI,
        SKIP,
        VNNGP,
        GPBoostVecchia,
        SklearnGPR,
        HistGradientBoosting,
        ExtraTrees,
    )
}


def make(name: str, device: str = "cpu", seed: int = 0, **settings: Any) -> Method:
    """A method of the comparison.

    Example:
        >>> make("svgp", points=64).settings
        {'points': 64, 'epochs': 50, 'learning_rate': 0.01, 'batch_size': 1024, 'least_steps': 1000}
        >>> make("svpg")
        Traceback (most recent call last):
            ...
        softki.exceptions.InvalidInputError: unknown method 'svpg', did you mean 'svgp'? ...
    """
    check_choice("method", name, METHODS)
    return METHODS[name](device, seed, **settings)
