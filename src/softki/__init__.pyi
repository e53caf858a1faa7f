"""The public names, from the modules that they are loaded from when they are first used."""

from ._version import __version__
from .batches import Data
from .estimator.files import load
from .estimator.regressor import SoftKIRegressor
from .exceptions import (
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
from .interpolation.weights import interpolation_weights
from .likelihood import log_marginal_likelihood
from .model import SoftKI
from .objective.hutchinson import Hutchinson
from .posterior.functions import Function, Posterior
from .statistics import GramStatistics, SquareRootStatistics, Statistics
from .training.data import TrainingData
from .training.fit import Fit, fit, fit_rows
from .training.inference import posterior_of, statistics_of
from .training.refit import refit, refit_scales
from .training.report import Event, FitReport
from .training.settings import FitSettings

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
