"""The first page as it is in docs/: short, with all links, and quoted in the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.page.document import FIRST, PAGES
from compat_tests.targets import ROOT
from tests.bench.page.results import cells_by_title

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATHS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", [*PATHS, *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name)
def test_links_to_headings_find_them(path: Path) -> None:
    """That linked files are there `tests.tidy` holds."""
    for link in LINK.findall(path.read_text()):
        target, _, anchor = link.partition("#")
        found = (path.parent / target).resolve() if target else path
        if anchor and found.suffix == ".md" and "://" not in link:
            assert anchor in _anchors(found.read_text()), link


def test_the_readme_has_figures_of_the_first_page() -> None:
    section = (ROOT / "README.md").read_text().split("\n## How fast it is\n")[1].split("\n## ")[0]
    shown = cells_by_title((DOCS / FIRST).read_text().split("\n## In short\n")[1].split("\n## ")[0])
    rows = {
        name: cells
        for name, cells in cells_by_title(section).items()
        if name.startswith(("one node", "three"))
    }
    assert len(rows) >= 4
    for name, cells in rows.items():
        assert shown[name][: len(cells)] == cells, f"{name}: the README is not what make bench-page wrote"


def test_the_first_page_is_short_and_leads_to_all_others() -> None:
    text = (DOCS / FIRST).read_text()
    assert len(text.splitlines()) <= 180
    assert {each.path for each in PAGES} <= set(LINK.findall(text))
    for title in (
        "In short",
        "Use Kafka instead if",
        "Headline",
        "Where Lockstep loses",
        "The seeds' figures",
    ):
        assert f"\n## {title}" in text
