"""Few log lines, whatever others do."""

from __future__ import annotations

import logging

import pytest

from storage.complaints import AGAIN_SECONDS, COMPLAINTS_PER_SECOND, MOST_COMPLAINTS, Complaints

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
    complaints = Complaints(clock, log)
    for _ in range(100):
        complaints.say("bytes that are no message")
    assert len(lines(caplog)) == COMPLAINTS_PER_SECOND
    complaints.say("left out", "left out")
    assert lines(caplog) == []
    clock.now += 1
    complaints.say("left out", "left out")
    assert lines(caplog) == [f"{101 - COMPLAINTS_PER_SECOND} more such lines left out", "left out"], (
        "what was never said is not taken for said"
    )


def test_the_same_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = Complaints(clock, log)
    said: dict[tuple[int, str], list[float]] = {}
    for _ in range(180):
        for same in ((2, "no"), (2, "no"), (3, "no"), (3, "never")):
            complaints.say(f"node {same[0]} is refused: {same[1]}", same)
            if lines(caplog):
                said.setdefault(same, []).append(clock.now - 1000.5)
        clock.now += 1
    assert set(map(tuple, said.values())) == {(0, AGAIN_SECONDS, 2 * AGAIN_SECONDS)} and len(said) == 3


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = Complaints(clock, log)
    for number in range(10 * MOST_COMPLAINTS):
        complaints.say(str(number), number)
        clock.now += 1
    assert len(complaints._said) == MOST_COMPLAINTS
