"""The state of a running fit as documents: JSON and named tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from softki.exceptions import InvalidInputError
from softki.kernels.stationary import KERNELS, Kernel, StationaryKernel
from softki.posterior.calibration import Calibration
from softki.statistics import GramStatistics, SquareRootStatistics, Statistics
from softki.training.report import FitReport, HeldOut, Trial
from softki.training.settings import FitSettings

State = dict[str, Any]
"""The state of a running fit: plain values and tensors by name, nested."""

Document = dict[str, Any]


def without_tensors(state: State, path: str = "") -> tuple[Document, dict[str, Tensor]]:
    """The plain values of a nested state, and its tensors by their paths.

    Example:
        >>> document, tensors = without_tensors({"step": 3, "model": {"points": torch.zeros(2)}})
        >>> document, list(tensors)
        ({'step': 3, 'model': {}}, ['model/points'])
    """
    document: Document = {}
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        if isinstance(value, Tensor):
            tensors[f"{path}{name}"] = value
        elif isinstance(value, dict):
            document[name], more = without_tensors(value, f"{path}{name}/")
            tensors |= more
        else:
            document[name] = value
    return document, tensors


def with_tensors(document: Document, tensors: Mapping[str, Tensor]) -> State:
    """The nested state that `without_tensors` has taken apart, in place of the document."""
    for path, tensor in tensors.items():
        *names, last = path.split("/")
        part = document
        for name in names:
            part = part[name]
        part[last] = tensor
    return document


_FORMS: dict[str, type[Statistics]] = {"gram": GramStatistics, "square root": SquareRootStatistics}


def parameters_document(parameters: dict[str, Any]) -> Document:
    """Parameters of a constructor in JSON.

    A generator of random numbers and the folder of checkpoints become None; an object in the
    place of a name, a description.

    Example:
        >>> parameters_document({"points": 8, "kernel": "rbf", "dtype": torch.float32})
        {'points': 8, 'kernel': 'rbf', 'dtype': 'float32'}
    """
    return {name: _parameter(name, value) for name, value in parameters.items()}


def parameters_of(document: Document) -> dict[str, Any]:
    """The parameters that `parameters_document` wrote."""
    return {name: _value(name, value) for name, value in document.items()}


def settings_of(document: Document) -> FitSettings:
    """The settings whose `vars` became the document."""
    parameters = parameters_of(document)
    return FitSettings(**(parameters | {"dtype": getattr(torch, parameters["dtype"])}))


def is_own(kernel: Any) -> bool:
    """True for a kernel of softki, which a file can hold."""
    return type(kernel) in KERNELS.values()


def kernel_document(kernel: Any) -> Document:
    """One of softki's kernels with its parameters, or the description of any other."""
    if not is_own(kernel):
        return {"stored": describe(kernel)}
    return {
        "name": next(name for name, kind in KERNELS.items() if kind is type(kernel)),
        "max_lengthscale": float(kernel.max_lengthscale),
        "parameters": {name: value.tolist() for name, value in kernel.named_parameters()},
        "frozen": [name for name, value in kernel.named_parameters() if not value.requires_grad],
    }


def kernel_of(document: Document) -> StationaryKernel:
    """The kernel of softki that `kernel_document` wrote."""
    values = {
        name: torch.tensor(value, dtype=torch.float64, device="cpu")
        for name, value in document["parameters"].items()
    }
    cap = document["max_lengthscale"]
    dimension = len(values["raw_lengthscale"])
    kernel = KERNELS[document["name"]](dimension, lengthscale=cap / 2, max_lengthscale=cap)
    kernel.load_state_dict(values)
    for name, parameter in kernel.named_parameters():
        parameter.requires_grad_(name not in document["frozen"])
    return kernel


def statistics_document(statistics: Statistics) -> Document:
    """The form of the statistics and their numbers, without the tensors."""
    form = next(name for name, kind in _FORMS.items() if type(statistics) is kind)
    numbers = {k: v for k, v in vars(statistics).items() if not torch.is_tensor(v)}
    return {"form": form, **numbers}


def statistics_of(document: Document, tensors: dict[str, Tensor]) -> Statistics:
    """The statistics from what `statistics_document` wrote and their tensors."""
    fields: dict[str, Any] = {k: v for k, v in document.items() if k != "form"} | tensors
    return _FORMS[document["form"]](**fields)


def report_document(report: FitReport) -> Document:
    """The report in JSON."""
    calibration = report.calibration
    return vars(report) | {
        "history": [
            asdict(figures) | {"calibration": figures.calibration._asdict()}
            for figures in report.history
        ],
        "trials": [trial._asdict() for trial in report.trials],
        "calibration": None if calibration is None else calibration._asdict(),
    }


# What fields of a report were called in files of earlier versions.
_FORMER_NAMES = {"engine": "backend"}


def report_of(document: Document) -> FitReport:
    """The report that `report_document` wrote."""
    calibration = document["calibration"]
    rebuilt: dict[str, Any] = {
        "history": [
            HeldOut(**(figures | {"calibration": Calibration(**figures["calibration"])}))
            for figures in document["history"]
        ],
        "trials": [Trial(**trial) for trial in document.get("trials", [])],
        "fallbacks": Counter(document["fallbacks"]),
        "skipped": Counter(document["skipped"]),
        "calibration": None if calibration is None else Calibration(**calibration),
    }
    rest = {_FORMER_NAMES.get(name, name): value for name, value in document.items()}
    return FitReport(**(rest | rebuilt))


def _parameter(name: str, value: Any) -> Any:
    if name == "kernel" and not isinstance(value, str):
        return kernel_document(value)
    if name == "objective" and not isinstance(value, str):
        return {"stored": describe(value)}
    if name == "random_state" and not isinstance(value, Integral):
        return None
    if name == "checkpoint":  # a folder on this machine, for the fit that is done
        return None
    if isinstance(value, torch.device | torch.dtype):
        return str(value).removeprefix("torch.")
    return value


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "stored" not in value:
        return kernel_of(value)
    return (StoredKernel if name == "kernel" else StoredObjective)(value["stored"])


class StoredKernel(Kernel):
    """The covariance of a kernel between the points of one fit, and no other.

    All that a fitted model needs of its kernel is k(z, z), for the points no longer move.

    Args:
        description: description of the kernel it stands for.
        points: z, (m, d); none for a kernel that is only a parameter.
        matrix: k(z, z), (m, m).
    """

    points: Tensor
    matrix: Tensor

    def __init__(
        self, description: str, points: Tensor | None = None, matrix: Tensor | None = None
    ) -> None:
        super().__init__()
        self.description = description
        nothing = torch.empty(0, 0, dtype=torch.float64, device="cpu")
        self.register_buffer("points", nothing if points is None else points)
        self.register_buffer("matrix", nothing if matrix is None else matrix)

    def forward(self, z: Tensor) -> Tensor:
        """k(z, z) for the points of the fit."""
        if not torch.equal(z, self.points):
            raise InvalidInputError(
                f"the kernel {self.description} was not stored, only its covariance between the "
                "points of the fit: to fit again, give the kernel, as in set_params(kernel=…)"
            )
        return self.matrix

    def __repr__(self) -> str:
        return f"StoredKernel({self.description!r})"


class StoredObjective:
    """The name of an objective that was used for a fit; it cannot be used for another.

    Args:
        description: description of the objective it stands for.
    """

    def __init__(self, description: str) -> None:
        self.description = description

    def __call__(self, *arguments: Any) -> Any:
        """Raise: the objective was not stored."""
        raise InvalidInputError(
            f"the objective {self.description} was not stored: to fit again, give it, as in "
            "set_params(objective=…)"
        )

    def __repr__(self) -> str:
        return f"StoredObjective({self.description!r})"


def describe(value: Any) -> str:
    """One line about the object; of a stand-in, about what it stands for.

    Example:
        >>> describe(StoredObjective("Mine()"))
        'Mine()'
    """
    if isinstance(value, StoredKernel | StoredObjective):
        return value.description
    return " ".join(repr(value).split())
