"""The first page: its figures in short, when to use Kafka instead, where the grid loses, titles and links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench.full.lookup import Grid
from bench.headline.goals import RATIOS
from bench.page import advice, grid_losses, losses, short
from bench.page.document import FIRST, PAGES, pages
from bench.page.links import placed
from bench.page.prepared import prepared
from compat_tests.targets import ROOT
from tests.bench.grid_rows import rounds

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
MACHINE = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}


def _row(target: str, workload: str = "requests-1kb", nodes: int = 1, **more: Any) -> dict[str, Any]:
    point = {"partitions": 16, "producers": 16, "rate": 0}
    settings = {"kind": "produce", "message_bytes": 1024, "minutes": 0.1}
    cell = {"workload": workload, "cell": f"{workload}/{nodes}n-{target}", "nodes": nodes, "target": target}
    return {**cell, "point": point, "settings": settings, **more}


def _grid(*rows: dict[str, Any]) -> Grid:
    return Grid({"rows": list(rows)})


def _ratio(name: str, value: float, **more: Any) -> dict[str, Any]:
    title, unit = RATIOS[name].title, RATIOS[name].unit
    sides = {"subject": value, "baseline": 1.0, "subject_values": [value], "baseline_values": [1.0]}
    return {"ratio": name, "title": title, "unit": unit, "value": value, **sides, **more}


def _lines(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line]
    return {row[0]: row[1:] for row in rows}


def test_a_figure_in_short_is_the_headlines_where_that_has_it_and_names_its_source() -> None:
    one = {"partitions": 1, "producers": 16, "rate": 0}
    rates = {"lockstep": 200.0, "kafka": 100.0, "lockstep-os": 50.0, "kafka-flush": 10.0}
    rows = [_row(name, point=one, **rounds("requests_per_s", rate)) for name, rate in rates.items()]
    headline = {"headline": {"comparison": [_ratio("latency16.rate.flush", 6.56)]}}
    title = "one node: requests/s, 1 partition, 16 producers"
    both, free, cross, source = _lines(short.promised_table(headline, _grid(*rows)))[title]
    assert (both, free, cross) == ("**6.56** (6.56 / 1)", "**0.50** (50 / 100)", "**2.00** (200 / 100)")
    assert source == "grid; both flush: headline"
    assert _lines(short.promised_table({}, _grid(*rows)))[title][0] == "**20.00** (200 / 10)"
    assert short.section({}, Grid(None)) == ""


def test_a_latency_of_who_did_not_keep_the_rate_is_no_figure() -> None:
    point = {"partitions": 16, "producers": 16, "rate": short.RATE}
    rows = [
        _row(name, "rate-1kb", point=point, **rounds("p50_ms", 0.2, 0.2, requests_per_s=rate))
        for name, rate in (("lockstep", 1999.0), ("kafka", 1990.0), ("kafka-flush", 1829.0))
    ]
    title = "one node: p50 at 2,000 requests/s, 16 partitions, ms"
    found = _lines(short.promised_table({}, _grid(*rows)))[title]
    assert found[0] == "Kafka did not keep the rate (1,999, 1,829/s)"
    assert found[2] == "**1.00** (0.2 / 0.2)"


def test_a_figure_whose_rounds_are_far_apart_is_marked_in_short_too() -> None:
    rows = [
        _row("lockstep", **rounds("requests_per_s", 90.0, 110.0)),
        _row("kafka", **rounds("requests_per_s", 50.0, 50.0)),
    ]
    title = "one node: requests/s, 16 partitions, 16 producers"
    assert _lines(short.promised_table({}, _grid(*rows)))[title][2] == "**2.00** (100 / 50) ~"


def test_the_run_with_the_most_kills_speaks_for_a_lost_leader() -> None:
    few = [
        _row(name, "failover", 3, point={}, **rounds("first_ack_s", 0.1, 0.2))
        for name in ("lockstep", "kafka")
    ]
    many = {"ratio": "loss.g1", "value": 0.1, "subject_values": [0.1] * 3, "baseline_values": [9.0]}
    lost = short.lost_leader({"nodes3": {"comparison": [many]}}, _grid(*few))
    assert lost == ([0.1] * 3, [9.0], "three nodes")
    assert short.lost_leader({}, _grid(*few)) == ([0.1, 0.2], [0.1, 0.2], "grid")
    assert short.lost_leader({}, Grid(None)) is None


def test_only_what_the_figures_lose_is_a_reason_for_kafka() -> None:
    shipped = _row("kafka", **rounds("requests_per_s", 200.0, 200.0))
    flushing = _row("lockstep", **rounds("requests_per_s", 100.0, 100.0))
    for rate, is_reason in ((100.0, True), (300.0, False)):
        plain = _row("lockstep-os", **rounds("requests_per_s", rate, rate))
        text = advice.section({}, _grid(plain, shipped, flushing))
        assert ("times as many single messages" in text) is is_reason
        assert not is_reason or "Kafka answers 2.0 times" in text
    slower, sooner = (
        {"headline": {"comparison": [_ratio("latency1.p50.cross", value)]}} for value in (2.6, 0.5)
    )
    assert "1 ms to 2.6 on one node" in advice.section(slower, Grid(None))
    assert advice.section(sooner, Grid(None)) == ""


def test_the_grids_losses_are_counted_beyond_the_spread_and_their_means_have_all() -> None:
    def pair(producers: int, ours: tuple[float, ...], theirs: tuple[float, ...]) -> list[dict[str, Any]]:
        point = {"partitions": 1, "producers": producers, "rate": 0}
        return [
            _row("lockstep", point=point, **rounds("requests_per_s", *ours)),
            _row("kafka-flush", point=point, **rounds("requests_per_s", *theirs)),
        ]

    rows = [*pair(1, (90.0, 90.0), (100.0, 100.0)), *pair(16, (80.0, 110.0), (100.0, 100.0))]
    rows += pair(64, (400.0, 400.0), (100.0, 100.0))
    grid = _grid(*rows)
    (line,) = (line for line in grid_losses.by_size(grid).splitlines() if "| 1 KB" in line)
    assert [cell.strip() for cell in line.split("|")[5:7]] == ["1 of 3, 1.51", "1.51"]
    assert [text.partition(" (")[2] for text in grid_losses.below_one(grid)] == [
        "0.90, beyond the rounds' spread)",
        "0.95, within the rounds' spread)",
    ]
    assert "1 of 3; 1.51" in grid_losses.short(grid)
    assert grid_losses.section(Grid(None)) == grid_losses.short(Grid(None)) == ""


def test_losses_in_short_have_a_line_for_each_kind_with_its_heaviest() -> None:
    lost = {"subject": "lockstep", "baseline": "kafka", "kind": "headline"}
    rows = [_ratio("latency64.rate.cross", 0.4), _ratio("latency16.rate.cross", 0.5), _ratio("consume", 2.0)]
    won = {**lost, "kind": "atomic", "comparison": [_ratio("consume", 2.0)]}
    text = losses.short([{**lost, "comparison": rows}, won])
    heaviest = f"{RATIOS['latency64.rate.cross'].title}: 0.40"
    assert _lines(text)["headline"] == ["2 of 3", "2", heaviest]
    assert text.endswith("In none of 1 of atomic.")


def test_kept_titles_become_todays_and_kills_that_were_not_seen_are_in_no_median() -> None:
    old = {
        "ratio": "produce.flush",
        "title": "one node: throughput, both flush",
        "unit": "MB/s",
        "value": 3.0,
    }
    gone = {**old, "ratio": "no more", "title": "kept"}
    found = prepared({"kind": "headline", "comparison": [old, gone]})["comparison"]
    assert [row["title"] for row in found] == ["one node, 1 partition: throughput, both flush", "kept"]
    for title in (
        ratio.title for name, ratio in RATIOS.items() if "memory" not in name and name != "restart"
    ):
        assert "partition" in title, title
    kill = {"ratio": "resume.g3", "title": "", "unit": "s", "value": 0.3, "goal": "<= 1", "met": True}
    kill |= {
        "subject": 0.3,
        "subject_values": [-0.8, 0.3, 1.5, 1.9],
        "baseline": 1.0,
        "baseline_values": [1.0],
    }
    (row,) = prepared({"kind": "nodes3", "comparison": [kill]})["comparison"]
    assert row["value"] == 1.5 and row["met"] is False and row["subject_values"] == kill["subject_values"]
    (row,) = prepared({"kind": "nodes3", "comparison": [{**kill, "subject_values": [-1.0]}]})["comparison"]
    assert row["value"] is None


def test_memory_is_that_of_sessions_that_serve_what_the_others_serve() -> None:
    def served(side: str, megabytes: float, *names: str) -> dict[str, Any]:
        return {
            "side": side,
            "blocks": [{"name": name} for name in names],
            "memory": {"rss_max_mb": megabytes},
        }

    every = ("produce", "members")
    sessions = [
        served("baseline", 1000.0, *every),
        served("subject", 190.0, *every, "restart"),
        served("subject", 210.0, *every),
        served("subject", 90.0, "produce"),
        {"side": "subject", "blocks": [{"name": "produce"}], "memory": {}},
    ]
    old = {"ratio": "memory.max", "title": "", "unit": "MB", "value": 0.13, "goal": "<= 0.15", "met": True}
    old |= {"subject": 130.0, "subject_values": [190.0, 210.0, 90.0], "baseline_values": [1000.0]}
    (row,) = prepared({"comparison": [old], "sessions": sessions})["comparison"]
    assert (row["value"], row["met"], row["subject_values"]) == (0.2, False, [190.0, 210.0])
    (row,) = prepared({"comparison": [old], "sessions": sessions, "kind": "headline"})["comparison"]
    assert row["value"] == 0.13


def test_links_of_a_section_lead_to_the_same_place_from_its_page() -> None:
    text = "[a](decisions/1.md) ![b](growth.svg) [c](benchmarks/grid.md) [d](#e) [f](https://g) [h](../R.md)"
    assert placed(text, "benchmarks.md") == text
    assert placed(text, "benchmarks/player.md") == (
        "[a](../decisions/1.md) ![b](../growth.svg) [c](grid.md) [d](#e) [f](https://g) [h](../../R.md)"
    )


def test_each_result_has_its_page_and_the_machine_is_told_once() -> None:
    shared = {
        "command": "python -m bench growth",
        "started": "2026-01-01T00:00:00Z",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**MACHINE, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        "failures": [],
    }
    axes = {"batch": 32, "batch_rate": 10_000, "seconds": 2.0}
    store = {**shared, "kind": "logstore", "axes": axes, "stream_bytes_per_s": 87_000_000, "runs": []}
    feed = {**shared, "kind": "feed", "command": "python -m bench feed", "sizes": [], "rounds": []}
    found = pages([store], ["a.json"])
    assert list(found) == [FIRST, "benchmarks/logstore.md"] and feed["kind"] == "feed"
    first, other = found.values()
    assert "- P, 2 CPUs" in first and "P, 2 CPUs" not in other and "- commit 0123456789ab" in other
    assert "](benchmarks/logstore.md)" in first and "](../benchmarks.md)" in other
    elsewhere = {**store, "machine": {**store["machine"], "kernel": "7"}}  # type: ignore[dict-item]
    assert "kernel 7" in pages([elsewhere])[FIRST]


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


PATHS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


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
    shown = _lines((DOCS / FIRST).read_text().split("\n## In short\n")[1].split("\n## ")[0])
    rows = {name: cells for name, cells in _lines(section).items() if name.startswith(("one node", "three"))}
    assert len(rows) >= 10
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
