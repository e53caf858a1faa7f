"""Pictures of a fitted estimator, in the style of scikit-learn's displays.

A display holds the numbers of a picture. `from_estimator` computes them and draws; `plot` draws
them again, for example on other axes. Everything is in the user's units. matplotlib is imported
when something is drawn: `pip install 'softki[plot]'`.
"""

from softki.plots.calibration import CalibrationDisplay
from softki.plots.points import PointsDisplay
from softki.plots.predictions import PredictionDisplay, ResidualDisplay
from softki.plots.relevance import RelevanceDisplay
from softki.plots.slices import Slice, SliceDisplay
from softki.plots.training import TrainingDisplay

__all__ = [
    "CalibrationDisplay",
    "PointsDisplay",
    "PredictionDisplay",
    "RelevanceDisplay",
    "ResidualDisplay",
    "Slice",
    "SliceDisplay",
    "TrainingDisplay",
]
