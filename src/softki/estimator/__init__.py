"""`SoftKIRegressor`: soft kernel interpolation as a scikit-learn estimator."""

from softki.estimator.regressor import SoftKIRegressor

__all__ = ["SoftKIRegressor"]
