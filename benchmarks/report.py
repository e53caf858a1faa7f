"""Write docs/results.md: every table from the runs in results/bench.jsonl, and every figure.

    SOFTKI_DATA=folder .venv/bin/python benchmarks/report.py

Tables of seconds are from results/bench-seconds.jsonl where there is one: runs of few epochs, one
at a time, while the others may have shared a GPU. The figures are those in docs/images that
`softki bench figure` made; what data is here decides only between "no data here" and "not run".
"""

from __future__ import annotations

from pathlib import Path

from softki.bench.datasets import is_available
from softki.bench.figures import FIGURES
from softki.bench.registry import REGISTRY
from softki.bench.results import Results
from softki.bench.tables import TABLES, make_table

ROOT = Path(__file__).parent.parent
RUNS = Path("benchmarks/results/bench.jsonl")
SECONDS = Path("benchmarks/results/bench-seconds.jsonl")
IMAGES = Path("docs/images/bench")

HEAD = """# Results

The paper's tables and figures from our own runs, each with the command that makes it. What they
say, and how to make the runs, is in [benchmarks.md](benchmarks.md); the runs themselves are in
{runs}, one JSON line each. RMSE and NLL are those of the standardised target on test rows; numbers
in parentheses are the paper's, but in the tables of paired differences. This page is written by
`benchmarks/report.py`.
"""


def section(title: str, command: str, body: str) -> str:
    return f"## {title}\n\n    {command}\n\n{body}\n"


def head(timed_alone: bool) -> str:
    """The first lines, with links to the files of the runs."""
    runs = f"[{RUNS.name}](../{RUNS})"
    if timed_alone:
        runs += f" and, for the tables of seconds, in [{SECONDS.name}](../{SECONDS})"
    return HEAD.format(runs=runs)


def main() -> None:
    timed_alone = (ROOT / SECONDS).exists()
    results = {RUNS: Results(ROOT / RUNS)}
    if timed_alone:
        results[SECONDS] = Results(ROOT / SECONDS)
    missing = [name for name in REGISTRY if not is_available(name)]
    parts = [head(timed_alone)]
    for name in TABLES:
        file = SECONDS if timed_alone and name.endswith("-seconds") else RUNS
        body = make_table(name, results[file], missing).markdown()
        parts.append(section(name, f"softki bench table {name} --results {file}", body))
    for name in FIGURES:
        if (ROOT / IMAGES / f"{name}.png").exists():
            command = f"softki bench figure {name} --results {RUNS} -o {IMAGES}"
            body = (
                f"![{name}](images/bench/{name}.png) [The data behind it](images/bench/{name}.json)"
            )
            parts.append(section(name, command, body))
    (ROOT / "docs" / "results.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
