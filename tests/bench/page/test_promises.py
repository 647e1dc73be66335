"""The goals of all comparisons on the page, in one table."""

from __future__ import annotations

from typing import Any

from bench.page.promises import section

MET: dict[str, Any] = {"title": "throughput", "value": 3.5, "goal": ">= 3", "met": True}
ABSENT: dict[str, Any] = {"title": "p50", "value": None, "goal": "<= 1", "met": False}
FREE: dict[str, Any] = {"title": "free", "value": 1.0}


def result(*rows: dict[str, Any], kind: str = "nodes3") -> dict[str, Any]:
    return {"kind": kind, "started": "2026-01-02T03:04:05Z", "comparison": list(rows)}


def test_each_goal_has_its_figure_its_day_and_its_verdict() -> None:
    text = section([result(MET, ABSENT, FREE)])
    assert "1 of 2 goals of earlier steps met" in text
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
