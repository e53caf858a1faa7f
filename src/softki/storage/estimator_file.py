"""A fitted estimator in one file, and back: tensors and JSON, no code, no training rows.

The file is that of `softki.files.container`. It holds what is needed to predict, with the same
bits as before on the same machine, and to add rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from softki._version import __version__
from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.files.atomic import write_atomically
from softki.files.container import placed, rows_first, seal, strides_of, unseal
from softki.kernels.matrix import kernel_matrix
from softki.model import SoftKI
from softki.posterior.functions import Posterior
from softki.training.documents import (
    Document,
    StoredKernel,
    is_own,
    kernel_document,
    kernel_of,
    parameters_document,
    parameters_of,
    report_document,
    report_of,
    settings_of,
    statistics_document,
    statistics_of,
)
from softki.training.fit import Fit
from softki.training.standardize import Standardizer
from softki.validation.inputs import checked_device

Tensors = dict[str, Tensor]


def save(
    estimator: SoftKIRegressor,
    path: str | PathLike[str],
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted estimator to one file; an old file is replaced only by a complete new one.

    Args:
        estimator: fitted.
        path: of the file, by custom with the ending `.softki`.
        extra: anything in JSON to be kept with it, for `read_metadata`.

    Example:
        >>> import tempfile
        >>> X = np.linspace(0, 6, 100)[:, None]
        >>> model = SoftKIRegressor(points=16, steps=50, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/sine.softki")
        ...     again = load(f"{folder}/sine.softki")
        >>> bool((again.predict(X) == model.predict(X)).all())
        True
    """
    if not isinstance(estimator, SoftKIRegressor):
        raise InvalidTypeError(f"save takes a SoftKIRegressor, got {type(estimator).__name__}")
    check_is_fitted(estimator)
    tensors = _tensors(estimator)
    document = _document(estimator) | {
        "strides": strides_of(tensors),
        "extra": _checked_extra(extra),
    }
    write_atomically(path, seal(document, rows_first(tensors)))


def load(path: str | PathLike[str], device: str | torch.device = "auto") -> SoftKIRegressor:
    """The estimator that `save` wrote.

    Args:
        path: of the file.
        device: to predict on: `auto` (CUDA if there is a device, else CPU), or a torch device.
    """
    return load_with_metadata(path, device)[0]


@torch.inference_mode(False)
@torch.no_grad()
def load_with_metadata(
    path: str | PathLike[str], device: str | torch.device = "auto"
) -> tuple[SoftKIRegressor, Document]:
    """The estimator, and what `read_metadata` gives, from one reading of the file."""
    place, file = checked_device(device), unseal(path)
    if "checkpoint" in file.document:
        raise InvalidInputError(
            f"{path} is a checkpoint of a fit that was not done: to go on with it, fit again with "
            "its folder as checkpoint"
        )
    try:
        tensors = placed(file.tensors(), file.document["strides"], place)
        return _estimator(file.document, tensors), file.document
    except torch.cuda.OutOfMemoryError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise InvalidInputError(
            f"{path} was written by softki {file.document.get('softki')}, and softki "
            f"{__version__} cannot read it: {error}"
        ) from error


def read_metadata(path: str | PathLike[str]) -> Document:
    """All of a file but its tensors.

    The keys are `softki` (the version that wrote it), `columns` (names, or None), `n_features`,
    `single_target`, `noise_unit`, `feature_relevance`, `parameters` (of the constructor),
    `settings`, `kernel` (as learned), `jitter`, `statistics`, `report` (in units of the
    standardised target), `strides`, and `extra`, as it was given to `save`, or empty.
    """
    return unseal(path).document


def _document(estimator: SoftKIRegressor) -> Document:
    fit, names = estimator.fit_, getattr(estimator, "feature_names_in_", None)
    parameters = SoftKIRegressor._get_param_names()
    return {
        "softki": __version__,
        "columns": None if names is None else [str(name) for name in names],
        "n_features": int(estimator.n_features_in_),
        "single_target": bool(estimator.single_target_),
        "noise_unit": estimator.noise_unit_,
        "feature_relevance": estimator.feature_relevance_.tolist(),
        "parameters": parameters_document({name: getattr(estimator, name) for name in parameters}),
        "settings": parameters_document(vars(fit.settings)),
        "kernel": kernel_document(fit.model.kernel),
        "jitter": float(fit.model.jitter),
        "statistics": statistics_document(fit.statistics),
        "report": report_document(fit.report),
    }


def _estimator(document: Document, tensors: Tensors) -> SoftKIRegressor:
    estimator = SoftKIRegressor(**parameters_of(document["parameters"]))
    estimator.n_features_in_ = document["n_features"]
    if document["columns"] is not None:
        estimator.feature_names_in_ = np.array(document["columns"], dtype=object)
    estimator.fit_ = Fit(
        model=_model(document, _part(tensors, "model")),
        posterior=_posterior(_part(tensors, "posterior")),
        statistics=statistics_of(document["statistics"], _part(tensors, "statistics")),
        report=report_of(document["report"]),
        settings=settings_of(document["settings"]),
        held_out=torch.empty(0, dtype=torch.long, device="cpu"),
    )
    estimator.x_standardizer_ = _standardizer(_part(tensors, "x"))
    estimator.y_standardizer_ = _standardizer(_part(tensors, "y"))
    estimator.noise_unit_ = document["noise_unit"]
    estimator.single_target_ = document["single_target"]
    estimator.feature_relevance_ = np.array(document["feature_relevance"])
    estimator.n_iter_ = estimator.fit_.report.steps
    return estimator


@torch.no_grad()
def _tensors(estimator: SoftKIRegressor) -> Tensors:
    """Every tensor of a fit by name; that of a foreign kernel is k(z, z)."""
    fit, model = estimator.fit_, estimator.fit_.model
    parts: dict[str, dict[str, Any]] = {
        "model": model.state_dict(),
        "posterior": vars(fit.posterior),
        "statistics": vars(fit.statistics),
        "x": vars(estimator.x_standardizer_),
        "y": vars(estimator.y_standardizer_),
    }
    if not is_own(model.kernel):
        rest = {k: v for k, v in parts["model"].items() if not k.startswith("kernel.")}
        parts["model"] = rest | {"kernel_matrix": kernel_matrix(model.kernel, model.points)}
    return {
        f"{part}.{name}": value
        for part, values in parts.items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def _model(document: Document, tensors: Tensors) -> SoftKI:
    points, temperature = tensors["points"], tensors.get("log_temperature")
    kernel: nn.Module
    if "stored" in document["kernel"]:
        kernel = StoredKernel(document["kernel"]["stored"], points, tensors.pop("kernel_matrix"))
    else:
        kernel = kernel_of(document["kernel"])
    start = None if temperature is None else torch.ones_like(temperature)
    model = SoftKI(points, kernel, start, jitter=document["jitter"]).to(points.device)
    buffers = {f"kernel.{name}": value for name, value in kernel.named_buffers()}
    model.load_state_dict(tensors | buffers)
    return model


def _posterior(tensors: Tensors) -> Posterior:
    return Posterior(temperature=tensors.pop("temperature", None), **tensors)


def _standardizer(tensors: Tensors) -> Standardizer:
    return Standardizer(**{name: tensor.cpu() for name, tensor in tensors.items()})


def _part(tensors: Tensors, part: str) -> Tensors:
    prefix = f"{part}."
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _checked_extra(extra: Mapping[str, Any] | None) -> Document:
    if extra is None:
        return {}
    if not isinstance(extra, Mapping):
        raise InvalidTypeError(f"extra must be a mapping, got {type(extra).__name__}")
    try:
        json.dumps(dict(extra))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"extra must hold nothing but JSON: {error}") from error
    return dict(extra)
