"""`SoftKIRegressor` as a document and tensors, which `softki.storage` keeps in a file."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import nn

from softki import storage
from softki.estimator.regressor import SoftKIRegressor
from softki.kernels import kernel_matrix
from softki.model import SoftKI
from softki.posterior.functions import Posterior
from softki.storage.estimator_file import Document, Form, Tensors, register
from softki.training.documents import (
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


def load(path: str | PathLike[str], device: str | torch.device = "auto") -> SoftKIRegressor:
    """The estimator that `SoftKIRegressor.save` wrote.

    Args:
        path: name of the file.
        device: device to predict on: `auto` (CUDA if there is one, else CPU), or a torch device.
    """
    estimator: SoftKIRegressor = storage.load(path, device)
    return estimator


@torch.no_grad()
def _contents(estimator: SoftKIRegressor) -> tuple[Document, Tensors]:
    """The document and every tensor of a fit by name; that of a foreign kernel is k(z, z)."""
    fit, names = estimator.fit_, getattr(estimator, "feature_names_in_", None)
    parameters = SoftKIRegressor._get_param_names()
    document = {
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
    parts: dict[str, dict[str, Any]] = {
        "model": _model_tensors(fit.model),
        "posterior": vars(fit.posterior),
        "statistics": vars(fit.statistics),
        "x": vars(estimator.x_standardizer_),
        "y": vars(estimator.y_standardizer_),
    }
    return document, {
        f"{part}.{name}": value
        for part, values in parts.items()
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }


def _restored(document: Document, tensors: Tensors) -> SoftKIRegressor:
    """The estimator of a document and tensors."""
    parts: dict[str, Tensors] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = tensor
    estimator = SoftKIRegressor(**parameters_of(document["parameters"]))
    estimator.n_features_in_ = document["n_features"]
    if document["columns"] is not None:
        estimator.feature_names_in_ = np.array(document["columns"], dtype=object)
    estimator.fit_ = Fit(
        model=_model(document, parts["model"]),
        posterior=_posterior(parts["posterior"]),
        statistics=statistics_of(document["statistics"], parts["statistics"]),
        report=report_of(document["report"]),
        settings=settings_of(document["settings"]),
        held_out=torch.empty(0, dtype=torch.long, device="cpu"),
    )
    estimator.x_standardizer_ = Standardizer(**{k: v.cpu() for k, v in parts["x"].items()})
    estimator.y_standardizer_ = Standardizer(**{k: v.cpu() for k, v in parts["y"].items()})
    estimator.noise_unit_ = document["noise_unit"]
    estimator.single_target_ = document["single_target"]
    estimator.feature_relevance_ = np.array(document["feature_relevance"])
    estimator.n_iter_ = estimator.fit_.report.steps
    return estimator


def _model_tensors(model: SoftKI) -> Tensors:
    tensors = model.state_dict()
    if is_own(model.kernel):
        return tensors
    rest = {name: value for name, value in tensors.items() if not name.startswith("kernel.")}
    return rest | {"kernel_matrix": kernel_matrix(model.kernel, model.points)}


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


register(Form(SoftKIRegressor, _contents, _restored))
