"""A short cut of the crash-state enumeration, and proof that it sees mistakes."""

from __future__ import annotations

import pytest

from tests.storage.log.crash_scenarios import SCENARIOS
from tests.storage.log.crash_states import caught, enumerate_states
from tests.storage.log.planted_faults import FAULTS


def test_every_state_a_crash_leaves_recovers() -> None:
    found = enumerate_states(1200, seed=7)
    assert found.problems == []
    assert set(found.counts) == set(SCENARIOS) and min(found.counts.values()) > 20


@pytest.mark.tier(name="rest")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_mistake_is_caught(fault: str) -> None:
    assert caught(fault, 4000, seed=1)[1]
