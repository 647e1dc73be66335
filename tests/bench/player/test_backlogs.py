"""Blocks of what is in the log already, run."""

from __future__ import annotations

from typing import Any

import pytest

from bench.player.backlogs import (
    DUMMY_WINDOW,
    MISSED_MEMORY,
    OTHERS_CALM,
    OTHERS_STALLED,
    TARGETS,
    Backlogs,
    Stalled,
    pause_process,
)
from bench.player.points import SMOKE
from bench.sessions.children import Child
from bench.sessions.jobs import RoundFailed


def test_a_log_that_is_there_is_played_and_a_target_recovers(session: Any) -> None:
    backlogs = Backlogs(session, SMOKE)
    backlogs.throughput("grpc")
    backlogs.recovery(20)
    found = {block["name"]: block["figures"] for block in session.blocks}
    assert found["throughput"]["records"] == SMOKE.throughput_records
    assert found["throughput"]["records_per_s"] > 0
    assert found["recovery20"]["recovery_s"] > 0 and found["recovery20"]["reconnect_s"] > 0


def test_dummies_save_a_player_that_starts_again_from_reading_all(session: Any) -> None:
    backlogs = Backlogs(session, SMOKE)
    for every in SMOKE.dummies:
        backlogs.dummies(every)
    none, some = (block["figures"] for block in session.blocks)
    assert none["read_again"] == SMOKE.dummy_entries - 1 and none["dummies"] == 0
    assert some["read_again"] < 10 + DUMMY_WINDOW and some["dummies"] > 10


def test_a_target_that_stands_still_loses_nothing_and_the_others_go_on(session: Any) -> None:
    stalled = Stalled(session, SMOKE)
    stalled.others()
    stalled.measure_missed()
    found = {block["name"]: block["figures"] for block in session.blocks}
    assert list(found) == [OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY]
    parts = min(SMOKE.targets_keys, TARGETS)
    for name in (OTHERS_CALM, OTHERS_STALLED):
        assert found[name]["samples"] >= (parts - 1) * found[name]["writes"] // 2 > 0
        assert 0 < found[name]["apply_p50_ms"] <= found[name]["apply_p99_ms"]
    assert found[MISSED_MEMORY]["missed"] == SMOKE.stall_records
    assert found[MISSED_MEMORY]["calm_mb"] > 0 and found[MISSED_MEMORY]["grown_mb"] >= 0


def test_a_stopped_process_continues_afterwards() -> None:
    with Child(
        "bench.player.targets", {"targets": 1, "transport": "raw", "directory": "", "keep": False}
    ) as child:
        child.next_response()
        with pytest.raises(RoundFailed, match="did not respond"), pause_process(child.pid):
            child.call({"do": "wait", "records": [0], "timeout_s": 1}, 0.3)
        assert child.next_response()["targets"][0]["records"] == 0


def test_a_child_that_fails_reports_the_reason(session: Any) -> None:
    job = {"bootstrap": session.target.bootstrap, "log": "nowhere", "topics": ["nowhere"]}
    with (
        Child("bench.player.kafka_player", job) as child,
        pytest.raises(RoundFailed, match="the kafka_player: "),
    ):
        child.next_response()
    with Child("bench.player.writer", {"mode": "log"}) as child:
        with pytest.raises(RoundFailed, match="KeyError"):
            child.next_response()
        with pytest.raises(RoundFailed, match="the writer ended"):
            child.next_response()
