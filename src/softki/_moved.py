"""Modules under the names that they had before, for one release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "softki.calibration": "softki.posterior.calibration",
    "softki.inference": "softki.training.inference",
    "softki.initialization": "softki.training.initialization",
    "softki.joining": "softki.parallel.groups",
    "softki.sizes": "softki.estimator.defaults",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds a module by its former name, and says where it went."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for the names in `MOVED`; None for all others."""
        return ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module itself in the place of its former name."""
        name = module.__name__
        warnings.warn(
            f"{name} is {MOVED[name]} now, and its former name goes with the next release",
            FutureWarning,
            stacklevel=2,
        )
        sys.modules[name] = import_module(MOVED[name])
