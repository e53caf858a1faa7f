"""What people use on tables instead of a GP: boosted and randomised trees, with error bars."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict

from softki.bench.method import Method

# As the noise variance of the GPs, no variance is smaller.
_MIN_VARIANCE = 1e-6
_FOLDS = 5
# Two numbers need no more rows than this: with them, the remaining folds are left out.
_HELD_OUT_ROWS = 50_000


class HistGradientBoosting(Method):
    """scikit-learn's histogram gradient boosting.

    The variance is a second model: the squared errors of predictions from five-fold
    cross-validation, r², are boosted with a gamma loss, whose prediction is E(r² | x). It
    counts noise and error of the mean alike, and nothing it learns from was fitted.

    Settings:
        iterations: trees, at most; each model stops early on a tenth of its rows.
        learning_rate: of the boosting.
    """

    name = "hist_gradient_boosting"
    cpu_only = True
    defaults: ClassVar[dict[str, Any]] = {"iterations": 500, "learning_rate": 0.1}

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Boost the mean, then the variance."""
        folds = KFold(_FOLDS, shuffle=True, random_state=self.seed)
        errors = y - cross_val_predict(self._model("squared_error"), X, y, cv=folds)
        self._mean = self._model("squared_error").fit(X, y)
        self._variance = self._model("gamma").fit(X, errors**2 + _MIN_VARIANCE)
        self.facts = {
            "iterations": int(self._mean.n_iter_),
            "variance_iterations": int(self._variance.n_iter_),
        }

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean, and root of the second model's prediction."""
        variance = np.maximum(self._variance.predict(X), _MIN_VARIANCE)
        return self._mean.predict(X), np.sqrt(variance)

    def _model(self, loss: str) -> HistGradientBoostingRegressor:
        return HistGradientBoostingRegressor(
            loss=loss,
            learning_rate=self.settings["learning_rate"],
            max_iter=self.settings["iterations"],
            early_stopping=True,
            random_state=self.seed,
        )


class ExtraTrees(Method):
    """scikit-learn's extremely randomised trees, each on all rows.

    Such trees have no error on their own rows. So five-fold cross-validation, by as many folds
    as hold out 50,000 rows, tells two numbers: e², the mean squared error of the mean of the
    trees, and s̄, the mean of their variance s(x). The variance at x is

        e² (½ + ½ s(x)/s̄):

    on average the error that was seen, larger where the trees disagree.

    Settings:
        trees: how many.
    """

    name = "extra_trees"
    cpu_only = True
    defaults: ClassVar[dict[str, Any]] = {"trees": 100}

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Grow the trees, and others on parts of the rows to see how they do on the rest."""
        errors, spreads, rows = [], [], 0
        for seen, unseen in KFold(_FOLDS, shuffle=True, random_state=self.seed).split(X):
            mean, spread = _moments(self._forest().fit(X[seen], y[seen]), X[unseen])
            errors.append((y[unseen] - mean) ** 2)
            spreads.append(spread)
            rows += len(unseen)
            if rows >= _HELD_OUT_ROWS:
                break
        self._error = float(np.mean(np.concatenate(errors)))
        self._spread = float(np.mean(np.concatenate(spreads)))
        self._trees = self._forest().fit(X, y)
        self.facts = {
            "held_out_rmse": self._error**0.5,
            "held_out_rows": rows,
            "mean_spread": self._spread**0.5,
        }

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the trees, and the root of the variance above."""
        mean, spread = _moments(self._trees, X)
        relative = spread / self._spread if self._spread > 0 else np.ones_like(spread)
        return mean, np.sqrt(np.maximum(self._error * (1 + relative) / 2, _MIN_VARIANCE))

    def _forest(self) -> ExtraTreesRegressor:
        return ExtraTreesRegressor(self.settings["trees"], n_jobs=-1, random_state=self.seed)


def _moments(forest: ExtraTreesRegressor, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the predictions of the trees, each (n,)."""
    mean, square = np.zeros(len(X)), np.zeros(len(X))
    for count, tree in enumerate(forest.estimators_, start=1):
        step = tree.predict(X) - mean
        mean += step / count
        square += step * (step - step / count)  # Welford's update
    return mean, square / max(1, len(forest.estimators_) - 1)
