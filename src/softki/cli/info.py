"""`softki info`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softki.cli.console import Console, number, share
from softki.cli.options import Debug, Json, ModelArgument, Quiet

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
    """Show what is in a model file."""
    from softki.storage import read_metadata

    console = Console(quiet, json)
    metadata = read_metadata(model)
    extra = metadata["extra"]
    summary = extra.get("fit") or _summary_of(model, metadata)
    facts = {"file": f"{model}, written by softki {metadata['softki']}"} | _facts(summary, metadata)
    if "encoder" in extra:
        facts["missing"] = _MISSING[extra["encoder"]["missing"]]
    console.facts(facts)
    if "encoder" in extra:
        console.line()
        _show_columns(console, extra["encoder"])
    console.line()
    _show_relevance(console, summary["relevance"])
    shown = metadata | {"extra": extra | {"fit": summary}}
    console.result({name: value for name, value in shown.items() if name != "strides"})


def _summary_of(path: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    """The facts of a model that was saved from Python, which has to be loaded for them."""
    from softki.cli.model_file import fit_summary, target_names
    from softki.storage import load

    kernel = metadata["kernel"]
    name = kernel.get("name", kernel.get("stored"))
    return fit_summary(load(path, "cpu"), name, targets=target_names(metadata))


def _facts(summary: dict[str, Any], metadata: dict[str, Any]) -> dict[str, str]:
    dropped, column = summary["dropped_rows"], summary["noise_column"]
    known = metadata["noise_unit"] is not None
    columns = metadata["columns"] or [f"{metadata['n_features']}, without names"]
    facts = {
        "fitted to": f"{summary['rows']} rows"
        + (f" of {summary['data']}" if summary["data"] else "")
        + (f", {dropped} left out as values were missing" if dropped else ""),
        "columns": "" if "encoder" in metadata["extra"] else ", ".join(columns),
        "target": ", ".join(summary["targets"]),
        "model": f"{summary['points']} points, kernel {summary['kernel']}",
        "noise": "standard deviation "
        + ", ".join(map(number, summary["noise_std"]))
        + (", known by row" if known else "")
        + (f" from {column}" if column else ""),
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
    return {name: fact for name, fact in facts.items() if fact}


def _show_columns(console: Console, document: dict[str, Any]) -> None:
    from softki.data.encoding import TableEncoder

    encoder = TableEncoder.from_json(document)
    rows = [(column.name, str(column)) for column in encoder.columns]
    rows += [(name, f"left out: {reason}") for name, reason in encoder.left_out.items()]
    console.table(("column", "becomes"), rows, text=2)


def _show_relevance(console: Console, relevance: dict[str, float]) -> None:
    ordered = sorted(relevance.items(), key=lambda item: -item[1])[:_RELEVANT]
    console.table(("most relevant", "share"), [(name, share(value)) for name, value in ordered])
