"""The paper's figures: each is data, which fits give, and a picture of it.

A figure is a module with `compute`, which gives what fits into JSON, and `draw`, which makes a
matplotlib figure of that. `make_figure` does both and keeps the data beside the picture, so that
a picture can be drawn again without the fits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from softki.bench.figures import (
    error_surfaces,
    interpolation,
    lengthscales,
    ricker,
    solvers,
    temperatures,
)
from softki.exceptions import InvalidInputError
from softki.files.atomic import replaced, write_atomically
from softki.validation.parameters import check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 150


class FigureModule(Protocol):
    """What a module of a figure has."""

    @property
    def compute(self) -> Callable[..., dict[str, Any]]:
        """The data, from (device, seed, sizes) or from a results file."""

    @property
    def draw(self) -> Callable[[Mapping[str, Any]], Figure]:
        """The picture of the data."""


FIGURES: dict[str, FigureModule] = {
    "interpolation": interpolation,
    "ricker": ricker,
    "error_surfaces": error_surfaces,
    "solvers": solvers,
    "lengthscales": lengthscales,
    "temperatures": temperatures,
}


def make_figure(
    name: str,
    folder: Path,
    device: str = "cpu",
    seed: int = 0,
    results: Path | None = None,
    data: Path | None = None,
    data_folder: Path | None = None,
    **settings: Any,
) -> list[Path]:
    """Write NAME.json, the data, and NAME.png, the picture, into the folder.

    Args:
        name: one of `FIGURES`.
        folder: made if it is not there.
        device: to fit on.
        seed: of everything random.
        results: a results file, for the figures that are made of one.
        data: the JSON file behind an earlier picture, to draw it again instead of computing.
        data_folder: of the data sets, as for `softki.bench.datasets.load`.
        settings: sizes, as the figure's `compute` has them.

    Returns:
        The two paths.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = make_figure("interpolation", Path(folder), rows=50, points=8, steps=2)
        ...     [path.name for path in paths]
        ['interpolation.json', 'interpolation.png']
    """
    check_choice("figure", name, FIGURES)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.json", folder / f"{name}.png"]
    if data is None:
        content = _computed(
            name, settings, device=device, seed=seed, results=results, data_folder=data_folder
        )
    else:
        content = _read(name, data)
    # The data comes first: the fits take longer than a drawing that fails.
    write_atomically(paths[0], json.dumps(content, allow_nan=False).encode())
    picture = FIGURES[name].draw(content["data"])
    with replaced(paths[1]) as temporary:
        picture.savefig(temporary, format="png", dpi=_DPI)
    return paths


def _computed(name: str, settings: dict[str, Any], **common: Any) -> dict[str, Any]:
    """The data with what it was computed from."""
    compute = FIGURES[name].compute
    accepted = signature(compute).parameters
    for setting in settings:
        check_choice(f"setting of {name}", setting, [s for s in accepted if s not in common])
    if "results" in accepted and common["results"] is None:
        raise InvalidInputError(
            f"the figure {name} is made of a results file: pass the one that `softki bench run` "
            "has written as results"
        )
    used = {key: value for key, value in common.items() if key in accepted} | settings
    data = compute(**used)
    used.pop("data_folder", None)  # where the data was is nothing to keep
    if "results" in used:
        used["results"] = str(used["results"])
    return {"figure": name, "settings": used, "data": data}


def _read(name: str, path: Path) -> dict[str, Any]:
    """The content of a data file, if it is one of this figure or of one with the same data."""
    try:
        content = json.loads(Path(path).read_text())
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidInputError(f"{path} is not the data of a figure: {error}") from error
    of = str(content.get("figure")) if isinstance(content, dict) and "data" in content else "none"
    if of not in FIGURES or FIGURES[of].compute is not FIGURES[name].compute:
        raise InvalidInputError(
            f"{path} is not the data of the figure {name} but of {of}: pass a file {name}.json "
            "that was written with the picture"
        )
    return {**content, "figure": name}
