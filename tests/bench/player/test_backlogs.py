"""Blocks of what is in the log already, run."""

from __future__ import annotations

from typing import Any

from bench.player.backlogs import DUMMY_WINDOW, Backlogs
from bench.player.points import SMOKE


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
