"""Appends over a bad network are neither lost nor doubled, and what nobody knows is settled by a fence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerConnection, ClientError, TimedOut
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.init_producer_id import InitProducerIdResponse
from lockstep.protocol.messages.metadata import MetadataResponse
from lockstep.testing import RunningBroker
from lockstep.transactions.log import (
    AppendAttempt,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    PartitionBatch,
    ReadLocks,
    Trimmed,
)
from lockstep.transactions.model import Record, RequestId
from lockstep.transactions.remote import LAST_EPOCH, RemoteLog
from tests.lockstep.transactions.accounts import locked_topic
from tests.lockstep.transactions.faulty import ANSWER_LOST, ARRIVES, REQUEST_LOST, STUCK, FaultyLog

numbers = iter(range(1, 1_000_000))


def wants(value: bytes = b"v", hwm: int = -1, partition: int = 0, **part: object) -> AppendAttempt:
    made = PartitionBatch((Record(value),), hwm, **{"write_locks": (b"a",), **part})  # type: ignore[arg-type]
    return AppendAttempt(RequestId("me", 0, next(numbers)), {partition: made})


async def opened(running: RunningBroker, partitions: int = 1) -> FaultyLog:
    log = FaultyLog(running.bootstrap_servers, await locked_topic(running.bootstrap_servers, partitions))
    assert await log.open() == partitions
    return log


async def values(log: RemoteLog, partition: int = 0) -> list[tuple[int, bytes | None]]:
    found = await log.read(partition, 0, 0.01)
    return [(each.offset, each.value) for each in found.entries]


async def test_an_append_and_its_refusal(running: RunningBroker) -> None:
    log = await opened(running)
    assert await log.append(wants(b"one"), 10) == {0: 0}
    with pytest.raises(AppendRefused) as raised:
        await log.append(wants(b"two"), 10)
    refusal = raised.value.refusal
    assert (refusal.reason, refusal.partition, refusal.conflict_offset, refusal.lock) == ("LOCK", 0, 0, b"a")
    assert await log.append(wants(b"two", hwm=0), 10) == {0: 1}
    assert await values(log) == [(0, b"one"), (1, b"two")] and await log.end(0) == 2
    await log.close()


@pytest.mark.parametrize("fates", [[REQUEST_LOST], [ANSWER_LOST], [ANSWER_LOST, REQUEST_LOST, ANSWER_LOST]])
async def test_resends_are_the_same_batch_and_taken_once(running: RunningBroker, fates: list[str]) -> None:
    log = await opened(running)
    log.coming.extend(fates)
    assert await log.append(wants(b"one"), 10) == {0: 0}
    assert log.sent == [log.sent[0]] * (len(fates) + 1)
    assert await log.append(wants(b"two", hwm=0), 10) == {0: 1}
    assert await values(log) == [(0, b"one"), (1, b"two")]
    await log.close()


async def test_a_lane_s_sequences_begin_again_behind_the_last_one(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await opened(running)
    await log.append(wants(b"one"), 10)
    (session,) = log._sessions

    async def sent(*_: object) -> dict[int, int]:
        return {0: 1}

    monkeypatch.setattr(log, "_send_until_decided", sent)
    session.sequences[0] = (1 << 31) - 1
    for after in (0, 1):
        await log.append(wants(b"two", hwm=0), 10)
        assert session.sequences == {0: after}
    await log.close()


async def test_a_lost_refusal_stays_one(running: RunningBroker) -> None:
    log = await opened(running)
    await log.append(wants(b"one"), 10)
    log.coming.append(ANSWER_LOST)
    with pytest.raises(AppendRefused):
        await log.append(wants(b"two"), 10)
    assert await values(log) == [(0, b"one")]
    await log.close()


async def test_a_refusal_that_may_not_last_is_open_while_a_copy_is_on_its_way(running: RunningBroker) -> None:
    log = await opened(running)
    log.coming.append(STUCK)
    beyond = wants(b"early", write_locks=(), expected_offset=1)
    with pytest.raises(AppendUnknown):
        await log.append(beyond, 10)
    await log.append(wants(b"first"), 10)
    assert await log.fence(beyond, 10) == {0: 2}
    assert await log.arrive() == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await values(log) == [(0, b"first")]
    await log.close()


async def test_an_expired_append_is_known_not_to_be_there_only_if_nothing_was_sent(
    running: RunningBroker,
) -> None:
    log = await opened(running)
    lane_of = log._connect_to_leader

    async def nobody(partition: int) -> object:
        raise ClientError("nobody leads")

    log._connect_to_leader = nobody  # type: ignore[assignment,method-assign]
    with pytest.raises(AppendExpired):
        await log.append(wants(), 0.2)
    log._connect_to_leader = lane_of  # type: ignore[method-assign]
    log.coming.extend([STUCK] * 50)
    with pytest.raises(AppendUnknown):
        await log.append(wants(), 0.2)
    await log.close()


async def test_a_fence_keeps_out_what_is_still_on_its_way(running: RunningBroker) -> None:
    log = await opened(running)
    lost = wants(b"lost")
    log.coming.extend([STUCK] * 50)
    with pytest.raises(AppendUnknown):
        await log.append(lost, 0.2)
    log.coming.clear()
    ends = await log.fence(lost, 10)
    assert set(await log.arrive()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    chunk = await log.read(0, 0, 0.01)
    assert not chunk.entries and ends == {0: 1} and chunk.position == 1, "the marker is no transaction"
    assert await log.append(wants(b"next", hwm=0), 10) == {0: 1}
    assert await log.append(wants(b"after", hwm=1), 10) == {0: 2}
    await log.close()


async def test_a_fence_comes_too_late_for_what_has_arrived(running: RunningBroker) -> None:
    log = await opened(running)
    found = wants(b"there")
    log.coming.extend([ANSWER_LOST] + [REQUEST_LOST] * 50)
    with pytest.raises(AppendUnknown):
        await log.append(found, 0.2)
    assert await log.fence(found, 10) == {0: 2}
    (entry,) = (await log.read(0, 0, 0.01)).entries
    assert entry.request == found.request
    with pytest.raises(AppendUnknown, match="any more"):
        await log.fence(found, 10)
    await log.close()


async def test_several_partitions_all_or_none(running: RunningBroker) -> None:
    log = await opened(running, 3)
    both = AppendAttempt(
        RequestId("me", 0, next(numbers)),
        {
            0: PartitionBatch((Record(b"p"),), -1, (b"a",)),
            2: PartitionBatch((Record(b"q"), Record(b"r")), -1, (b"a",)),
        },
    )
    log.coming.append(ANSWER_LOST)
    assert await log.append(both, 10) == {0: 0, 2: 1}
    again = both._replace(request=RequestId("me", 0, next(numbers)))
    with pytest.raises(AppendRefused):
        await log.append(again, 10)
    unknown = both._replace(request=RequestId("me", 0, next(numbers)))
    log.coming.extend([STUCK] * 50)
    with pytest.raises(AppendUnknown):
        await log.append(unknown, 0.2)
    log.coming.clear()
    assert (await log.fence(unknown, 10)).keys() == {0, 2}
    assert set(await log.arrive()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert [await values(log, partition) for partition in range(3)] == [[(0, b"p")], [], [(1, b"q")]]
    await log.close()


async def test_read_locks_elsewhere(running: RunningBroker) -> None:
    log = await opened(running, 2)
    await log.append(wants(b"there", partition=1), 10)
    with pytest.raises(AppendRefused) as raised:
        await log.append(wants(other_read_locks={1: ReadLocks(-1, (b"a",))}), 10)
    assert (raised.value.refusal.partition, raised.value.refusal.conflict_offset) == (1, 0)
    assert await log.append(wants(other_read_locks={1: ReadLocks(0, (b"a",))}), 10) == {0: 0}
    await log.close()


async def test_what_can_never_be_appended(running: RunningBroker) -> None:
    log = await opened(running)
    with pytest.raises(AppendFailed, match="MESSAGE_TOO_LARGE"):
        await log.append(wants(bytes(2_000_000)), 10)
    assert await log.append(wants(b"next"), 10) == {0: 0}
    await log.close()


async def test_trimmed(running: RunningBroker) -> None:
    log = await opened(running)
    await log.append(wants(b"one"), 10)
    async with Client(running.bootstrap_servers) as client:
        connection = await client.leader_of(await client.topic(log._name), 0)
        partitions = [DeleteRecordsPartition(partition_index=0, offset=1)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=log._name, partitions=partitions)], timeout_ms=5_000
        )
        await connection.call(request, DeleteRecordsResponse)
    with pytest.raises(Trimmed):
        await log.read(0, 0, 0.01)
    await log.close()


async def test_a_topic_that_is_made_again_is_another_one(running: RunningBroker) -> None:
    log = await opened(running)
    await log.append(wants(b"one"), 10)
    async with Client(running.bootstrap_servers) as client:
        await client.delete_topic(log._name)
        await client.create_topic(log._name, configs={"lockstep.locks": "true"})
    with pytest.raises((AppendUnknown, AppendFailed, AppendRefused)):
        await log.append(wants(b"two", hwm=0), 10)
    with pytest.raises(ClientError, match="re-created"):
        await log.read(0, 1, 0.01)
    await log.close()


async def test_topics_without_locks_and_brokers_without_them_are_refused(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(running.bootstrap_servers) as client:
        await client.create_topic("plain-topic")
    log = RemoteLog(running.bootstrap_servers, "plain-topic", "me")
    with pytest.raises(
        ClientError,
        match=r"lockstep\.locks=ignore, .*`lockstep configs alter topic plain-topic lockstep\.locks=true`$",
    ):
        await log.open()
    monkeypatch.setattr("lockstep.broker.metadata.api.api_versions.FEATURE_LEVELS", {})
    log = RemoteLog(running.bootstrap_servers, "plain-topic", "me")
    with pytest.raises(ClientError, match=r"lockstep\.locks, and would ignore locks: it is no Lockstep"):
        await log.open()
    with pytest.raises(ClientError):
        await RemoteLog(running.bootstrap_servers, "nobody-made-this", "me").open()


async def test_a_topic_is_made_where_that_is_wanted(running: RunningBroker) -> None:
    name = f"{await locked_topic(running.bootstrap_servers)}-new"
    logs = [RemoteLog(running.bootstrap_servers, name, "me", create=3) for _ in range(3)]
    assert await asyncio.gather(*(log.open() for log in logs)) == [3, 3, 3]
    async with Client(running.bootstrap_servers) as client:
        configs = {each.name: each.value for each in await client.topic_configs(name)}
    assert (configs["retention.ms"], configs["retention.bytes"]) == ("-1", "-1")
    for log in logs:
        await log.close()


async def test_each_fault_has_its_effect(running: RunningBroker) -> None:
    log = await opened(running)
    log.coming.append(ARRIVES)
    assert await log.append(wants(), 10) == {0: 0} and len(log.sent) == 1
    await log.close()


async def test_whose_time_is_over_leaves_the_others_their_connection(running: RunningBroker) -> None:
    log = await opened(running)
    connection = await log._connect_to_leader(0)
    with pytest.raises(TimedOut):
        await log._produce(connection, {0: b""}, 0.0)
    assert connection.is_open and await log.append(wants(b"one"), 10) == {0: 0}
    await log.close()


async def test_a_silent_host_holds_up_nobody_longer_than_one_attempt_takes(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await opened(running)
    waiting, silent = 0, asyncio.Event()

    async def attempt(*_: object, **__: object) -> BrokerConnection:
        nonlocal waiting
        waiting += 1
        await silent.wait()
        raise TimedOut("nobody answers")

    (await log._connect_to_leader(0)).close()
    monkeypatch.setattr(BrokerConnection, "open", attempt)
    asking = [asyncio.create_task(log._connect_to_leader(0)) for _ in range(30)]
    await asyncio.sleep(0.01)
    asking[0].cancel()
    silent.set()
    async with asyncio.timeout(10):
        found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert waiting == 1 and all(isinstance(each, TimedOut) for each in found[1:])
    await log.close()


@pytest.mark.parametrize("what", ["session", "append", "fence"])
async def test_a_broker_that_is_cut_off_from_the_others_is_left(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It goes on answering, and knows no leader."""
    name = await locked_topic(running.bootstrap_servers)
    log = FaultyLog(f"localhost:{running.port},127.0.0.1:{running.port}", name)
    await log.open()
    lost = wants(b"lost")
    if what != "session":
        await log.append(wants(b"one"), 10)
    if what == "fence":
        log.coming.extend([STUCK] * 50)
        with pytest.raises(AppendUnknown):
            await log.append(lost, 0.2)
        log.coming.clear()
    real = BrokerConnection.call

    async def call(connection: BrokerConnection, request: Any, *more: Any, **named: Any) -> Any:
        answer = await real(connection, request, *more, **named)
        if connection.host == "localhost" and isinstance(answer, InitProducerIdResponse):
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if connection.host == "localhost" and isinstance(answer, MetadataResponse):
            for partition in [each for topic in answer.topics for each in topic.partitions]:
                partition.leader_id = -1
        return answer

    monkeypatch.setattr(BrokerConnection, "call", call)
    monkeypatch.setattr("lockstep.transactions.remote.SILENT_AFTER_S", 0.1)
    await log._followed.refresh()
    if what == "fence":
        assert await log.fence(lost, 5) == {0: 2}
    else:
        hwm = 0 if what == "append" else -1
        assert await log.append(wants(b"two", hwm=hwm), 5) == {0: hwm + 1}
    assert (await log._client.any_broker()).host == "127.0.0.1"
    await log.close()


async def test_a_lane_is_fenced_once_more_when_its_epochs_are_used_up(running: RunningBroker) -> None:
    log = await opened(running)
    await log.append(wants(b"one"), 10)
    (session,) = log._sessions
    session.producer_epoch, session.sequences = LAST_EPOCH, {}
    lost = wants(b"lost", hwm=0)
    log.coming.extend([STUCK] * 50)
    with pytest.raises(AppendUnknown):
        await log.append(lost, 0.2)
    log.coming.clear()
    assert await log.fence(lost, 10) == {0: 2}
    assert set(await log.arrive()) == {ErrorCode.INVALID_PRODUCER_EPOCH} and not log._sessions
    assert await log.append(wants(b"two", hwm=0), 10) == {0: 2}
    await log.close()


async def test_a_fence_that_fails_leaves_no_lane_behind(running: RunningBroker) -> None:
    log = await opened(running)
    lost = wants(b"lost")
    log.coming.extend([STUCK] * 50)
    with pytest.raises(AppendUnknown):
        await log.append(lost, 0.2)

    async def nobody(partition: int) -> BrokerConnection:
        raise ClientError("nobody leads")

    log._connect_to_leader = nobody  # type: ignore[method-assign]
    with pytest.raises(AppendUnknown, match="in time"):
        await log.fence(lost, 0.2)
    assert not log._unsettled and not log._sessions
    await log.close()


async def test_what_is_closed_connects_no_more(running: RunningBroker) -> None:
    log = await opened(running)
    await log.append(wants(b"one"), 10)
    await log.close()
    async with asyncio.timeout(10):
        with pytest.raises(ClientError, match="closed"):
            await log.end(0)
        with pytest.raises(ClientError, match="closed"):
            await log.read(0, 0, 0.01)
    clients = [log._client, *(reader.client for reader in log._readers.values())]
    connections = [each for client in clients for each in (client._first, *client._leaders.values())]
    assert not any(each.is_open for each in connections if each is not None)
