"""Records of transactional ids: Kafka's definitions, and bytes that Apache Kafka 4.3.1 itself wrote."""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat_tests.kafka_jars import classpath
from lockstep.broker.transactions.transaction_records import (
    RECORDED,
    TransactionMetadata,
    TransactionState,
    UnknownTransactionRecord,
    record,
    transaction_metadata,
    transactional_id,
)
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.fields import Struct, Versions
from lockstep.protocol.primitives import MalformedMessage
from lockstep.protocol.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tests.broker.groups.test_group_records import check_fields
from tests.support.cases import each_case

LAST_EPOCH_AT = 5
LAST_EPOCH_ROW = {
    "name": "LastProducerEpoch", "type": "int16", "versions": "1+", "taggedVersions": "1+", "tag": 4,
    "default": -1,
}  # fmt: skip
BEGAN_MS, ENDED_MS = 0x1A2003B14B7, 0x1A2003B158C
PLACES = (("t1", 2), ("t1", 0), ("t2", 0))

KAFKA_WROTE = {
    "an id that begins": (
        "0001000000000000000000000000ea600000000001a2003b1288ffffffffffffffff0100080000000000000000",
        TransactionMetadata(0, 0, 60_000, TransactionState.EMPTY, (), -1, 0x1A2003B1288, 0),
    ),
    "the second id": (
        "0001000000000000000100000000ea600000000001a2003b262cffffffffffffffff0100080000000000000001",
        TransactionMetadata(1, 0, 60_000, TransactionState.EMPTY, (), -1, 0x1A2003B262C, 1),
    ),
    "a transaction under way": (
        "0001000000000000000000000000ea60010303743103000000020000000000037432020000000000000001a2003b14b7"
        "000001a2003b14b70100080000000000000000",
        TransactionMetadata(0, 0, 60_000, TransactionState.ONGOING, PLACES, BEGAN_MS, BEGAN_MS, 0),
    ),
    "one that is decided": (
        "0001000000000000000000000000ea60020303743103000000020000000000037432020000000000000001a2003b158c"
        "000001a2003b14b70100080000000000000000",
        TransactionMetadata(0, 0, 60_000, TransactionState.PREPARE_COMMIT, PLACES, BEGAN_MS, ENDED_MS, 0),
    ),
    "one that is over": (
        "0001000000000000000000000000ea600401000001a2003b15d9000001a2003b14b70100080000000000000000",
        TransactionMetadata(0, 0, 60_000, TransactionState.COMPLETE_COMMIT, (), BEGAN_MS, 0x1A2003B15D9, 0),
    ),
    "an abort by transaction version 2": (
        "000100000000000000000009000000c80302037431020000000000000001a2003b1fcd000001a2003b1dd8"
        "020008000000000000000002020002",
        TransactionMetadata(
            0, 9, 200, TransactionState.PREPARE_ABORT, (("t1", 0),), 0x1A2003B1DD8, 0x1A2003B1FCD, 0, -1, 2
        ),
    ),
}


@each_case("name", KAFKA_WROTE)
def test_values_are_written_and_read_as_kafka_does(name: str) -> None:
    value, metadata = KAFKA_WROTE[name]
    assert record("a", metadata) == (bytes.fromhex("0000000161"), bytes.fromhex(value))
    assert transaction_metadata(bytes.fromhex(value)) == metadata


def test_keys() -> None:
    assert transactional_id(bytes.fromhex("0000000161")) == "a"
    assert record("a", None) == (bytes.fromhex("0000000161"), None)
    for key in (None, b"", b"\0"):
        with pytest.raises(MalformedMessage):
            transactional_id(key)
    with pytest.raises(MalformedMessage):
        transactional_id(b"\0\0\0\5a")
    with pytest.raises(UnknownTransactionRecord):
        transactional_id(b"\0\1\0\1a")


@pytest.mark.parametrize("version", [0, 1])
def test_values_of_every_version_are_read(version: int) -> None:
    value = TransactionLogValue(
        producer_id=7, previous_producer_id=6 if version else -1, next_producer_id=8 if version else -1,
        producer_epoch=3, transaction_timeout_ms=9, transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[1, 2])],
        transaction_last_update_timestamp_ms=11, transaction_start_timestamp_ms=10,
        client_transaction_version=2 if version else 0, last_producer_epoch=2 if version else -1,
    )  # fmt: skip
    read = transaction_metadata(version.to_bytes(2, "big") + encode_bytes(value, version))
    expected = TransactionMetadata(7, 3, 9, TransactionState.ONGOING, (("t", 1), ("t", 2)), 10, 11)
    if version:
        expected = expected._replace(
            previous_producer_id=6, next_producer_id=8, version=2, last_producer_epoch=2
        )
    assert read == expected


def test_the_last_epoch_is_a_tagged_field_that_others_pass_over() -> None:
    """Tag 4, two bytes; a record without it, as Kafka and Lockstep before wrote it, has none."""
    metadata = TransactionMetadata(0, 9, 200, TransactionState.EMPTY, (), -1, 500, 0)
    _, without = record("a", metadata)
    _, value = record("a", metadata._replace(last_producer_epoch=8))
    assert value is not None and without is not None
    assert value.removesuffix(bytes.fromhex("04020008")) == without[:-11] + b"\2" + without[-10:]
    assert transaction_metadata(without).last_producer_epoch == -1
    unknown = without[:-11] + b"\2" + without[-10:] + bytes.fromhex("05020008")
    assert transaction_metadata(unknown) == metadata


def test_records_of_a_newer_kafka_are_not_taken_for_corruption() -> None:
    for value in (b"\0\2" + bytes(50), b"\xff\xff" + bytes(50)):
        with pytest.raises(UnknownTransactionRecord):
            transaction_metadata(value)
    for value in (b"", b"\0", b"\0\1\0"):
        with pytest.raises(MalformedMessage):
            transaction_metadata(value)
    for status in (6, 7, 8, -1):  # states that are never recorded, or that there are not
        with pytest.raises(UnknownTransactionRecord):
            transaction_metadata(b"\0\1" + encode_bytes(TransactionLogValue(transaction_status=status), 1))


def test_states_are_shown_as_kafka_names_them() -> None:
    names = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"
    assert [state.label for state in TransactionState] == names.split()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT16, INT32 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.dictionaries(TEXT, st.lists(INT32, max_size=4, min_size=1, unique=True), max_size=4).map(
    lambda topics: tuple((topic, index) for topic, indexes in topics.items() for index in indexes)
)
METADATA = st.builds(
    TransactionMetadata, INT64, INT16, INT32, st.sampled_from(sorted(RECORDED)), PARTITIONS, INT64, INT64,
    INT64, INT64, INT16, INT16,
)  # fmt: skip


@given(TEXT, METADATA)
def test_what_is_written_is_read(name: str, metadata: TransactionMetadata) -> None:
    if metadata.state is TransactionState.EMPTY:
        metadata = metadata._replace(partitions=())
    key, value = record(name, metadata)
    assert value is not None
    assert (transactional_id(key), transaction_metadata(value)) == (name, metadata)


def definitions() -> dict[str, dict[str, Any]]:
    """Name -> definition of both records in Kafka's jar."""
    jar = next(each for each in classpath().split(os.pathsep) if "kafka-transaction-coordinator-4" in each)
    found = {}
    with zipfile.ZipFile(jar) as packed:
        for name in packed.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                lines = packed.read(name).decode().splitlines()
                parsed = json.loads("\n".join(each for each in lines if not each.lstrip().startswith("//")))
                found[parsed["name"]] = parsed
    return found


@pytest.mark.java
@each_case("cls", [TransactionLogKey, TransactionLogValue], ids=lambda cls: cls.__name__)
def test_tables_equal_kafkas_definitions(cls: type[Struct]) -> None:
    definition = definitions()[cls.__name__]
    schema = cls.SCHEMA
    assert (schema.api_key, schema.kind) == (definition["apiKey"], definition["type"])
    assert schema.versions == Versions.parse(definition["validVersions"])
    assert schema.flexible == Versions.parse(definition["flexibleVersions"])
    for row in definition["fields"]:  # of a tagged field Kafka says "versions" only by its tag
        row.setdefault("versions", row.get("taggedVersions"))
    if cls is TransactionLogValue:  # ours: Kafka 4.4.0 keeps it in memory (KAFKA-20357)
        assert not any(row.get("tag") == LAST_EPOCH_ROW["tag"] for row in definition["fields"])
        definition["fields"].insert(LAST_EPOCH_AT, LAST_EPOCH_ROW)
    inline = {row["type"].removeprefix("[]"): row for row in definition["fields"] if "fields" in row}
    check_fields(cls, definition["fields"], inline)


def test_a_transaction_over_very_many_topics_is_read_back() -> None:
    places = tuple((f"{number:05}", 0) for number in range(50_000))
    metadata = TransactionMetadata(0, 0, 60_000, TransactionState.ONGOING, places, 1, 2)
    value = record("a", metadata)[1]
    assert value is not None
    assert transaction_metadata(value) == metadata


def test_a_transaction_over_very_many_partitions_is_read_back() -> None:
    places = tuple(("t", index) for index in range(200_000))
    metadata = TransactionMetadata(0, 0, 60_000, TransactionState.ONGOING, places, 1, 2)
    value = record("a", metadata)[1]
    assert value is not None
    assert transaction_metadata(value) == metadata
