"""What clients and operators hear of damaged records: an error for that partition, its name, and a way on."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from lockstep.broker.controller import damage_reports
from lockstep.broker.maintenance import scrub
from lockstep.broker.maintenance.damage import damage_text, node_damage
from lockstep.broker.metrics.health import unhealthy_reason
from lockstep.broker.peers.peer_rpc import RequestKind
from lockstep.broker.server import Broker
from lockstep.protocol.cluster_messages import LockstepClusterRequest, LockstepClusterResponse
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchResponse, PartitionData
from lockstep.protocol.records.batch import read_header, verify
from lockstep.storage.log.damage import DamageTable
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, fetch_request

BATCHES = 40


def change(directory: Path, content: bytes) -> None:
    """Change a byte of what a closed log file has."""
    for path in sorted(directory.rglob("groups/1/*.segment")):
        data = path.read_bytes()
        if content in data:
            with path.open("r+b") as file:
                file.seek(data.index(content) + len(content) // 2)
                file.write(b"!")
            return
    raise AssertionError("not there")


def restore(directory: Path, content: bytes) -> None:
    """Undo `change`."""
    changed = bytearray(content)
    changed[len(content) // 2] = ord("!")
    for path in sorted(directory.rglob("groups/1/*.segment")):
        place = path.read_bytes().find(changed)
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place)
                file.write(content)
            return
    raise AssertionError("not there")


def _bytes(data: PartitionData) -> bytes:
    return b"" if data.records is None else bytes(data.records)  # type: ignore[arg-type]


def _trouble(broker: Broker) -> str:
    return unhealthy_reason(broker.assembly.cluster, broker.assembly.nodes, False, None)


def value(number: int) -> bytes:
    return b"%06d" % number * 20_000


async def fill(client: Client) -> None:
    """Ten closed files with two partitions in each."""
    await client.create("t", 2)
    for number in range(BATCHES):
        await client.produce("t", batch(value(number)), partition=number % 2)


async def read(client: Client, offsets: dict[int, int], **words: int) -> list[PartitionData]:
    response: FetchResponse = await client.call(fetch_request({"t": offsets}, **words), 12)
    return response.responses[0].partitions


async def ask(client: Client, **question: object) -> dict[str, object]:
    answer: LockstepClusterResponse = await client.call(
        LockstepClusterRequest(body=json.dumps(question).encode()), 0
    )
    assert answer.error_code == 0, answer.error_message
    document: dict[str, object] = json.loads(bytes(answer.body))
    return document


async def first_offsets(client: Client, offset: int) -> list[int]:
    """Base offsets of the batches that a consumer of partition 0 gets."""
    found: list[int] = []
    while offset < BATCHES // 2:
        (data,) = await read(client, {0: offset})
        assert (data.error_code, bool(data.records)) == (0, True)
        header = read_header(_bytes(data))
        found.append(header.base_offset)
        offset = header.last_offset + 1
    return found


async def damaged(start_broker: StartBroker) -> tuple[Broker, Client]:
    """A node alone that was stopped while a byte of offset 5 of partition 0 changed."""
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await fill(client)
    await client.close()
    await broker.stop()
    change(broker.settings.directory, value(10))
    broker = await start_broker()
    return broker, await Client.connect(broker.port)


async def test_a_changed_byte_is_an_error_of_its_partition_and_no_other(start_broker: StartBroker) -> None:
    broker, client = await damaged(start_broker)
    broken, other = await read(client, {0: 5, 1: 5})
    assert (broken.error_code, _bytes(broken)) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert other.error_code == 0 and read_header(_bytes(other)).base_offset == 5
    (before,) = await read(client, {0: 4})
    assert before.error_code == 0 and len(_bytes(before)) < 2 * len(value(0)), "and not the next"
    (known,) = node_damage(broker.assembly.cluster)
    assert (known["topic"], known["partition"], known["first_offset"], known["last_offset"]) == ("t", 0, 5, 5)
    assert damage_text(known).startswith("t-0: offset 5 is damaged (log group 1, log file ")
    assert _trouble(broker) == damage_text(known)
    status = await ask(client, do="status")
    copies: dict[str, list[int]] = {"intact_on": [], "unknown_on": []}
    assert status["healthy"] is False and status["damage"] == [{"node": 1, **known, **copies}]
    await client.close()


async def test_an_operator_gives_damaged_records_up_and_consumers_go_on(start_broker: StartBroker) -> None:
    broker, client = await damaged(start_broker)
    assert (await read(client, {0: 5}))[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert await ask(client, do="give_up", topic="t", partition=1) == {"given_up": [], "unanswered": []}
    given = (await ask(client, do="give_up", topic="t", partition=0))["given_up"]
    assert isinstance(given, list) and [(each["first_offset"], each["last_offset"]) for each in given] == [
        (5, 5)
    ]
    assert await first_offsets(client, 0) == [each for each in range(BATCHES // 2) if each != 5]
    status = await ask(client, do="status")
    assert status["healthy"] is True and [each["given_up"] for each in status["damage"]] == [True]  # type: ignore[attr-defined]
    await client.close()
    await broker.stop()
    broker = await start_broker()
    client = await Client.connect(broker.port)
    assert await first_offsets(client, 5) == list(range(6, BATCHES // 2)), "also after a restart"
    assert _trouble(broker) == ""
    unknown: LockstepClusterResponse = await client.call(
        LockstepClusterRequest(body=b'{"do": "give_up", "topic": "t", "partition": 9}'), 0
    )
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await client.close()


async def test_consumers_reach_the_end_behind_records_that_were_given_up(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await fill(client)
    for number in range(BATCHES, BATCHES + 8):  # closes the file with the newest records of partition 0
        await client.produce("t", batch(value(number)), partition=1)
    await client.close()
    await broker.stop()
    last = BATCHES // 2 - 1
    for number in (BATCHES - 4, BATCHES - 2):
        change(broker.settings.directory, value(number))
    broker = await start_broker()
    client = await Client.connect(broker.port)
    for offset in (last - 1, last):
        assert (await read(client, {0: offset}))[0].error_code == ErrorCode.CORRUPT_MESSAGE
        await ask(client, do="give_up", topic="t", partition=0)
    for offset in (last - 1, last):
        (data,) = await read(client, {0: offset})
        header = read_header(_bytes(data))
        verify(_bytes(data), 0, header)
        assert (data.error_code, header.base_offset, header.record_count) == (0, offset, 0)
        assert header.last_offset + 1 == data.high_watermark == BATCHES // 2
    await client.produce("t", batch(b"newer"), partition=0)
    (data,) = await read(client, {0: last})
    assert read_header(_bytes(data)).base_offset == last + 1 and b"newer" in _bytes(data)
    await client.close()


async def test_what_is_deleted_is_damaged_no_more(start_broker: StartBroker) -> None:
    broker, client = await damaged(start_broker)
    assert (await read(client, {0: 5}))[0].error_code == ErrorCode.CORRUPT_MESSAGE
    group = broker.groups[1]
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None and node_damage(broker.assembly.cluster)
    await group.advance_log_starts({partition.log.local_id: 6})
    assert node_damage(broker.assembly.cluster) == []
    await client.close()


@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_a_cluster_mends_it_while_the_consumer_waits(start_cluster: StartCluster, who: str) -> None:
    cluster = await start_cluster(
        3, lockstep_data_groups="1", lockstep_scrub_interval_ms="0", lockstep_tail_cache_bytes="0"
    )
    await cluster.settled()
    leading, writer = await cluster.create("t")
    for number in range(BATCHES):
        assert (await writer.produce("t", batch(value(number)))).error_code == 0
    node = leading if who == "leader" else next(each for each in cluster.brokers if each != leading)
    broker = cluster.brokers[node]
    await until(lambda: len(broker.groups[1].log.segments()) > 3)
    await until(lambda: broker.groups[1].applied_index == cluster.brokers[leading].groups[1].applied_index)
    change(cluster.directory / str(node), value(10))
    client = await Client.connect(broker.port)
    began = time.monotonic()
    response: FetchResponse = await client.call(fetch_request({"t": {0: 10}}, max_wait_ms=100), 12)
    (data,) = response.responses[0].partitions
    assert data.error_code == 0, f"{data.error_code} after {time.monotonic() - began:.1f} s"
    assert value(10) in _bytes(data)
    assert broker.groups[1].log.damage.known() == []
    assert _trouble(broker) == ""
    await client.close()


@pytest.mark.parametrize("fault", ["a bad sector", "a file that is missing", "a file that ends early"])
async def test_a_real_consumer_gets_the_error_of_damaged_records(
    start_broker: StartBroker, fault: str
) -> None:
    """librdkafka asks again without a word after KAFKA_STORAGE_ERROR: its user would wait for ever."""
    broker = await start_broker(lockstep_tail_cache_bytes="0")
    client = await Client.connect(broker.port)
    await fill(client)
    path = next(
        p
        for p in sorted(broker.settings.directory.rglob("groups/1/*.segment"))
        if value(10) in p.read_bytes()
    )
    fs = broker.groups[1].log._fs
    if fault == "a bad sector":
        place, preadv = path.read_bytes().index(value(10)), fs.preadv

        def reading(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
            name = os.readlink(f"/proc/self/fd/{fd}")
            if name == str(path) and position <= place < position + sum(map(len, buffers)):
                raise OSError(errno.EIO, "Input/output error")
            return preadv(fd, buffers, position, flags)

        fs.preadv = reading  # type: ignore[method-assign, assignment]
    elif fault == "a file that is missing":
        await client.close()
        await broker.stop()
        broker = await start_broker(lockstep_tail_cache_bytes="0")
        client = await Client.connect(broker.port)
        path.unlink()
    else:
        os.truncate(path, path.read_bytes().index(value(10)) + 7)

    def consumed() -> tuple[int, str]:
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        came, until_s = 0, time.monotonic() + 20
        while time.monotonic() < until_s:
            message = consumer.poll(0.2)
            error = None if message is None else message.error()
            if error is not None:
                consumer.close()
                return came, error.name()
            came += message is not None
        consumer.close()
        return came, ""

    came, error = await asyncio.to_thread(consumed)
    assert error == "INVALID_MSG" and came <= 5, "librdkafka's name of CORRUPT_MESSAGE"
    assert "t-0: offset" in _trouble(broker)
    await client.close()


async def test_a_start_logs_known_damage_and_a_repair_is_logged(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    broker, client = await damaged(start_broker)
    assert not any("known to be damaged" in each for each in caplog.messages), "nobody knows yet"
    assert (await read(client, {0: 5}))[0].error_code == ErrorCode.CORRUPT_MESSAGE
    await client.close()
    directory = broker.settings.directory
    await broker.stop()
    broker = await start_broker()
    (line,) = [each for each in caplog.messages if "known to be damaged" in each]
    assert line.startswith(
        "log group 1: 1 ranges of offsets are known to be damaged since an earlier start, in "
    )
    assert broker.assembly is not None
    scrubbing = broker.assembly.scrubber
    await scrubbing.check()
    restore(directory, value(10))
    broker.groups[1].log.corruption_found = True
    scrubbing._suspect_groups.clear()
    await scrubbing.check()
    (line,) = [each for each in caplog.messages if "no longer damaged" in each]
    assert line.startswith("t-0: offset 5 is no longer damaged (log group 1, log file ")
    assert line.endswith(": the log file verifies")


async def test_a_single_node_logs_that_a_restored_file_verifies(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, client = await damaged(start_broker)
    assert (await read(client, {0: 5}))[0].error_code == ErrorCode.CORRUPT_MESSAGE
    await client.close()
    await broker.stop()
    restore(broker.settings.directory, value(10))
    monkeypatch.setattr(scrub, "POLL_SECONDS", 0.05)
    caplog.set_level("INFO")
    caplog.clear()
    broker = await start_broker()

    def healed() -> list[logging.LogRecord]:
        return [each for each in caplog.records if "no longer damaged" in each.getMessage()]

    await until(lambda: bool(healed()), 20)
    assert not _trouble(broker)
    (line,) = healed()
    assert line.levelname == "INFO"
    assert line.getMessage().startswith("t-0: offset 5 is no longer damaged (log group 1, log file ")


async def test_health_names_every_damaged_range(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await fill(client)
    await client.close()
    await broker.stop()
    for number in (2, 5, *range(8, 30, 4)):
        change(broker.settings.directory, value(number))
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await read(client, {0: 1, 1: 2})
    first, second = map(damage_text, node_damage(broker.assembly.cluster))
    assert _trouble(broker) == f"{first}; {second}"
    for number in range(8, 30, 4):
        await read(client, {0: number // 2})
    assert _trouble(broker).endswith("; and 3 more ranges") and _trouble(broker).count("; ") == 5
    await client.close()


async def test_giving_up_names_the_node_that_did_not_answer(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1", lockstep_scrub_interval_ms="0")
    await cluster.settled()
    leading, _ = await cluster.create("t")

    def has_replica(broker: Broker) -> bool:
        partition = broker.assembly.cluster.partition("t", 0)
        return partition is not None and any(partition.group is each for each in broker.groups.values())

    await cluster.until(lambda: all(map(has_replica, cluster.brokers.values())), "a replica on every node")
    silent = next(each for each in (1, 2, 3) if each != leading)
    client = await Client.connect(cluster.brokers[leading].port)
    question = {"do": "give_up", "topic": "t", "partition": 0}
    assert await ask(client, **question) == {"given_up": [], "unanswered": []}

    def no_disk(self: DamageTable, partition: int) -> list[object]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(DamageTable, "skip_damage", no_disk)
        answer = await ask(client, **question)
    assert [each["node"] for each in answer["unanswered"]] == [leading, *sorted({1, 2, 3} - {leading})]  # type: ignore[attr-defined]
    assert all("cannot be written: " in each["reason"] for each in answer["unanswered"])  # type: ignore[attr-defined]
    await cluster.stop(silent)
    answer = await ask(client, **question)
    assert [each["node"] for each in answer["unanswered"] if each["reason"]] == [silent]  # type: ignore[attr-defined]
    await client.close()


async def test_the_status_names_a_node_without_a_damage_report(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    monkeypatch.setattr(damage_reports, "RESPONSE_TIMEOUT_SECONDS", 0.1)

    async def stuck(node_id: int, body: bytes) -> bytes:
        await asyncio.sleep(10)
        return b""

    node = cluster.brokers[2].assembly.node
    assert node is not None
    node._peer_rpc.handlers[RequestKind.DAMAGE] = stuck
    client = await Client.connect(cluster.brokers[1].port)
    status = await ask(client, do="status")
    assert status["damage_unknown"] == [{"node": 2, "reason": "no response within 0.1 s"}]
    await client.close()
