"""The posterior along one column at a time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from softki.estimator.regressor import SoftKIRegressor
from softki.estimator.rows import feature_names
from softki.exceptions import InvalidInputError
from softki.metrics import half_width
from softki.plots._axes import ABOVE, CHANCE, DRAW, MODEL, several_axes
from softki.plots._data import (
    as_array,
    check_index,
    checked_softki,
)
from softki.validation.parameters import check_choice, check_integer
from softki.validation.tables import as_tensor, check_finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 200
# Length of a slice beyond the data on either side, as a share of their range.
_BEYOND = 0.1


@dataclass(frozen=True, eq=False)
class Slice:
    """The posterior of one target at g values of one column."""

    feature: str  # the name of the column
    grid: np.ndarray  # (g,), its values
    mean: np.ndarray  # (g,)
    f_std: np.ndarray  # (g,), of the function
    y_std: np.ndarray  # (g,), of an observation
    draws: np.ndarray  # (g, draws), of the function
    low: float  # least and greatest value of the column in the data
    high: float


@dataclass(repr=False, eq=False)
class SliceDisplay:
    """The posterior along one column with the others held fixed, a panel a column.

    Mean, central interval of f and of y, and draws of f, which are the same functions in all
    panels. Grey is beyond the data.

    Args:
        slices: one a panel.
        target_name: name of the target in the labels.

    Attributes:
        ax_, axes_, figure_: the first of the axes, all of them, and their figure.
        means_, f_bands_, y_bands_, draws_: the artists, a list with one entry a panel each.

    Example:
        >>> from softki import SoftKIRegressor
        >>> from softki.data import robot_arm
        >>> X, y = robot_arm(1000)
        >>> model = SoftKIRegressor(points=32, steps=50, random_state=0).fit(X, y)
        >>> display = SliceDisplay.from_estimator(model, X, features=[0, 1])
        >>> [ax.get_xlabel() for ax in display.axes_]
        ['x0', 'x1']
        >>> import matplotlib.pyplot as plt
        >>> plt.close(display.figure_)
    """

    slices: Sequence[Slice]
    target_name: str = "y"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        features: int | str | Sequence[int | str] = 0,
        *,
        at: Any = None,
        target: int = 0,
        level: float = 0.95,
        draws: int = 3,
        random_state: int | np.random.RandomState | None = 0,
        target_name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Compute the slices, and draw.

        Args:
            estimator: fitted `SoftKIRegressor`.
            X: inputs (n, d), for the range of the slices.
            features: the column, or columns, to vary, by index or name.
            at: values of the other columns: one row (d,), or None for the median of each.
            target: index of the target to draw, if there are several.
            level: level of the central intervals.
            draws: number of functions to draw; 0 for none.
            random_state: seed of the draws.
            target_name: name in the labels; None for y, or y0, y1, … where there are several.
            ax: matplotlib axes to draw on, one a column; None for a new figure.
        """
        fitted = checked_softki(estimator)
        targets = len(fitted.y_standardizer_.scale)
        check_index("target", target, targets, "the estimator")
        check_integer("draws", draws, 0)
        rows = as_array(fitted._inputs(X))
        columns, base = _columns(features, feature_names(fitted)), _base(at, rows)
        slices = _slices(fitted, rows, columns, base, target, draws, random_state)
        name = target_name or ("y" if targets == 1 else f"y{target}")
        return cls(slices, name).plot(ax, level=level)

    def plot(self, ax: Any = None, *, level: float = 0.95) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        z = half_width(level)
        size = (5.6, 4.2) if len(self.slices) == 1 else (3.6, 3.6)
        self.axes_ = several_axes(ax, len(self.slices), size, share_y=True)
        drawn = [
            _plot_slice(axes, part, z, f"{level * 100:g}%")
            for axes, part in zip(self.axes_, self.slices, strict=True)
        ]
        self.means_, self.f_bands_, self.y_bands_, self.draws_ = map(list, zip(*drawn, strict=True))
        for axes in self.axes_:
            place = axes.get_subplotspec()
            if place is None or place.is_first_col():
                axes.set_ylabel(self.target_name)
        self.axes_[0].legend(**ABOVE | {"ncols": 2})
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        return self


def _plot_slice(ax: Axes, part: Slice, z: float, percent: str) -> tuple[Any, Any, Any, Any]:
    """Draw one panel; the artists of the mean, of the bands of f and of y, and of the draws."""
    ends = part.grid[0], part.grid[-1]
    ax.axvspan(ends[0], part.low, color=CHANCE, linewidth=0, label="beyond the data")
    ax.axvspan(part.high, ends[1], color=CHANCE, linewidth=0)

    def band(std: np.ndarray, alpha: float, label: str) -> Any:
        edges = part.mean - z * std, part.mean + z * std
        return ax.fill_between(
            part.grid, *edges, color=MODEL, alpha=alpha, linewidth=0, label=label
        )

    y_band = band(part.y_std, 0.2, f"{percent} of y")
    f_band = band(part.f_std, 0.4, f"{percent} of f")
    draws = ax.plot(part.grid, part.draws, color=DRAW, linewidth=0.8)
    if draws:
        draws[0].set_label("draws of f")
    (mean,) = ax.plot(part.grid, part.mean, color=MODEL, linewidth=2, label="mean")
    ax.set(xlim=ends, xlabel=part.feature)
    return mean, f_band, y_band, draws


def _slices(
    estimator: SoftKIRegressor,
    rows: np.ndarray,
    columns: Sequence[int],
    base: np.ndarray,
    target: int,
    draws: int,
    random_state: int | np.random.RandomState | None,
) -> list[Slice]:
    """The posterior along each of the columns, with the others as in base (d,)."""
    names = feature_names(estimator)
    functions = estimator.sample_functions(max(1, draws), random_state)

    def slice_along(column: int) -> Slice:
        low, high = float(rows[:, column].min()), float(rows[:, column].max())
        if low == high:
            raise InvalidInputError(f"{names[column]!r} is constant in X: there is no slice of it")
        margin = _BEYOND * (high - low)
        table = np.tile(base, (_GRID, 1))
        table[:, column] = np.linspace(low - margin, high + margin, _GRID)
        mean, f_std = estimator.predict(table, return_std=True, of="f")
        _, y_std = estimator.predict(table, return_std=True)
        mean, f_std, y_std = (
            values.reshape(_GRID, -1)[:, target] for values in (mean, f_std, y_std)
        )
        drawn = functions(table).reshape(_GRID, -1, max(1, draws))[:, target, :draws]
        return Slice(names[column], table[:, column], mean, f_std, y_std, drawn, low, high)

    with warnings.catch_warnings():
        # The columns are those of the fit, which were checked with the names that X has.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return [slice_along(column) for column in columns]


def _columns(features: Any, names: Sequence[str]) -> list[int]:
    """The indices of the columns that are given by name or index."""
    if isinstance(features, str) or not np.iterable(features):
        features = [features]
    columns = []
    for feature in features:
        if isinstance(feature, str):
            check_choice("feature", feature, names)
        else:
            check_index("feature", feature, len(names), "X")
        columns.append(names.index(feature) if isinstance(feature, str) else int(feature))
    if not columns:
        raise InvalidInputError("features is empty: give one column or more, by index or name")
    return columns


def _base(at: Any, rows: np.ndarray) -> np.ndarray:
    """The row (d,) that every slice goes through."""
    if at is None:
        return np.asarray(np.median(rows, axis=0))
    values = as_tensor(at, "at")
    if values.numel() != rows.shape[1]:
        raise InvalidInputError(
            f"at must be one row of {rows.shape[1]} numbers, got the shape {tuple(values.shape)}"
        )
    check_finite(values, "at")
    return as_array(values).ravel()
