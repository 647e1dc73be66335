"""Few log lines, whatever others do."""

from __future__ import annotations

import logging

import pytest

from lockstep.storage.rate_limited_log import (
    LINES_PER_SECOND,
    MAX_REMEMBERED,
    REPEAT_INTERVAL_SECONDS,
    RateLimitedLog,
)

log = logging.getLogger("lockstep.test")


class Clock:
    """What time it is said to be."""

    now = 1000.5

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_a_few_lines_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = RateLimitedLog(clock, log)
    for _ in range(100):
        complaints.warning("bytes that are no message")
    assert len(lines(caplog)) == LINES_PER_SECOND
    complaints.warning("left out", "left out")
    assert lines(caplog) == []
    clock.now += 1
    complaints.warning("left out", "left out")
    assert lines(caplog) == [f"{101 - LINES_PER_SECOND} more such lines left out", "left out"], (
        "what was never said is not taken for said"
    )


def test_the_same_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = RateLimitedLog(clock, log)
    said: dict[tuple[int, str], list[float]] = {}
    for _ in range(180):
        for same in ((2, "no"), (2, "no"), (3, "no"), (3, "never")):
            complaints.warning(f"node {same[0]} is refused: {same[1]}", same)
            if lines(caplog):
                said.setdefault(same, []).append(clock.now - 1000.5)
        clock.now += 1
    assert (
        set(map(tuple, said.values())) == {(0, REPEAT_INTERVAL_SECONDS, 2 * REPEAT_INTERVAL_SECONDS)}
        and len(said) == 3
    )


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = RateLimitedLog(clock, log)
    for number in range(10 * MAX_REMEMBERED):
        complaints.warning(str(number), number)
        clock.now += 1
    assert len(complaints._logged_at) == MAX_REMEMBERED
