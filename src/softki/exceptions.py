"""The errors and warnings of softki: all derive from `SoftKIError` or `SoftKIWarning`."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType


class SoftKIError(Exception):
    """Base of every error that softki raises on purpose."""


class InvalidInputError(SoftKIError, ValueError):
    """Data or a parameter that cannot be used; the message names it and says what to do."""


class InvalidTypeError(InvalidInputError, TypeError):
    """Data of a type that cannot be used; the message says how to convert it."""


class NumericalError(SoftKIError, ArithmeticError):
    """A factorisation failed or a result is not finite; the message says which and why."""


class ProcessError(SoftKIError, RuntimeError):
    """Another process of the fit died, left or did not answer; the message names it if it can."""


class SoftKIWarning(UserWarning):
    """Base of every warning that softki gives."""


class TrainingWarning(SoftKIWarning):
    """Training ended early or in an unusual way; the fit that is returned is the best so far."""


class CheckpointWarning(SoftKIWarning):
    """A checkpoint cannot be read or written; the fit goes on without it."""


class ScaleWarning(SoftKIWarning):
    """The data is far from standardised, which a fit expects."""


class ConvergenceWarning(SoftKIWarning):
    """An iterative solver stopped before it reached its tolerance."""


def warn_caller(message: str, category: type[SoftKIWarning]) -> None:
    """Warn at the line that called softki, however deep within softki the reason was found."""
    package = os.path.dirname(__file__)
    frame: FrameType | None = sys._getframe(1)
    depth = level = 2
    while frame is not None:
        depth += 1
        if frame.f_code.co_filename.startswith(package):
            level = depth
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)
