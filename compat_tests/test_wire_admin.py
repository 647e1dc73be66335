"""Administration by hand: partitions, records, disks, producers, transactions. Expected is what Kafka 4.4.0
does, in every version and for what no client would send. Topics in pages, leaders, the quorum and access
rules are in `test_wire_cluster.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection, batch, values_in
from compat_tests.targets import Target
from compat_tests.until import until

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_COORDINATOR = 16
INVALID_TOPIC_EXCEPTION = 17
INVALID_PARTITIONS = 37
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_REQUEST = 42
TRANSACTIONAL_ID_NOT_FOUND = 105
INVALID_REGULAR_EXPRESSION = 128

EVERY_OPERATION = 3576
"""What may be done with a topic where everything may (KIP-430)."""


def _codes(results: list[Answer], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(each[name] for name in (*names, "error_code")) for each in results)


# -- CreatePartitions --------------------------------------------------------------------------------------


def _grow(raw: RawConnection, *topics: Answer, version: int = 3, **more: object) -> list[Answer]:
    found: list[Answer] = raw.call("create_partitions", version, topics=list(topics), timeout=10_000, **more)[
        "results"
    ]
    return found


def _count(name: str, count: int, assignments: list[list[int]] | None = None) -> Answer:
    chosen = None if assignments is None else [{"broker_ids": each} for each in assignments]
    return {"name": name, "count": count, "assignments": chosen}


def _until_led(raw: RawConnection, topic: str, partitions: int) -> None:
    """Kafka's metadata runs ahead of its logs: ask the leaders themselves."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if all(raw.list_offset(topic, -1, partition=n)["error_code"] == 0 for n in range(partitions)):
            return
        time.sleep(0.02)
    raise AssertionError(f"{topic} has not {partitions} partitions with leaders")


@pytest.mark.case("Every version", "CreatePartitions v{version}")
@pytest.mark.parametrize("version", range(4))
def test_create_partitions_versions(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()
    (grown,) = _grow(raw, _count(topic, 3), version=version)
    assert (grown["name"], grown["error_code"], grown["error_message"]) == (topic, 0, None)
    _until_led(raw, topic, 3)
    assert raw.produce(topic, batch([b"a"]), partition=2)["base_offset"] == 0
    assert values_in(raw.fetch(topic, 0, partition=2)["records"]) == [(0, b"a")]
    (again,) = _grow(raw, _count(topic, 3), version=version)
    assert (again["error_code"], again["error_message"]) == (
        INVALID_PARTITIONS,
        "Topic already has 3 partition(s).",
    )


@pytest.mark.case(
    "Partitions on the wire", "fewer, none, negative, unknown, duplicates, nothing, validate only"
)
def test_create_partitions_questions(
    raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]
) -> None:
    topic, other, unknown = new_topic(partitions=2), new_topic(), unused_name()
    for count in (1, 0, -1):
        (refused,) = _grow(raw, _count(topic, count))
        assert (refused["error_code"], refused["error_message"]) == (
            INVALID_PARTITIONS,
            f"The topic {topic} currently has 2 partition(s); {count} would not be an increase.",
        )
    for name in (unknown, "", "a b", "x" * 300, "__cluster_metadata"):
        assert _grow(raw, _count(name, 3))[0]["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert _codes(_grow(raw, _count(topic, 3), _count(topic, 4)), "name") == [(topic, INVALID_REQUEST)]
    assert _grow(raw) == []
    assert _grow(raw, _count(topic, 9), validate_only=True)[0]["error_code"] == 0
    assert _grow(raw, _count(topic, 2), validate_only=True)[0]["error_code"] == INVALID_PARTITIONS
    (seen,) = raw.call("metadata", 12, topics=[{"name": topic}])["topics"]
    assert len(seen["partitions"]) == 2
    mixed = _grow(raw, _count(other, 2), _count(unknown, 1), _count(topic, 2))
    assert _codes(mixed, "name") == sorted(
        [(other, 0), (unknown, UNKNOWN_TOPIC_OR_PARTITION), (topic, INVALID_PARTITIONS)]
    )


@pytest.mark.case("Partitions on the wire", "manual assignment of new partitions")
def test_create_partitions_assignment(raw: RawConnection, target: Target, new_topic: NewTopic) -> None:
    topic, node = new_topic(), raw.node_id()
    text = "The manual partition assignment includes "
    chosen: list[tuple[list[list[int]], str]] = [
        ([], "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."),
        (
            [[node]] * 2,
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        ([[node + 8]], f"{text}broker {node + 8}, but no such broker is registered."),
        ([[node, node + 8]], f"{text}broker {node + 8}, but no such broker is registered."),
        ([[-1]], f"{text}broker -1, but no such broker is registered."),
        ([[node, node]], f"{text}the broker {node} more than once."),
        ([[]], f"{text}an empty replica list."),
    ]
    for assignments, words in chosen:
        (refused,) = _grow(raw, _count(topic, 2, assignments))
        assert (refused["error_code"], refused["error_message"]) == (INVALID_REPLICA_ASSIGNMENT, words)
    every = list(target.node_ids)
    assert _grow(raw, _count(topic, 3, [every, every]))[0]["error_code"] == 0


# -- DeleteRecords -----------------------------------------------------------------------------------------


def _delete(raw: RawConnection, *topics: Answer, version: int = 2, timeout: int = 10_000) -> list[Any]:
    answer = raw.call("delete_records", version, topics=list(topics), timeout=timeout)
    return sorted(
        (topic["name"], each["partition_index"], each["low_watermark"], each["error_code"])
        for topic in answer["topics"]
        for each in topic["partitions"]
    )


def _below(name: str, *offsets: tuple[int, int]) -> Answer:
    return {"name": name, "partitions": [{"partition_index": n, "offset": offset} for n, offset in offsets]}


@pytest.mark.case("Every version", "DeleteRecords v{version}")
@pytest.mark.parametrize("version", range(3))
def test_delete_records_versions(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(partitions=2)
    for _ in range(5):
        raw.produce(topic, batch([b"a", b"b"]))
    assert _delete(raw, _below(topic, (0, 3), (1, 0)), version=version) == [
        (topic, 0, 3, 0),
        (topic, 1, 0, 0),
    ]
    assert raw.list_offset(topic, -2)["offset"] == 3
    assert raw.fetch(topic, 2)["error_code"] == OFFSET_OUT_OF_RANGE
    found = raw.fetch(topic, 3)
    assert found["log_start_offset"] == 3
    assert [offset for offset, _ in values_in(found["records"]) if offset >= 3] == list(range(3, 10))
    assert _delete(raw, _below(topic, (0, 2)), version=version) == [(topic, 0, 3, 0)], "it never goes back"
    assert _delete(raw, _below(topic, (0, -1)), version=version) == [(topic, 0, 10, 0)]
    assert raw.produce(topic, batch([b"c"]))["base_offset"] == 10


@pytest.mark.case("Records on the wire", "DeleteRecords: out of range, unknown, twice, nothing")
def test_delete_records_questions(
    raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]
) -> None:
    topic, unknown = new_topic(partitions=2), unused_name()
    raw.produce(topic, batch([b"a", b"b", b"c"]))
    for offset in (4, -2, 2**63 - 1):
        assert _delete(raw, _below(topic, (0, offset))) == [(topic, 0, -1, OFFSET_OUT_OF_RANGE)]
    mixed = _delete(raw, _below(topic, (0, 1), (5, 1), (-1, 0)), _below(unknown, (0, 0)))
    assert mixed == [
        (topic, -1, -1, UNKNOWN_TOPIC_OR_PARTITION),
        (topic, 0, 1, 0),
        (topic, 5, -1, UNKNOWN_TOPIC_OR_PARTITION),
        (unknown, 0, -1, UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert _delete(raw, _below("", (0, 0))) == [("", 0, -1, UNKNOWN_TOPIC_OR_PARTITION)]
    assert _delete(raw) == _delete(raw, _below(topic)) == []
    assert _delete(raw, _below(topic, (0, 1), (0, 2)), _below(topic, (1, 0))) == [
        (topic, 0, 2, 0),
        (topic, 1, 0, 0),
    ]
    assert _delete(raw, _below(topic, (0, 2)), timeout=0) == [(topic, 0, 2, 0)]


@pytest.mark.case("Records on the wire", "a fetch session learns of a later log start")
def test_delete_records_in_a_session(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"a", b"b", b"c"]))
    wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 3, "partition_max_bytes": 1000}
    fields = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "replica_id": -1}
    opened = raw.call(
        "fetch", 12, session_epoch=0, topics=[{"topic": topic, "partitions": [wanted]}], **fields
    )
    _delete(raw, _below(topic, (0, 2)))
    told = raw.call("fetch", 12, session_id=opened["session_id"], session_epoch=1, topics=[], **fields)
    ((part,),) = [each["partitions"] for each in told["responses"]]
    assert (part["error_code"], part["log_start_offset"]) == (0, 2)


# -- log directories, producers, transactions --------------------------------------------------------------


def _log_dir(raw: RawConnection, topics: list[Answer] | None, version: int = 4) -> Answer:
    answer = raw.call("describe_log_dirs", version, topics=topics)
    assert answer.get("error_code", 0) == 0
    (directory,) = answer["results"]
    assert (directory["error_code"], directory["log_dir"][:1]) == (0, "/")
    assert isinstance(directory, dict)
    return directory


def _sizes(directory: Answer) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], each["partition_index"]): each["partition_size"]
        for topic in directory["topics"]
        for each in topic["partitions"]
        if (each["offset_lag"], each["is_future_key"]) == (0, False)
    }


@pytest.mark.case("Every version", "DescribeLogDirs v{version}")
@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_versions(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(partitions=2)
    data = batch([b"x" * 500])
    for _ in range(3):
        raw.produce(topic, data)
    asked = [{"topic": topic, "partitions": [0, 1]}]
    # Of several nodes one answers that follows, and may be behind.
    until({(topic, 0): 3 * len(data), (topic, 1): 0}, lambda: _sizes(_log_dir(raw, asked, version)))
    directory = _log_dir(raw, asked, version)
    if version >= 4:
        assert 0 < directory["usable_bytes"] < directory["total_bytes"]
    assert directory.get("is_cordoned", False) is False


@pytest.mark.case("Disks on the wire", "all topics, none, unknown, twice")
def test_describe_log_dirs_questions(
    raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]
) -> None:
    topic = new_topic(partitions=2)
    until(True, lambda: {(topic, 0), (topic, 1)} <= _sizes(_log_dir(raw, None)).keys())
    for nothing in ([], [{"topic": topic, "partitions": []}], [{"topic": topic, "partitions": [-1, 7]}]):
        assert _sizes(_log_dir(raw, nothing)) == {}
    for name in (unused_name(), ""):
        assert _log_dir(raw, [{"topic": name, "partitions": [0]}])["topics"] == []
    twice = [{"topic": topic, "partitions": [0, 0]}, {"topic": topic, "partitions": [1, 0]}]
    (told,) = _log_dir(raw, twice)["topics"]
    assert sorted(each["partition_index"] for each in told["partitions"]) == [0, 1]


@pytest.mark.case("Producers on the wire", "DescribeProducers: one, none, unknown, bad name, twice")
def test_describe_producers(raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    topic, unknown = new_topic(partitions=2), unused_name()
    producer_id, epoch = raw.producer_id()
    before = int(time.time() * 1000) - 1000
    for sequence in (0, 2):
        raw.produce(topic, batch([b"a", b"b"], producer=(producer_id, epoch), base_sequence=sequence))
    asked = [(topic, [0, 1, 9, -1, 0]), (unknown, [0]), ("", [0]), ("a b", [0]), (topic, [])]
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in asked]
    answer = raw.call("describe_producers", 0, topics=topics)["topics"]
    assert [
        (topic["name"], each["partition_index"], each["error_code"])
        for topic in answer
        for each in topic["partitions"]
    ] == [
        (topic, 0, 0),
        (topic, 1, 0),
        (topic, 9, UNKNOWN_TOPIC_OR_PARTITION),
        (topic, -1, UNKNOWN_TOPIC_OR_PARTITION),
        (topic, 0, 0),
        (unknown, 0, UNKNOWN_TOPIC_OR_PARTITION),
        ("", 0, INVALID_TOPIC_EXCEPTION),
        ("a b", 0, INVALID_TOPIC_EXCEPTION),
    ]
    (first, second, *_) = answer[0]["partitions"]
    (active,) = first["active_producers"]
    assert (active["producer_id"], active["producer_epoch"], active["last_sequence"]) == (
        producer_id,
        epoch,
        3,
    )
    assert (active["coordinator_epoch"], active["current_txn_start_offset"]) == (-1, -1)
    assert before <= active["last_timestamp"] <= before + 60_000
    assert second["active_producers"] == []
    assert raw.call("describe_producers", 0, topics=[])["topics"] == []


@pytest.mark.case("Every version", "ListTransactions v{version}, none of a producer")
@pytest.mark.parametrize("version", range(3))
def test_list_transactions_versions(raw: RawConnection, version: int) -> None:
    nobodys = 1 << 40  # other cases may have left transactions
    plain = raw.call("list_transactions", version, state_filters=[], producer_id_filters=[nobodys])
    assert (plain["error_code"], plain["transaction_states"]) == (0, [])
    states = ["Ongoing", "Bogus", "", "ongoing", "Bogus"]
    odd = raw.call("list_transactions", version, state_filters=states, producer_id_filters=[-1])
    assert sorted(odd["unknown_state_filters"]) == ["", "Bogus", "ongoing"]
    assert (odd["error_code"], odd["transaction_states"]) == (0, [])


@pytest.mark.case("Transactions on the wire", "ListTransactions: a pattern that is none")
def test_list_transactions_pattern(raw: RawConnection) -> None:
    for pattern, code in (("[", INVALID_REGULAR_EXPRESSION), ("", 0), ("my-.*", 0)):
        asked = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": pattern}
        assert raw.call("list_transactions", 2, **asked)["error_code"] == code


@pytest.mark.case("Transactions on the wire", "DescribeTransactions: unknown ids, an empty one, none")
def test_describe_transactions(raw: RawConnection) -> None:
    answer = raw.call("describe_transactions", 0, transactional_ids=["a", "a", ""])
    first, second, empty = (
        (each["transactional_id"], each["error_code"]) for each in answer["transaction_states"]
    )
    assert first == second and empty == ("", INVALID_REQUEST)
    # Neither side knows a coordinator before something has made __transaction_state.
    assert first[1] in (TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR)
    assert raw.call("describe_transactions", 0, transactional_ids=[])["transaction_states"] == []


# -- metadata and fetches after growth ---------------------------------------------------------------------


@pytest.mark.case("Partitions on the wire", "cached metadata and a fetch session see new partitions")
def test_growth_is_seen(
    raw: RawConnection, raw_2: RawConnection, target: Target, new_topic: NewTopic
) -> None:
    topic = new_topic(configs=target.together)
    every = raw.call("metadata", 12, topics=None)["topics"]
    assert [len(each["partitions"]) for each in every if each["name"] == topic] == [1]
    parts = [
        {"partition": n, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1000}
        for n in (0, 1)
    ]
    fields = {"min_bytes": 1, "max_bytes": 1 << 20, "replica_id": -1}
    opened = raw_2.call(
        "fetch", 12, max_wait=0, session_epoch=0, topics=[{"topic": topic, "partitions": parts}], **fields
    )
    codes = [part["error_code"] for each in opened["responses"] for part in each["partitions"]]
    assert sorted(codes) == [0, UNKNOWN_TOPIC_OR_PARTITION]
    _grow(raw, _count(topic, 2))
    _until_led(raw, topic, 2)
    every = raw.call("metadata", 12, topics=None)["topics"]
    assert [len(each["partitions"]) for each in every if each["name"] == topic] == [2]
    assert raw.produce(topic, batch([b"new"]), partition=1)["error_code"] == 0
    told = raw_2.call(
        "fetch", 12, max_wait=5000, session_id=opened["session_id"], session_epoch=1, topics=[], **fields
    )
    ((part,),) = [each["partitions"] for each in told["responses"]]
    assert (part["partition_index"], values_in(part["records"])) == (1, [(0, b"new")])


@pytest.mark.case("Metadata on the wire", "authorized operations are told of topics that are not there, too")
@pytest.mark.parametrize("version", [8, 10, 13])
def test_authorized_operations(
    raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str], version: int
) -> None:
    names = [new_topic(), unused_name(), "a b"]
    asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    told = raw.call("metadata", version, include_topic_authorized_operations=True, **asked)["topics"]
    assert {each["name"]: each["topic_authorized_operations"] for each in told} == dict.fromkeys(
        names, EVERY_OPERATION
    )
    unasked = raw.call("metadata", version, **asked)["topics"]
    assert {each["topic_authorized_operations"] for each in unasked} == {-(2**31)}
