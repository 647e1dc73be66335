"""Offsets committed within transactions, by hand: versions, refusals. Expected is what Kafka 4.4.0 does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection

AREA = "Offsets in transactions on the wire"
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
ILLEGAL_GENERATION = 22
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
TRANSACTION_ABORTABLE = 120
COME_AGAIN = {14, 15, 16, 51}
"""Loading, not there yet, moved, the last transaction's end is on its way."""
UNSTABLE = (UNSTABLE_OFFSET_COMMIT, -1, "")
NOTHING = (0, -1, "")
GROUP, TRANSACTION = 0, 1
V1_COMMIT, V2_COMMIT = 4, 5
"""The newest TxnOffsetCommit within transactions of version 1, and the one of version 2."""


class _Producer:
    """A transactional producer over one connection."""

    def __init__(self, raw: RawConnection, transactional_id: str) -> None:
        self.raw = raw
        self.transactional_id = transactional_id
        _coordinated(raw, transactional_id, TRANSACTION)
        self.producer_id, self.producer_epoch = self.begin()

    def _call(self, api: str, api_version: int, **fields: Any) -> Answer:
        named = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }
        return _patiently(self.raw, api, api_version, **{**named, **fields})

    def begin(self) -> tuple[int, int]:
        """A new identity."""
        fields = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = _patiently(self.raw, "init_producer_id", 4, transactional_id=self.transactional_id, **fields)
        assert answer["error_code"] == 0, answer
        return answer["producer_id"], answer["producer_epoch"]

    def add(self, group_id: str, api_version: int = 3, **fields: Any) -> int:
        error = self._call("add_offsets_to_txn", api_version, group_id=group_id, **fields)["error_code"]
        assert isinstance(error, int)
        return error

    def commit(
        self,
        group_id: str,
        topic: str,
        offsets: dict[int, int],
        *,
        api_version: int = V1_COMMIT,
        metadata: str | None = "m",
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        **fields: Any,
    ) -> dict[int, int]:
        """Error codes by partition."""
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
            for index, offset in offsets.items()
        ]
        if api_version >= 3:
            fields |= {"generation_id": generation, "member_id": member, "group_instance_id": instance}
        topics = [{"name": topic, "partitions": partitions}]
        answer = self._call("txn_offset_commit", api_version, group_id=group_id, topics=topics, **fields)
        return _errors(answer["topics"])

    def end(self, commits: bool = True, api_version: int = 3) -> None:
        answer = self._call("end_txn", api_version, committed=commits)
        assert answer["error_code"] == 0, answer
        if api_version >= 5:
            self.producer_id, self.producer_epoch = answer["producer_id"], answer["producer_epoch"]


def _errors(topics: list[Answer]) -> dict[int, int]:
    return {each["partition_index"]: each["error_code"] for topic in topics for each in topic["partitions"]}


def _patiently(raw: RawConnection, api: str, api_version: int, **fields: Any) -> Answer:
    for _ in range(200):
        answer = raw.call(api, api_version, **fields)
        errors = {answer.get("error_code", 0), *_errors(answer.get("topics", []))}
        errors |= set(_errors(answer.get("topics", [])).values())
        if not errors & COME_AGAIN:
            break
        time.sleep(0.05)
    return answer


def _coordinated(raw: RawConnection, key: str, kind: int) -> None:
    answer = _patiently(raw, "find_coordinator", 3, key=key, key_type=kind)
    assert answer["error_code"] == 0, answer


class _Group:
    """A group's offsets, from outside."""

    def __init__(self, raw: RawConnection, group_id: str) -> None:
        self.raw = raw
        self.group_id = group_id
        _coordinated(raw, group_id, GROUP)

    def fetch(
        self, topic: str | None, indexes: list[int], *, stable: bool = True
    ) -> dict[int, tuple[int, int, str]]:
        """(error, offset, metadata) by partition."""
        topics = None if topic is None else [{"name": topic, "partition_indexes": indexes}]
        asked = [{"group_id": self.group_id, "topics": topics}]
        for _ in range(200):
            (answer,) = self.raw.call("offset_fetch", 8, groups=asked, require_stable=stable)["groups"]
            if answer["error_code"] not in COME_AGAIN:
                break
            time.sleep(0.05)
        assert answer["error_code"] == 0, answer
        return {
            each["partition_index"]: (each["error_code"], each["committed_offset"], each["metadata"])
            for found in answer["topics"]
            for each in found["partitions"]
        }

    def settled(self, topic: str, indexes: list[int]) -> dict[int, tuple[int, int, str]]:
        """The same, when every transaction's end is there."""
        for _ in range(200):
            found = self.fetch(topic, indexes)
            if all(error == 0 for error, _, _ in found.values()):
                break
            time.sleep(0.02)
        return found

    def commit(self, topic: str, offsets: dict[int, int], **member: Any) -> dict[int, int]:
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": "p"}
            for index, offset in offsets.items()
        ]
        fields = {"generation_id_or_member_epoch": -1, "member_id": "", **member}
        topics = [{"name": topic, "partitions": partitions}]
        answer = self.raw.call("offset_commit", 9, group_id=self.group_id, topics=topics, **fields)
        return _errors(answer["topics"])

    def state(self) -> str:
        (found,) = self.raw.call("describe_groups", 5, groups=[self.group_id])["groups"]
        return str(found["group_state"])


@pytest.fixture
def group(raw: RawConnection, unused_name: Callable[[], str]) -> _Group:
    return _Group(raw, unused_name())


@pytest.fixture
def producer(raw: RawConnection, group: _Group, unused_name: Callable[[], str]) -> _Producer:
    return _Producer(raw, "tx-" + unused_name())


@pytest.mark.case(AREA, "TxnOffsetCommit v{version}: pending until the commit, then it holds")
@pytest.mark.parametrize("version", range(5))
def test_versions(producer: _Producer, group: _Group, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(3)
    assert producer.add(group.group_id, min(version, 4)) == 0
    assert producer.commit(group.group_id, topic, {0: 5, 2: 6}, api_version=version) == {0: 0, 2: 0}
    assert group.fetch(topic, [0, 1, 2]) == {0: UNSTABLE, 1: NOTHING, 2: UNSTABLE}
    assert group.fetch(topic, [0, 1, 2], stable=False) == dict.fromkeys(range(3), NOTHING)
    assert group.fetch(None, []) == {}
    assert group.state() == "Empty"
    producer.end()
    assert group.settled(topic, [0, 1, 2]) == {0: (0, 5, "m"), 1: NOTHING, 2: (0, 6, "m")}


@pytest.mark.case(AREA, "TxnOffsetCommit v5 adds the group to the transaction")
def test_adding(producer: _Producer, group: _Group, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert producer.commit(group.group_id, topic, {0: 5}, api_version=V2_COMMIT) == {0: 0}
    assert group.fetch(topic, [0]) == {0: UNSTABLE}
    before = producer.producer_epoch
    producer.end(api_version=5)
    assert producer.producer_epoch == before + 1
    assert group.settled(topic, [0]) == {0: (0, 5, "m")}
    for version in (3, V1_COMMIT, V2_COMMIT):
        late = producer.commit(group.group_id, topic, {0: 6}, api_version=version, producer_epoch=before)
        assert late == {0: INVALID_PRODUCER_EPOCH}


@pytest.mark.case(AREA, "TxnOffsetCommit: what is aborted never was")
def test_abort(producer: _Producer, group: _Group, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert producer.add(group.group_id) == 0
    assert group.commit(topic, {0: 3}) == {0: 0}
    assert producer.commit(group.group_id, topic, {0: 5}) == {0: 0}
    assert group.fetch(None, []) == {0: UNSTABLE}
    producer.end(commits=False)
    assert group.settled(topic, [0]) == {0: (0, 3, "p")}


@pytest.mark.case(AREA, "TxnOffsetCommit without AddOffsetsToTxn is refused")
def test_not_added(producer: _Producer, group: _Group, new_topic: NewTopic) -> None:
    topic = new_topic()
    for version in range(4):
        found = producer.commit(group.group_id, topic, {0: 5}, api_version=version)
        assert found == {0: INVALID_TXN_STATE}
    assert producer.commit(group.group_id, topic, {0: 5}) == {0: TRANSACTION_ABORTABLE}
    assert group.state() == "Dead" and group.fetch(topic, [0]) == {0: NOTHING}


@pytest.mark.case(AREA, "TxnOffsetCommit: another epoch, another producer, no such transactional id")
@pytest.mark.parametrize("version", [3, V1_COMMIT, V2_COMMIT])
def test_others(producer: _Producer, group: _Group, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()

    def error(**fields: Any) -> int:
        return producer.commit(group.group_id, topic, {0: 5}, api_version=version, **fields)[0]

    epoch = producer.producer_epoch
    assert error(producer_epoch=epoch + 1) == error(producer_epoch=-1) == INVALID_PRODUCER_EPOCH
    assert error(producer_id=producer.producer_id + 10_000) == INVALID_PRODUCER_ID_MAPPING
    assert error(producer_id=-1, producer_epoch=-1) == INVALID_PRODUCER_ID_MAPPING
    assert error(transactional_id="nobody-" + topic) == INVALID_PRODUCER_ID_MAPPING
    assert error(transactional_id="") == INVALID_REQUEST


@pytest.mark.case(AREA, "AddOffsetsToTxn v{version}: its refusals")
@pytest.mark.parametrize("version", range(5))
def test_add_refusals(producer: _Producer, group: _Group, version: int) -> None:
    fenced = PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
    epoch = producer.producer_epoch
    assert producer.add(group.group_id, version, producer_epoch=epoch + 1) == fenced
    assert producer.add(group.group_id, version, producer_epoch=-1) == fenced
    other = producer.producer_id + 10_000
    assert producer.add(group.group_id, version, producer_id=other) == INVALID_PRODUCER_ID_MAPPING
    nobody = "nobody-" + group.group_id
    assert producer.add(group.group_id, version, transactional_id=nobody) == INVALID_PRODUCER_ID_MAPPING
    assert producer.add(group.group_id, version, transactional_id="") == INVALID_REQUEST
    assert producer.add("", version) == 0, "nobody minds"
    producer.end(commits=False)


@pytest.mark.case(AREA, "TxnOffsetCommit: what is not there, too long, or nothing at all")
def test_what_is_not_there(producer: _Producer, group: _Group, new_topic: NewTopic) -> None:
    topic, unknown = new_topic(), UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit("", topic, {0: 5}) == {0: INVALID_GROUP_ID}
    assert producer.commit("", topic + "-not", {0: 5}) == {0: unknown}
    assert producer.add(group.group_id) == 0
    found = producer.commit(group.group_id, topic, {0: 5, 9: 5, -1: 5})
    assert found == {0: 0, 9: unknown, -1: unknown}
    too_long = producer.commit(group.group_id, topic, {0: 6}, metadata="m" * 4097)
    assert too_long == {0: OFFSET_METADATA_TOO_LARGE}
    assert producer.commit(group.group_id, topic, {}) == {}
    producer.end()
    assert group.settled(topic, [0]) == {0: (0, 5, "m")}


@pytest.mark.case(AREA, "A later commit holds, whichever transaction ends last")
def test_order(
    raw: RawConnection,
    producer: _Producer,
    group: _Group,
    new_topic: NewTopic,
    unused_name: Callable[[], str],
) -> None:
    topic = new_topic(3)
    other = _Producer(raw, "tx-" + unused_name())
    for each in (producer, other):
        assert each.add(group.group_id) == 0
    assert producer.commit(group.group_id, topic, {0: 1, 1: 1, 2: 1}) == {0: 0, 1: 0, 2: 0}
    assert other.commit(group.group_id, topic, {0: 2, 1: 2}) == {0: 0, 1: 0}
    assert producer.commit(group.group_id, topic, {1: 3}) == {1: 0}
    assert group.commit(topic, {2: 4}) == {2: 0}
    assert group.fetch(topic, [2]) == {2: UNSTABLE}
    other.end()
    time.sleep(0.2)
    assert group.fetch(topic, [0, 1]) == {0: UNSTABLE, 1: UNSTABLE}
    producer.end()
    assert group.settled(topic, [0, 1, 2]) == {0: (0, 2, "m"), 1: (0, 3, "m"), 2: (0, 4, "p")}


@pytest.mark.case(AREA, "OffsetDelete and DeleteGroups take along what is pending")
def test_deleting(raw: RawConnection, producer: _Producer, group: _Group, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    assert producer.add(group.group_id) == 0
    assert producer.commit(group.group_id, topic, {0: 1, 1: 1}) == {0: 0, 1: 0}
    wanted = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    answer = raw.call("offset_delete", 0, group_id=group.group_id, topics=wanted)
    assert (answer["error_code"], _errors(answer["topics"])) == (0, {0: 0})
    assert group.fetch(topic, [0, 1]) == {0: NOTHING, 1: UNSTABLE}
    (deleted,) = raw.call("delete_groups", 2, groups_names=[group.group_id])["results"]
    assert deleted["error_code"] == 0 and group.state() == "Dead"
    assert producer.commit(group.group_id, topic, {2: 7}) == {2: 0}
    producer.end()
    assert group.settled(topic, [0, 1, 2]) == {0: NOTHING, 1: NOTHING, 2: (0, 7, "m")}


@pytest.mark.case(AREA, "TxnOffsetCommit: members and generations (KIP-447)")
def test_members(raw: RawConnection, producer: _Producer, group: _Group, new_topic: NewTopic) -> None:
    topic, group_id = new_topic(), group.group_id
    assert producer.add(group_id) == 0

    def error(**member: Any) -> int:
        return producer.commit(group_id, topic, {0: 1}, **member)[0]

    assert error(generation=3, member="x") == error(generation=0) == ILLEGAL_GENERATION
    member, generation = _joined(raw, group_id)
    own = {"generation": generation, "member": member}
    assert error(**own) == 0
    plain = {"generation_id_or_member_epoch": generation, "member_id": member}
    assert group.commit(topic, {0: 1}, **plain) == {0: REBALANCE_IN_PROGRESS}
    _synced(raw, group_id, member, generation)
    assert error(**own) == error() == 0
    assert producer.commit(group_id, topic, {0: 1}, api_version=2) == {0: 0}
    for other in (generation - 1, generation + 1, -1):
        assert error(generation=other, member=member) == ILLEGAL_GENERATION
    assert error(generation=generation, member="x") == error(generation=generation) == UNKNOWN_MEMBER_ID
    assert error(**own, instance="i") == error(instance="i") == UNKNOWN_MEMBER_ID
    producer.end(commits=False)


def _joined(raw: RawConnection, group_id: str) -> tuple[str, int]:
    member = ""
    for _ in range(2):
        answer = raw.call(
            "join_group",
            7,
            group_id=group_id,
            session_timeout=30_000,
            rebalance_timeout=30_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"}],
        )
        member = answer["member_id"]
    assert answer["error_code"] == 0, answer
    return member, answer["generation_id"]


def _synced(raw: RawConnection, group_id: str, member: str, generation: int) -> None:
    answer = raw.call(
        "sync_group",
        5,
        group_id=group_id,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member, "assignment": b""}],
    )
    assert answer["error_code"] == 0, answer
