"""The data sets of the comparison: how large they are, what they predict, where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from softki.validation.parameters import check_choice

_UCI = "https://github.com/treforevans/uci_datasets"
_UCI_FILES = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets"
_MD22 = "http://www.quantum-machine.org/gdml/"
_MD22_FILES = "http://www.quantum-machine.org/gdml/repo/datasets"
_RMD17 = "https://figshare.com/articles/dataset/Revised_MD17_dataset_rMD17_/12672038"
_ALKANES = "https://github.com/jmbowma/QM-22"
_SELF = "https://openreview.net/forum?id=U9b2FIjvWU"  # made by softki; see the paper


@dataclass(frozen=True)
class DataSet:
    """A data set by name.

    Attributes:
        name: lower case; `NAME/inverse` has other features of the same molecule.
        group: the sets that belong together, for `select`.
        rows: of the whole set, before any split; no more are read.
        columns: of the inputs.
        target: what is predicted, in words.
        source: the public page.
        file: its place in the data folder; empty if it is made on the spot.
        kind: of the file.
        url: of the file, if it can be downloaded as it is.
        sha256: of the file at the address; None where it is not known.
        note: what one should know before comparing numbers.
        features: of molecules, what the columns are.
    """

    name: str
    group: str
    rows: int
    columns: int
    target: str
    source: str
    file: str
    kind: Literal["csv", "npz", "synthetic"]
    url: str | None = None
    sha256: str | None = None
    note: str = ""
    features: Literal["columns", "coordinates", "inverse"] = "columns"


def select(names: str) -> list[DataSet]:
    """The data sets of a list of names and groups, in its order, none twice.

    Example:
        >>> [dataset.name for dataset in select("pol,alkanes,c14,aspirin/inverse")]
        ['pol', 'c10', 'c14', 'c15', 'aspirin/inverse']
    """
    groups = list(dict.fromkeys(dataset.group for dataset in REGISTRY.values()))
    chosen: dict[str, DataSet] = {}
    for name in (part.strip() for part in names.split(",")):
        check_choice("data set", name, [*groups, *REGISTRY])
        for dataset in REGISTRY.values():
            if name in (dataset.name, dataset.group):
                chosen[dataset.name] = dataset
    return list(chosen.values())


def _tables() -> Iterator[DataSet]:
    for group, name, rows, columns, target in (
        ("uci", "3droad", 434_874, 3, "altitude of a road"),
        ("uci", "kin40k", 40_000, 8, "distance of a robot's hand from a point"),
        ("uci", "protein", 45_730, 9, "deviation of a protein's structure, as a logarithm"),
        ("uci", "houseelectric", 2_049_280, 11, "logarithm of the active power of a household"),
        ("uci", "bike", 17_379, 17, "logarithm of the bikes rented in an hour"),
        ("uci", "elevators", 16_599, 18, "action on the elevators of an aircraft"),
        ("uci", "keggdirected", 48_827, 20, "a statistic of a metabolic network"),
        ("uci", "pol", 15_000, 26, "a setting in telecommunication"),
        ("uci", "keggundirected", 63_608, 27, "a statistic of a metabolic network"),
        ("uci", "buzz", 583_250, 77, "attention to a topic in a social network"),
        ("uci", "song", 300_000, 90, "year of a song"),
        ("uci", "slice", 53_500, 385, "place of a CT slice along the body"),
        ("small", "airfoil", 1_503, 5, "sound pressure level of an airfoil"),
        ("small", "concrete", 1_030, 8, "compressive strength of concrete"),
        ("small", "energy", 768, 8, "heating load of a building"),
        ("small", "pumadyn32nm", 8_192, 32, "acceleration of a robot's joint"),
    ):
        file, url = f"uci/{name}.csv.gz", f"{_UCI_FILES}/{name}/data.csv.gz"
        sha256, note = _SHA256.get(name), _NOTES.get(name, "")
        yield DataSet(name, group, rows, columns, target, _UCI, file, "csv", url, sha256, note)


_NOTES = {
    "houseelectric": "rows are in time order; a Parquet file has the power itself as last column",
    "bike": "the target is almost a function of the inputs",
    "keggdirected": "two thirds of the rows repeat an input row",
    "keggundirected": "two thirds of the rows repeat an input row; one column is constant",
    "song": "the first file of two, as in the paper; the collection has 515,345 rows",
}

# As the collection gave them while its files were kept in Git LFS; song was one file then.
_SHA256 = {
    "3droad": "23b4995cca12fca521056cee7d5055ca28bea6a4fcae53259069650b448e1b51",
    "kin40k": "9bee7f2a9f39aa61a015f239378368601fb3978c5bb9a96433e88a55d40883ba",
    "protein": "f709d0107c3ee90ab019b9e5d77fc2ae182158958cb70b1903236a51334fd01b",
    "houseelectric": "4bfa1f7375cac4015ee3a6624fdd3404671abb78f98f1fe2cdfb01cff69a648a",
    "bike": "411f76ae426c0e348a2629dcf6b3b29102c7db465eae780a3454c39db1dfac4f",
    "elevators": "e39bc18a80ec3611e4fd76d0f86ee377e96ba21b568b9997576d538dafe56b7b",
    "keggdirected": "51b7bb56e3f3eae36273cdd5a549c042bdf0ec10948a6f8e6b01a1d6912212cd",
    "pol": "1c16126352954571e78f52d5a9d1b947a38655885d7cadd9407a4c9615fe4e04",
    "keggundirected": "117419270e50f581df18bf996ffc8b6bf1bb76c9f3640331ac9d6e64cff63d4e",
    "buzz": "35813e6fa09f8ef6b94e57151a5a213e9bbb16021cf209636f6d9b8cc2270785",
    "slice": "b2d06cf49aa324bdaac9402dece6a1fafe519253400fcf9773c38f2b59e76609",
    "airfoil": "1cce82516ac9e564fba52f55d817eb147fc39085f5d7b958ad15b92f4207f23e",
    "concrete": "542c5d9a0d301bdb47550280398dcbbe2fb8404631fc945de1ea6df9ade741c6",
    "energy": "431b6df04243db782bbcd45e408373a654334496ebe5d9c9985ab2e826a39f51",
    "pumadyn32nm": "10d1698944e0f6e586f2781e4b62c17c05174d4c6cdb6fb824a3e5a1b3630ae4",
}


def _molecules() -> Iterator[DataSet]:
    of_md22, of_rmd17, of_alkanes = [], [], []
    for name, rows, atoms, published in (
        ("ac-ala3-nhme", 85_109, 42, "Ac-Ala3-NHMe"),
        ("dha", 69_753, 56, "DHA"),
        ("stachyose", 27_272, 87, "stachyose"),
        ("at-at", 20_001, 60, "AT-AT"),
        ("at-at-cg-cg", 10_153, 118, "AT-AT-CG-CG"),
        ("buckyball-catcher", 6_102, 148, "buckyball-catcher"),
        ("dw-nanotube", 5_032, 370, "double-walled_nanotube"),
    ):
        note = "60 atoms: the d of the paper's tables is wrong" if name == "at-at" else ""
        file = f"md22_{published}.npz"
        dataset = _molecule("md22", name, rows, atoms, _MD22, file, note)
        of_md22.append(replace(dataset, url=f"{_MD22_FILES}/{file}"))
    for name, atoms in (
        ("aspirin", 21),
        ("azobenzene", 24),
        ("benzene", 12),
        ("ethanol", 9),
        ("malonaldehyde", 9),
        ("naphthalene", 18),
        ("paracetamol", 20),
        ("salicylic", 16),
        ("toluene", 15),
        ("uracil", 12),
    ):
        rows = 99_988 if name == "azobenzene" else 100_000
        note = "a file of 9,633 frames holds those of the official splits alone"
        file = f"rmd17_{name}.npz"
        of_rmd17.append(_molecule("rmd17", name, rows, atoms, _RMD17, file, note))
    for name, rows, atoms in (("c10", 2_530, 32), ("c14", 3_196, 44), ("c15", 3_212, 47)):
        file, note = f"qm22_alkane_{name}.npz", "made from the text files in C14H30/testing"
        of_alkanes.append(_molecule("alkanes", name, rows, atoms, _ALKANES, file, note))
    for group in (of_md22, of_rmd17, of_alkanes):
        yield from group
        yield from (_with_inverse_distances(dataset) for dataset in group)


def _molecule(
    group: str, name: str, rows: int, atoms: int, source: str, file: str, note: str
) -> DataSet:
    return DataSet(
        name,
        group,
        rows,
        columns=3 * atoms,
        target="energy of the molecule, kcal/mol",
        source=source,
        file=f"molecules/{file}",
        kind="npz",
        note=note,
        features="coordinates",
    )


def _with_inverse_distances(dataset: DataSet) -> DataSet:
    atoms = dataset.columns // 3
    return replace(
        dataset,
        name=f"{dataset.name}/inverse",
        group=f"{dataset.group}/inverse",
        columns=atoms * (atoms - 1) // 2,
        features="inverse",
    )


def _synthetic() -> Iterator[DataSet]:
    for name, rows, columns, target, note in (
        # 90% of these rows are the paper's 3,000 training rows.
        ("ricker", 3_334, 2, "Ricker wavelet", "the paper has 3,000 training and 200 test rows"),
        ("robot_arm", 20_000, 8, "reach of a robot arm", ""),
        ("large_n", 1_000_000, 10, "smooth function of three directions", ""),
        ("large_d", 10_000, 1_000, "smooth function of three directions", ""),
    ):
        kind: Literal["synthetic"] = "synthetic"
        yield DataSet(name, "synthetic", rows, columns, target, _SELF, "", kind, note=note)


REGISTRY: dict[str, DataSet] = {
    dataset.name: dataset for make in (_tables, _molecules, _synthetic) for dataset in make()
}
