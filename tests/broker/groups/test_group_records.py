"""Records of groups: Kafka's definitions, and bytes that Apache Kafka 4.3.1 itself wrote."""

from __future__ import annotations

import json
import os
import re
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compat_tests.kafka_jars import classpath
from lockstep.broker.groups.group_records import (
    CommittedOffset,
    GroupMetadata,
    RecordedMember,
    UnknownGroupRecord,
    _cached_offset_key,
    are_too_large,
    commit_bytes,
    committed_offset,
    group_key,
    group_metadata,
    group_record,
    is_too_long,
    kind_of,
    offset_key,
    offset_record,
    plain_commit,
)
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from lockstep.protocol.coordinator_records import MemberMetadata as MemberRecord
from lockstep.protocol.fields import Struct, Versions
from lockstep.protocol.primitives import MalformedMessage
from lockstep.protocol.records.batch import MalformedBatch
from lockstep.protocol.records.record import key_value_batch, key_values
from tests.support.cases import each_case

TOPIC_ID = bytes.fromhex("0854d3308edd427183eb286195ca86d8")
TIME_MS = 0x1A1FE1F0C01

KAFKA_WROTE = {
    "by name, in every version": (
        "00010001670002743100000000",
        "00040000000000000005ffffffff026d000001a1fe1f0c010100100854d3308edd427183eb286195ca86d8",
        ("g", "t1", 0, CommittedOffset(5, -1, "m", TIME_MS, -1, TOPIC_ID)),
    ),
    "with a retention time": (
        "00010001670002743100000001",
        "0001000000000000000700016d000001a1fe1f0dda000001a1fe20947a",
        ("g", "t1", 1, CommittedOffset(7, -1, "m", 0x1A1FE1F0DDA, 0x1A1FE20947A)),
    ),
    "by nobody in particular": (
        "000100000002743100000000",
        "0004000000000000000500000003026d000001a1fe1f0df00100100854d3308edd427183eb286195ca86d8",
        ("", "t1", 0, CommittedOffset(5, 3, "m", 0x1A1FE1F0DF0, -1, TOPIC_ID)),
    ),
    "a negative offset": (
        "00010001670002743100000000",
        "0004fffffffffffffff900000003026d000001a1fe1f0f280100100854d3308edd427183eb286195ca86d8",
        ("g", "t1", 0, CommittedOffset(-7, 3, "m", 0x1A1FE1F0F28, -1, TOPIC_ID)),
    ),
}


@each_case("name", KAFKA_WROTE)
def test_offsets_are_written_and_read_as_kafka_does(name: str) -> None:
    key, value, (group_id, topic, index, committed) = KAFKA_WROTE[name]
    assert offset_record(group_id, topic, index, committed) == (bytes.fromhex(key), bytes.fromhex(value))
    read = offset_key(bytes.fromhex(key))
    assert (read.group, read.topic, read.partition) == (group_id, topic, index)
    assert committed_offset(bytes.fromhex(value)) == committed


def test_a_tombstone_has_a_key_only() -> None:
    assert offset_record("g", "t1", 0, None) == (bytes.fromhex("00010001670002743100000000"), None)
    assert group_record("g", None) == (b"\0\2\0\1g", None)


@each_case("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    value = OffsetCommitValue(
        offset=1, leader_epoch=2, metadata="m", commit_timestamp=3, expire_timestamp=4, topic_id=TOPIC_ID
    )
    read = committed_offset(version.to_bytes(2, "big") + encode_bytes(value, version))
    assert (read.offset, read.metadata, read.commit_time_ms) == (1, "m", 3)
    assert read.leader_epoch == (2 if version >= 3 else -1)
    assert read.expire_time_ms == (4 if version == 1 else -1)
    assert read.topic_id == (TOPIC_ID if version == 4 else bytes(16))


@pytest.mark.parametrize("version", range(5))
def test_generations_of_every_version_are_read(version: int) -> None:
    member = MemberRecord(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h", rebalance_timeout=5,
        session_timeout=6, subscription=b"s", assignment=b"a",
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=7, protocol="range", leader="m", current_state_timestamp=8,
        members=[member],
    )  # fmt: skip
    read = group_metadata(version.to_bytes(2, "big") + encode_bytes(value, version))
    assert read == GroupMetadata(
        "consumer", 7, "range", "m", 8 if version >= 2 else -1,
        (RecordedMember("m", "i" if version >= 3 else None, "c", "/h", 5 if version else 6, 6, b"s", b"a"),),
    )  # fmt: skip


def test_what_a_commit_comes_to() -> None:
    values = [offset_record("group", "topic", index, CommittedOffset(7, -1, "said")) for index in range(9)]
    actual = sum(len(key) + len(value or b"") for key, value in values)
    said = [("topic", "said")] * 8 + [("topic", None)]
    assert actual * 0.8 < commit_bytes("group", said) < actual * 1.5


@each_case(
    ("count", "length", "too_large"), [(1_000, 99_999, False), (1_001, 99_999, True), (50_000, 200, False)]
)
def test_what_one_request_may_commit(count: int, length: int, too_large: bool) -> None:
    assert are_too_large("group", count, [("t" * length, "said")] * count) is too_large


def test_a_generation_of_very_many_members_is_read_back() -> None:
    members = tuple(
        RecordedMember(f"c-{number:034}", None, "c", "/127.0.0.1", 300_000, 45_000, b"s", b"a")
        for number in range(20_000)
    )
    metadata = GroupMetadata("consumer", 7, "range", members[0].member_id, 8, members)
    value = group_record("g", metadata)[1]
    assert value is not None
    assert group_metadata(value) == metadata


def test_records_of_a_newer_kafka_are_not_taken_for_corruption() -> None:
    for read in (committed_offset, group_metadata):
        with pytest.raises(UnknownGroupRecord):
            read(b"\0\5" + bytes(50))
        with pytest.raises(UnknownGroupRecord):
            read(b"\xff\xff" + bytes(50))
        for value in (b"", b"\0", b"\0\4\0"):
            with pytest.raises(MalformedMessage):
                read(value)
    for key in (None, b"", b"\0"):
        with pytest.raises(MalformedMessage):
            kind_of(key)
    assert kind_of(b"\0\7") == 7


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
COMMITTED = st.builds(
    CommittedOffset, INT64, INT32, TEXT, INT64, st.just(-1), st.binary(min_size=16, max_size=16)
)
MEMBERS = st.builds(
    RecordedMember, TEXT, st.none() | TEXT, TEXT, TEXT, st.integers(0, 2**31 - 1), INT32,
    st.binary(max_size=30), st.binary(max_size=30),
)  # fmt: skip
GENERATIONS = st.builds(
    GroupMetadata,
    TEXT,
    INT32,
    st.none() | TEXT,
    st.none() | TEXT,
    INT64,
    st.lists(MEMBERS, max_size=3).map(tuple),
)


@given(TEXT, TEXT, INT32, COMMITTED, GENERATIONS)
def test_what_is_written_is_read(
    group_id: str, topic: str, index: int, committed: CommittedOffset, metadata: GroupMetadata
) -> None:
    key, value = offset_record(group_id, topic, index, committed)
    assert value is not None
    read = offset_key(key)
    assert (read.group, read.topic, read.partition) == (group_id, topic, index)
    assert committed_offset(value) == committed
    key, value = group_record(group_id, metadata)
    assert value is not None
    assert group_key(key) == group_id
    assert group_metadata(value) == metadata


# --- Kafka's definitions ----------------------------------------------------------------------------------


def definitions() -> dict[str, dict[str, Any]]:
    """Name -> definition of every coordinator record in Kafka's jar."""
    jar = next(each for each in classpath().split(os.pathsep) if "kafka-group-coordinator-4" in each)
    found = {}
    with zipfile.ZipFile(jar) as packed:
        for name in packed.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = "\n".join(
                    line
                    for line in packed.read(name).decode().splitlines()
                    if not line.lstrip().startswith("//")
                )
                parsed = json.loads(text)
                found[parsed["name"]] = parsed
    return found


def check_fields(cls: type[Struct], rows: list[dict[str, Any]], structs: dict[str, Any]) -> None:
    snake = [re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", row["name"]).lower() for row in rows]
    assert [field.name for field in cls.SCHEMA.fields] == snake
    for field, row in zip(cls.SCHEMA.fields, rows, strict=True):
        assert str(field.wire) == row["type"], field.name
        assert field.versions == Versions.parse(row["versions"]), field.name
        assert field.nullable == Versions.parse(row.get("nullableVersions", "none")), field.name
        assert field.tagged == Versions.parse(row.get("taggedVersions", "none")), field.name
        assert (field.tag, field.ignorable) == (row.get("tag"), row.get("ignorable", False)), field.name
        if "default" in row:
            default = row["default"]
            assert field.default == (None if default == "null" else int(default)), field.name
        inner = (field.wire.element or field.wire).struct
        if inner is not None:
            check_fields(inner, structs[inner.SCHEMA.name]["fields"], structs)


@pytest.mark.java
@each_case(
    "cls",
    [OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue],
    ids=lambda cls: cls.__name__,
)
def test_tables_equal_kafkas_definitions(cls: type[Struct]) -> None:
    definition = definitions()[cls.__name__]
    schema = cls.SCHEMA
    assert (schema.api_key, schema.kind) == (definition["apiKey"], definition["type"])
    assert schema.versions == Versions.parse(definition["validVersions"])
    assert schema.flexible == Versions.parse(definition["flexibleVersions"])
    structs = {row["name"]: row for row in definition.get("commonStructs", [])}
    check_fields(cls, definition["fields"], structs)


def test_a_value_as_long_as_a_plain_one() -> None:
    committed = CommittedOffset(5, metadata="m" * 18)
    _, value = offset_record("g", "t", 0, committed)
    _, plain = offset_record("g", "t", 0, CommittedOffset(5, topic_id=TOPIC_ID))
    assert value is not None and plain is not None and len(value) == len(plain)
    assert committed_offset(value) == committed


@each_case(
    ("metadata", "is_long"),
    [
        (None, False),
        ("", False),
        ("aaaa", False),
        ("a" * 10, False),
        ("a" * 11, True),
        ("\u00e4" * 10, False),
        ("\U0001f600" * 5, False),
        ("\U0001f600" * 6, True),
    ],
)
def test_metadata_is_counted_as_java_does(metadata: str | None, is_long: bool) -> None:
    assert is_too_long(metadata, 10) is is_long


# --- batches of one commit --------------------------------------------------------------------------------


def the_long_way(batch: bytes) -> tuple[str, str, int, CommittedOffset] | None:
    """What the one record of a batch says; None where it says anything else, or nothing."""
    try:
        ((key, value),) = key_values(batch)
        if key is None or value is None or kind_of(key) not in (0, 1):
            return None
        read = offset_key(key)
        return read.group, read.topic, read.partition, committed_offset(value)
    except (MalformedBatch, MalformedMessage, UnknownGroupRecord, ValueError):
        return None


NAMES = st.text(max_size=40) | st.sampled_from(["g" * 57, "g" * 58, "g" * 64, "g" * 500, "g" * 2000])
PLAIN = st.builds(
    CommittedOffset,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    metadata=st.just(""),
    commit_time_ms=st.integers(-(2**63), 2**63 - 1),
    expire_time_ms=st.just(-1),
    topic_id=st.sampled_from([TOPIC_ID, bytes(16)]),
)


@settings(max_examples=100, deadline=None)
@given(NAMES, NAMES, st.integers(-(2**31), 2**31 - 1), PLAIN, st.data())
def test_a_plain_commit_decodes_as_on_the_general_path(
    group_id: str, topic: str, index: int, committed: CommittedOffset, data: st.DataObject
) -> None:
    batch, _ = key_value_batch([offset_record(group_id, topic, index, committed)], 5)
    found = plain_commit(bytes(batch))
    assert found in (None, (group_id, topic, index, committed))
    if len(group_id.encode()) + len(topic.encode()) < 1_000 and committed.topic_id == TOPIC_ID:
        assert found is not None
    for _ in range(5):
        at = data.draw(st.integers(0, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255) | st.just(batch[at] ^ 1))
        found = plain_commit(bytes(batch))
        assert found is None or found == the_long_way(bytes(batch))


def test_what_is_no_plain_commit() -> None:
    plain = offset_record("g", "t", 0, CommittedOffset(5, topic_id=TOPIC_ID))
    others: list[list[tuple[bytes, bytes | None]]] = [
        [plain, plain],
        [offset_record("g", "t", 0, None)],
        [offset_record("g", "t", 0, CommittedOffset(5, metadata="m", topic_id=TOPIC_ID))],
        [group_record("g", None)],
        [(b"\0\2" + plain[0][2:], plain[1])],
        [(b"\0\1\0\7" + plain[0][4:], plain[1])],
        [(plain[0], b"\0\3" + (plain[1] or b"")[2:])],
        [(b"", plain[1])],
    ]
    for records in others:
        batch, _ = key_value_batch(records, 5)
        assert plain_commit(bytes(batch)) is None
    batch, _ = key_value_batch([plain], 5)
    found = "g", "t", 0, CommittedOffset(5, topic_id=TOPIC_ID)
    assert plain_commit(bytes(batch)) == found == the_long_way(bytes(batch))
    for at in (8, 11, 16, 21, 22, 23, 60, 61, 62, 63, 64, 65, 66, len(batch) - 44, len(batch) - 1):
        wrong = bytearray(batch)
        wrong[at] ^= 0xC3
        assert plain_commit(bytes(wrong)) is None, at
    assert plain_commit(bytes(batch[:70])) is None


def test_keys_of_long_ids_are_not_remembered() -> None:
    before = _cached_offset_key.cache_info().currsize
    for n in range(10):
        offset_record(f"{n}" * 30_000, "t", 0, None)
    assert _cached_offset_key.cache_info().currsize == before
