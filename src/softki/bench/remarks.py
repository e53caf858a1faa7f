"""What stands below a table about all of its runs: seeds, devices, versions, settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from softki.bench.cells import Runs
from softki.bench.record import Record


def spread(seeds: int, runs: bool, paper: bool) -> str:
    """What the numbers of a cell are.

    Args:
        seeds: the most that a cell has.
        runs: whether there are any, with figures or not.
        paper: whether its numbers stand in parentheses.
    """
    if seeds > 1:
        start = f"Mean ± standard deviation over {seeds} seeds, or as many as the cell says"
    elif seeds:
        start = "One seed"
    else:
        start = "No run has figures" if runs else "No runs here"
    return f"{start}; in parentheses, the paper's numbers." if paper else f"{start}."


def origin(records: Sequence[Record]) -> Iterator[str]:
    """On what devices, with which versions."""
    devices = dict.fromkeys(record.device for record in records if record.device)
    if devices:
        yield f"Device{'s' if len(devices) > 1 else ''}: {', '.join(devices)}."
    versions: dict[str, dict[str, None]] = {}
    for record in records:
        for package, version in record.versions.items():
            versions.setdefault(package, {})[version] = None
    if versions:
        named = (f"{package} {' and '.join(those)}" for package, those in versions.items())
        yield f"Versions: {', '.join(named)}."


def settings_by_method(shown: Iterable[tuple[str, Runs]]) -> str:
    """Settings that are not the defaults, by method; empty where all are.

    Example:
        >>> runs = [
        ...     Record(data, "svgp", 0, "90/10", settings={"epochs": epochs})
        ...     for data, epochs in (("pol", 3), ("bike", 3), ("song", 1))
        ... ]
        >>> settings_by_method((run.method, Runs((run,))) for run in runs)
        'Settings: svgp with epochs=3 or with epochs=1.'
    """
    by_method: dict[str, dict[str, None]] = {}
    for method, runs in shown:
        by_method.setdefault(method, {})[runs.settings or "the defaults"] = None
    said = [
        f"{method} with {' or with '.join(those)}"
        for method, those in by_method.items()
        if list(those) != ["the defaults"]
    ]
    return f"Settings: {'; '.join(said)}." if said else ""
