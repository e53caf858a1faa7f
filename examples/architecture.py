"""Draws the layers and the way of the data, docs/images/architecture.png.

python examples/architecture.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

TARGET = Path(__file__).parent.parent / "docs" / "images" / "architecture.png"

AROUND, METHOD, BELOW = "#e8edf3", "#d5e8d4", "#f1ece1"
LAYERS = [  # from the top: packages, colour
    ("cli   bench", AROUND),
    ("plots", AROUND),
    ("estimator", AROUND),
    ("storage", AROUND),
    ("streaming   data", AROUND),
    ("training", AROUND),
    ("posterior   metrics", METHOD),
    ("objective   likelihood   solvers", METHOD),
    ("features   statistics", METHOD),
    ("model   interpolation   kernels", METHOD),
    ("linalg   parallel   files   validation   batches   exceptions", BELOW),
]
# Layer, left and right edge, and text of every station of a fit and a prediction.
STEPS = {
    "table": (2, 4.0, 7.4, "1  X, y: a table or a file"),
    "rows": (4, 4.0, 7.4, "2  blocks of rows, some held out"),
    "standardised": (5, 4.0, 7.4, "3  standardised; points z by k-means"),
    "weights": (9, 4.0, 7.4, "4  weights S of a block, K = k(z, z)"),
    "statistics": (8, 7.9, 11.05, "5  sums over blocks: SᵀS, Sᵀy"),
    "objective": (7, 7.9, 11.05, "6  log p and its gradient"),
    "adam": (5, 7.9, 10.75, "7  a step of Adam on z, T, k, β²"),
    "posterior": (6, 8.5, 11.05, "8  mean and variance at x"),
    "predictions": (2, 7.9, 11.05, "9  mean and std in units of y"),
}
HEIGHT, TOP = 0.62, len(LAYERS)


def middle(layer: int) -> float:
    return (TOP - layer) * HEIGHT - HEIGHT / 2


def draw_layers(ax: Axes) -> None:
    for layer, (packages, colour) in enumerate(LAYERS):
        low = middle(layer) - HEIGHT / 2 + 0.03
        ax.add_patch(Rectangle((0, low), 11.2, HEIGHT - 0.06, color=colour, lw=0))
        ax.text(0.15, middle(layer), packages, va="center", fontsize=9.5, family="monospace")
    upright = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 10}
    ax.text(11.05, middle(10), "no Gaussian process", ha="right", va="center", fontsize=9)
    ax.text(-0.2, middle(7.5), "the method", **upright)
    ax.text(-0.2, middle(1.5), "imports go down", **upright)
    arrow(ax, (-0.2, middle(3)), (-0.2, middle(5)), "0.3")


def draw_steps(ax: Axes) -> None:
    shape = {"boxstyle": "round,pad=0.02,rounding_size=0.08", "fc": "white", "ec": "0.4", "lw": 0.8}
    for layer, left, right, text in STEPS.values():
        ax.add_patch(FancyBboxPatch((left, middle(layer) - 0.2), right - left, 0.4, **shape))
        ax.text(left + 0.1, middle(layer), text, va="center", fontsize=9)


def draw_way(ax: Axes) -> None:
    def up_or_down(x: float, start: str, end: str) -> None:
        first, last = middle(STEPS[start][0]), middle(STEPS[end][0])
        gap = 0.22 if last > first else -0.22
        arrow(ax, (x, first + gap), (x, last - gap))

    up_or_down(5.7, "table", "rows")
    up_or_down(5.7, "rows", "standardised")
    up_or_down(5.7, "standardised", "weights")
    arrow(ax, (7.42, middle(9)), (8.6, middle(8) - 0.22), bend=0.3)
    up_or_down(9.8, "statistics", "objective")
    up_or_down(8.2, "objective", "adam")
    arrow(ax, (7.88, middle(5)), (6.9, middle(9) + 0.22), bend=0.3)
    ax.text(6.85, middle(7.1), "next step", ha="right", va="center", fontsize=9, style="italic")
    up_or_down(9.8, "objective", "posterior")
    up_or_down(10.91, "posterior", "predictions")


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = "#b85450",
    bend: float = 0,
) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    style["connectionstyle"] = f"arc3,rad={bend}"
    ax.annotate("", xy=end, xytext=start, arrowprops=style)


if __name__ == "__main__":
    figure, axes = plt.subplots(figsize=(11.4, 7))
    draw_layers(axes)
    draw_steps(axes)
    draw_way(axes)
    axes.set(xlim=(-0.5, 11.3), ylim=(-0.05, TOP * HEIGHT + 0.05))
    axes.axis("off")
    figure.savefig(TARGET, dpi=110, bbox_inches="tight")
    print(f"wrote {TARGET.relative_to(TARGET.parent.parent.parent)}")
