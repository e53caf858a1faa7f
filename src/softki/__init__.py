"""Gaussian-process regression by soft kernel interpolation (SoftKI)."""

from softki._version import __version__
from softki.batches import Data
from softki.estimator.regressor import SoftKIRegressor
from softki.exceptions import (
    CheckpointWarning,
    ConvergenceWarning,
    InvalidInputError,
    InvalidTypeError,
    NumericalError,
    ScaleWarning,
    SoftKIError,
    SoftKIWarning,
    TrainingWarning,
)
from softki.interpolation.weights import interpolation_weights
from softki.likelihood import log_marginal_likelihood
from softki.model import SoftKI
from softki.objective.hutchinson import Hutchinson
from softki.posterior.functions import Function, Posterior
from softki.statistics import GramStatistics, SquareRootStatistics, Statistics
from softki.storage import load
from softki.training.data import TrainingData
from softki.training.fit import Fit, fit, fit_rows
from softki.training.inference import posterior_of, statistics_of
from softki.training.refit import refit, refit_scales
from softki.training.report import Event, FitReport
from softki.training.settings import FitSettings

__all__ = [
    "CheckpointWarning",
    "ConvergenceWarning",
    "Data",
    "Event",
    "Fit",
    "FitReport",
    "FitSettings",
    "Function",
    "GramStatistics",
    "Hutchinson",
    "InvalidInputError",
    "InvalidTypeError",
    "NumericalError",
    "Posterior",
    "ScaleWarning",
    "SoftKI",
    "SoftKIError",
    "SoftKIRegressor",
    "SoftKIWarning",
    "SquareRootStatistics",
    "Statistics",
    "TrainingData",
    "TrainingWarning",
    "__version__",
    "fit",
    "fit_rows",
    "interpolation_weights",
    "load",
    "log_marginal_likelihood",
    "posterior_of",
    "refit",
    "refit_scales",
    "statistics_of",
]
