"""Kept results as the pages show them."""

from __future__ import annotations

from typing import Any

from bench.kinds.headline import RATIOS
from bench.page.prepared import prepare


def test_kept_titles_become_todays_and_kills_that_were_not_seen_are_in_no_median() -> None:
    old = {
        "ratio": "produce.flush",
        "title": "one node: throughput, both flush",
        "unit": "MB/s",
        "value": 3.0,
    }
    gone = {**old, "ratio": "no more", "title": "kept"}
    found = prepare({"kind": "headline", "comparison": [old, gone]})["comparison"]
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
    (row,) = prepare({"kind": "nodes3", "comparison": [kill]})["comparison"]
    assert row["value"] == 1.5 and row["met"] is False and row["subject_values"] == kill["subject_values"]
    (row,) = prepare({"kind": "nodes3", "comparison": [{**kill, "subject_values": [-1.0]}]})["comparison"]
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
    (row,) = prepare({"comparison": [old], "sessions": sessions})["comparison"]
    assert (row["value"], row["met"], row["subject_values"]) == (0.2, False, [190.0, 210.0])
    (row,) = prepare({"comparison": [old], "sessions": sessions, "kind": "headline"})["comparison"]
    assert row["value"] == 0.13
