"""Fetch over a real broker: waiting, limits, sessions, epochs, and reads that need the disk."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.fetch.partition_reads import read_from_disk
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from lockstep.storage.types import OffsetOutOfRange, ReadResult
from tests.broker.conftest import StartBroker
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, fetch_request, records_of


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(data)]


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version(client: Client, version: int) -> None:
    topic_id = await client.create("t")
    await client.produce("t", batch(b"a", b"b"))
    await client.produce("t", batch(b"c"))
    request = fetch_request({"t": {0: 1}}, session_epoch=-1)
    request.topics[0].topic_id = topic_id
    response: FetchResponse = await client.call(request, version)
    topic = response.responses[0]
    assert topic.topic_id == topic_id if version >= 13 else topic.topic == "t"
    data = topic.partitions[0]
    assert values(data) == [b"a", b"b", b"c"]  # the batch that holds offset 1 comes whole
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert data.aborted_transactions is None
    assert data.preferred_read_replica == -1
    committed = fetch_request({"t": {0: 3}}, session_epoch=-1, isolation_level=1)
    committed.topics[0].topic_id = topic_id
    data = (await client.call(committed, version)).responses[0].partitions[0]
    assert data.aborted_transactions == []
    assert data.records is not None
    assert len(data.records) == 0


async def test_errors_per_partition(client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    for offset, error in (
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2**62, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        data = await client.fetch("t", offset, max_wait_ms=5_000)
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (error, -1, -1)
    unknown = await client.fetch("nowhere", 0, max_wait_ms=5_000)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (1, -1, 2**31 - 1):
        data = await client.fetch("t", 0, partition)
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_unknown_topic_id(client: Client) -> None:
    request = fetch_request({"": {0: 0}}, max_wait_ms=5_000)
    request.topics[0].topic_id = b"x" * 16
    response: FetchResponse = await client.call(request, 13)
    assert response.responses[0].topic_id == b"x" * 16
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_leader_epochs(client: Client, broker: Broker) -> None:
    topic_id = await client.create("t")
    await client.produce("t", batch(b"a"))
    epoch = broker.groups[1].term
    assert (await client.fetch("t", 0, current_leader_epoch=epoch)).error_code == 0
    assert (await client.fetch("t", 0, current_leader_epoch=epoch + 1)).error_code == (
        ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    request = fetch_request({"t": {0: 0}}, current_leader_epoch=epoch - 1)
    request.topics[0].topic_id = topic_id
    response: FetchResponse = await client.call(request, 17)
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, epoch)
    assert [(node.node_id, node.port) for node in response.node_endpoints] == [(1, broker.port)]


async def test_divergence(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    await client.produce("t", batch(b"a", b"b"))
    first = broker.groups[1].term
    await broker.stop()
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.produce("t", batch(b"c"))
    second = broker.groups[1].term
    assert second > first
    fits = await client.fetch("t", 2, last_fetched_epoch=first)
    assert values(fits) == [b"c"]
    beyond = await client.fetch("t", 3, last_fetched_epoch=first)
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (first, 2)
    assert (beyond.error_code, values(beyond)) == (0, [])
    newer = await client.fetch("t", 3, last_fetched_epoch=second + 5)
    assert newer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await client.fetch("t", 3, last_fetched_epoch=second)).diverging_epoch.epoch == -1


@pytest.mark.parametrize("version", [12, 15])
async def test_clients_are_not_replicas(client: Client, version: int) -> None:
    topic_id = await client.create("t")
    await client.produce("t", batch(b"a"))
    for replica, error in ((1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (-2, ErrorCode.NONE)):
        request = fetch_request({"t": {0: 0}})
        request.topics[0].topic_id = topic_id
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=replica)
        else:
            request.replica_id = replica
        assert (await client.call(request, version)).responses[0].partitions[0].error_code == error


# --- limits -----------------------------------------------------------------------------------------------


async def test_the_first_batch_comes_whatever_its_size(client: Client) -> None:
    await client.create("t", 2)
    for partition in (0, 1):
        for letter in (b"a", b"b"):
            await client.produce("t", batch(letter * 1000), partition)
    request = fetch_request({"t": {0: 0, 1: 0}}, max_bytes=10, partition_max_bytes=10)
    response: FetchResponse = await client.call(request, 12)
    found = [values(data) for data in response.responses[0].partitions]
    assert found == [[b"a" * 1000], []]
    assert [data.high_watermark for data in response.responses[0].partitions] == [2, 2]


async def test_limits_per_partition_and_in_all(client: Client) -> None:
    await client.create("t", 3)
    size = len(batch(b"x" * 1000))
    for partition in range(3):
        for _ in range(4):
            await client.produce("t", batch(b"x" * 1000), partition)
    wanted = {"t": {0: 0, 1: 0, 2: 0}}

    async def counts(**limits: int) -> list[int]:
        response: FetchResponse = await client.call(fetch_request(wanted, **limits), 12)
        return [len(values(data)) for data in response.responses[0].partitions]

    assert await counts(partition_max_bytes=2 * size + 10) == [2, 2, 2]
    assert await counts(max_bytes=5 * size, partition_max_bytes=3 * size) == [3, 2, 0]
    assert await counts(max_bytes=5 * size + size - 1, partition_max_bytes=3 * size) == [3, 2, 0]
    assert await counts(partition_max_bytes=0) == [1, 0, 0]
    assert await counts(max_bytes=-5, partition_max_bytes=-1) == [1, 0, 0]


async def test_fetch_max_bytes_of_the_broker(start_broker: StartBroker) -> None:
    broker = await start_broker(fetch_max_bytes="3000")
    client = await Client.connect(broker.port)
    await client.create("t")
    for _ in range(5):
        await client.produce("t", batch(b"x" * 1000))
    assert len(values(await client.fetch("t", 0))) == 2


async def test_answers_that_nobody_reads_are_bounded_in_all(start_broker: StartBroker) -> None:
    """Each could be 2 MiB; beyond the common bound it is what a connection may leave unsent, or one batch."""
    bound, buffer_bytes = 6 << 20, 64 << 10
    broker = await start_broker(
        lockstep_unsent_max_bytes=str(bound),
        lockstep_connection_write_buffer_bytes=str(buffer_bytes),
        socket_send_buffer_bytes="16384",
    )
    client = await Client.connect(broker.port)
    await client.create("t", 2)
    size = len(batch(b"x" * 20_000))
    for partition in (0, 1):
        for _ in range(100):
            await client.produce("t", batch(b"x" * 20_000), partition)
    request = fetch_request({"t": {0: 0, 1: 0}})
    deaf = [await Client.connect(broker.port) for _ in range(30)]
    for each in deaf:
        each.writer.transport.pause_reading()  # type: ignore[attr-defined]
        each.send(request, 12)
        each.send(request, 12)
    await until(lambda: broker.assembly.connections.unsent_bytes.total > bound // 2, 60)
    await asyncio.sleep(0.3)
    unsent = broker.assembly.connections.unsent_bytes.total
    assert bound // 2 < unsent < bound + len(deaf) * 2 * (buffer_bytes + size)
    # Who reads still gets on, and does not wait for min_bytes that do not fit.
    full = broker.assembly.connections.unsent_bytes.total = 1 << 30
    wanted = fetch_request({"t": {0: 0, 1: 0}}, min_bytes=1 << 20, max_wait_ms=60_000)
    response = await asyncio.wait_for(client.call(wanted, 12), 5)
    assert [len(values(data)) for data in response.responses[0].partitions] == [3, 0]
    waiting = asyncio.ensure_future(client.call(fetch_request({"t": {0: 100}}, max_wait_ms=300), 12))
    await asyncio.sleep(0.1)
    assert not waiting.done(), "no answer without records before its time"
    await waiting
    # Nor does it ask in a tight loop where little has come: what fits is awaited.
    tail = fetch_request({"t": {0: 99}}, min_bytes=1 << 20, max_wait_ms=60_000)
    waiting = asyncio.ensure_future(client.call(tail, 12))
    writer = await Client.connect(broker.port)
    for _ in range(3):
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await writer.produce("t", batch(b"x" * 20_000))
    response = await asyncio.wait_for(waiting, 5)
    assert len(values(response.responses[0].partitions[0])) == 3
    broker.assembly.connections.unsent_bytes.total += unsent - full
    for each in (*deaf, writer):
        await each.close()
    await until(lambda: broker.assembly.connections.unsent_bytes.total == 0, 60)
    await client.close()


# --- waiting ----------------------------------------------------------------------------------------------


async def test_waits_for_min_bytes(broker: Broker, client: Client) -> None:
    await client.create("t")
    reader = await Client.connect(broker.port)
    size = len(batch(b"x" * 100))
    request = fetch_request({"t": {0: 0}}, max_wait_ms=60_000, min_bytes=5 * size)
    reader.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1, 60)
    for count in range(1, 6):
        await asyncio.sleep(0.02)
        assert broker.assembly.fetch_purgatory.count == 1, count
        await client.produce("t", batch(b"x" * 100))
    _, response = await asyncio.wait_for(reader.receive(request, 12), 30)
    assert len(values(response.responses[0].partitions[0])) == 5  # type: ignore[attr-defined]


async def test_what_waits_is_no_larger_than_what_there_is_to_read(broker: Broker, client: Client) -> None:
    """So its request's size need not count as in flight, for as long as the client likes."""
    await client.create("t", 2)
    reader = await Client.connect(broker.port)
    request = fetch_request({"t": {0: 0, 1: 0}}, max_wait_ms=60_000)
    request.topics[0].partitions *= 5000
    request.topics += [FetchTopic(topic=f"unknown-{number}") for number in range(5000)]
    reader.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1, 60)
    await until(lambda: broker.assembly.connections.in_flight_bytes == 0, 60)
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    [waiting] = topic.partitions[0].delayed_fetches
    assert len(waiting.attempt.__self__._fetch_context.items) == 2
    await client.produce("t", batch(b"a"), 1)
    _, response = await reader.receive(request, 12)
    assert [values(data) for data in response.responses[0].partitions] == [[], [b"a"]]  # type: ignore[attr-defined]


async def test_a_deleted_topic_ends_the_wait(broker: Broker, client: Client) -> None:
    await client.create("t")
    reader = await Client.connect(broker.port)
    request = fetch_request({"t": {0: 0}}, max_wait_ms=60_000)
    reader.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1, 60)
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    _, response = await asyncio.wait_for(reader.receive(request, 12), 30)
    data = response.responses[0].partitions[0]  # type: ignore[attr-defined]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_client_that_leaves_is_not_waited_for(broker: Broker, client: Client) -> None:
    await client.create("t")
    reader = await Client.connect(broker.port)
    reader.send(fetch_request({"t": {0: 0}}, max_wait_ms=2**31 - 1), 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1, 60)
    await reader.close()
    await until(lambda: broker.assembly.fetch_purgatory.count == 0, 60)
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    assert not partition.delayed_fetches


# --- sessions ---------------------------------------------------------------------------------------------


async def ask(
    client: Client, session_id: int, epoch: int, wanted: dict[int, int], **more: Any
) -> FetchResponse:
    request = FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        max_wait_ms=more.pop("max_wait_ms", 0),
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1000)
                    for partition, offset in wanted.items()
                ],
            )
        ]
        if wanted
        else [],
        **more,
    )
    response: FetchResponse = await client.call(request, 12)
    return response


def told(response: FetchResponse) -> dict[int, list[bytes | None]]:
    return {data.partition_index: values(data) for topic in response.responses for data in topic.partitions}


async def test_a_session(client: Client) -> None:
    await client.create("t", 3)
    await client.produce("t", batch(b"a"), 1)
    full = await ask(client, 0, 0, {0: 0, 1: 0, 2: 0})
    session = full.session_id
    assert session > 0
    assert told(full) == {0: [], 1: [b"a"], 2: []}
    assert told(await ask(client, session, 1, {1: 1})) == {}
    await client.produce("t", batch(b"b"), 2)
    assert told(await ask(client, session, 2, {})) == {2: [b"b"]}
    assert told(await ask(client, session, 3, {})) == {2: [b"b"]}  # it did not move on
    forgotten = [ForgottenTopic(topic="t", partitions=[2])]
    assert told(await ask(client, session, 4, {}, forgotten_topics_data=forgotten)) == {}
    assert (await ask(client, session, 4, {})).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (await ask(client, session + 1, 5, {})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (await ask(client, session, -1, {0: 0})).session_id == 0
    assert (await ask(client, session, 5, {})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_waits_for_any_of_its_partitions(broker: Broker, client: Client) -> None:
    await client.create("t", 3)
    reader = await Client.connect(broker.port)
    session = (await ask(reader, 0, 0, {0: 0, 1: 0, 2: 0})).session_id
    waiting = asyncio.ensure_future(ask(reader, session, 1, {}, max_wait_ms=60_000, min_bytes=1))
    await until(lambda: broker.assembly.fetch_purgatory.count == 1, 60)
    await client.produce("t", batch(b"a"), 2)
    assert told(await asyncio.wait_for(waiting, 30)) == {2: [b"a"]}


async def test_partitions_with_data_go_to_the_end_of_their_session(client: Client) -> None:
    await client.create("t", 3)
    for partition in range(3):
        await client.produce("t", batch(b"x" * 900), partition)
    session = (await ask(client, 0, 0, {0: 1, 1: 1, 2: 1})).session_id
    seen = []
    for epoch in range(1, 5):
        wanted = {0: 0, 1: 0, 2: 0} if epoch == 1 else {}
        response = await ask(client, session, epoch, wanted, max_bytes=900)
        seen += [partition for partition, found in told(response).items() if found]
    assert seen == [0, 1, 2, 0]


async def test_a_recreated_topic_within_a_session(broker: Broker, client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"old", b"older"))
    session = (await ask(client, 0, 0, {0: 2})).session_id
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    gone = await ask(client, session, 1, {})
    assert gone.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await client.create("t")
    await client.produce("t", batch(b"new"))
    assert told(await ask(client, session, 2, {0: 0})) == {0: [b"new"]}


async def test_a_partition_of_a_session_that_is_made_later(client: Client) -> None:
    """Its error is told each time; a name that no topic can have is told of where it is asked for alone."""
    unknown, session = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
    impossible = FetchTopic(topic="x" * 32_000, partitions=[FetchPartition(partition=0)])
    for epoch in range(3):
        wanted = {0: 0, 1: 0} if epoch == 0 else {}
        response = await ask(client, session, epoch, wanted)
        session = response.session_id
        assert [each.error_code for each in response.responses[0].partitions] == [unknown] * 2
    request = FetchRequest(session_id=session, session_epoch=3, topics=[impossible])
    response = await client.call(request, 12)
    assert [topic.topic for topic in response.responses] == ["t", "x" * 32_000]
    assert response.responses[1].partitions[0].error_code == unknown
    await client.create("t", 2)
    await client.produce("t", batch(b"a"), 1)
    assert told(await ask(client, session, 4, {})) == {0: [], 1: [b"a"]}


# --- cold reads -------------------------------------------------------------------------------------------


async def test_reads_that_need_the_disk(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t", 2)
    for partition in (0, 1):
        for _ in range(3):
            await client.produce("t", batch(b"x" * 1000), partition)
    group = broker.groups[1]
    monkeypatch.setattr(group, "read", lambda *_: ReadResult([], 0, cold=True))
    request = fetch_request({"t": {0: 1, 1: 0}}, max_wait_ms=5_000)
    response: FetchResponse = await client.call(request, 12)
    assert [len(values(data)) for data in response.responses[0].partitions] == [2, 3]
    size = len(batch(b"x" * 1000))
    response = await client.call(fetch_request({"t": {0: 0, 1: 0}}, max_bytes=4 * size), 12)
    assert [len(values(data)) for data in response.responses[0].partitions] == [3, 1]
    # A waiting fetch that turns out cold is answered too.
    reader = await Client.connect(broker.port)
    request = fetch_request({"t": {0: 3}}, max_wait_ms=60_000)
    reader.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1, 60)
    await client.produce("t", batch(b"new"))
    _, answer = await asyncio.wait_for(reader.receive(request, 12), 30)
    assert values(answer.responses[0].partitions[0]) == [b"new"]  # type: ignore[attr-defined]


async def test_reads_from_the_disk_share_the_bound_while_they_are_under_way(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(batch(b"x" * 1000))
    broker = await start_broker(
        lockstep_unsent_max_bytes=str(10 * size), lockstep_connection_write_buffer_bytes=str(2 * size)
    )
    clients = [await Client.connect(broker.port) for _ in range(6)]
    await clients[0].create("t")
    for _ in range(8):
        await clients[0].produce("t", batch(b"x" * 1000))
    group, slow = broker.groups[1], asyncio.Event()
    read_cold = group.read_cold
    monkeypatch.setattr(group, "read", lambda *_: ReadResult([], 0, cold=True))

    under_way = 0

    async def read_slowly(*asked: Any) -> ReadResult:
        nonlocal under_way
        under_way += 1
        await slow.wait()
        return await read_cold(*asked)

    monkeypatch.setattr(group, "read_cold", read_slowly)
    calls = [each.call(fetch_request({"t": {0: 0}}, max_bytes=8 * size), 12) for each in clients]
    answers = asyncio.gather(*calls)
    await until(lambda: under_way == len(clients), 60)
    slow.set()
    found = sorted(len(values(answer.responses[0].partitions[0])) for answer in await answers)
    assert found == [2, 2, 2, 2, 2, 8]
    assert broker.assembly.connections.unsent_bytes.total == 0


async def test_records_deleted_during_a_read_are_out_of_range(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    group = broker.groups[1]

    async def freed(*_: object) -> ReadResult:
        raise OffsetOutOfRange("has just been freed")

    monkeypatch.setattr(group, "read_cold", freed)
    with monkeypatch.context() as patched:
        patched.setattr(group, "read", lambda *_: ReadResult([], 0, cold=True))
        data = await client.fetch("t", 0)
    assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert values(await client.fetch("t", 0)) == [b"a"]


async def test_records_deleted_while_a_fetch_waits_are_out_of_range(client: Client, broker: Broker) -> None:
    await client.create("t")
    waiting = client.send(fetch_request({"t": {0: 0}}, max_wait_ms=20_000, min_bytes=1 << 20), 12)
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    for _ in range(500):
        if partition.delayed_fetches:
            break
        await asyncio.sleep(0.01)
    other = await Client.connect(broker.port)
    group = broker.groups[1]

    def freed(*_: object) -> ReadResult:
        raise OffsetOutOfRange("has just been freed")

    real, group.read = group.read, freed  # type: ignore[method-assign, assignment]
    partition.log.log_start_offset = 1
    await other.produce("t", batch(b"a"))
    correlation_id, response = await client.receive(fetch_request({}), 12)
    group.read = real  # type: ignore[method-assign]
    assert correlation_id == waiting
    assert response.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[attr-defined]
    await other.close()


async def test_nothing_is_left_below_an_open_transaction(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that lay there was compacted away, and which batches there were has to come from the disk."""
    await client.create("t")
    await client.produce("t", batch(b"a", b"b", b"c"))
    partition, asked = broker.assembly.cluster.partition("t", 0), []

    async def nothing(*arguments: object) -> ReadResult:
        asked.append(arguments)
        return ReadResult([], 0)

    assert partition is not None
    monkeypatch.setattr(broker.groups[1], "read_cold", nothing)
    for end, error in ((2, ErrorCode.NONE), (3, ErrorCode.CORRUPT_MESSAGE)):
        assert (await read_from_disk(partition, 1, 100, end, 0.0))[1] is error
    assert len(asked) == 2


@pytest.mark.parametrize("damage", ["no answer", "cut short", "index lost, too"])
async def test_records_that_cannot_be_read_are_an_error_of_their_partition(
    start_broker: StartBroker, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(lockstep_tail_cache_bytes="0")
    client = await Client.connect(broker.port)
    await client.create("t", 2)
    for place in range(16):
        await client.produce("t", batch(bytes([place]) * 100_000))
    await client.produce("t", batch(b"other"), partition=1)
    await asyncio.sleep(0.1)
    group = broker.groups[1]
    files = sorted((broker.settings.directory / "groups" / "1").iterdir())
    segment = next(path for path in files if path.name.endswith("1.segment"))
    if damage == "no answer":

        async def broken(*_: object) -> ReadResult:
            raise OSError(5, "Input/output error")

        group.read_cold = broken  # type: ignore[method-assign, assignment]
        group.read = lambda *_: ReadResult([], 0, cold=True)  # type: ignore[method-assign]
    else:
        with segment.open("r+b") as file:
            file.truncate(5_000)
        if damage == "index lost, too":
            segment.with_suffix(".index").unlink()
    response: FetchResponse = await client.call(fetch_request({"t": {0: 0, 1: 0}}), 12)
    first, other = response.responses[0].partitions
    assert (first.error_code, first.records or b"") == (ErrorCode.CORRUPT_MESSAGE, b"")
    if damage != "no answer":
        assert values(other) == [b"other"]
    await client.call(fetch_request({"t": {0: 0}}), 12)
    assert caplog.text.count("t-0: offset 0 cannot be read") == 1
    await client.close()
