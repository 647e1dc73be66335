"""Locks over the wire: what is taken, what is refused and how, through restarts and changes of settings."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest

from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode as E
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lockstep.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lockstep.protocol.records.record import Headers
from tests.broker.conftest import StartBroker
from tests.broker.locks.asking import asks, batch, lock, said
from tests.broker.wire import Client, produce_request

TOPIC = 2
SET = 0


async def set_locks(client: Client, mode: str, topic: str = "t") -> None:
    change = AlterableConfig(name="lockstep.locks", config_operation=SET, value=mode)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[change])
    response = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


@pytest.fixture
async def locked(client: Client) -> AsyncIterator[Client]:
    await client.create("t", lockstep_locks="true")
    yield client


async def test_a_client_that_has_not_applied_the_last_raise_is_rejected(locked: Client) -> None:
    assert await lock(locked, -1, write_lock="seat/12A") == 0
    again = await locked.produce("t", batch(asks(-1, write_lock="seat/12A")))
    assert (again.error_code, again.base_offset) == (E.POLICY_VIOLATION, -1)
    words = said(again)
    assert words == {
        "reason": "LOCK",
        "record": "0",
        "topic-partition": "t-0",
        "lock": "seat%2F12A",
        "mode": "W",
        "hwm": "-1",
        "conflict_offset": "0",
        "how": "exact",
    }
    assert await lock(locked, -1, write_lock="seat/12B") == 1
    assert await lock(locked, 0, write_lock="seat/12A") == 2
    assert await lock(locked, 1, read_lock="seat/12A") == -E.POLICY_VIOLATION
    assert await lock(locked, 2, read_lock="seat/12A", write_lock="x") == 3
    assert (await locked.produce("t", batch([]))).base_offset == 4
    assert await lock(locked, 2, write_lock="seat/12A") == 5


async def test_reads_raise_nothing_and_appends_check_nothing(locked: Client) -> None:
    assert await lock(locked, None, append_lock="a") == 0
    assert await lock(locked, None, append_lock="a") == 1
    assert await lock(locked, 0, read_lock="a") == -E.POLICY_VIOLATION
    assert await lock(locked, 1, read_lock="a") == 2
    assert await lock(locked, 1, read_lock="a", write_lock="a") == 3
    assert await lock(locked, 2, write_lock="a") == -E.POLICY_VIOLATION


async def test_a_batch_is_taken_or_refused_whole(locked: Client) -> None:
    both = batch(asks(-1, write_lock="a"), [], asks(-1, write_lock="b"))
    assert (await locked.produce("t", both)).base_offset == 0
    one_of = await locked.produce("t", batch(asks(2, write_lock="c"), asks(1, write_lock="a")))
    words = said(one_of)
    assert (words["record"], words["lock"], words["conflict_offset"]) == ("1", "a", "2")
    assert await lock(locked, -1, write_lock="c") == 3, "nothing of a refused batch is raised"


async def test_records_of_a_batch_see_those_before_them(locked: Client) -> None:
    same = await locked.produce("t", batch(asks(-1, write_lock="a"), asks(-1, write_lock="a")))
    words = said(same)
    assert (same.error_code, words["record"], words["conflict_offset"]) == (E.POLICY_VIOLATION, "1", "-1")
    assert words["raised_by"] == "same-batch"
    same = await locked.produce("t", batch(asks(-1, append_lock="a"), asks(-1, read_lock="a")))
    assert same.error_code == E.POLICY_VIOLATION
    fine = batch(asks(-1, read_lock="a"), asks(-1, write_lock="a"), asks(None, append_lock="a"))
    assert (await locked.produce("t", fine)).base_offset == 0
    assert await lock(locked, 1, read_lock="a") == -E.POLICY_VIOLATION, "the mark is the batch's end"
    assert await lock(locked, 2, read_lock="a") == 3


async def test_records_of_one_request_are_one(locked: Client) -> None:
    def part(number: int, request: str = "client/1/7") -> Headers:
        return asks(-1, write_lock="a", request=request, part=f"{number}/2")

    assert (await locked.produce("t", batch(part(1), part(2)))).base_offset == 0
    half = await locked.produce("t", batch(part(1)))
    assert (half.error_code, said(half)["reason"]) == (E.INVALID_RECORD, "BAD_HEADER")
    two = batch(part(1, "c/1/8"), part(2, "c/1/8"), part(1, "c/1/9"), part(2, "c/1/9"))
    assert said(await locked.produce("t", two))["record"] == "0"


async def test_expected_offsets(locked: Client) -> None:
    assert await lock(locked, None, expected_offset="0") == 0
    late = await locked.produce("t", batch(asks(None, expected_offset="0")))
    words = said(late)
    assert (late.error_code, words["reason"], words["conflict_offset"]) == (44, "EXPECTED_OFFSET", "0")
    early = await locked.produce("t", batch(asks(None, expected_offset="2")))
    assert (early.error_code, said(early)["reason"]) == (87, "EXPECTED_OFFSET")
    second = batch([], asks(None, expected_offset="2"), asks(2, expected_offset="3"))
    assert (await locked.produce("t", second)).base_offset == 1


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (asks(None, write_lock="a"), "NO_HWM"),
        (asks(None, read_lock="a"), "NO_HWM"),
        (asks(1, write_lock="a"), "AHEAD"),
        (asks(99, read_lock="a"), "AHEAD"),
        (asks(0, writelock="a"), "BAD_HEADER"),
        (asks(0, write_lock="\n".join(map(str, range(257)))), "TOO_MANY_LOCKS"),
        (asks(0, write_lock="a" * 1025), "TOO_MANY_LOCKS"),
        (asks(0, write_lock="a", topic_id="A" * 22), "OTHER_TOPIC"),
        ([*asks(0), ("lockstep-read-lock@nowhere-0", b"a")], "UNKNOWN_PARTITION"),
        ([*asks(0), ("lockstep-read-lock@t-1", b"a")], "UNKNOWN_PARTITION"),
        ([*asks(0), ("lockstep-read-lock@t-0", b"a")], "NO_HWM"),
        ([*asks(0), ("lockstep-read-lock@plain-0", b"a"), ("lockstep-hwm@plain-0", b"0")], "LOCKS_OFF"),
    ],
)
async def test_what_will_never_pass(locked: Client, headers: Headers, reason: str) -> None:
    await locked.create("plain")
    assert (await locked.produce("t", batch([]))).base_offset == 0
    response = await locked.produce("t", batch([], headers))
    assert (response.error_code, said(response)["reason"]) == (E.INVALID_RECORD, reason)
    assert said(response)["record"] == "1"
    assert (await locked.produce("t", batch([]))).base_offset == 1


async def test_read_locks_of_another_partition(client: Client) -> None:
    other_id = base64.urlsafe_b64encode(await client.create("other-one", 2, lockstep_locks="true")).rstrip(
        b"="
    )
    await client.create("t", lockstep_locks="true")

    def other_partitions(hwm: int, name: bytes = b"a") -> Headers:
        return [
            ("lockstep-read-lock@other-one-1", name),
            ("lockstep-hwm@other-one-1", b"%d" % hwm),
            ("lockstep-topic-id@other-one-1", other_id),
        ]

    assert (await client.produce("t", batch(other_partitions(-1)))).base_offset == 0
    assert await lock(client, -1, "other-one", 1, write_lock="a") == 0
    response = await client.produce("t", batch(other_partitions(-1)))
    words = said(response)
    assert (response.error_code, words["topic-partition"], words["mode"]) == (44, "other-one-1", "R")
    assert (
        await client.produce("t", batch([*other_partitions(0), *asks(0, write_lock="a")]))
    ).base_offset == 1
    ahead = await client.produce("t", batch(other_partitions(1)))
    assert (ahead.error_code, said(ahead)["reason"]) == (87, "AHEAD")


async def test_topics_that_keep_no_locks(client: Client) -> None:
    await client.create("ignored")
    await client.create("refused", lockstep_locks="false")
    for _ in range(2):
        response = await client.produce("ignored", batch(asks(-1, write_lock="a", nonsense="x")))
        assert response.error_code == 0
    response = await client.produce("refused", batch([], asks(-1, write_lock="a")))
    assert (response.error_code, said(response)["reason"]) == (E.INVALID_RECORD, "LOCKS_OFF")
    assert (await client.produce("refused", batch([("trace", b"1")]))).base_offset == 0


async def test_when_locks_begin_everything_counts_as_raised(client: Client) -> None:
    await client.create("t")
    assert (await client.produce("t", batch([], []))).error_code == 0
    await set_locks(client, "true")
    response = await client.produce("t", batch(asks(0, write_lock="a")))
    words = said(response)
    assert (response.error_code, words["conflict_offset"], words["how"]) == (44, "1", "estimate")
    assert await lock(client, 1, write_lock="a") == 2
    assert await lock(client, 1, write_lock="b") == 3
    await set_locks(client, "false")
    assert await lock(client, 3, write_lock="b") == -E.INVALID_RECORD
    await set_locks(client, "true")
    assert await lock(client, 2, write_lock="b") == -E.POLICY_VIOLATION
    assert await lock(client, 2, write_lock="a") == 4, "what was known is known again: nobody could raise any"
    await set_locks(client, "ignore")
    assert await lock(client, -1, write_lock="b") == 5
    await set_locks(client, "true")
    assert await lock(client, 4, write_lock="c") == -E.POLICY_VIOLATION
    assert await lock(client, 5, write_lock="c") == 6


async def test_locks_and_compaction_exclude_each_other(client: Client) -> None:
    await client.create("t", lockstep_locks="true")
    change = AlterableConfig(name="cleanup.policy", config_operation=SET, value="compact")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[change])
    response = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == E.INVALID_CONFIG
    assert "lockstep.locks" in response.responses[0].error_message


async def test_a_topic_made_again_knows_no_locks(locked: Client) -> None:
    assert await lock(locked, -1, write_lock="a") == 0
    await locked.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5_000), 6)
    await locked.create("t", lockstep_locks="true")
    assert await lock(locked, -1, write_lock="a") == 0


async def test_marks_outlive_records_and_restarts(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t", lockstep_locks="true")
    assert await lock(client, -1, write_lock="a") == 0
    assert await lock(client, -1, write_lock="b") == 1
    gone = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    assert (await client.call(DeleteRecordsRequest(topics=[gone], timeout_ms=5_000), 2)).topics
    for _ in range(2):
        response = await client.produce("t", batch(asks(-1, write_lock="a")))
        assert (response.error_code, said(response)["reason"]) == (E.INVALID_RECORD, "TRIMMED")
        assert await lock(client, 0, write_lock="b") == -E.POLICY_VIOLATION
        await client.close()
        await broker.stop()
        broker = await start_broker()
        client = await Client.connect(broker.port)
    assert await lock(client, 1, write_lock="a") == 2
    await client.close()


async def test_a_refusal_takes_no_sequence(locked: Client) -> None:
    def idempotent(sequence: int, headers: Headers, epoch: int = 0) -> bytes:
        return batch(headers, producer_id=5, producer_epoch=epoch, base_sequence=sequence)

    async def codes(*batches: bytes) -> list[int]:
        return [(await locked.produce("t", each)).error_code for each in batches]

    assert await codes(idempotent(1, [])) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER], "unknown: begins with 0"
    taken = idempotent(0, asks(-1, write_lock="a"))
    assert await codes(taken, taken) == [0, 0], "a duplicate is none of the locks' business"
    conflict = idempotent(1, asks(-1, write_lock="a"))
    assert await codes(conflict, idempotent(2, [])) == [44, E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await codes(idempotent(1, []), idempotent(2, [])) == [0, 0]
    assert await codes(idempotent(3, asks(-1, write_lock="a")), idempotent(0, [], epoch=1)) == [44, 0]


async def test_unanswered_locks_close_the_connection(locked: Client, broker: Broker) -> None:
    other = await Client.connect(broker.port)

    other.send(produce_request("t", batch([]), acks=0), 9)
    other.send(produce_request("t", batch(asks(-1, append_lock="a")), acks=0), 9)
    assert await other.is_closed()
    assert (await locked.produce("t", batch([]))).base_offset == 1


async def test_behind_a_marker_any_later_sequence_goes(locked: Client, broker: Broker) -> None:
    """An aborted transaction whose batch was refused: clients go on with the number after it."""

    def idempotent(sequence: int) -> bytes:
        return batch([], producer_id=5, producer_epoch=0, base_sequence=sequence)

    async def code(sequence: int) -> int:
        return (await locked.produce("t", idempotent(sequence))).error_code

    found = broker.assembly.cluster.partition("t", 0)
    assert found is not None
    appender = broker.assembly.appenders[found.group.group_id]
    appender.end_transactions([found.log], TxnMarkerEntry(5, 0, 0, False, 0))
    assert [await code(1), await code(1), await code(3)] == [0, 0, E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    appender.end_transactions([found.log], TxnMarkerEntry(5, 0, 0, False, 0))
    assert [await code(1), await code(0), await code(3)] == [0, E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]
