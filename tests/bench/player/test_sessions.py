"""The order of a player run's sessions, and what is measured once."""

from __future__ import annotations

from bench.player.sessions import BACKLOGS, DELAYS, KAFKA, LOCKSTEP, ONE, PARTS, SUSTAINED, plan_sessions


def test_sessions_alternate_and_what_is_measured_once_is_in_the_first() -> None:
    plan = plan_sessions(frozenset(PARTS), 2)
    assert [each.kind for each in plan] == [LOCKSTEP, KAFKA, KAFKA, LOCKSTEP, ONE]
    assert [SUSTAINED in each.parts for each in plan] == [True, False, False, False, False]
    assert [each.first for each in plan if each.kind == KAFKA] == [True, False]
    assert [each.kind for each in plan_sessions(frozenset({BACKLOGS}), 2)] == [ONE]
    assert [each.kind for each in plan_sessions(frozenset({SUSTAINED}), 2)] == [LOCKSTEP]
    assert KAFKA in {each.kind for each in plan_sessions(frozenset({DELAYS}), 1)}
