"""Blocks of a target that stands still, run."""

from __future__ import annotations

from typing import Any

import pytest

from bench.player.points import SMOKE
from bench.player.stalled import MISSED_MEMORY, OTHERS_CALM, OTHERS_STALLED, TARGETS, Stalled, pause_process
from bench.sessions.children import Child
from bench.sessions.failures import RoundFailed


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


def test_who_is_stopped_goes_on_afterwards() -> None:
    with Child(
        "bench.player.targets", {"targets": 1, "transport": "raw", "directory": "", "keep": False}
    ) as child:
        child.next_response()
        with pytest.raises(RoundFailed, match="said nothing"), pause_process(child.pid):
            child.ask({"do": "wait", "records": [0], "timeout_s": 1}, 0.3)
        assert child.next_response()["targets"][0]["records"] == 0
