"""`softki info`."""

from __future__ import annotations

from typing import Any

from softki.cli.console import Console, number, share
from softki.cli.options import Debug, Json, ModelArgument, Quiet
from softki.data.encoding import TableEncoder
from softki.storage import read_metadata
from softki.storage.documents import report_of

_RELEVANT = 10
_MISSING = {
    "refuse": "rows with missing values are refused",
    "drop": "rows with missing values have no prediction",
    "impute": "medians and most frequent categories are filled in",
}

EXAMPLES = """\b
Examples:
  softki info price.softki
  softki info price.softki --json
"""


def info(
    model: ModelArgument, json: Json = False, quiet: Quiet = False, debug: Debug = False
) -> None:
    """Show what is in a model file, without loading the model."""
    console = Console(quiet, json)
    metadata = read_metadata(model)
    summary, report = metadata["extra"].get("fit"), metadata["report"]
    facts = {"file": f"{model}, written by softki {metadata['softki']}"}
    facts |= _fit_facts(metadata, report) if summary is None else _table_facts(summary)
    if "encoder" in metadata["extra"]:
        facts["missing"] = _MISSING[metadata["extra"]["encoder"]["missing"]]
    console.facts(facts)
    if "encoder" in metadata["extra"]:
        console.line()
        _show_columns(console, metadata["extra"]["encoder"])
    if summary is not None:
        console.line()
        _show_relevance(console, summary["relevance"])
    console.result({name: value for name, value in metadata.items() if name != "strides"})


def _fit_facts(metadata: dict[str, Any], report: dict[str, Any]) -> dict[str, str]:
    """Of a model that was saved from Python."""
    kernel = metadata["kernel"]
    best = report_of(report).best
    facts = {
        "rows": f"{report['rows']}, {report['held_out_rows']} of them held out",
        "columns": ", ".join(metadata["columns"] or [f"{metadata['n_features']}, without names"]),
        "targets": str(report["targets"]),
        "model": f"{report['points']} points, kernel {kernel.get('name', kernel.get('stored'))}",
        "steps": f"{report['steps']} of {report['planned_steps']} ({report['stopped']})",
    }
    if best is not None:
        nll = number(best.calibration.nll)
        facts["held out"] = f"RMSE {number(best.rmse)}, NLL {nll} (standardised)"
    return facts


def _table_facts(summary: dict[str, Any]) -> dict[str, str]:
    """Of a model that `softki fit` wrote."""
    dropped, noise = summary["dropped_rows"], summary["noise_column"]
    facts = {
        "fitted to": f"{summary['rows']} rows of {summary['data']}"
        + (f", {dropped} left out as values were missing" if dropped else ""),
        "target": ", ".join(summary["targets"]),
        "model": f"{summary['points']} points, kernel {summary['kernel']}",
        "noise": "standard deviation "
        + ", ".join(map(number, summary["noise_std"]))
        + (f", known by row from {noise}" if noise else ""),
        "steps": f"{summary['steps']} of {summary['planned_steps']} ({summary['stopped']})",
        "seconds": f"{summary['seconds']:.1f} on {summary['device']}",
    }
    if held_out := summary["held_out"]:
        units = " (standardised)" if held_out["units"] == "standardised" else ""
        facts["held out"] = (
            f"RMSE {number(held_out['rmse'])}, NLL {number(held_out['nll'])}{units}, "
            f"{held_out['rows']} rows"
        )
    for target, figures in (summary["test"] or {}).items():
        facts[f"test of {target}"] = (
            f"RMSE {number(figures['rmse'])}, NLL {number(figures['nll'])}, 95% interval covers "
            f"{share(figures['coverage']['0.95'])}, {figures['rows']} rows"
        )
    return facts


def _show_columns(console: Console, document: dict[str, Any]) -> None:
    encoder = TableEncoder.from_json(document)
    rows = [(column.name, str(column)) for column in encoder.columns]
    rows += [(name, f"left out: {reason}") for name, reason in encoder.left_out.items()]
    console.table(("column", "becomes"), rows, text=2)


def _show_relevance(console: Console, relevance: dict[str, float]) -> None:
    ordered = sorted(relevance.items(), key=lambda item: -item[1])[:_RELEVANT]
    console.table(("most relevant", "share"), [(name, share(value)) for name, value in ordered])
