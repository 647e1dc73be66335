"""The coordinator of a group moves with the leadership of its log group: what goes along, what does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.broker.groups.group_records import CommittedOffset, offset_record
from lockstep.broker.groups.offset_expiration import OffsetExpiration
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS_TOPIC_ID
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import take_read_barrier
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.raft import Raft
from lockstep.storage.types import NotLeader, StorageFull
from tests.broker.groups.nodes import CLOCK_MS, NUMBER, Members, Nodes, answered
from tests.storage.loop_time import loop_time

E = ErrorCode


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with loop_time() as clock:
        started = Nodes(tmp_path, clock)
        try:
            await started.start()
            yield started
        finally:
            await started.stop()


async def pair(members: Members, **more: Any) -> tuple[Any, Any]:
    """A Stable group of a static leader "i" and a dynamic follower, in generation 2."""
    leader = await answered(members.ask_join(instance="i", **more))
    assert await answered(members.sync(leader, {leader.member_id: b"all"}, instance="i"))
    follower = members.join(**more)
    leader = await answered(members.ask_join(member=leader.member_id, instance="i", **more))
    follower = await answered(follower)
    parts = {leader.member_id: b"first", follower.member_id: b"second"}
    synced = await answered(members.sync(leader, parts, instance="i"))
    assert (synced.error_code, synced.assignment, leader.generation_id) == (E.NONE, b"first", 2)
    assert (await answered(members.sync(follower))).assignment == b"second"
    return leader, follower


def commit(value: int, index: int = 0, group_id: str = "g") -> tuple[bytes, bytes | None]:
    return offset_record(group_id, "t", index, CommittedOffset(value, commit_time_ms=CLOCK_MS))


async def test_members_and_offsets_go_along_and_come_back(nodes: Nodes) -> None:
    first = nodes.groups[1].coordinator("g")
    members = Members(first)
    leader, follower = await pair(members)
    assert await nodes.write(1, "g", commit(7)) is E.NONE
    for node in (2, 1, 3, 1):
        members.coordinator = await nodes.lead(node)
        described = members.coordinator.describe("g")
        assert described is not None
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert [each.member_id for each in described.members] == [leader.member_id, follower.member_id]
        assert [each.group_instance_id for each in described.members] == ["i", None]
        assert members.heartbeat(leader, instance="i") is E.NONE
        assert members.heartbeat(follower) is E.NONE
        assert (await answered(members.sync(follower))).assignment == b"second"
        error = members.coordinator.check_commit("g", follower.member_id, None, 2)
        assert error is E.NONE
        assert nodes.groups[node].store("g").state.offsets("g")["t", 0].offset == 7
        for other in {1, 2, 3} - {node}:
            with pytest.raises(RequestError) as refused:
                nodes.groups[other].coordinator("g")
            assert refused.value.error is E.NOT_COORDINATOR
            assert nodes.groups[other].listed() == [] == nodes.groups[other].active_shards()
        (listed,) = nodes.groups[node].listed()
        assert (listed.group_id, listed.group_state) == ("g", "Stable")
    assert members.coordinator is first
    again = await answered(members.ask_join(instance="i"))
    assert (again.error_code, again.generation_id) == (E.NONE, 2)
    assert members.heartbeat(leader, instance="i") is E.FENCED_INSTANCE_ID


async def test_sessions_run_where_the_coordinator_is_and_nowhere_else(nodes: Nodes) -> None:
    old = nodes.groups[1].coordinator("g")
    members = Members(old)
    leader, follower = await pair(members, session_ms=400)
    sessions = list(old._rebalancers["g"]._sessions.values())
    assert len(sessions) == 2 and all(each.is_armed for each in sessions)
    members.coordinator = await nodes.lead(2)
    assert not any(each.is_armed for each in sessions)
    assert (old._rebalancers, old._context.memory_bytes, old.not_serving_error) == ({}, 0, E.NOT_COORDINATOR)
    while len(members.coordinator._rebalancers["g"]._sessions) > 1:
        await asyncio.sleep(0.1)
        assert members.heartbeat(leader, instance="i") in (E.NONE, E.REBALANCE_IN_PROGRESS)
    assert members.heartbeat(follower) is E.UNKNOWN_MEMBER_ID, "it has been silent for its session"


async def test_waiting_members_are_redirected_and_the_rebalance_begins_again(nodes: Nodes) -> None:
    members = Members(nodes.groups[1].coordinator("g"))
    leader, follower = await pair(members)
    joining = members.ask_join(member=leader.member_id, instance="i")
    new = members.join(client="new")
    coordinator = await nodes.lead(2)
    for each in (joining, new):
        assert (await answered(each)).error_code == E.NOT_COORDINATOR
    members.coordinator = coordinator
    assert members.state() == "Stable"
    joining = members.ask_join(member=leader.member_id, instance="i")
    assert members.heartbeat(follower) is E.REBALANCE_IN_PROGRESS
    assert not joining.done
    following = await answered(members.ask_join(member=follower.member_id))
    leading = await answered(joining)
    assert (leading.generation_id, following.generation_id, len(leading.members)) == (3, 3, 2)


async def test_a_generation_that_was_not_committed_is_nobodys(nodes: Nodes) -> None:
    """The leader of a group syncs while its coordinator is cut off."""
    members = Members(nodes.groups[1].coordinator("g"))
    leader, follower = await pair(members)
    joining = members.ask_join(member=leader.member_id, instance="i")
    follower = await answered(members.ask_join(member=follower.member_id))
    leader = await answered(joining)
    assert leader.generation_id == 3
    nodes.cut_off(1)
    syncing = members.sync(leader, {leader.member_id: b"x", follower.member_id: b"y"}, instance="i")
    waiting = members.sync(follower)
    members.coordinator = await nodes.serving(2, 3)
    for each in (syncing, waiting):
        assert (await answered(each)).error_code == E.NOT_COORDINATOR
    assert members.heartbeat(follower) is E.ILLEGAL_GENERATION
    assert members.heartbeat(follower, generation=2) is E.NONE
    nodes.heal()
    await nodes.cluster.agreed()
    assert nodes.states[1] == nodes.states[2] == nodes.states[3]


async def test_commits_of_a_leader_that_is_cut_off(nodes: Nodes) -> None:
    store = nodes.groups[1].store("g")
    assert await nodes.write(1, "g", commit(1)) is E.NONE
    nodes.cut_off(1)
    told: list[ErrorCode] = []
    store.append("g", [commit(2)], told.append)
    store.append("g", [commit(3, 1)], told.append)
    assert store.is_under_way("g")
    await nodes.serving(2, 3)
    await nodes.cluster.until(lambda: len(told) == 2)
    assert told == [E.NOT_COORDINATOR] * 2
    assert not store.is_under_way("g")
    (new,) = [node for node in (2, 3) if nodes.groups[node].active_shards()]
    assert await nodes.write(new, "g", commit(5)) is E.NONE
    nodes.heal()
    await nodes.cluster.agreed()
    for state in nodes.states.values():
        assert {place: each.offset for place, each in state.offsets("g").items()} == {("t", 0): 5}
    store.append("g", [], told.append)
    await nodes.cluster.until(lambda: len(told) == 3)
    assert told[2] is E.NOT_COORDINATOR, "nothing to write is not done where nobody leads"


async def test_no_success_is_lost_while_the_leadership_moves(nodes: Nodes) -> None:
    """Commits go on while the coordinator moves, by agreement and by force."""
    committed: dict[int, int] = {}
    errors: set[ErrorCode] = set()
    over = False

    async def client(index: int) -> None:
        value = 0
        while not over:
            value += 1
            for node in (1, 2, 3):
                try:
                    error = await nodes.write(node, "g", commit(value, index))
                except RequestError as refused:
                    error = refused.error
                errors.add(error)
                if error is E.NONE:
                    committed[index] = value
                    break
            await asyncio.sleep(0.002)

    clients = [asyncio.create_task(client(index)) for index in range(4)]
    for node in (2, 3, 1):
        await asyncio.sleep(0.05)
        await nodes.lead(node)
    nodes.cut_off(1)
    await nodes.serving(2, 3)
    nodes.heal()
    await asyncio.sleep(0.05)
    over = True
    await asyncio.gather(*clients)
    await nodes.cluster.agreed()
    assert errors <= {E.NONE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS} and len(errors) > 1
    assert len(committed) == 4
    for state in nodes.states.values():
        for index, value in committed.items():
            assert state.offsets("g")["t", index].offset >= value


async def test_a_leader_without_its_lease_is_named_for_a_read_barrier(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = nodes.groups[1]
    assert not groups.lapsed_shards() and not groups.lapsed_shards(["g"])
    monkeypatch.setattr(LogGroup, "has_lease", False)
    several: list[list[str]] = [[], ["g"], ["g", "h"]]
    for keys in several:
        assert [each.group.group_id for each in groups.lapsed_shards(keys)] == [NUMBER]
    assert not groups.lapsed_shards(["g" * 2_000]), "no group has such an id"
    assert not nodes.groups[2].lapsed_shards() and not nodes.groups[2].lapsed_shards(["g"])
    with pytest.raises(RequestError) as refused:
        groups.of_log_group(NUMBER)
    assert refused.value.error is E.NOT_COORDINATOR, "the controller asks again"
    monkeypatch.undo()
    assert groups.coordinator("g").not_serving_error is E.NONE and groups.listed() == []


async def test_a_delayed_leader_serves_once_its_followers_respond(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has lapsed, its leadership has not: a not_serving_error would cost every member its
    generation."""
    monkeypatch.setattr(Raft, "has_lease", lambda raft, now_ms: False)
    groups = nodes.groups[1]
    await take_read_barrier(partial(groups.lapsed_shards, ["g"]))
    assert groups.coordinator("g").not_serving_error is E.NONE
    assert await nodes.write(1, "g", commit(5)) is E.NONE
    await take_read_barrier(groups.lapsed_shards)
    assert groups.listed()


async def test_a_leader_that_is_cut_off_refuses_when_it_knows(nodes: Nodes) -> None:
    groups = nodes.groups[1]
    nodes.cut_off(1)
    await nodes.cluster.until(lambda: not nodes.cluster.groups[1].has_lease)
    barrier = asyncio.ensure_future(take_read_barrier(partial(groups.lapsed_shards, ["g"])))
    await nodes.serving(2, 3)
    await asyncio.wait_for(barrier, 5)
    for ask in (groups.coordinator, groups.store):
        with pytest.raises(RequestError) as refused:
            ask("g")
        assert refused.value.error is E.NOT_COORDINATOR


async def test_a_copy_that_goes_and_comes(nodes: Nodes) -> None:
    groups, group, state = nodes.groups[1], nodes.cluster.groups[1], nodes.states[1]
    members = Members(groups.coordinator("g"))
    leader, _ = await pair(members)
    with pytest.raises(ValueError, match="has a shard already"):
        groups.add_shard(NUMBER, group, state, nodes.appenders[1])
    waiting = members.ask_join(member=leader.member_id, instance="i")
    told: list[ErrorCode] = []
    groups.store("g").append("g", [commit(1)], told.append)
    groups.remove_shard(NUMBER)
    groups.remove_shard(NUMBER)
    assert (waiting.response.error_code, told) == (E.NOT_COORDINATOR, [E.NOT_COORDINATOR])
    assert group.on_leading == [] and groups.listed() == []
    for ask in (lambda: groups.coordinator("g"), lambda: groups.of_log_group(NUMBER)):
        with pytest.raises(RequestError) as refused:
            ask()
        assert refused.value.error is E.NOT_COORDINATOR
    await group.committed()
    groups.add_shard(NUMBER, group, state, nodes.appenders[1])
    with pytest.raises(RequestError) as refused:
        groups.store("g")
    assert refused.value.error is E.COORDINATOR_LOAD_IN_PROGRESS
    members.coordinator = await nodes.serving(1)
    assert members.heartbeat(leader, instance="i") is E.NONE
    assert groups.store("g").state.offsets("g")["t", 0].offset == 1
    assert told == [E.NOT_COORDINATOR], "once"


async def test_what_is_pending_is_so_on_the_next_leader_too(nodes: Nodes) -> None:
    """Half of it comes from one leader, the other half and the end from others."""
    assert await nodes.write(1, "g", commit(1), commit(2, 1)) is E.NONE
    assert await nodes.write_within(1, 70, "g", commit(7)) is E.NONE
    await nodes.lead(2)
    assert await nodes.write_within(2, 70, "g", commit(8, 2)) is E.NONE
    assert await nodes.write(2, "g", commit(3, 2)) is E.NONE
    await nodes.lead(3)
    state = nodes.groups[3].store("g").state
    assert state.pending("g") == {("t", 0), ("t", 2)}
    nodes.end(3, 70, "g")
    await nodes.cluster.groups[3].committed()
    await nodes.cluster.agreed()
    for each in nodes.states.values():
        assert {index: found.offset for (_, index), found in each.offsets("g").items()} == {0: 7, 1: 2, 2: 3}
        assert not each.pending("g")


async def test_only_the_coordinator_expires_and_forgets(nodes: Nodes) -> None:
    assert await nodes.write(1, "g", commit(1), commit(2, 1)) is E.NONE
    await nodes.cluster.agreed()
    expiration = {node: OffsetExpiration(nodes.groups[node], nodes.known[node]) for node in (1, 2)}  # type: ignore[arg-type]
    last_index = nodes.cluster.groups[1].log.last_index
    for each in expiration.values():
        assert await each.enforce() == 0
    assert nodes.cluster.groups[1].log.last_index == last_index, "who is not the controller cannot know"
    with pytest.raises(RequestError) as refused:
        await expiration[2].forget(NUMBER, "t")
    assert refused.value.error is E.NOT_COORDINATOR
    nodes.known[1].visible.add("t")
    forgetting = asyncio.create_task(expiration[1].forget(NUMBER, "t"))
    await asyncio.sleep(0.05)
    assert not forgetting.done(), "clients here still see the topic"
    nodes.known[1].visible.clear()
    await asyncio.wait_for(forgetting, 5)
    assert nodes.states[1].topics() == {}
    await expiration[1].forget(NUMBER, "t")


async def test_a_topic_that_stays_to_be_seen(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.broker.groups.offset_expiration.HIDDEN_TIMEOUT_SECONDS", 0.05)
    assert await nodes.write(1, "g", commit(1)) is E.NONE
    known = nodes.known[1]
    known.visible.add("t")
    expiration = OffsetExpiration(nodes.groups[1], known)  # type: ignore[arg-type]
    with pytest.raises(RequestError) as refused:
        await expiration.forget(NUMBER, "t")
    assert refused.value.error is E.REQUEST_TIMED_OUT
    assert nodes.states[1].topics() == {"t": 1}


async def test_groups_of_log_groups_that_others_have(nodes: Nodes) -> None:
    """Their partitions are known by name and leader alone."""
    groups = nodes.groups[1]
    topic = nodes.known[1].topic_by_id(CONSUMER_OFFSETS_TOPIC_ID)
    assert topic is not None
    elsewhere: Any = SimpleNamespace(group_id=2, is_leader=False, has_lease=False, leader_id=3, term=5)
    partition = topic.partitions[groups.partition_of("g")]
    partition.group = elsewhere
    partition.log = None  # type: ignore[assignment]
    for ask in (groups.coordinator, groups.store, groups.of):
        with pytest.raises(RequestError) as refused:
            ask("g")
        assert refused.value.error is E.NOT_COORDINATOR
    assert groups.is_ready and groups.listed() == []
    ((store, _),) = groups.active_shards()
    assert store.partition("g") is None


async def test_what_cannot_be_forgotten_now(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller is told, and asks again."""
    assert await nodes.write(1, "g", commit(1)) is E.NONE
    expiration = OffsetExpiration(nodes.groups[1], nodes.known[1])  # type: ignore[arg-type]

    def full(*_: Any, **__: Any) -> int:
        raise StorageFull("no room")

    with monkeypatch.context() as refusing:
        refusing.setattr(LogGroup, "append", full)
        assert await expiration.forget(NUMBER, "t")
    nodes.cut_off(1)
    with pytest.raises(RequestError) as refused:
        await asyncio.wait_for(expiration.forget(NUMBER, "t"), 5)
    assert refused.value.error is E.NOT_COORDINATOR
    with pytest.raises(NotLeader):
        await asyncio.wait_for(nodes.groups[1]._shards[NUMBER].store.committed(), 5)
    nodes.heal()
    await nodes.lead(1)
    assert not await expiration.forget(NUMBER, "t")
    assert nodes.states[1].topics() == {}
