"""From the name of a data set to its numbers."""

from __future__ import annotations

import logging
import os
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from softki.bench.download import Progress, download
from softki.bench.molecules import flat_coordinates, inverse_distances
from softki.bench.registry import REGISTRY, DataSet
from softki.bench.synthetic import large_d, large_n, ricker
from softki.data import robot_arm
from softki.exceptions import InvalidInputError
from softki.validation.parameters import check_choice

_log = logging.getLogger(__name__)
_SYNTHETIC: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "ricker": ricker,
    "robot_arm": robot_arm,
    "large_n": large_n,
    "large_d": large_d,
}


@dataclass(frozen=True, eq=False)
class Observations:
    """Inputs X (n, d) and target y (n,) of a data set, in float64, as they come."""

    X: np.ndarray
    y: np.ndarray
    name: str


def data_folder() -> Path:
    """Where data sets are looked for: `$SOFTKI_DATA`, or a place in the user's cache folder."""
    if chosen := os.environ.get("SOFTKI_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        cache = "~/Library/Caches"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "softki" / "data"


def is_available(dataset: DataSet | str, folder: Path | None = None) -> bool:
    """Whether the data set can be loaded without a download.

    Example:
        >>> is_available("ricker")
        True
    """
    dataset = _named(dataset)
    return dataset.kind == "synthetic" or _found(dataset, folder or data_folder()) is not None


def load(
    dataset: DataSet | str, folder: Path | None = None, download: bool = False
) -> Observations:
    """The numbers of a data set, its first `DataSet.rows` rows.

    A table is `NAME.csv.gz` (no header, target last), `NAME.parquet` (target last) or `NAME.npz`
    with the array `table`, in the folder or in `uci` there; or `NAME/data.csv.gz`, as in the
    public uci_datasets collection. The target of houseelectric is the logarithm of the power: a
    Parquet file holds the power, the others its logarithm. A molecule is an npz file with R
    (frames, atoms, 3) and E (frames), or coords and energies as in rMD17, in the folder or in
    `molecules` there.

    Args:
        dataset: or its name, see `softki.bench.registry.REGISTRY`.
        folder: that holds the files; by default `data_folder()`.
        download: whether to download a file that is not there.

    Example:
        >>> data = load("ricker")
        >>> data.X.shape, data.y.shape
        ((3334, 2), (3334,))
    """
    dataset, folder = _named(dataset), folder or data_folder()
    if dataset.kind == "synthetic":
        X, y = _SYNTHETIC[dataset.name](dataset.rows)
        return Observations(X, y, dataset.name)
    path = fetch(dataset, folder) if download else _found(dataset, folder)
    if path is None:
        raise InvalidInputError(_how_to_get(dataset, folder))
    try:
        X, y = _molecule(path, dataset) if dataset.kind == "npz" else _table(path, dataset)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidInputError(f"cannot read {path}: {error}") from error
    _check(X, y, path, dataset)
    return Observations(X, y, dataset.name)


def fetch(
    dataset: DataSet | str, folder: Path | None = None, progress: Progress | None = None
) -> Path:
    """The file of a data set, downloaded where it is not there yet.

    Where `DataSet.sha256` is None, what the address holds is not verified.
    """
    dataset, folder = _named(dataset), folder or data_folder()
    path = _found(dataset, folder)
    if path is None:
        if dataset.url is None:
            raise InvalidInputError(_how_to_get(dataset, folder))
        path = folder / dataset.file
        _log.info("downloading %s to %s", dataset.url, path)
        download(dataset.url, path, dataset.sha256, progress)
    return path


def _named(dataset: DataSet | str) -> DataSet:
    if isinstance(dataset, DataSet):
        return dataset
    check_choice("data set", dataset, REGISTRY)
    return REGISTRY[dataset]


def _found(dataset: DataSet, folder: Path) -> Path | None:
    """The first of the places of a data set where there is a file; quick formats come first."""
    place = Path(dataset.file)
    places = [place, Path(place.name)]
    if dataset.kind == "csv":
        name = dataset.name
        tables = [f"{name}.npz", f"{name}.parquet", place.name]
        places = [Path(parent, table) for table in tables for parent in (place.parent, "")]
        places.append(Path(name, "data.csv.gz"))
    return next((folder / place for place in places if (folder / place).is_file()), None)


def _how_to_get(dataset: DataSet, folder: Path) -> str:
    means = (
        f"get it from {dataset.source} and put it there"
        if dataset.url is None
        else f"let it be downloaded (--download, download=True) from {dataset.source}"
    )
    return (
        f"no data for {dataset.name}: there is no file {folder / dataset.file}; {means}, or set "
        "SOFTKI_DATA to the folder that holds the data sets"
    )


def _table(path: Path, dataset: DataSet) -> tuple[np.ndarray, np.ndarray]:
    if path.suffix == ".npz":
        table = _arrays(path, "table")[0].astype(np.float64)
    elif path.suffix == ".parquet":
        table = _parquet(path)
        if dataset.name == "houseelectric":
            table[:, -1] = np.log(table[:, -1])
    else:
        table = np.loadtxt(path, delimiter=",", ndmin=2, max_rows=dataset.rows)
    table = table[: dataset.rows]
    return np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()


def _parquet(path: Path) -> np.ndarray:
    from softki.data.arrow import pa  # the one place that needs pyarrow

    columns = pa.parquet.read_table(path).columns
    return np.column_stack([column.to_numpy().astype(np.float64) for column in columns])


def _molecule(path: Path, dataset: DataSet) -> tuple[np.ndarray, np.ndarray]:
    positions, energy = _arrays(path, "R|coords", "E|energies")
    features = inverse_distances if dataset.features == "inverse" else flat_coordinates
    # Some of the published energies are (n, 1).
    return features(positions[: dataset.rows]), energy.ravel()[: dataset.rows].astype(np.float64)


def _arrays(path: Path, *keys: str) -> list[np.ndarray]:
    """The arrays of an npz file, each by the first of its names that is there."""
    with np.load(path) as file:
        found = [next((name for name in key.split("|") if name in file), None) for key in keys]
        if None in found:
            wanted = ", ".join(key.replace("|", " or ") for key in keys)
            raise ValueError(f"it must have the arrays {wanted}, and has {', '.join(file)}")
        return [file[name] for name in found]


def _check(X: np.ndarray, y: np.ndarray, path: Path, dataset: DataSet) -> None:
    if X.shape != (len(y), dataset.columns) or len(y) == 0:
        raise InvalidInputError(
            f"{path} is not {dataset.name}: it must give {dataset.columns} columns besides the "
            f"target, and gives X {X.shape} and y {y.shape}"
        )
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise InvalidInputError(f"{path} has missing or infinite values")
    if len(y) < dataset.rows:
        _log.info("%s has %d of the %d rows of %s", path, len(y), dataset.rows, dataset.name)
