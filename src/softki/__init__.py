"""Gaussian-process regression by soft kernel interpolation (SoftKI)."""

from softki.batches import Batch, Data
from softki.exceptions import (
    ConvergenceWarning,
    InvalidInputError,
    NumericalError,
    SoftKIError,
    SoftKIWarning,
    TrainingWarning,
)
from softki.fitting import Fit, fit
from softki.interpolation import interpolation_weights
from softki.likelihood import log_marginal_likelihood
from softki.model import SoftKI
from softki.posterior import Function, Posterior
from softki.refit import refit, refit_scales
from softki.report import Event, FitReport, HeldOut
from softki.settings import FitSettings
from softki.statistics import GramStatistics, SquareRootStatistics, Statistics

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "ConvergenceWarning",
    "Data",
    "Event",
    "Fit",
    "FitReport",
    "FitSettings",
    "Function",
    "GramStatistics",
    "HeldOut",
    "InvalidInputError",
    "NumericalError",
    "Posterior",
    "SoftKI",
    "SoftKIError",
    "SoftKIWarning",
    "SquareRootStatistics",
    "Statistics",
    "TrainingWarning",
    "fit",
    "interpolation_weights",
    "log_marginal_likelihood",
    "refit",
    "refit_scales",
]
