"""A coordinator loads and resigns with the leadership of its log group, as a test tells it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordination.hosted import Hosted
from broker.refused import Refused
from protocol.errors import ErrorCode
from storage.types import NotLeader
from tests.broker.coordination.fakes import FakeGroup

E = ErrorCode


class Noting:
    """A coordinator that notes what it is told."""

    def __init__(self) -> None:
        self.refusal = E.NOT_COORDINATOR
        self.told: list[str] = []

    def expect(self) -> None:
        self.refusal = E.COORDINATOR_LOAD_IN_PROGRESS
        self.told.append("expect")

    def load(self) -> None:
        self.refusal = E.NONE
        self.told.append("load")

    def resign(self) -> None:
        self.refusal = E.NOT_COORDINATOR
        self.told.append("resign")


def hosted_by(group: Any) -> Hosted[Noting]:
    return Hosted(group, Noting(), "tests")


def refused(hosted: Hosted[Noting]) -> tuple[ErrorCode, str]:
    with pytest.raises(Refused) as found:
        hosted.require()
    return found.value.error, found.value.message


def test_a_leadership_from_its_beginning_to_its_end() -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    told = hosted.coordinator.told
    assert refused(hosted) == (E.NOT_COORDINATOR, "log group 1 is not led here")
    group.lead(True)
    assert told == ["expect"] and not hosted.serves
    hosted.require_lease()
    assert refused(hosted) == (
        E.COORDINATOR_LOAD_IN_PROGRESS,
        "the tests of log group 1 are not served",
    )
    group.commit()
    assert told == ["expect", "load"] and hosted.serves
    assert hosted.require() is hosted.coordinator
    group.lead(False)
    assert told == ["expect", "load", "resign"] and not hosted.serves


def test_what_is_led_already_is_expected_at_once() -> None:
    group = FakeGroup()
    group.is_leader = group.has_lease = True
    hosted = hosted_by(group)
    assert hosted.coordinator.told == ["expect"]
    group.commit()
    assert hosted.serves


def test_without_its_lease_a_leader_says_nothing() -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    group.lead(True)
    group.commit()
    group.has_lease = False
    assert refused(hosted) == (E.NOT_COORDINATOR, "it is not certain that log group 1 is still led here")
    with pytest.raises(Refused):
        hosted.require_lease()


def test_what_an_earlier_leadership_waited_for_does_not_count() -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    for leading in (True, False, True):
        group.lead(leading)
    group.commit()  # the first one's
    assert hosted.coordinator.told == ["expect", "resign", "expect"]
    group.commit()
    assert hosted.serves


def test_a_leadership_lost_before_it_is_loaded() -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    group.lead(True)
    group.commit(NotLeader("lost"))
    assert hosted.coordinator.refusal is E.COORDINATOR_LOAD_IN_PROGRESS
    group.lead(False)
    assert hosted.coordinator.told == ["expect", "resign"]


@pytest.mark.parametrize("end", ["stop", "leave"])
def test_it_follows_no_more(end: str) -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    group.lead(True)
    for _ in range(2):
        getattr(hosted, end)()
    assert group.on_leading == []
    group.commit()
    assert hosted.coordinator.told == ["expect", "resign", "resign"]
