"""SoftKI: as users get it, and with the settings of the paper."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import torch

from softki.bench.method import Method
from softki.bench.methods.running import noted_warnings
from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import ScaleWarning
from softki.kernels.stationary import StationaryKernel, make_kernel
from softki.model import SoftKI as Model
from softki.training.fit import Fit, fit
from softki.training.initialization import initial_points
from softki.training.settings import FitSettings, ObjectiveName
from softki.validation.parameters import check_choice


class SoftKI(Method):
    """`SoftKIRegressor()` with its defaults.

    Settings:
        points, batch_size, …: the parameters of `SoftKIRegressor`, but for `device`,
            `random_state` and `verbose`.
    """

    name = "softki"
    defaults: ClassVar[dict[str, Any]] = {
        name: value
        for name, value in SoftKIRegressor().get_params().items()
        if name not in ("device", "random_state", "verbose")
    }

    @classmethod
    def check_setting(cls, name: str, value: Any) -> None:
        """Raise `InvalidInputError` unless it is `auto` where that may be, or a value for a fit."""
        check_choice(f"setting of {cls.name}", name, cls.defaults)
        if name != "dtype" and (value != "auto" or cls.defaults[name] != "auto"):
            FitSettings(**{name: value})

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Fit the estimator."""
        self.facts = {}
        self.estimator = SoftKIRegressor(
            **self.settings, device=self.device, random_state=self.seed
        )
        with noted_warnings(self.facts):
            self.estimator.fit(X, y)
        _check_finished(self.estimator.fit_)
        self.facts.update(_facts(self.estimator.fit_))

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y."""
        mean, std = self.estimator.predict(X, return_std=True)
        return mean, std


class SoftKIPaper(Method):
    """SoftKI as the paper runs it: T starts at 1, a constant learning rate, nothing held out.

    So there is neither early stopping nor calibration.

    Settings:
        points: m, from k-means; their positions are learned.
        epochs: each of ⌊n/batch_size⌋ steps, at least one.
        learning_rate: of Adam.
        batch_size: rows a step.
    """

    name = "softki_paper"
    defaults: ClassVar[dict[str, Any]] = {
        "points": 512,
        "epochs": 50,
        "learning_rate": 0.01,
        "batch_size": 1024,
    }
    objective: ClassVar[ObjectiveName] = "stabilised"

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Train the model from T = 1."""
        self.facts = {}
        steps = self.settings["epochs"] * max(1, len(y) // self.settings["batch_size"])
        settings = FitSettings(
            points=self.settings["points"],
            objective=self.objective,
            batch_size=self.settings["batch_size"],
            steps=steps,
            learning_rate=self.settings["learning_rate"],
            point_learning_rate=self.settings["learning_rate"],
            schedule="constant",
            held_out=0.0,
            seed=self.seed,
        )
        x = torch.as_tensor(X, dtype=settings.dtype, device=self.device)
        generator = torch.Generator("cpu").manual_seed(self.seed)
        points, d = initial_points(x, settings.points, generator), x.shape[1]
        model = Model(points, make_kernel(settings.kernel, d, 5.0), torch.ones(d)).to(x.device)
        with noted_warnings(self.facts):
            # A row far out, in data that was standardised by other rows, is no mistake here.
            warnings.simplefilter("ignore", ScaleWarning)
            self.result = fit(x, torch.as_tensor(y).to(x), settings=settings, model=model)
        _check_finished(self.result)
        self.facts.update(_facts(self.result), epochs=self.settings["epochs"])

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y."""
        posterior = self.result.posterior
        mean, variance = posterior.predict(X)
        std = (variance + posterior.noise_variance).sqrt()
        return mean[:, 0].cpu().numpy(), std.cpu().numpy()


class SoftKIMLL(SoftKIPaper):
    """`softki_paper` with the log marginal likelihood alone; steps where it fails are skipped.

    Settings are those of `softki_paper`.
    """

    name = "softki_mll"
    objective = "exact"


class SoftKIHutchinson(SoftKIPaper):
    """`softki_paper` with Hutchinson's pseudoloss in every step.

    Settings are those of `softki_paper`.
    """

    name = "softki_hutchinson"
    objective = "hutchinson"


def _check_finished(result: Fit) -> None:
    """Raise if the user stopped the fit: what it has so far says nothing about the method."""
    if result.report.stopped == "interrupted":
        raise KeyboardInterrupt


def _facts(result: Fit) -> dict[str, Any]:
    """What is worth noting of a fit.

    The kernel measures in units of x/T; `lengthscale` is T times its own, in those of x.
    """
    report, model = result.report, result.model
    rows = report.rows - report.held_out_rows
    a_step = min(result.settings.batch_size or rows, rows)
    facts: dict[str, Any] = {
        "epochs": report.steps * a_step / rows,
        "training_seconds": report.seconds["training"],
        "steps": report.steps,
        "best_step": report.best_step,
        "stopped": report.stopped,
        "noise_variance": float(result.posterior.noise_variance),
        "fallbacks": dict(report.fallbacks),
        "skipped": dict(report.skipped),
        "unconverged": report.unconverged,
        "engine": report.backend,
        "precision": report.precision,
    }
    temperature, kernel = model.temperature, model.kernel
    if temperature is not None:
        facts["temperature"] = temperature.tolist()
        if isinstance(kernel, StationaryKernel):
            facts["kernel_lengthscale"] = kernel.lengthscale.tolist()
            facts["lengthscale"] = (temperature * kernel.lengthscale).tolist()
    return facts
