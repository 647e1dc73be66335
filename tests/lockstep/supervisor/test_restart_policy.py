"""When a node's process is started again, and when all stop."""

from __future__ import annotations

import signal

from lockstep.supervisor.restart_policy import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    STEADY_SECONDS,
    EndAll,
    Restart,
    RestartPolicy,
    describe_end,
)
from tests.support.cases import each_case


def test_pauses_grow_to_a_limit_and_begin_again_after_a_steady_time() -> None:
    policy, now, pauses = RestartPolicy(), 100.0, []
    for _ in range(9):
        policy.on_start(now)
        now += 1
        decision = policy.on_end(-9, now, has_served=True)
        assert isinstance(decision, Restart)
        pauses.append(decision.pause_seconds)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    policy.on_start(now)
    now += STEADY_SECONDS
    assert policy.on_end(-9, now, has_served=True) == Restart(FIRST_PAUSE_SECONDS)
    assert max(pauses) == MAX_PAUSE_SECONDS


@each_case(
    ("status", "has_served", "decision"),
    [
        (0, True, Restart(0.5)),
        (0, False, Restart(0.5)),
        (1, True, Restart(0.5)),
        (1, False, EndAll(1)),
        (2, True, EndAll(2)),
        (70, True, EndAll(70)),
        (70, False, EndAll(70)),
        (-9, False, Restart(0.5)),
        (137, True, Restart(0.5)),
    ],
)
def test_ends_that_a_start_cannot_mend_end_all(
    status: int, has_served: bool, decision: Restart | EndAll
) -> None:
    policy = RestartPolicy()
    policy.on_start(5)
    assert policy.on_end(status, 6, has_served=has_served) == decision


def test_an_exit_status_is_described() -> None:
    assert describe_end(0) == "has stopped"
    assert describe_end(70) == "ended with status 70"
    assert describe_end(-signal.SIGKILL) == "was killed by signal 9 (SIGKILL)"
    assert describe_end(-250) == "was killed by signal 250"
