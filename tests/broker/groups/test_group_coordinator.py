"""The coordinator on a clock and a store driven by hand: restarts, commits of offsets, looking, deleting."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.groups.group_records import CommittedOffset, offset_record
from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.fakes import DELAY_MS, SESSION_MS, World, completing, error_of, rejoin, static_pair

E = ErrorCode


@pytest.fixture
def world() -> World:
    return World()


# --- restart and resignation -----------------------------------------------------------------------------


def test_members_are_taken_over_after_a_restart(world: World) -> None:
    leader, follower = world.stable(2)
    world.coordinator.resign()
    assert world.loop.armed == 0
    world.loop.advance(100_000)
    world.start()
    assert world.state() == "Stable"
    assert world.heartbeat(leader) is E.NONE
    assert world.sync(follower).response.assignment == b"part of " + follower.member_id.encode()
    world.loop.advance(SESSION_MS - 1)
    world.heartbeat(leader)
    world.loop.advance(1)
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID
    (answer,) = rejoin(world, leader)
    assert (answer.response.generation_id, len(answer.response.members)) == (2, 1)


def test_static_members_are_taken_over(world: World) -> None:
    _, follower = static_pair(world)
    world.coordinator.resign()
    world.start()
    assert error_of(world.ask_join(instance="i1")) is E.NONE
    assert world.heartbeat(follower, instance="i1") is E.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("topics", "state"), [((b"old",), "Stable"), ((b"old", b"new"), "PreparingRebalance")]
)
def test_static_members_that_are_taken_over_come_back(
    world: World, topics: tuple[bytes, ...], state: str
) -> None:
    """The committed subscription tells whether a member's topics are others now."""

    def subscription(*names: bytes) -> dict[str, bytes]:
        listed = b"".join(len(each).to_bytes(2, "big") + each for each in names)
        return {"range": b"\0\1" + len(names).to_bytes(4, "big") + listed}

    static_pair(world, protocols=subscription(b"old"))
    world.coordinator.resign()
    world.start()
    back = world.ask_join(instance="i1", protocols=subscription(*topics))
    assert back.done is (state == "Stable") and world.state() == state


def test_generations_go_on_after_a_group_was_empty(world: World) -> None:
    (leader,) = world.stable(1)
    world.leave(leader.member_id)
    world.coordinator.resign()
    world.start()
    (again,) = world.stable(1)
    assert again.generation_id == 3


def test_pending_requests_are_redirected(world: World) -> None:
    leader, _ = world.stable(2)
    (last,) = world.stable(1, group="third")
    joining = world.ask_join(member=leader.member_id)
    syncing = completing_in(world, "other")
    world.store.at_once = False
    leaving = world.leave(last.member_id, group="third")
    world.coordinator.resign()
    world.loop.turn()
    assert error_of(joining) is E.NOT_COORDINATOR
    assert error_of(syncing) is E.NOT_COORDINATOR
    while world.store.waiting:
        world.store.commit()
    assert error_of(leaving) is E.NOT_COORDINATOR
    assert world.loop.armed == 0
    assert error_of(world.ask_join()) is E.NOT_COORDINATOR
    assert world.heartbeat(leader) is E.NOT_COORDINATOR
    assert error_of(world.sync(leader)) is E.NOT_COORDINATOR
    assert world.leave(leader.member_id).error_code == E.NOT_COORDINATOR
    assert world.coordinator.check_commit("g", "", None, -1) is E.NOT_COORDINATOR


def completing_in(world: World, group: str) -> Any:
    """A SyncGroup that waits for its commit."""
    answer = world.join(group)
    world.loop.advance(DELAY_MS)
    world.store.at_once = False
    waiting = world.sync(answer.response, {}, group)
    world.store.at_once = True
    assert not waiting.done
    return waiting


def test_before_it_is_loaded(world: World) -> None:
    leader, _ = world.stable(2)
    coordinator = world.coordinator = world.unloaded()
    assert error_of(world.ask_join()) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.heartbeat(leader) is E.NONE, "its group is being loaded: it need not know"
    coordinator.load()
    assert world.heartbeat(leader) is E.NONE


# --- offsets ---------------------------------------------------------------------------------------------


def test_the_members_that_may_commit(world: World) -> None:
    check = world.coordinator.check_commit
    assert check("new", "", None, -1) is E.NONE
    assert check("new", "m", None, 1) is E.ILLEGAL_GENERATION
    leader, follower = world.stable(2)
    assert check("g", leader.member_id, None, 1) is E.NONE
    assert check("g", leader.member_id, None, 2) is E.ILLEGAL_GENERATION
    assert check("g", leader.member_id, None, -1) is E.ILLEGAL_GENERATION
    assert check("g", leader.member_id, "i", 1) is E.UNKNOWN_MEMBER_ID
    assert check("g", "unknown", None, 1) is E.UNKNOWN_MEMBER_ID
    assert check("g", "", None, -1) is E.UNKNOWN_MEMBER_ID
    (again,) = rejoin(world, leader)
    assert check("g", follower.member_id, None, 1) is E.NONE
    rejoin(world, follower)
    assert again.done
    assert check("g", follower.member_id, None, 2) is E.REBALANCE_IN_PROGRESS
    world.leave(leader.member_id, follower.member_id)
    assert check("g", leader.member_id, None, 2) is E.UNKNOWN_MEMBER_ID
    assert check("g", "", None, -1) is E.NONE


def test_a_commit_is_a_sign_of_life(world: World) -> None:
    (leader,) = world.stable(1)
    for _ in range(3):
        world.loop.advance(SESSION_MS - 1)
        assert world.coordinator.check_commit("g", leader.member_id, None, 1) is E.NONE
    assert world.heartbeat(leader) is E.NONE


def test_the_members_that_may_commit_within_a_transaction(world: World) -> None:
    """As Apache Kafka 4.3.1 answered the same (KIP-447)."""

    def check(group: str, member: str, instance: str | None, generation: int) -> ErrorCode:
        return world.coordinator.check_commit(group, member, instance, generation, transactional=True)

    assert check("new", "", None, -1) is E.NONE and check("new", "m", None, -1) is E.NONE
    assert check("new", "m", None, 1) is E.ILLEGAL_GENERATION
    world.store.apply([offset_record("simple", "t", 0, CommittedOffset(1))])
    assert check("simple", "m", "i", -1) is E.NONE
    assert check("simple", "m", None, 3) is check("simple", "", None, 3) is E.UNKNOWN_MEMBER_ID
    (joined,) = completing(world, 1)
    assert check("g", joined.member_id, None, 1) is E.NONE, "before the generation is Stable"
    world.sync(joined, {joined.member_id: b""})
    assert check("g", joined.member_id, None, 1) is E.NONE
    assert check("g", "", None, -1) is E.NONE, "a producer from before KIP-447"
    for generation in (0, 2, -1):
        assert check("g", joined.member_id, None, generation) is E.ILLEGAL_GENERATION
    assert check("g", "x", None, 1) is check("g", "", None, 1) is E.UNKNOWN_MEMBER_ID
    assert check("g", joined.member_id, "i", 1) is check("g", "", "i", -1) is E.UNKNOWN_MEMBER_ID
    world.loop.advance(SESSION_MS - 1)
    assert check("g", joined.member_id, None, 1) is E.NONE
    world.loop.advance(2)
    assert check("g", joined.member_id, None, 1) is E.UNKNOWN_MEMBER_ID, "it was no sign of life"
    world.coordinator.resign()
    assert check("new", "", None, -1) is E.NOT_COORDINATOR


def subscription(*topics: str, version: int = 1) -> bytes:
    """A consumer's metadata: version, topics, and what newer versions added."""
    data = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        data += len(topic).to_bytes(2, "big") + topic.encode()
    return data + b"\xff\xff\xff\xff and more"


def test_subscribed_topics(world: World) -> None:
    coordinator = world.coordinator
    assert coordinator.subscribed_topics("g") == set()
    world.join(protocols={"range": subscription("a", "b")})
    world.join(protocols={"range": subscription("b", "c", version=3)})
    assert coordinator.subscribed_topics("g") == {"a", "b", "c"}
    world.loop.advance(2 * DELAY_MS)
    assert coordinator.subscribed_topics("g") == {"a", "b", "c"}
    world.join("connect", protocol_type="connect")
    assert coordinator.subscribed_topics("connect") is None
    for number, broken in enumerate([b"", b"\0", subscription("a")[:8], b"\0\1\xff\xff\xff\xff"]):
        world.join(f"broken {number}", protocols={"range": broken})
        assert coordinator.subscribed_topics(f"broken {number}") is None


def test_since_when_a_group_is_empty(world: World) -> None:
    coordinator = world.coordinator
    assert coordinator.is_empty("g")
    assert coordinator.empty_since_ms("g") is None
    (leader,) = world.stable(1)
    assert not coordinator.is_empty("g")
    assert coordinator.empty_since_ms("g") is None
    world.leave(leader.member_id)
    since = world.store.time_ms()
    assert coordinator.is_empty("g")
    world.loop.advance(5_000)
    assert coordinator.empty_since_ms("g") == since
    world.coordinator.resign()
    assert world.start().empty_since_ms("g") == since
    world.store.apply([offset_record("simple", "t", 0, CommittedOffset(1))])
    assert coordinator.empty_since_ms("simple") is None


# --- looking at groups, deleting them --------------------------------------------------------------------


def test_describe(world: World) -> None:
    describe = world.coordinator.describe
    assert describe("g") is None
    leader, _ = world.stable(2)
    described = describe("g")
    assert described is not None
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert described.protocol_data == "range"
    first = described.members[0]
    assert (first.member_id, first.client_id, first.client_host) == (leader.member_id, "c0", "/127.0.0.1")
    assert first.member_assignment == b"part of " + leader.member_id.encode()
    assert first.member_metadata == b"meta"
    rejoin(world, leader)
    described = describe("g")
    assert described is not None
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_metadata for each in described.members} == {b""}


def test_list(world: World) -> None:
    world.stable(1)
    world.store.apply([offset_record("simple", "t", 0, CommittedOffset(1))])
    world.ask_join("new")
    found = {
        (each.group_id, each.protocol_type, each.group_state, each.group_type)
        for each in world.coordinator.listed()
    }
    assert found == {
        ("g", "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
        ("new", "", "Empty", "classic"),
    }


def delete(world: World, group: str = "g") -> list[ErrorCode]:
    """What DeleteGroups is told, as it comes."""
    told: list[ErrorCode] = []
    world.coordinator.delete(group, told.append)
    world.loop.turn()
    return told


def test_delete(world: World) -> None:
    assert delete(world) == [E.GROUP_ID_NOT_FOUND]
    (leader,) = world.stable(1)
    world.store.apply([offset_record("g", "t", index, CommittedOffset(index)) for index in range(3)])
    assert delete(world) == [E.NON_EMPTY_GROUP]
    world.leave(leader.member_id)
    assert delete(world) == [E.NONE]
    assert "g" not in world.store.state
    assert world.coordinator.listed() == []
    assert delete(world) == [E.GROUP_ID_NOT_FOUND]


def test_delete_of_a_group_with_offsets_alone(world: World) -> None:
    world.store.apply([offset_record("g", "t", 0, CommittedOffset(1))])
    assert delete(world) == [E.NONE]
    assert "g" not in world.store.state


def test_delete_that_fails_leaves_the_group(world: World) -> None:
    (leader,) = world.stable(1)
    world.leave(leader.member_id)
    world.store.at_once = False
    told = delete(world)
    world.store.commit(E.COORDINATOR_NOT_AVAILABLE)
    assert told == [E.COORDINATOR_NOT_AVAILABLE]
    assert world.state() == "Empty"


def test_delete_takes_commits_with_it_that_were_under_way(world: World) -> None:
    world.store.apply([offset_record("g", "t", 0, CommittedOffset(1))])
    world.store.at_once = False
    assert world.coordinator.check_commit("g", "", None, -1) is E.NONE
    world.store.append("g", [offset_record("g", "t", 1, CommittedOffset(1))], lambda _: None)
    told = delete(world)
    world.store.commit()
    world.store.commit()
    assert told == []
    world.store.commit()
    assert told == [E.NONE]
    assert "g" not in world.store.state


def test_delete_leaves_what_is_committed_after_it(world: World) -> None:
    world.store.apply([offset_record("g", "t", 0, CommittedOffset(1))])
    world.store.at_once = False
    told = delete(world)
    assert world.coordinator.check_commit("g", "", None, -1) is E.NONE
    world.store.append("g", [offset_record("g", "t", 1, CommittedOffset(1))], lambda _: None)
    world.store.commit()
    world.store.commit()
    assert told == [E.NONE]
    assert list(world.store.state.offsets("g")) == [("t", 1)]


def test_delete_ends_handed_out_ids(world: World) -> None:
    pending = world.ask_join().response.member_id
    assert delete(world) == [E.NONE]
    assert world.loop.armed == 0
    assert error_of(world.ask_join(member=pending)) is E.UNKNOWN_MEMBER_ID


def test_a_join_during_the_delete_is_a_new_group(world: World) -> None:
    (leader,) = world.stable(1)
    world.leave(leader.member_id)
    world.store.at_once = False
    told = delete(world)
    answer = world.join()
    world.store.commit()
    world.loop.advance(DELAY_MS)
    assert (told, error_of(answer)) == ([E.NONE], E.NONE)
    world.sync(answer.response, {})
    world.store.commit()
    assert world.state() == "Stable"


def test_delete_of_a_group_whose_end_was_not_written(world: World) -> None:
    """Its committed members are gone all the same: they must not come back with the next who joins."""
    (leader,) = world.stable(1)
    world.store.at_once = False
    world.leave(leader.member_id)
    world.store.commit(E.NOT_COORDINATOR)
    told = delete(world)
    first = world.join()
    world.loop.advance(DELAY_MS)
    assert [each.member_id for each in first.response.members] == [first.response.member_id]
    world.store.commit(E.COORDINATOR_NOT_AVAILABLE)
    assert told == [E.COORDINATOR_NOT_AVAILABLE]
    world.leave(first.response.member_id)
    assert world.state() == "Empty"


def test_forget(world: World) -> None:
    (leader,) = world.stable(1)
    world.coordinator.forget("g")
    assert world.heartbeat(leader) is E.NONE
    world.store.at_once = False
    world.leave(leader.member_id)
    world.coordinator.forget("g")
    world.store.commit()
    assert world.loop.armed == 0
