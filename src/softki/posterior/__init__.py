"""The posterior of the function: mean, variance, draws and gradients."""

from softki.posterior.functions import Function, Posterior

__all__ = ["Function", "Posterior"]
