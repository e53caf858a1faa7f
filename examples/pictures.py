"""Draws the pictures of docs/plots.md into docs/images.

python examples/pictures.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import pandas as pd

from softki import SoftKIRegressor
from softki.data import robot_arm, split_indices
from softki.plots import (
    CalibrationDisplay,
    PointsDisplay,
    PredictionDisplay,
    RelevanceDisplay,
    ResidualDisplay,
    SliceDisplay,
    TrainingDisplay,
)

FOLDER = Path(__file__).parent.parent / "docs" / "images"


def main() -> None:
    angles, distance = robot_arm(10_000, noise=0.1)
    X = pd.DataFrame(angles, columns=[f"joint {k}" for k in range(8)])
    y = pd.Series(distance, name="distance")
    train, test = split_indices(len(X))
    model = SoftKIRegressor(points=256, steps=300, random_state=0)
    model.fit(X.iloc[train], y.iloc[train])
    X_test, y_test = X.iloc[test], y.iloc[test]
    slices = SliceDisplay.from_estimator(model, X_test, ["joint 0", "joint 1", "joint 7"])
    slices.ax_.set_ylabel("distance")

    FOLDER.mkdir(exist_ok=True)
    for name, display in {
        "prediction": PredictionDisplay.from_estimator(model, X_test, y_test),
        "residual": ResidualDisplay.from_estimator(model, X_test, y_test),
        "calibration": CalibrationDisplay.from_estimator(model, X_test, y_test),
        "training": TrainingDisplay.from_estimator(model),
        "relevance": RelevanceDisplay.from_estimator(model),
        "points": PointsDisplay.from_estimator(model, X.iloc[train]),
        "slices": slices,
    }.items():
        target = FOLDER / f"{name}.png"
        display.figure_.savefig(target, dpi=100)
        print(f"wrote {target.relative_to(FOLDER.parent.parent)}")


if __name__ == "__main__":
    main()
