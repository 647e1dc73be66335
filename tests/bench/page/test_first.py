"""The first page as it is in docs/: short, with all links, and quoted in the README."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bench.full.lookup import Grid
from bench.page import advice, short
from bench.page.document import FIRST, PAGES
from bench.page.promises import section
from compat_tests.targets import ROOT
from tests.bench.full.grid import rounds
from tests.bench.page.results import cells_by_title, grid_of, grid_row, ratio_row
from tests.support.cases import each_case

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATHS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_case("path", [*PATHS, *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name)
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


MET: dict[str, Any] = {"title": "throughput", "value": 3.5, "goal": ">= 3", "met": True}
ABSENT: dict[str, Any] = {"title": "p50", "value": None, "goal": "<= 1", "met": False}
FREE: dict[str, Any] = {"title": "free", "value": 1.0}


def result(*rows: dict[str, Any], kind: str = "nodes3") -> dict[str, Any]:
    return {"kind": kind, "started": "2026-01-02T03:04:05Z", "comparison": list(rows)}


def test_each_goal_has_its_figure_its_day_and_its_verdict() -> None:
    text = section([result(MET, ABSENT, FREE)])
    assert "1 of 2 goals of earlier steps are met" in text
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert ["nodes3", "2026-01-02", "throughput", "3.50", "", ">= 3", "met"] in lines
    assert ["nodes3", "2026-01-02", "p50", "no figures", "", "<= 1", "MISSED"] in lines
    assert "free" not in text


def test_an_interval_that_holds_the_bound_is_doubted() -> None:
    text = section([result(MET | {"low": 2.9, "high": 4.1, "noise": 1.2, "sure": False})])
    assert "| 2.90 to 4.10 |" in text
    assert "met?" in text


def test_the_headline_has_its_own_count_and_nothing_promised_is_no_section() -> None:
    assert section([result(MET, kind="headline"), result(FREE), {"kind": "growth"}]) == ""


def test_only_what_the_figures_lose_is_a_reason_for_kafka() -> None:
    shipped = grid_row("kafka", **rounds("requests_per_s", 200.0, 200.0))
    flushing = grid_row("lockstep", **rounds("requests_per_s", 100.0, 100.0))
    for rate, is_reason in ((100.0, True), (300.0, False)):
        plain = grid_row("lockstep-os", **rounds("requests_per_s", rate, rate))
        text = advice.section({}, grid_of(plain, shipped, flushing))
        assert ("times as many single-message requests" in text) is is_reason
        assert not is_reason or "Kafka serves 2.0 times" in text
    slower, sooner = (
        {"headline": {"comparison": [ratio_row("latency1.p50.cross", value)]}} for value in (2.6, 0.5)
    )
    assert "1 ms against 2.6 ms on one node" in advice.section(slower, Grid(None))
    assert advice.section(sooner, Grid(None)) == ""


def test_only_what_the_figures_win_is_a_reason_for_lockstep() -> None:
    for rate in (90.0, 300.0):
        rows = []
        for workload in ("requests-1kb", "throughput-1kb"):
            for target, value in (("lockstep", rate), ("kafka-flush", 100.0)):
                rows.append(grid_row(target, workload=workload, **rounds("requests_per_s", value, value)))
        text = advice.ahead({}, grid_of(*rows))
        said = "serves 3.0 times as many single messages and 3.0 times as many batches on one node."
        assert (said in text) is (rate > 100)
        assert bool(text) is (rate > 100)
    results = {"headline": {"comparison": [ratio_row("memory", 0.09), ratio_row("restart", 1.2)]}}
    assert "takes 0.09 of Kafka's memory." in advice.ahead(results, Grid(None))
    results["one node"] = {"comparison": [{**ratio_row("memory", 0.19), "ratio": "memory.max"}]}
    assert "0.09 of Kafka's memory (0.19 with 10,000 members of groups)." in advice.ahead(results, Grid(None))


def test_a_figure_in_short_is_the_headlines_where_that_has_it_and_names_its_source() -> None:
    one = {"partitions": 1, "producers": 16, "rate": 0}
    rates = {"lockstep": 200.0, "kafka": 100.0, "lockstep-os": 50.0, "kafka-flush": 10.0}
    rows = [grid_row(name, point=one, **rounds("requests_per_s", rate)) for name, rate in rates.items()]
    headline = {"headline": {"comparison": [ratio_row("latency16.rate.flush", 6.56)]}}
    title = "one node: requests/s, 1 partition, 16 producers"
    both, free, cross, source = cells_by_title(short.promised_table(headline, grid_of(*rows)))[title]
    assert (both, free, cross) == ("**6.56** (6.56 / 1)", "**0.50** (50 / 100)", "**2.00** (200 / 100)")
    assert source == "grid; both flush: headline"
    assert cells_by_title(short.promised_table({}, grid_of(*rows)))[title][0] == "**20.00** (200 / 10)"
    assert short.section({}, Grid(None)) == ""


def test_the_run_with_the_most_kills_speaks_for_a_lost_leader() -> None:
    few = [
        grid_row(name, "failover", 3, point={}, **rounds("first_ack_s", 0.1, 0.2))
        for name in ("lockstep", "kafka")
    ]
    many = {"ratio": "loss.g1", "value": 0.1, "subject_values": [0.1] * 3, "baseline_values": [9.0]}
    lost = short.lost_leader({"nodes3": {"comparison": [many]}}, grid_of(*few))
    assert lost == ([0.1] * 3, [9.0], "three nodes")
    assert short.lost_leader({}, grid_of(*few)) == ([0.1, 0.2], [0.1, 0.2], "grid")
    assert short.lost_leader({}, Grid(None)) is None
