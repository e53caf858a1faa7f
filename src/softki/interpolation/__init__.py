"""Softmax interpolation weights, the features of SoftKI, and the backends that compute them."""

from softki.interpolation.weights import interpolation_weights

__all__ = ["interpolation_weights"]
