"""Consumer groups through each client's own consumer: sharing, handing over, committing, looking at them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from compat_tests.clients.face import Client, GroupDescription, Message, Refused
from compat_tests.conftest import NewTopic
from compat_tests.group_members import SETTLE_S, all_of, drain, fill, settle
from compat_tests.raw import RawConnection, batch

UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69

UnusedName = Callable[[], str]


def _described(client: Client, group: str, state: str) -> GroupDescription:
    """The group's description once it is in `state`."""
    until = time.monotonic() + 10
    while True:
        found = client.describe_group(group)
        if found.state == state or time.monotonic() > until:
            assert found.state == state
            return found
        time.sleep(0.1)


@pytest.fixture
def group(unused_name: UnusedName) -> str:
    return "group-" + unused_name()


@pytest.mark.case("Groups", "one member reads all partitions of a topic")
def test_one_member(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups")
    topic = new_topic(partitions=3)
    values = fill(raw, topic, 3)
    member = client.join([topic], group)
    found = drain([member], len(values))
    member.close()
    assert {each.value for each in found} == values and len(found) == len(values)


@pytest.mark.case("Groups", "keys and headers arrive through a group")
def test_content(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups")
    topic = new_topic()
    written = [Message(b"v%d" % n, key=b"k", headers=(("h", b"%d" % n),)) for n in range(3)]
    client.produce(topic, written, codec="gzip")
    member = client.join([topic], group)
    found = drain([member], 3)
    member.close()
    assert [each.offset for each in found] == [0, 1, 2]
    assert [each.content() for each in found] == [(m.key, m.value, m.headers) for m in written]


@pytest.mark.case("Groups", "a committed position is where the next member starts")
def test_resume(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups", "commit")
    topic = new_topic()
    raw.produce(topic, batch([b"1", b"2", b"3"]))
    first = client.join([topic], group)
    assert [each.value for each in drain([first], 3)] == [b"1", b"2", b"3"]
    first.commit()
    first.close()
    raw.produce(topic, batch([b"4", b"5"]))
    second = client.join([topic], group)
    found = drain([second], 2)
    second.close()
    assert [(each.offset, each.value) for each in found] == [(3, b"4"), (4, b"5")]


@pytest.mark.case("Groups", "what was not committed is read again")
def test_uncommitted(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups", "commit")
    topic = new_topic()
    raw.produce(topic, batch([b"1", b"2"]))
    for _ in range(2):
        member = client.join([topic], group)
        assert [each.offset for each in drain([member], 2)] == [0, 1]
        member.close()


@pytest.mark.case("Groups", "a committed offset can be asked for without joining")
def test_committed(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups", "commit", "committed")
    topic = new_topic(partitions=2)
    raw.produce(topic, batch([b"1", b"2", b"3"]))
    member = client.join([topic], group)
    assert len(drain([member], 3)) == 3
    member.commit()
    member.close()
    assert client.committed(group, topic, 0) == 3
    assert client.committed(group + "-other", topic, 0) is None


@pytest.mark.case("Groups", "positions are committed by themselves where that is asked")
def test_auto_commit(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups", "auto commit")
    topic = new_topic()
    raw.produce(topic, batch([b"1", b"2", b"3"]))
    first = client.join([topic], group, auto_commit=True)
    assert len(drain([first], 3)) == 3
    first.poll(0, 0.2)
    first.close()
    raw.produce(topic, batch([b"4"]))
    second = client.join([topic], group)
    found = drain([second], 1)
    second.close()
    assert [each.value for each in found] == [b"4"]


@pytest.mark.case("Groups", "a new group may start at the end")
def test_latest(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups")
    topic = new_topic()
    raw.produce(topic, batch([b"old"]))
    member = client.join([topic], group, start="latest")
    settle([member], [(topic, 0)])
    member.poll(0, 1.0)
    raw.produce(topic, batch([b"new"]))
    found = drain([member], 1)
    member.close()
    assert [each.value for each in found] == [b"new"]


@pytest.mark.case("Groups", "two groups each read everything")
def test_two_groups(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups")
    topic = new_topic(partitions=2)
    values = fill(raw, topic, 2)
    members = [client.join([topic], f"{group}-{n}") for n in range(2)]
    for member in members:
        assert {each.value for each in drain([member], len(values))} == values
    for member in members:
        member.close()


@pytest.mark.case("Groups", "a member reads several topics")
def test_two_topics(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups")
    topics = [new_topic(), new_topic(partitions=2)]
    values = fill(raw, topics[0], 1, name="a") | fill(raw, topics[1], 2, name="b")
    member = client.join(topics, group)
    found = drain([member], len(values))
    member.close()
    assert {each.value for each in found} == values


@pytest.mark.case("Groups", "two members share the partitions, each is owned once")
def test_share(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups", "several members")
    topic = new_topic(partitions=4)
    members = [client.join([topic], group) for _ in range(2)]
    owned = settle(members, all_of(topic, 4))
    assert [len(each) for each in owned] == [2, 2]
    values = fill(raw, topic, 4)
    found = drain(members, len(values))
    for member in members:
        member.close()
    assert {each.value for each in found} == values and len(found) == len(values)


@pytest.mark.case("Groups", "a leaving member's partitions go to the others")
def test_leave(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups", "several members")
    topic = new_topic(partitions=4)
    members = [client.join([topic], group) for _ in range(2)]
    settle(members, all_of(topic, 4))
    members.pop().close()
    settle(members, all_of(topic, 4))
    members.pop().close()


@pytest.mark.case("Groups", "a late member takes its share; committed positions move with the partitions")
def test_join_later(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups", "several members", "commit")
    topic = new_topic(partitions=2)
    values = fill(raw, topic, 2)
    first = client.join([topic], group)
    found = drain([first], len(values))
    assert {each.value for each in found} == values
    first.commit()
    second = client.join([topic], group)
    settle([first, second], all_of(topic, 2))
    more = fill(raw, topic, 2, name="more ")
    again = drain([first, second], len(more))
    first.close()
    second.close()
    assert {each.value for each in again} == more


@pytest.mark.case("Groups", "round robin over two topics")
def test_round_robin(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups", "several members", "roundrobin")
    topics = [new_topic(partitions=3), new_topic(partitions=1)]
    members = [client.join(topics, group, assignor="roundrobin") for _ in range(2)]
    owned = settle(members, all_of(topics[0], 3) | all_of(topics[1], 1))
    for member in members:
        member.close()
    assert [len(each) for each in owned] == [2, 2]


@pytest.mark.case("Groups", "cooperative rebalance: a member keeps what it need not give away")
def test_cooperative(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups", "several members", "cooperative")
    topic = new_topic(partitions=4)
    first = client.join([topic], group, assignor="cooperative-sticky")
    settle([first], all_of(topic, 4))
    second = client.join([topic], group, assignor="cooperative-sticky")
    seen = []
    until = time.monotonic() + SETTLE_S
    while len(second.assignment()) < 2 and time.monotonic() < until:
        first.poll(0, 0.2)
        second.poll(0, 0.2)
        seen.append(len(first.assignment()))
    owned = settle([first, second], all_of(topic, 4))
    first.close()
    second.close()
    assert [len(each) for each in owned] == [2, 2]
    assert min(seen) >= 2, "it never gave up everything"


@pytest.mark.case("Groups", "a static member that comes back keeps its partitions")
def test_static(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups", "several members", "static members")
    topic = new_topic(partitions=2)
    members = [client.join([topic], group, instance_id="static-0")]
    settle(members, all_of(topic, 2))  # so that the one that comes back is not the leader, who assigns anew
    members.append(client.join([topic], group, instance_id="static-1"))
    before = settle(members, all_of(topic, 2))
    members[1].close()  # a static member does not leave: its session would have to expire
    members[1] = client.join([topic], group, instance_id="static-1")
    after = settle(members, all_of(topic, 2))
    for member in members:
        member.close()
    assert after == before


@pytest.mark.case("Group administration", "groups are listed")
def test_list(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("group admin")
    _commit_outside(raw, group, new_topic(), 5)
    assert group in client.groups()


@pytest.mark.case("Group administration", "a live group: stable, its members and their partitions")
def test_describe(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups", "group admin")
    topic = new_topic(partitions=2)
    member = client.join([topic], group)
    settle([member], all_of(topic, 2))
    found = _described(client, group, "stable")
    member.close()
    (described,) = found.members
    if "group protocol" not in client.cannot:
        assert found.protocol_type == "consumer" and found.protocol
    assert described.member_id and described.host
    if "member assignments" not in client.cannot:
        assert described.assignment == frozenset(all_of(topic, 2))


@pytest.mark.case("Group administration", "a group without members is empty")
def test_describe_empty(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("group admin")
    _commit_outside(raw, group, new_topic(), 5)
    assert _described(client, group, "empty").members == ()


@pytest.mark.case("Group administration", "an unknown group is dead, or GROUP_ID_NOT_FOUND")
def test_describe_unknown(client: Client, group: str) -> None:
    client.needs("group admin")
    try:
        assert client.describe_group(group).state == "dead"
    except Refused as refused:
        assert refused.code == GROUP_ID_NOT_FOUND


@pytest.mark.case("Group administration", "an empty group can be deleted, with its offsets")
def test_delete(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("delete group")
    topic = new_topic()
    _commit_outside(raw, group, topic, 5)
    client.delete_group(group)
    assert _offset_of(raw, group, topic) == -1


@pytest.mark.case("Group administration", "a group with members is NON_EMPTY_GROUP")
def test_delete_live(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups", "delete group")
    topic = new_topic()
    member = client.join([topic], group)
    settle([member], [(topic, 0)])
    with pytest.raises(Refused) as refused:
        client.delete_group(group)
    member.close()
    assert refused.value.code == NON_EMPTY_GROUP


@pytest.mark.case("Group administration", "deleting an unknown group is GROUP_ID_NOT_FOUND")
def test_delete_unknown(client: Client, group: str) -> None:
    client.needs("delete group")
    with pytest.raises(Refused) as refused:
        client.delete_group(group)
    assert refused.value.code == GROUP_ID_NOT_FOUND


@pytest.mark.case("Group administration", "offsets set from outside are where a member starts")
def test_set_offset(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("groups", "set offset")
    topic = new_topic()
    raw.produce(topic, batch([b"1", b"2", b"3"]))
    client.set_offset(group, topic, 0, 2)
    assert _offset_of(raw, group, topic) == 2
    member = client.join([topic], group)
    found = drain([member], 1)
    member.close()
    assert [each.offset for each in found] == [2]


@pytest.mark.case("Group administration", "offsets of a group with members are not set from outside")
def test_set_offset_live(client: Client, new_topic: NewTopic, group: str) -> None:
    client.needs("groups", "set offset", "set offset of a live group")
    topic = new_topic()
    member = client.join([topic], group)
    settle([member], [(topic, 0)])
    with pytest.raises(Refused) as refused:
        client.set_offset(group, topic, 0, 2)
    member.close()
    assert refused.value.code == UNKNOWN_MEMBER_ID


@pytest.mark.case("Group administration", "one partition's offset can be deleted")
def test_delete_offset(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    client.needs("delete offset")
    topic = new_topic()
    _commit_outside(raw, group, topic, 5)
    client.delete_offset(group, topic, 0)
    assert _offset_of(raw, group, topic) == -1


def _commit_outside(raw: RawConnection, group: str, topic: str, offset: int) -> None:
    """Commit without membership, once the coordinator is there."""
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    until = time.monotonic() + 20
    while True:
        raw.call("find_coordinator", 4, key_type=0, coordinator_keys=[group])
        answer = raw.call(
            "offset_commit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": topic, "partitions": partitions}],
        )
        code = answer["topics"][0]["partitions"][0]["error_code"]
        if code == 0:
            return
        assert time.monotonic() < until, f"commit answered {code}"
        time.sleep(0.1)


def _offset_of(raw: RawConnection, group: str, topic: str) -> int:
    answer = raw.call(
        "offset_fetch",
        8,
        groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}],
    )
    (found,) = answer["groups"][0]["topics"][0]["partitions"]
    return int(found["committed_offset"])
