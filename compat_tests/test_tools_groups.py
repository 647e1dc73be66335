"""Kafka's own tools around consumer groups, unchanged, by main class.

Not here: kafka-dump-log, which reads a broker's files and asks no broker.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.clients.face import Member
from compat_tests.clients.java import Java
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult, run_tool
from compat_tests.kafka_jars import SHORT_LIVED, classpath, java_command
from compat_tests.raw import RawConnection, batch
from compat_tests.targets import Target

Tool = Callable[..., ToolResult]
_TOOLS = "org.apache.kafka.tools"
_GROUPS = f"{_TOOLS}.consumer.group.ConsumerGroupCommand"
_CONSOLE = f"{_TOOLS}.consumer.ConsoleConsumer"
_OFFSETS_TOPIC = "__consumer_offsets"
_HOUR_MS = 3_600_000

RESETS: dict[str, tuple[tuple[str, ...], int]] = {
    "--to-earliest": ((), 0),
    "--to-latest": ((), 10),
    "--to-offset": (("4",), 4),
    "--to-offset (beyond the end)": (("400",), 10),
    "--shift-by": (("3",), 9),
    "--shift-by (below the beginning)": (("-100",), 0),
    "--by-duration": (("PT1H",), 5),
    "--to-datetime": (("2020-01-01T00:00:00.000",), 0),
    "--to-current": ((), 6),
}
"""Option -> its value and the offset that comes of it: ten records, five of them old, committed at 6."""


def _out(result: ToolResult) -> str:
    assert result.status == 0, result.stdout + result.stderr
    return result.stdout


def _rows(text: str) -> list[list[str]]:
    """The words of each line of a table, without its head."""
    return [line.split() for line in text.splitlines() if line.strip()][1:]


def _new_offsets(text: str) -> dict[int, int]:
    """Partition -> new offset, from what --reset-offsets prints."""
    return {int(row[2]): int(row[3]) for row in _rows(text[text.index("GROUP") :])}


def _committed(raw: RawConnection, group: str, topic: str, partition: int = 0) -> int:
    wanted = [{"name": topic, "partition_indexes": [partition]}]
    answer = raw.call("offset_fetch", 8, groups=[{"group_id": group, "topics": wanted}])
    return int(answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"])


@pytest.fixture
def group(unused_name: Callable[[], str]) -> str:
    return "tools-" + unused_name()


@pytest.fixture
def topic(new_topic: NewTopic, raw: RawConnection) -> str:
    """Two partitions; ten records in each, five of them two hours old."""
    name = new_topic(partitions=2)
    now = int(time.time() * 1000)
    for partition in range(2):
        raw.produce(name, batch([b"old"] * 5, timestamp_ms=now - 2 * _HOUR_MS), partition=partition)
        raw.produce(name, batch([b"new"] * 5, timestamp_ms=now - 60_000), partition=partition)
    return name


@pytest.fixture
def live(world: World, target: Target, topic: str, group: str) -> Iterator[Member]:
    """A Java consumer that owns both partitions and has committed their ends."""
    member = world.client(Java.name, target.name).join([topic], group)
    found = 0
    until = time.monotonic() + 20
    while found < 20 and time.monotonic() < until:
        found += len(member.poll(20 - found, 0.3))
    assert found == 20
    member.commit()
    yield member
    member.close()


@pytest.fixture
def resting(tool: Tool, topic: str, group: str) -> str:
    """A group without members that has committed 6 for partition 0 and 7 for partition 1."""
    for partition, offset in ((0, 6), (1, 7)):
        where = ("--topic", f"{topic}:{partition}", "--to-offset", str(offset))
        _out(tool(_GROUPS, "--reset-offsets", "--group", group, *where, "--execute"))
    return group


# -- kafka-consumer-groups ----------------------------------------------------------------------------------


@pytest.mark.case("Kafka's tools: groups", "kafka-consumer-groups --list: names, states, types")
def test_list(tool: Tool, resting: str) -> None:
    assert resting in _out(tool(_GROUPS, "--list")).split()
    assert [resting, "Empty"] in _rows(_out(tool(_GROUPS, "--list", "--state")))
    assert [resting, "Classic"] in _rows(_out(tool(_GROUPS, "--list", "--type")))
    assert resting not in _out(tool(_GROUPS, "--list", "--state", "Stable"))


@pytest.mark.case("Kafka's tools: groups", "kafka-consumer-groups --describe: a live group's offsets and lag")
def test_describe_live(tool: Tool, live: Member, topic: str, group: str, raw: RawConnection) -> None:
    raw.produce(topic, batch([b"not read"]), partition=1)
    rows = sorted(_rows(_out(tool(_GROUPS, "--describe", "--group", group))))
    assert [row[:6] for row in rows] == [
        [group, topic, "0", "10", "10", "0"],
        [group, topic, "1", "10", "11", "1"],
    ]
    assert all(row[6] != "-" and row[7].startswith("/") and row[8] != "-" for row in rows), "a member owns it"


@pytest.mark.case("Kafka's tools: groups", "kafka-consumer-groups --describe --members --verbose, --state")
def test_describe_members(tool: Tool, live: Member, topic: str, group: str, target: Target) -> None:
    (member,) = _rows(_out(tool(_GROUPS, "--describe", "--group", group, "--members", "--verbose")))
    assert (member[0], member[4], f"{topic}:0,1" in member) == (group, "2", True)
    (state,) = _rows(_out(tool(_GROUPS, "--describe", "--group", group, "--state")))
    assert state[0] == group and state[1] in target.bootstrap.split(",")
    assert state[3:] == ["range", "Stable", "1"]
    everything = _out(tool(_GROUPS, "--describe", "--all-groups", "--state", "--verbose"))
    assert group in [row[0] for row in _rows(everything)]


@pytest.mark.case(
    "Kafka's tools: groups", "kafka-consumer-groups --describe: a group without members, an unknown one"
)
def test_describe_resting(tool: Tool, resting: str, topic: str) -> None:
    said = tool(_GROUPS, "--describe", "--group", resting)
    assert sorted(_rows(_out(said))) == [
        [resting, topic, "0", "6", "10", "4", "-", "-", "-"],
        [resting, topic, "1", "7", "10", "3", "-", "-", "-"],
    ]
    assert "has no active members" in said.stderr
    (state,) = _rows(_out(tool(_GROUPS, "--describe", "--group", resting, "--state")))
    assert state[-3:] == ["-", "Empty", "0"]
    assert "GroupIdNotFoundException" in tool(_GROUPS, "--describe", "--group", resting + "-not").stdout


@pytest.mark.case(
    "Kafka's tools: groups", "kafka-consumer-groups --reset-offsets {option}: --dry-run and --execute"
)
@pytest.mark.parametrize("option", list(RESETS))
def test_reset(tool: Tool, raw: RawConnection, resting: str, topic: str, option: str) -> None:
    values, expected = RESETS[option]
    how = ("--reset-offsets", "--group", resting, "--topic", f"{topic}:0", option.split()[0], *values)
    assert _new_offsets(_out(tool(_GROUPS, *how, "--dry-run"))) == {0: expected}
    assert _committed(raw, resting, topic) == 6, "a dry run changes nothing"
    assert _new_offsets(_out(tool(_GROUPS, *how, "--execute"))) == {0: expected}
    assert _committed(raw, resting, topic) == expected
    assert _committed(raw, resting, topic, 1) == 7, "the other partition stays"


@pytest.mark.case("Kafka's tools: groups", "kafka-consumer-groups --reset-offsets --all-topics, --export")
def test_reset_all(tool: Tool, raw: RawConnection, resting: str, topic: str) -> None:
    how = ("--reset-offsets", "--group", resting, "--all-topics")
    exported = _out(tool(_GROUPS, *how, "--to-current", "--export", "--dry-run"))
    assert sorted(exported.split()) == [f"{topic},0,6", f"{topic},1,7"]
    assert _new_offsets(_out(tool(_GROUPS, *how, "--to-latest", "--execute"))) == {0: 10, 1: 10}
    assert [_committed(raw, resting, topic, n) for n in range(2)] == [10, 10]


@pytest.mark.case("Kafka's tools: groups", "kafka-consumer-groups: what a live group refuses")
def test_live_refuses(tool: Tool, live: Member, raw: RawConnection, topic: str, group: str) -> None:
    reset = _out(
        tool(_GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    )
    assert "the current state is Stable" in reset
    assert "GroupNotEmptyException" in _out(tool(_GROUPS, "--delete", "--group", group))
    deleted = _out(tool(_GROUPS, "--delete-offsets", "--group", group, "--topic", topic))
    assert deleted.count("GroupSubscribedToTopicException") == 2, "for each partition"
    assert [_committed(raw, group, topic, n) for n in range(2)] == [10, 10]


@pytest.mark.case(
    "Kafka's tools: groups", "kafka-consumer-groups --delete-offsets: one partition, a whole topic"
)
def test_delete_offsets(tool: Tool, raw: RawConnection, resting: str, topic: str) -> None:
    said = _out(tool(_GROUPS, "--delete-offsets", "--group", resting, "--topic", f"{topic}:1"))
    assert [topic, "1", "Successful"] in _rows(said)
    assert [_committed(raw, resting, topic, n) for n in range(2)] == [6, -1]
    _out(tool(_GROUPS, "--delete-offsets", "--group", resting, "--topic", topic))
    assert _committed(raw, resting, topic) == -1
    missing = _out(tool(_GROUPS, "--delete-offsets", "--group", resting + "-not", "--topic", topic))
    assert missing.count("GroupIdNotFoundException") == 2


@pytest.mark.case("Kafka's tools: groups", "kafka-consumer-groups --delete: a group, an unknown one")
def test_delete(tool: Tool, raw: RawConnection, resting: str, topic: str) -> None:
    assert "was successful" in _out(tool(_GROUPS, "--delete", "--group", resting))
    assert resting not in _out(tool(_GROUPS, "--list")).split()
    assert _committed(raw, resting, topic) == -1
    assert "GroupIdNotFoundException" in _out(tool(_GROUPS, "--delete", "--group", resting))


# -- kafka-groups, kafka-get-offsets ------------------------------------------------------------------------


@pytest.mark.case("Kafka's tools: groups", "kafka-groups --list: all, by type, by protocol")
def test_groups(tool: Tool, live: Member, group: str, resting_other: str) -> None:
    main = f"{_TOOLS}.GroupsCommand"
    for words in ((), ("--group-type", "classic"), ("--consumer",)):
        rows = _rows(_out(tool(main, "--list", *words)))
        assert [group, "Classic", "consumer"] in rows
        assert [resting_other, "Classic"] in rows, "no protocol: it never had a member"
    by_protocol = _rows(_out(tool(main, "--list", "--protocol", "consumer")))
    assert [group, "Classic", "consumer"] in by_protocol
    assert resting_other not in [row[0] for row in by_protocol]


@pytest.fixture
def resting_other(tool: Tool, topic: str, group: str) -> str:
    """A second group, without members."""
    name = group + "-resting"
    _out(tool(_GROUPS, "--reset-offsets", "--group", name, "--topic", topic, "--to-latest", "--execute"))
    return name


@pytest.mark.case("Kafka's tools: groups", "kafka-get-offsets --topic-partitions")
def test_get_offsets(tool: Tool, topic: str, new_topic: NewTopic) -> None:
    other = new_topic()
    said = _out(tool(f"{_TOOLS}.GetOffsetShell", "--topic-partitions", f"{topic}:1,{other}:0"))
    assert sorted(said.split()) == sorted([f"{topic}:1:10", f"{other}:0:0"])
    assert _out(tool(f"{_TOOLS}.GetOffsetShell", "--topic-partitions", f"{topic}:1-")).split() == [
        f"{topic}:1:10"
    ]


# -- consumers ----------------------------------------------------------------------------------------------


@pytest.mark.case("Kafka's tools: groups", "kafka-console-consumer --group: goes on where it stopped")
def test_console_group(tool: Tool, new_topic: NewTopic, raw: RawConnection, group: str) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"1", b"2", b"3", b"4", b"5"]))
    where = ("--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "15000")
    assert _out(tool(_CONSOLE, *where, "--max-messages", "2")).split() == ["1", "2"]
    assert _committed(raw, group, topic) == 2
    assert _out(tool(_CONSOLE, *where, "--max-messages", "3")).split() == ["3", "4", "5"]


@pytest.mark.case("Kafka's tools: groups", "kafka-console-consumer without --group, --include a pattern")
def test_console_pattern(tool: Tool, unused_name: Callable[[], str], raw: RawConnection) -> None:
    prefix = unused_name()
    for name, value in ((f"{prefix}-a", b"a"), (f"{prefix}-b", b"b"), (f"not-{prefix}", b"c")):
        raw.create_topic(name)
        raw.produce(name, batch([value]))
    before = set(_out(tool(_GROUPS, "--list")).split())
    where = ("--include", f"{prefix}-.*", "--from-beginning", "--max-messages", "2", "--timeout-ms", "15000")
    assert sorted(_out(tool(_CONSOLE, *where)).split()) == ["a", "b"]
    fresh = set(_out(tool(_GROUPS, "--list")).split()) - before
    assert [each for each in fresh if each.startswith("console-consumer-")], "a group of its own"


@pytest.mark.case(
    "Kafka's tools: groups", "kafka-verifiable-consumer: assigned, consumed and committed events"
)
def test_verifiable_consumer(tool: Tool, raw: RawConnection, topic: str, group: str, target: Target) -> None:
    where = ("--bootstrap-server", target.bootstrap, "--topic", topic, "--group-id", group)
    said = _out(run_tool(f"{_TOOLS}.VerifiableConsumer", (*where, "--max-messages", "20")))
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assigned = [each for each in events if each["name"] == "partitions_assigned"]
    assert {each["partition"] for each in assigned[-1]["partitions"]} == {0, 1}
    assert sum(each["count"] for each in events if each["name"] == "records_consumed") == 20
    committed = [each for each in events if each["name"] == "offsets_committed"]
    assert committed and all(each["success"] for each in committed)
    assert [_committed(raw, group, topic, n) for n in range(2)] == [10, 10]


@pytest.mark.case("Kafka's tools: groups", "kafka-consumer-perf-test")
def test_consumer_performance(tool: Tool, raw: RawConnection, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        raw.produce(topic, batch([b"x" * 100] * 1000), partition=partition)
    where = ("--topic", topic, "--num-records", "2000", "--group", group, "--timeout", "15000")
    said = _out(tool(f"{_TOOLS}.ConsumerPerformance", *where)).splitlines()
    head, figures = said[-2].split(", "), said[-1].split(", ")
    assert dict(zip(head, figures, strict=True))["data.consumed.in.nMsg"] == "2000"
    assert [_committed(raw, group, topic, n) for n in range(2)] == [1000, 1000]


@pytest.mark.case("Kafka's tools: groups", "kafka-e2e-latency")
def test_latency(world: World, tool: Tool, target: Target, new_topic: NewTopic) -> None:
    words = ("--topic", new_topic(), "--num-records", "20", "--producer-acks", "all", "--record-size", "50")
    said = _out(
        world.driver().tool(f"{_TOOLS}.EndToEndLatency", "--bootstrap-server", target.bootstrap, *words)
    )
    assert re.search(r"Avg latency: [\d.]+ ms", said) and "Percentiles: 50th = " in said


# -- what else looks at groups ------------------------------------------------------------------------------


def _formatted(tool: Tool, raw: RawConnection, group: str, formatter: str) -> list[dict[str, Any]]:
    """What a formatter prints of this group's partition of the offsets topic."""
    (described,) = raw.call("metadata", 12, topics=[{"name": _OFFSETS_TOPIC}])["topics"]
    partition = _java_hash(group) % len(described["partitions"])
    where = ("--topic", _OFFSETS_TOPIC, "--partition", str(partition), "--offset", "earliest")
    said = _out(
        tool(_CONSOLE, *where, "--timeout-ms", "1000", "--formatter", f"{_TOOLS}.consumer.{formatter}")
    )
    found, place, decoder = [], 0, json.JSONDecoder()
    while place < len(said.rstrip()):
        each, place = decoder.raw_decode(said, place)  # one after the other, without line ends
        found.append(each)
    return [each for each in found if each["key"]["data"]["group"] == group]


def _java_hash(text: str) -> int:
    """What Kafka chooses a group's partition by: the absolute value of String.hashCode."""
    number = 0
    for letter in text:
        number = (31 * number + ord(letter)) & 0xFFFFFFFF
    return number if number < 1 << 31 else (1 << 32) - number


@pytest.mark.case("Kafka's tools: groups", "__consumer_offsets through OffsetsMessageFormatter")
def test_offsets_formatter(tool: Tool, raw: RawConnection, resting: str, topic: str) -> None:
    _out(tool(_GROUPS, "--delete-offsets", "--group", resting, "--topic", f"{topic}:1"))
    found = _formatted(tool, raw, resting, "OffsetsMessageFormatter")
    assert {each["key"]["data"]["topic"] for each in found} == {topic}
    of_partition = [
        [
            each["value"] and each["value"]["data"]["offset"]
            for each in found
            if each["key"]["data"]["partition"] == n
        ]
        for n in range(2)
    ]
    assert of_partition == [[6], [7, None]], "the last is a tombstone"


@pytest.mark.case("Kafka's tools: groups", "__consumer_offsets through GroupMetadataMessageFormatter")
def test_metadata_formatter(tool: Tool, raw: RawConnection, live: Member, group: str) -> None:
    last = _formatted(tool, raw, group, "GroupMetadataMessageFormatter")[-1]["value"]["data"]
    assert (last["protocolType"], last["protocol"]) == ("consumer", "range")
    (member,) = last["members"]
    assert member["memberId"] == last["leader"] and member["sessionTimeout"] == 10_000
    assert member["subscription"] and member["assignment"]


@pytest.mark.case("Kafka's tools: groups", "kafka-streams-application-reset --dry-run and in earnest")
def test_streams_reset(tool: Tool, raw: RawConnection, resting: str, topic: str) -> None:
    main = f"{_TOOLS}.StreamsResetter"
    words = ("--application-id", resting, "--input-topics", topic, "--to-earliest")
    said = _out(tool(main, *words, "--dry-run"))
    assert (
        f"Topic: {topic} Partition: 0 Offset: 0" in said and f"Topic: {topic} Partition: 1 Offset: 0" in said
    )
    assert _committed(raw, resting, topic) == 6
    _out(tool(main, *words))
    assert [_committed(raw, resting, topic, n) for n in range(2)] == [0, 0]


@pytest.mark.case("Kafka's tools: groups", "kafka-replica-verification")
def test_replica_verification(tool: Tool, target: Target, topic: str) -> None:
    """It goes on until it is ended; its first report comes after one round of fetches."""
    words = ("--broker-list", target.bootstrap, "--topics-include", topic, "--report-interval-ms", "200")
    command = [
        java_command(),
        "-Xmx128M",
        *SHORT_LIVED,
        "-cp",
        classpath(),
        f"{_TOOLS}.ReplicaVerificationTool",
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if "max lag is" in line or len(said) > 40:
                    break
        finally:
            process.kill()
    assert re.search(rf"max lag is 0 for partition {topic}-\d at offset 10 among 2 partitions", said[-1]), (
        said
    )
