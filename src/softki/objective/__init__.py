"""The objectives of training: the exact log marginal likelihood, or Hutchinson's pseudoloss."""

from softki.objective.exact_likelihood import Adjoint, Objective, Stabilised, backward, exact
from softki.objective.hutchinson import Hutchinson

__all__ = ["Adjoint", "Hutchinson", "Objective", "Stabilised", "backward", "exact"]
