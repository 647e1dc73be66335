"""Numbers that no group can run with are refused; the lease is shorter than the voters' promise."""

from typing import Any

import pytest

from lockstep.storage.raft.settings import RaftSettings
from tests.support.cases import each_case


@each_case(
    "wrong",
    [
        {"heartbeat_ms": 0},
        {"heartbeat_ms": 500},
        {"pipeline_depth": 0},
        {"commit_push_ms": 50},
        {"deferral_ms": 50},
        {"deferral_ms": -1},
        {"hedge_ms": 0},
        {"probe_commits": 0},
        {"election_stagger_ms": 0},
        {"commit_push_ms": -1},
        {"append_timeout_ms": 0},
        {"install_timeout_ms": 0},
        {"clock_drift": 0.5},
        {"clock_drift": -0.1},
    ],
)
def test_impossible_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"heartbeats|begin at 1|drift"):
        RaftSettings(**wrong)


@each_case("drift", [0.0, 0.01, 0.05, 0.2, 0.4])
def test_the_lease_ends_before_the_promise_it_rests_on(drift: float) -> None:
    settings = RaftSettings(clock_drift=drift)
    slow_leader = settings.lease_ms / (1 - drift)  # real time that passes while its clock counts the lease
    fast_voter = settings.election_timeout_ms / (1 + drift)
    assert slow_leader <= fast_voter
    assert settings.transfer_timeout_ms == settings.election_timeout_ms
