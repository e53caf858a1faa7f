"""The interpolation points among the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.decomposition import PCA

from softki.estimator.regressor import SoftKIRegressor
from softki.estimator.rows import feature_names
from softki.exceptions import InvalidInputError
from softki.plots._axes import DATA, MISS, one_axes
from softki.plots._data import checked_softki, sample_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 50
_POINT: dict[str, Any] = {
    "marker": "^",
    "linestyle": "",
    "color": MISS,
    "markersize": 6,
    "markeredgecolor": "white",
    "markeredgewidth": 0.5,
}


@dataclass(repr=False, eq=False)
class PointsDisplay:
    """The interpolation points over the rows of X.

    Points are stored as z in units of x/T; T·z is where they are among the standardised rows. One
    or two columns are drawn as they are, in the units of X: one as a histogram with the points
    at its foot. Of more columns, rows and points are drawn on the first two principal axes of the
    standardised rows.

    Args:
        rows: rows of the data on the axes of the picture, (n, 1) or (n, 2).
        points: interpolation points on these axes, (m, 1) or (m, 2).
        axis_names: names of the axes.

    Attributes:
        ax_, figure_: the axes and their figure.
        points_: the artist of the points.
        rows_: the artist of the rows, or the bars of the histogram.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> display = PointsDisplay(rng.normal(size=(200, 2)), np.zeros((1, 2)), ["a", "b"]).plot()
        >>> display.ax_.get_xlabel(), display.ax_.get_ylabel()
        ('a', 'b')
        >>> import matplotlib.pyplot as plt
        >>> plt.close(display.figure_)
    """

    rows: np.ndarray
    points: np.ndarray
    axis_names: Sequence[str]

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None, **options: Any) -> Self:
        """Project rows and points, and draw.

        Args:
            estimator: fitted `SoftKIRegressor`.
            X: inputs (n, d), such as those of the fit.
            ax: matplotlib axes to draw on; None for a new figure.
            options: options of `plot`.
        """
        return cls(*_projected(checked_softki(estimator), X)).plot(ax, **options)

    def plot(
        self,
        ax: Any = None,
        *,
        max_rows: int = 2000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw.

        Args:
            ax: matplotlib axes to draw on; None for a new figure.
            max_rows: largest number of rows to draw, a random sample; axes and histogram are of
                all rows.
            random_state: seed of the sample.
        """
        drawn = sample_rows(len(self.rows), max_rows, random_state)
        ax = one_axes(ax, (6.0, 4.6))
        if self.points.shape[1] == 1:
            self._plot_histogram(ax)
        else:
            self._plot_plane(ax, drawn)
        ax.set_xlabel(self.axis_names[0])
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _plot_histogram(self, ax: Axes) -> None:
        self.rows_: Any
        _, _, self.rows_ = ax.hist(self.rows[:, 0], bins=_BINS, color=DATA, label="rows")
        foot = np.full(len(self.points), 0.02)  # as a share of the height of the axes
        (self.points_,) = ax.plot(
            self.points[:, 0],
            foot,
            **_POINT,
            transform=ax.get_xaxis_transform(),
            label=f"{len(self.points)} points",
        )
        ax.set_ylabel("rows")

    def _plot_plane(self, ax: Axes, drawn: np.ndarray) -> None:
        (self.rows_,) = ax.plot(
            *self.rows[drawn].T, ".", color=DATA, markersize=3, label=_count(drawn, self.rows)
        )
        (self.points_,) = ax.plot(*self.points.T, **_POINT, label=f"{len(self.points)} points")
        ax.set_ylabel(self.axis_names[1])


def _count(drawn: np.ndarray, rows: np.ndarray) -> str:
    return f"{len(drawn)} of {len(rows)} rows" if len(drawn) < len(rows) else f"{len(rows)} rows"


def _projected(estimator: SoftKIRegressor, X: Any) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
    """Rows and points on the axes of the picture, and the names of these."""
    matrix = estimator._inputs(X).cpu()
    posterior, standardizer = estimator.fit_.posterior, estimator.x_standardizer_
    assert posterior.temperature is not None  # the estimator always has one
    points = (posterior.points * posterior.temperature).cpu()  # T·z
    if matrix.shape[1] <= 2:
        names = feature_names(estimator)
        return matrix.double().numpy(), standardizer.inverse(points).numpy(), names
    rows = standardizer.transform(matrix).numpy()
    if not np.ptp(rows, axis=0).any():
        raise InvalidInputError(
            "the rows of X are all the same, and have no principal axes: pass the rows of the fit"
        )
    axes = PCA(2, random_state=0).fit(rows)
    names = [
        f"{nth} principal axis ({share:.0%} of the variance)"
        for nth, share in zip(("first", "second"), axes.explained_variance_ratio_, strict=True)
    ]
    return axes.transform(rows), axes.transform(points.numpy()), names
