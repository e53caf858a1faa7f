"""The summary of a fit, for its closing table and for `softki info`."""

from __future__ import annotations

from typing import Any

from softki.cli.scoring import noise_std
from softki.estimator.regressor import SoftKIRegressor
from softki.estimator.rows import feature_names


def fit_summary(estimator: SoftKIRegressor, kernel: str, **more: Any) -> dict[str, Any]:
    """The facts of a fit, in JSON.

    Args:
        estimator: fitted estimator.
        kernel: name of its kernel.
        **more: facts that the estimator does not know: the names of the file, its targets and its
            noise column, the number of dropped rows, the scores on test rows, and the seconds of
            the whole command.
    """
    report = estimator.fit_report_
    held_out = None
    if (best := report.best) is not None:
        held_out = {
            "rows": report.judged_rows,
            "rmse": best.rmse,
            "nll": best.calibration.nll,
            "units": report.units,
        }
    unknown = {"data": None, "targets": None, "dropped_rows": 0, "noise_column": None, "test": None}
    return {
        **unknown,
        "rows": report.rows,
        "points": report.points,
        "kernel": kernel,
        "steps": report.steps,
        "planned_steps": report.planned_steps,
        "stopped": report.stopped,
        "device": report.device,
        "noise_std": noise_std(estimator).tolist(),
        "held_out": held_out,
        "relevance": dict(
            zip(feature_names(estimator), estimator.feature_relevance_.tolist(), strict=True)
        ),
        "seconds": sum(report.seconds.values()),
        **more,
    }
