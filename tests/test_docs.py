"""Every Python block of the README and of the docs runs, in order, one namespace a page."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(((?!http)[^)#]+)\)")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda p: p.name
)
def test_code_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    namespace: dict[str, object] = {"__name__": page.stem}
    for block in BLOCK.finditer(page.read_text()):
        line = page.read_text()[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], page.name, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), link


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/{page.name}" in readme for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_placeholder_is_left(page: Path) -> None:
    assert not re.search(r"^[A-Z0-9_]{5,}$", page.read_text(), re.MULTILINE)


DOTTED = re.compile(r"`(softki(?:\.\w+)+)|(?:patch|setattr)\(\s*\"(softki(?:\.\w+)+)\"")
NAMES = sorted(
    {
        (path.relative_to(ROOT).as_posix(), found[1] or found[2])
        for path in [*PAGES, *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "src").rglob("*.py")]
        for found in DOTTED.finditer(path.read_text())
    }
)


@pytest.mark.parametrize(("where", "name"), NAMES, ids=lambda text: text)
def test_dotted_names_exist(where: str, name: str) -> None:
    """Names in docs and docstrings, and names that benchmarks replace."""
    if "_triton" not in name:  # imported only where Triton is installed
        resolve_name(name)
