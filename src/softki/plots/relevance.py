"""The relevance of the columns of X to the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softki.estimator.rows import feature_names
from softki.plots._axes import MODEL, one_axes
from softki.plots._data import checked_softki
from softki.validation.parameters import check_integer


@dataclass(repr=False, eq=False)
class RelevanceDisplay:
    """The relevance of the columns of X as bars, the largest on top.

    Args:
        relevance: one number a column (d,), summing to one.
        feature_names: names of the columns.

    Attributes:
        ax_, figure_: the axes and their figure.
        bars_: one a column, the largest first.

    Example:
        >>> display = RelevanceDisplay(np.array([0.2, 0.8]), ["width", "length"]).plot()
        >>> [label.get_text() for label in display.ax_.get_yticklabels()]
        ['length', 'width']
        >>> import matplotlib.pyplot as plt
        >>> plt.close(display.figure_)
    """

    relevance: np.ndarray
    feature_names: Sequence[str]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw the `feature_relevance_` of a fitted `SoftKIRegressor`; options are of `plot`."""
        fitted = checked_softki(estimator)
        return cls(fitted.feature_relevance_, feature_names(fitted)).plot(ax, **options)

    def plot(self, ax: Any = None, *, max_features: int = 20) -> Self:
        """Draw.

        Args:
            ax: matplotlib axes to draw on; None for a new figure.
            max_features: largest number of columns to draw, the most relevant ones.
        """
        check_integer("max_features", max_features, 1)
        shown = np.argsort(-self.relevance, kind="stable")[:max_features]
        ax = one_axes(ax, (5.6, 1.0 + 0.28 * len(shown)))
        self.bars_ = ax.barh(np.arange(len(shown)), self.relevance[shown], color=MODEL)
        ax.set_yticks(np.arange(len(shown)), [self.feature_names[k] for k in shown])
        ax.invert_yaxis()
        ax.set_xlabel(self._label(shown))
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _label(self, shown: np.ndarray) -> str:
        if len(shown) == len(self.relevance):
            return "relevance, summing to one"
        share = self.relevance[shown].sum()
        return f"relevance; {len(shown)} of {len(self.relevance)} columns, {share:.0%} of the sum"
