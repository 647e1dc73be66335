"""A coordinator loads and resigns with the leadership of its log group, as a test tells it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.coordination.coordinator_shard import CoordinatorShard, LeaseExpired, with_read_barrier
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.types import NotLeader
from tests.broker.coordination.fakes import FakeGroup

E = ErrorCode


class Noting:
    """A coordinator that notes what it is told."""

    def __init__(self) -> None:
        self.refusal = E.NOT_COORDINATOR
        self.on_status: list[str] = []

    def expect(self) -> None:
        self.refusal = E.COORDINATOR_LOAD_IN_PROGRESS
        self.on_status.append("expect")

    def load(self) -> None:
        self.refusal = E.NONE
        self.on_status.append("load")

    def resign(self) -> None:
        self.refusal = E.NOT_COORDINATOR
        self.on_status.append("resign")


def hosted_by(group: Any) -> CoordinatorShard[Noting]:
    return CoordinatorShard(group, Noting(), "tests")


def refused(hosted: CoordinatorShard[Noting]) -> tuple[ErrorCode, str]:
    with pytest.raises(RequestError) as found:
        hosted.require()
    return found.value.error, found.value.message


def test_a_leadership_from_its_beginning_to_its_end() -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    told = hosted.coordinator.on_status
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
    assert hosted.coordinator.on_status == ["expect"]
    group.commit()
    assert hosted.serves


def held_up() -> tuple[FakeGroup, CoordinatorShard[Noting]]:
    """A coordinator that serves, without a lease."""
    group = FakeGroup()
    hosted = hosted_by(group)
    group.lead(True)
    group.commit()
    group.has_lease = False
    return group, hosted


def test_without_its_lease_a_leader_says_nothing() -> None:
    _, hosted = held_up()
    for ask in (hosted.require, hosted.require_lease):
        with pytest.raises(
            LeaseExpired, match="it is not certain that log group 1 is still led here"
        ) as found:
            ask()
        assert found.value.hosted is hosted


async def test_what_is_certain_is_said_at_once() -> None:
    group, hosted = held_up()
    group.has_lease = True
    asking = with_read_barrier(hosted.require)
    with pytest.raises(StopIteration) as said:
        asking.send(None)
    assert said.value.value is hosted.coordinator and not group.read_index.asked


@pytest.mark.parametrize("leads", [True, False])
async def test_whether_it_still_leads_is_found_out_first(leads: bool) -> None:
    group, hosted = held_up()
    asking = asyncio.ensure_future(with_read_barrier(hosted.require))
    await asyncio.sleep(0)
    (answer,) = group.read_index.asked
    answer.set_result(leads)
    if leads:
        assert await asking is hosted.coordinator
    else:
        with pytest.raises(RequestError, match="it is not certain") as found:
            await asking
        assert found.value.error is E.NOT_COORDINATOR
    assert hosted.is_confirmed is None and len(group.read_index.asked) == 1
    with pytest.raises(LeaseExpired):
        hosted.require()  # of the next request it says nothing


async def test_what_asks_several_coordinators_finds_out_of_each() -> None:
    several = [held_up() for _ in range(3)]
    several[1][0].has_lease = True

    def serve() -> list[Noting]:
        return [hosted.require() for _, hosted in several]

    asking = asyncio.ensure_future(with_read_barrier(serve))
    for group, _ in (several[0], several[2]):
        for _ in range(3):
            await asyncio.sleep(0)
        assert not asking.done()
        group.read_index.asked[0].set_result(True)
    assert await asking == [hosted.coordinator for _, hosted in several]


async def test_a_leadership_that_ends_meanwhile() -> None:
    group, hosted = held_up()
    asking = asyncio.ensure_future(with_read_barrier(hosted.require))
    await asyncio.sleep(0)
    group.lead(False)
    group.read_index.asked[0].set_result(False)
    with pytest.raises(RequestError, match="log group 1 is not led here"):
        await asking


def test_what_an_earlier_leadership_waited_for_does_not_count() -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    for leading in (True, False, True):
        group.lead(leading)
    group.commit()  # the first one's
    assert hosted.coordinator.on_status == ["expect", "resign", "expect"]
    group.commit()
    assert hosted.serves


def test_a_leadership_lost_before_it_is_loaded() -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    group.lead(True)
    group.commit(NotLeader("lost"))
    assert hosted.coordinator.refusal is E.COORDINATOR_LOAD_IN_PROGRESS
    group.lead(False)
    assert hosted.coordinator.on_status == ["expect", "resign"]


@pytest.mark.parametrize("end", ["stop", "leave"])
def test_it_follows_no_more(end: str) -> None:
    group = FakeGroup()
    hosted = hosted_by(group)
    group.lead(True)
    for _ in range(2):
        getattr(hosted, end)()
    assert group.on_leading == []
    group.commit()
    assert hosted.coordinator.on_status == ["expect", "resign", "resign"]
