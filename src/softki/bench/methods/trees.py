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
# The spread of trees out of bag is looked at for this many rows, at most.
_OUT_OF_BAG_ROWS = 50_000


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
    """scikit-learn's extremely randomised trees, each on a bootstrap sample.

    The rows that a tree has not seen tell two numbers: e², the mean squared error of the
    mean of the trees, and s̄, the mean of their variance s(x). The variance at x is

        e² (½ + ½ s(x)/s̄):

    on average the error that was seen, larger where the trees disagree.

    Settings:
        trees: how many.
    """

    name = "extra_trees"
    defaults: ClassVar[dict[str, Any]] = {"trees": 100}

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Grow the trees, and see how they do out of bag."""
        self._forest = ExtraTreesRegressor(
            self.settings["trees"], bootstrap=True, n_jobs=-1, random_state=self.seed
        ).fit(X, y)
        rng = np.random.default_rng(self.seed)
        rows = rng.permutation(len(y))[:_OUT_OF_BAG_ROWS]
        unseen = np.ones((self.settings["trees"], len(rows)), dtype=bool)
        for out, sample in zip(unseen, self._forest.estimators_samples_, strict=True):
            seen = np.zeros(len(y), dtype=bool)
            seen[sample] = True
            out[:] = ~seen[rows]
        mean, spread = self._moments(X[rows], unseen)
        known = np.isfinite(spread)  # rows that two trees or more have not seen
        self._error = float(np.mean((y[rows] - mean)[known] ** 2))
        self._spread = float(np.mean(spread[known]))
        self.facts = {"out_of_bag_rmse": self._error**0.5, "mean_spread": self._spread**0.5}

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the trees, and the root of the variance above."""
        mean, spread = self._moments(X, np.ones((self.settings["trees"], len(X)), dtype=bool))
        relative = spread / self._spread if self._spread > 0 else np.ones_like(spread)
        return mean, np.sqrt(np.maximum(self._error * (1 + relative) / 2, _MIN_VARIANCE))

    def _moments(self, X: np.ndarray, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance over the trees that are counted for a row: counted (trees, rows)."""
        total, square = np.zeros(len(X)), np.zeros(len(X))
        for tree, included in zip(self._forest.estimators_, counted, strict=True):
            values = np.where(included, tree.predict(X), 0.0)
            total += values
            square += values**2
        count = counted.sum(0).astype(float)
        count[count < 2] = np.nan
        mean = total / count
        return mean, np.maximum(square / count - mean**2, 0.0) * count / (count - 1)
