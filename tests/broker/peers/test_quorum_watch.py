"""When a node says that it waits for a majority, and what."""

from __future__ import annotations

import pytest

from lockstep.broker.peers.quorum_watch import (
    CHANGED_SECONDS,
    REPEAT_SECONDS,
    TIMEOUT_SECONDS,
    QuorumReach,
    QuorumWatch,
)
from tests.support.cases import each_case

REFUSED = QuorumReach((1, 2, 3), {2: "at b:1 (connection refused)", 3: "at c:1 (no answer)"})
OTHER = QuorumReach((1, 2, 3), {2: "at b:1 (no answer)", 3: "at c:1 (no answer)"})
ENOUGH = QuorumReach((1, 2, 3), {3: "at c:1 (no answer)"})


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said since the last look."""
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


@each_case(
    ("voters", "unreached", "enough"),
    [((1,), 0, True), ((1, 2), 1, False), ((1, 2, 3), 1, True), ((1, 2, 3, 4), 2, False)],
)
def test_a_majority_is_more_than_half(voters: tuple[int, ...], unreached: int, enough: bool) -> None:
    reach = QuorumReach(voters, dict.fromkeys(voters[:unreached], "away"))
    assert reach.is_majority is enough
    assert str(reach) == f"{len(voters) - unreached} of {len(voters)}"


def test_a_lasting_loss_of_majority_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lockstep")
    watch = QuorumWatch()
    times = []
    for now in range(200):
        watch.check(REFUSED, float(now))
        times += [now] * len(lines(caplog))
    first = int(TIMEOUT_SECONDS)
    assert times == [first, first + int(REPEAT_SECONDS), first + 2 * int(REPEAT_SECONDS), first + 180]
    watch.check(ENOUGH, 200.0)
    assert lines(caplog) == ["a majority of the nodes that elect the controller is reached now (2 of 3)"]
    watch.check(ENOUGH, 201.0)
    watch.check(REFUSED, 202.0)
    watch.check(ENOUGH, 203.0)
    assert lines(caplog) == [], "what ends soon is not told"


def test_changes_are_logged_without_a_flood(caplog: pytest.LogCaptureFixture) -> None:
    watch = QuorumWatch()
    for now in (0.0, TIMEOUT_SECONDS):
        watch.check(REFUSED, now)
    (line,) = lines(caplog)
    assert line == (
        "waiting for a majority of the nodes that elect the controller (1 of 3 reached): "
        "node 2 at b:1 (connection refused); node 3 at c:1 (no answer)"
    )
    for step in range(100):  # a second's tenth each
        watch.check(OTHER if step % 2 else REFUSED, TIMEOUT_SECONDS + step / 10)
    assert len(lines(caplog)) <= 10 / CHANGED_SECONDS
