"""A coordinator loads and resigns with the leadership of its log group, as a test tells it."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.coordination.coordinator_shard import CoordinatorShard
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.types import NotLeader
from tests.broker.coordination.fakes import FakeGroup
from tests.support.cases import each_case

E = ErrorCode


class Noting:
    """A coordinator that notes what it is told."""

    def __init__(self) -> None:
        self.not_serving_error = E.NOT_COORDINATOR
        self.on_status: list[str] = []

    def prepare_load(self) -> None:
        self.not_serving_error = E.COORDINATOR_LOAD_IN_PROGRESS
        self.on_status.append("expect")

    def load(self) -> None:
        self.not_serving_error = E.NONE
        self.on_status.append("load")

    def resign(self) -> None:
        self.not_serving_error = E.NOT_COORDINATOR
        self.on_status.append("resign")


def hosted_by(group: Any) -> CoordinatorShard[Noting]:
    return CoordinatorShard(group, Noting(), "tests")


def refused(shard: CoordinatorShard[Noting]) -> tuple[ErrorCode, str]:
    with pytest.raises(RequestError) as found:
        shard.require()
    return found.value.error, found.value.message


def test_a_leadership_from_its_beginning_to_its_end() -> None:
    group = FakeGroup()
    shard = hosted_by(group)
    told = shard.coordinator.on_status
    assert refused(shard) == (E.NOT_COORDINATOR, "log group 1 is not led here")
    group.lead(True)
    assert told == ["expect"] and not shard.serves
    assert refused(shard) == (
        E.COORDINATOR_LOAD_IN_PROGRESS,
        "the tests of log group 1 are not served",
    )
    group.commit()
    assert told == ["expect", "load"] and shard.serves
    assert shard.require() is shard.coordinator
    group.lead(False)
    assert told == ["expect", "load", "resign"] and not shard.serves


def test_what_is_led_already_is_expected_at_once() -> None:
    group = FakeGroup()
    group.is_leader = group.has_lease = True
    shard = hosted_by(group)
    assert shard.coordinator.on_status == ["expect"]
    group.commit()
    assert shard.serves


def held_up() -> tuple[FakeGroup, CoordinatorShard[Noting]]:
    """A coordinator that serves, without a lease."""
    group = FakeGroup()
    shard = hosted_by(group)
    group.lead(True)
    group.commit()
    group.has_lease = False
    return group, shard


async def test_a_leader_without_its_lease_is_lapsed_until_it_has_one() -> None:
    group, shard = held_up()
    assert shard.is_lapsed
    confirmation = shard.confirm()
    group.read_index.asked[0].set_result(True)
    assert await confirmation
    assert shard.is_lapsed, "of the next request it says nothing"
    group.has_lease = True
    assert not shard.is_lapsed
    group.has_lease = False
    group.lead(False)
    assert not shard.is_lapsed, "it does not lead"


def test_what_an_earlier_leadership_waited_for_does_not_count() -> None:
    group = FakeGroup()
    shard = hosted_by(group)
    for leading in (True, False, True):
        group.lead(leading)
    group.commit()  # the first one's
    assert shard.coordinator.on_status == ["expect", "resign", "expect"]
    group.commit()
    assert shard.serves


def test_a_leadership_lost_before_it_is_loaded() -> None:
    group = FakeGroup()
    shard = hosted_by(group)
    group.lead(True)
    group.commit(NotLeader("lost"))
    assert shard.coordinator.not_serving_error is E.COORDINATOR_LOAD_IN_PROGRESS
    group.lead(False)
    assert shard.coordinator.on_status == ["expect", "resign"]


@each_case("end", ["stop", "leave"])
def test_it_follows_no_more(end: str) -> None:
    group = FakeGroup()
    shard = hosted_by(group)
    group.lead(True)
    for _ in range(2):
        getattr(shard, end)()
    assert group.on_leading == []
    group.commit()
    assert shard.coordinator.on_status == ["expect", "resign", "resign"]
