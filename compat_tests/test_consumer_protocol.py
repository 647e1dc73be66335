"""Groups of the protocol of KIP-848 (`group.protocol=consumer`) through clients that speak it, and by tools.

The broker assigns, a second after the last time by default, and a client heartbeats every five seconds unless
it has something to say: cases wait longer here than those of `test_groups.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from compat_tests import group_members
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Client, Member, Refused
from compat_tests.clients.java import Java
from compat_tests.conftest import NewTopic
from compat_tests.group_members import all_of, fill
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult
from compat_tests.raw import RawConnection, batch
from compat_tests.targets import Target

UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
SETTLE_S = 60.0
AREA = "Consumer protocol"
CONSUMER = "consumer"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

Tool = Callable[..., ToolResult]
Partitions = set[tuple[str, int]]
with_each_client = pytest.mark.parametrize("client", [Java.name, Confluent.name], indirect=True)


@pytest.fixture
def group(unused_name: Callable[[], str]) -> str:
    return "new-" + unused_name()


drain = partial(group_members.drain, timeout_s=SETTLE_S)
settle = partial(group_members.settle, timeout_s=SETTLE_S)


def _until(is_true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SETTLE_S
    while not is_true():
        assert time.monotonic() < until, what
        time.sleep(0.2)


def _type_of(raw: RawConnection, group: str) -> str:
    listed = raw.call("list_groups", 5)["groups"]
    return next((each["group_type"].lower() for each in listed if each["group_id"] == group), "")


# -- one member after the other -----------------------------------------------------------------


@with_each_client
@pytest.mark.case(AREA, "one member reads all partitions; the next one begins at what was committed")
def test_one_member(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    topic = new_topic(partitions=3)
    values = fill(raw, topic, 3)
    first = client.join([topic], group, protocol=CONSUMER)
    found = drain([first], len(values))
    assert _type_of(raw, group) == "consumer"
    first.commit()
    first.close()
    assert {each.value for each in found} == values and len(found) == len(values)
    more = fill(raw, topic, 3, name="more ")
    second = client.join([topic], group, protocol=CONSUMER)
    again = drain([second], len(more))
    second.close()
    assert {each.value for each in again} == more


@with_each_client
@pytest.mark.case(AREA, "assignor {assignor}: two members share, one leaves, the other has all")
@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_share(client: Client, new_topic: NewTopic, raw: RawConnection, group: str, assignor: str) -> None:
    topic = new_topic(partitions=4)
    members = [client.join([topic], group, protocol=CONSUMER, assignor=assignor) for _ in range(2)]
    owned = settle(members, all_of(topic, 4))
    assert [len(each) for each in owned] == [2, 2]
    if assignor == "range":
        assert sorted(sorted(part for _, part in each) for each in owned) == [[0, 1], [2, 3]]
    values = fill(raw, topic, 4)
    found = drain(members, len(values))
    assert {each.value for each in found} == values and len(found) == len(values)
    members.pop().close()
    settle(members, all_of(topic, 4))
    members.pop().close()


@with_each_client
@pytest.mark.case(AREA, "a late member takes over where the first has committed; the first keeps its others")
def test_join_later(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    topic = new_topic(partitions=4)
    values = fill(raw, topic, 4)
    first = client.join([topic], group, protocol=CONSUMER)
    found = drain([first], len(values))
    assert {each.value for each in found} == values
    first.commit()
    second = client.join([topic], group, protocol=CONSUMER)
    least = 4
    until = time.monotonic() + SETTLE_S
    while len(second.assignment()) < 2 and time.monotonic() < until:
        first.poll(0, 0.1)
        second.poll(0, 0.1)
        least = min(least, len(first.assignment()))
    settle([first, second], all_of(topic, 4))
    more = fill(raw, topic, 4, name="more ")
    again = drain([first, second], len(more))
    first.close()
    second.close()
    assert least == 2, "it never gave up what it keeps"
    assert {each.value for each in again} == more


@with_each_client
@pytest.mark.case(AREA, "a pattern that the broker evaluates: topics of now and later")
def test_pattern(client: Client, unused_name: Callable[[], str], raw: RawConnection, group: str) -> None:
    base = unused_name()
    raw.create_topic(f"{base}-a", 2)
    raw.create_topic(f"other-{base}-a")
    member = client.join([f"^{base}-[[:alpha:]]"], group, protocol=CONSUMER)
    settle([member], all_of(f"{base}-a", 2))
    raw.create_topic(f"{base}-b")
    settle([member], all_of(f"{base}-a", 2) | {(f"{base}-b", 0)})
    member.close()


@with_each_client
@pytest.mark.case(AREA, "partitions that are added, and a topic that is deleted")
def test_topic_changes(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    topic, other = new_topic(partitions=1), new_topic(partitions=1)
    member = client.join([topic, other], group, protocol=CONSUMER)
    settle([member], all_of(topic, 1) | all_of(other, 1))
    grown = {"name": topic, "count": 3, "assignments": None}
    assert raw.call("create_partitions", 3, topics=[grown], timeout=10_000)["results"][0]["error_code"] == 0
    settle([member], all_of(topic, 3) | all_of(other, 1))
    gone = raw.call("delete_topics", 6, topics=[{"name": other}], timeout=10_000)
    assert gone["responses"][0]["error_code"] == 0
    settle([member], all_of(topic, 3))
    member.close()


@with_each_client
@pytest.mark.case(AREA, "a static member that comes back keeps its partitions")
def test_static(client: Client, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(partitions=4)
    members = [client.join([topic], group, protocol=CONSUMER, instance_id=f"static-{n}") for n in range(2)]
    before = settle(members, all_of(topic, 4))
    members[1].close()
    members[1] = client.join([topic], group, protocol=CONSUMER, instance_id="static-1")
    after = settle(members, all_of(topic, 4))
    for member in members:
        member.close()
    assert after == before


# -- administration -----------------------------------------------------------------


@with_each_client
@pytest.mark.case(AREA, "a live group is described, and neither deleted nor given offsets from outside")
def test_administration(client: Client, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    topic = new_topic(partitions=2)
    values = fill(raw, topic, 2)
    member = client.join([topic], group, protocol=CONSUMER)
    assert len(drain([member], len(values))) == len(values)
    member.commit()
    _until(lambda: client.describe_group(group).state == "stable", "the group is not stable")
    found = client.describe_group(group)
    (described,) = found.members
    assert described.assignment == frozenset(all_of(topic, 2)) and found.protocol == "uniform"
    with pytest.raises(Refused) as refused:
        client.delete_group(group)
    assert refused.value.code == NON_EMPTY_GROUP
    with pytest.raises(Refused) as refused:
        client.set_offset(group, topic, 0, 1)
    assert refused.value.code == UNKNOWN_MEMBER_ID
    member.close()
    assert group in client.groups() and client.committed(group, topic, 1) == 5
    client.set_offset(group, topic, 0, 1)
    assert client.committed(group, topic, 0) == 1
    client.delete_group(group)
    assert group not in client.groups()


def _out(result: ToolResult) -> str:
    assert result.status == 0, result.stdout + result.stderr
    return result.stdout


def _rows(text: str) -> list[list[str]]:
    """The words of each line of a table, without its head."""
    return [line.split() for line in text.splitlines() if line.strip()][1:]


@pytest.fixture
def topic(new_topic: NewTopic, raw: RawConnection) -> str:
    """Ten records in each of two partitions."""
    name = new_topic(partitions=2)
    for partition in range(2):
        raw.produce(name, batch([b"v"] * 10), partition=partition)
    return name


def _joined(world: World, target: Target, topic: str, group: str) -> Member:
    """A Java consumer of the new protocol that owns both partitions and has committed their ends."""
    member = world.client(Java.name, target.name).join([topic], group, protocol=CONSUMER)
    assert len(drain([member], 20)) == 20
    member.commit()
    return member


@pytest.fixture
def live(world: World, target: Target, topic: str, group: str) -> Iterator[Member]:
    member = _joined(world, target, topic, group)
    yield member
    member.close()


@pytest.mark.case(AREA, "kafka-consumer-groups --list, --describe: offsets, members, state")
def test_tool_describes(tool: Tool, live: Member, topic: str, group: str, target: Target) -> None:
    def state() -> list[str]:
        (row,) = _rows(_out(tool(_GROUPS, "--describe", "--group", group, "--state")))
        return row

    assert [group, "Consumer"] in _rows(_out(tool(_GROUPS, "--list", "--type")))
    _until(lambda: state()[-2:] == ["Stable", "1"], "the group is not stable")
    assert state()[0] == group and state()[1] in target.bootstrap.split(",") and state()[3] == "uniform"
    assert [group, "Stable"] in _rows(_out(tool(_GROUPS, "--list", "--state")))
    rows = sorted(_rows(_out(tool(_GROUPS, "--describe", "--group", group))))
    assert [row[:6] for row in rows] == [[group, topic, str(n), "10", "10", "0"] for n in range(2)]
    assert all(row[6] != "-" and row[7].startswith("/") and row[8] != "-" for row in rows), "a member owns it"
    (member,) = _rows(_out(tool(_GROUPS, "--describe", "--group", group, "--members", "--verbose")))
    assert member[0] == group and f"{topic}:0,1" in member


@pytest.mark.case(AREA, "kafka-consumer-groups: what a live group refuses, and an empty one does not")
def test_tool_changes(
    world: World, target: Target, tool: Tool, raw: RawConnection, topic: str, group: str
) -> None:
    live = _joined(world, target, topic, group)
    where = ("--group", group, "--topic", f"{topic}:0")
    reset = ("--reset-offsets", *where, "--to-offset", "4", "--execute")
    assert "the current state is" in _out(tool(_GROUPS, *reset))
    assert "GroupNotEmptyException" in _out(tool(_GROUPS, "--delete", "--group", group))
    deleted = _out(tool(_GROUPS, "--delete-offsets", *where))
    assert "GroupSubscribedToTopicException" in deleted
    live.close()
    _until(lambda: "Empty" in _out(tool(_GROUPS, "--describe", "--group", group, "--state")), "not empty")
    assert _type_of(raw, group) == "consumer"
    _out(tool(_GROUPS, *reset))
    rows = sorted(_rows(_out(tool(_GROUPS, "--describe", "--group", group))))
    assert [row[:6] for row in rows] == [
        [group, topic, "0", "4", "10", "6"],
        [group, topic, "1", "10", "10", "0"],
    ]
    assert "Successful" in _out(tool(_GROUPS, "--delete-offsets", *where))
    assert "was successful" in _out(tool(_GROUPS, "--delete", "--group", group))
    assert group not in _out(tool(_GROUPS, "--list")).split()
