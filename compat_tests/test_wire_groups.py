"""Committed offsets by hand: every version and every refusal. Expected is what Kafka 4.4.0 does."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection, batch

UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_NOT_AVAILABLE = 15
INVALID_TOPIC_EXCEPTION = 17
ILLEGAL_GENERATION = 22
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
UNKNOWN_TOPIC_ID = 100

GROUP, SHARE = 0, 2
MAX_METADATA = 4096
OFFSETS_TOPIC = "__consumer_offsets"

UnusedName = Callable[[], str]


class _Group:
    """One group over one connection, from outside: no members."""

    def __init__(self, raw: RawConnection, group_id: str) -> None:
        self.raw = raw
        self.group_id = group_id
        for _ in range(200):
            answer = raw.call("find_coordinator", 3, key=group_id, key_type=GROUP)
            if answer["error_code"] != COORDINATOR_NOT_AVAILABLE:
                break
            time.sleep(0.05)
        assert answer["error_code"] == 0, answer

    def commit(
        self,
        topic: str,
        offsets: dict[int, int],
        *,
        api_version: int = 9,
        topic_id: uuid.UUID | None = None,
        metadata: str | None = "m",
        **request: Any,
    ) -> dict[int, int]:
        """Error codes by partition."""
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
            for index, offset in offsets.items()
        ]
        fields = {"group_id": self.group_id, "generation_id_or_member_epoch": -1, "member_id": "", **request}
        topics = [{"name": topic, "topic_id": topic_id, "partitions": partitions}]
        for _ in range(100):
            answer = self.raw.call("offset_commit", api_version, topics=topics, **fields)
            found = _errors(answer["topics"])
            if set(found.values()) & {14, 15, 16}:  # Kafka's coordinator is still loading
                time.sleep(0.05)
                continue
            break
        return found

    def fetch(self, topic: str, indexes: list[int], **request: Any) -> dict[int, tuple[int, str]]:
        """(offset, metadata) by partition."""
        group = {"group_id": self.group_id, "topics": [{"name": topic, "partition_indexes": indexes}]}
        (answer,) = self.raw.call("offset_fetch", 8, groups=[group], **request)["groups"]
        assert answer["error_code"] == 0, answer
        ((found,),) = [[each["partitions"] for each in answer["topics"]]]
        return {each["partition_index"]: (each["committed_offset"], each["metadata"]) for each in found}

    def delete(self, topic: str, indexes: list[int]) -> tuple[int, dict[int, int]]:
        """The group's error and the partitions'."""
        topics = [{"name": topic, "partitions": [{"partition_index": index} for index in indexes]}]
        answer = self.raw.call("offset_delete", 0, group_id=self.group_id, topics=topics)
        return answer["error_code"], _errors(answer["topics"])


def _errors(topics: list[Answer]) -> dict[int, int]:
    return {each["partition_index"]: each["error_code"] for topic in topics for each in topic["partitions"]}


@pytest.fixture
def group(raw: RawConnection, unused_name: UnusedName) -> _Group:
    return _Group(raw, unused_name())


@pytest.mark.case("Groups on the wire", "FindCoordinator v{version} names the broker for every group")
@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(group: _Group, raw: RawConnection, version: int) -> None:
    brokers = {each["node_id"]: each for each in raw.call("metadata", 12, topics=[])["brokers"]}
    answer = raw.call("find_coordinator", version, key="g", coordinator_keys=["g", "", "g"], key_type=GROUP)
    found = answer["coordinators"] if version >= 4 else [answer]
    assert [each["key"] for each in found if version >= 4] == (["g", "", "g"] if version >= 4 else [])
    for each in found:
        assert each["error_code"] == 0
        broker = brokers[each["node_id"]]
        assert (each["host"], each["port"]) == (broker["host"], broker["port"])
    if version:
        assert {each["error_message"] for each in found} == {"" if version >= 4 else "NONE"}


@pytest.mark.case("Groups on the wire", "FindCoordinator v{version}: an unknown type is INVALID_REQUEST")
@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator_of_nothing(raw: RawConnection, version: int) -> None:
    for kind in (SHARE, 3, -1):
        answer = raw.call("find_coordinator", version, key="g", coordinator_keys=["g"], key_type=kind)
        (found,) = answer["coordinators"] if version >= 4 else [answer]
        assert (found["error_code"], found["node_id"], found["host"], found["port"]) == (
            INVALID_REQUEST,
            -1,
            "",
            -1,
        )


@pytest.mark.case("Groups on the wire", "OffsetCommit v{version} is stored, in the same bytes")
@pytest.mark.parametrize("version", range(2, 11))
def test_commit_versions(raw: RawConnection, group: _Group, unused_name: UnusedName, version: int) -> None:
    topic = unused_name()
    topic_id = raw.create_topic(topic, 2)
    kept: dict[str, Any] = {"retention_time": 3_600_000} if version < 5 else {}
    assert group.commit(topic, {1: 7}, api_version=version, topic_id=topic_id, **kept) == {1: 0}
    assert group.fetch(topic, [0, 1]) == {0: (-1, ""), 1: (7, "m")}
    value = _last_value(raw, group.group_id)
    if version < 5:
        assert value[:2] == b"\0\1"
        assert value[-8:] > value[-16:-8], "expiration follows the commit"
        assert (len(value), value[2:13]) == (2 + 8 + 2 + 1 + 8 + 8, bytes(7) + b"\7\0\1m")
    else:
        assert value[:16] == b"\0\4" + bytes(7) + b"\7" + b"\xff\xff\xff\xff" + b"\2m"
        assert value[-19:] == b"\1\0\x10" + topic_id.bytes


def _last_value(raw: RawConnection, group_id: str) -> bytes:
    """The newest record of the group in __consumer_offsets, wherever that is."""
    from kafka.record.default_records import DefaultRecordBatch

    count = len(raw.call("metadata", 12, topics=[{"name": OFFSETS_TOPIC}])["topics"][0]["partitions"])
    found = []
    for partition in range(count):
        end = raw.list_offset(OFFSETS_TOPIC, -1, partition=partition)["offset"]
        if not end:
            continue
        data = raw.fetch(OFFSETS_TOPIC, end - 1, partition=partition)["records"]
        for record in DefaultRecordBatch(data):
            if record.key.startswith(b"\0\1" + len(group_id).to_bytes(2, "big") + group_id.encode()):
                found.append(record.value)
    return bytes(found[-1])


@pytest.mark.case(
    "Groups on the wire", "OffsetCommit: unknown topic, partition and topic id, each on its own"
)
def test_commit_of_nothing(raw: RawConnection, group: _Group, unused_name: UnusedName) -> None:
    topic = unused_name()
    topic_id = raw.create_topic(topic)
    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert group.commit(topic, {0: 1, 9: 1, -1: 1}) == {0: 0, 9: unknown, -1: unknown}
    assert group.commit(unused_name(), {0: 1}) == {0: unknown}
    assert group.commit(topic, {0: 2, 9: 1}, api_version=10, topic_id=topic_id) == {0: 0, 9: unknown}
    for wrong in (uuid.uuid4(), None):
        assert group.commit(topic, {0: 3}, api_version=10, topic_id=wrong) == {0: UNKNOWN_TOPIC_ID}
    assert group.fetch(topic, [0]) == {0: (2, "m")}
    nothing = raw.call(
        "offset_commit", 9, group_id=group.group_id, generation_id_or_member_epoch=-1, topics=[]
    )
    assert nothing["topics"] == []


@pytest.mark.case("Groups on the wire", "OffsetCommit: metadata up to 4096 UTF-16 units")
def test_commit_metadata(group: _Group, new_topic: NewTopic) -> None:
    topic = new_topic()
    for fits in (None, "", "x" * MAX_METADATA, "\U0001f600" * (MAX_METADATA // 2)):
        assert group.commit(topic, {0: 1}, metadata=fits) == {0: 0}
        assert group.fetch(topic, [0]) == {0: (1, fits or "")}
    for too_long in ("x" * (MAX_METADATA + 1), "\U0001f600" * (MAX_METADATA // 2 + 1)):
        assert group.commit(topic, {0: 2, 5: 1}, metadata=too_long) == {
            0: OFFSET_METADATA_TOO_LARGE,
            5: UNKNOWN_TOPIC_OR_PARTITION,
        }
    assert group.fetch(topic, [0])[0][0] == 1


@pytest.mark.case("Groups on the wire", "OffsetCommit: members and generations that are not there")
def test_commit_by_strangers(group: _Group, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    stranger: dict[str, Any] = {"generation_id_or_member_epoch": 5, "member_id": "m"}
    assert group.commit(topic, {0: 1}, api_version=8, **stranger) == {0: ILLEGAL_GENERATION}
    assert group.commit(topic, {0: 1}, api_version=9, **stranger) == {0: GROUP_ID_NOT_FOUND}
    assert group.commit(topic, {0: 1}, api_version=9, member_id="m") == {0: 0}
    for version in (8, 9):
        assert group.commit(topic, {0: 2, 9: 2}, api_version=version, **stranger) == {
            0: UNKNOWN_MEMBER_ID,
            9: UNKNOWN_TOPIC_OR_PARTITION,
        }
    assert group.commit(topic, {0: 3}, api_version=8, generation_id_or_member_epoch=0) == {
        0: UNKNOWN_MEMBER_ID
    }
    assert group.fetch(topic, [0])[0][0] == 1
    assert _Group(raw, "").commit(topic, {0: 4}) == {0: 0}


@pytest.mark.case("Groups on the wire", "OffsetFetch v{version}: some partitions, and all of the group")
@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_versions(raw: RawConnection, group: _Group, unused_name: UnusedName, version: int) -> None:
    topic = unused_name()
    topic_id = raw.create_topic(topic, 2)
    group.commit(topic, {1: 7})
    for group_id, offset in ((group.group_id, 7), (unused_name(), -1)):
        wanted = [{"name": topic, "topic_id": topic_id, "partition_indexes": [1, 0, 9]}]
        found = _fetched(raw, version, group_id, wanted)
        assert found == {(topic, topic_id)[version >= 10]: [(1, offset), (0, -1), (9, -1)]}
        if version >= 2:
            expected = {(topic, topic_id)[version >= 10]: [(1, 7)]} if offset == 7 else {}
            assert _fetched(raw, version, group_id, None) == expected


def _fetched(
    raw: RawConnection, version: int, group_id: str, topics: list[Any] | None
) -> dict[Any, list[tuple[int, int]]]:
    """(partition, offset) by topic; no error anywhere."""
    fields = {"group_id": group_id, "topics": topics, "groups": [{"group_id": group_id, "topics": topics}]}
    kept = ("groups",) if version >= 8 else ("group_id", "topics")
    answer = raw.call("offset_fetch", version, **{name: fields[name] for name in kept})
    if version >= 8:
        (answer,) = answer["groups"]
    assert answer.get("error_code", 0) == 0
    assert {part["error_code"] for each in answer["topics"] for part in each["partitions"]} <= {0}
    return {
        each["topic_id" if version >= 10 else "name"]: [
            (part["partition_index"], part["committed_offset"]) for part in each["partitions"]
        ]
        for each in answer["topics"]
    }


@pytest.mark.case("Groups on the wire", "OffsetFetch: unknown topic and id, a stranger's epoch, no groups")
def test_fetch_of_nothing(
    raw: RawConnection, group: _Group, new_topic: NewTopic, unused_name: UnusedName
) -> None:
    topic = new_topic()
    group.commit(topic, {0: 7})
    assert group.fetch(unused_name(), [0]) == {0: (-1, "")}
    assert group.fetch(topic, [0], require_stable=True) == {0: (7, "m")}
    wanted = [{"topic_id": uuid.uuid4(), "partition_indexes": [0]}]
    (answer,) = raw.call("offset_fetch", 10, groups=[{"group_id": group.group_id, "topics": wanted}])[
        "groups"
    ]
    assert answer["error_code"] == 0
    assert _errors(answer["topics"]) == {0: UNKNOWN_TOPIC_ID}
    stranger = {"group_id": group.group_id, "member_id": "m", "member_epoch": 5}
    wanted = [{"name": topic, "partition_indexes": [0]}]
    (answer,) = raw.call("offset_fetch", 9, groups=[{**stranger, "topics": wanted}])["groups"]
    assert (answer["error_code"], answer["topics"][0]["partitions"][0]["committed_offset"]) == (0, 7)
    assert raw.call("offset_fetch", 8, groups=[])["groups"] == []


@pytest.mark.case("Groups on the wire", "OffsetDelete: what is forgotten, and every refusal")
def test_delete(raw: RawConnection, group: _Group, new_topic: NewTopic, unused_name: UnusedName) -> None:
    topic = new_topic(2)
    assert group.delete(topic, [0]) == (GROUP_ID_NOT_FOUND, {})
    group.commit(topic, {0: 1, 1: 2})
    unknown = UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(2):
        assert group.delete(topic, [0, 9]) == (0, {0: 0, 9: unknown})
        assert group.fetch(topic, [0, 1]) == {0: (-1, ""), 1: (2, "m")}
    assert group.delete(unused_name(), [0]) == (0, {0: unknown})
    assert _Group(raw, "").delete(topic, [0]) == (INVALID_GROUP_ID, {})


@pytest.mark.case("Groups on the wire", "a deleted topic's offsets go, also under the same name made again")
def test_deleted_topic(raw: RawConnection, group: _Group, unused_name: UnusedName) -> None:
    topic = unused_name()
    raw.create_topic(topic)
    group.commit(topic, {0: 7})
    (gone,) = raw.call("delete_topics", 5, topic_names=[topic], timeout=10_000)["responses"]
    assert gone["error_code"] == 0
    for _ in range(100):
        if group.fetch(topic, [0]) == {0: (-1, "")}:
            break
        time.sleep(0.05)
    time.sleep(0.2)  # Kafka forgets a deleted topic a little later
    raw.create_topic(topic)
    assert group.fetch(topic, [0]) == {0: (-1, "")}


@pytest.mark.case("Groups on the wire", "clients may read __consumer_offsets and not write to it")
def test_offsets_topic(raw: RawConnection, group: _Group) -> None:
    (topic,) = raw.call("metadata", 12, topics=[{"name": OFFSETS_TOPIC}])["topics"]
    assert (topic["error_code"], topic["is_internal"]) == (0, True)
    assert raw.produce(OFFSETS_TOPIC, batch([b"x"]))["error_code"] == INVALID_TOPIC_EXCEPTION
    wanted = [{"resource_type": 2, "resource_name": OFFSETS_TOPIC, "configuration_keys": ["cleanup.policy"]}]
    (described,) = raw.call("describe_configs", 4, resources=wanted)["results"]
    assert [(each["value"], each["config_source"]) for each in described["configs"]] == [("compact", 1)]
