"""Retention by time and by size, and the space it gives back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.broker.maintenance.retention import Retention, expired_by_size, first_kept_by_time
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.metadata.metadata_image import (
    TopicEntry,
    TopicState,
    create_command,
    delete_command,
    deleted_command,
)
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log.batch_reader import BatchLocation
from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.types import CorruptLog, StorageFull
from tests.broker.conftest import StartBroker
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, records_of
from tests.storage.log.joined_logs import small_segments
from tests.storage.log.simulated_disk import SimulatedFileSystem
from tests.support.cases import each_case


@each_case(("limit", "start"), [(100, 0), (50, 0), (41, 0), (40, 10), (31, 10), (30, 20), (20, 30), (0, 30)])
def test_by_size(limit: int, start: int) -> None:
    # Three sealed parts of 10 bytes each and 20 bytes in the open segment.
    shares = [SegmentPartition(1, first, first + 9, 0, 10) for first in (0, 10, 20)]
    assert expired_by_size(shares, 50, limit) == start


async def fill(client: Client, topic: str, count: int, timestamp_ms: int) -> None:
    for _ in range(count):
        produced = await client.produce(topic, batch(b"x" * 100_000, timestamp_ms=timestamp_ms))
        assert produced.error_code == 0


async def test_by_time_frees_files(start_broker: StartBroker) -> None:
    broker = await start_broker(log_retention_hours="1")
    client = await Client.connect(broker.port)
    await client.create("old")
    await client.create("kept", retention_ms="-1")
    now = int(time.time() * 1000)
    await client.produce("kept", batch(b"for ever", timestamp_ms=5))
    await fill(client, "old", 45, now - 2 * 3_600_000)
    await client.produce("old", batch(b"young", timestamp_ms=now))
    await client.produce("old", batch(b"old again", timestamp_ms=5))
    sealed = len(broker.groups[1].log.segments())
    assert sealed >= 4
    assert await broker.enforce_retention() == 1
    start = (await client.fetch("old", 46)).log_start_offset
    assert start == 45
    assert (await client.fetch("old", 44)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in records_of(await client.fetch("old", 45))] == [b"young", b"old again"]
    assert [record.value for record in records_of(await client.fetch("kept", 0))] == [b"for ever"]
    assert await broker.enforce_retention() == 0
    await client.close()
    # The log start is kept over a restart.
    await broker.stop()
    again = await start_broker(log_retention_hours="1")
    partition = again.assembly.cluster.partition("old", 0)
    assert partition is not None
    assert partition.log.log_start_offset == 45


async def test_records_without_timestamps_are_as_old_as_their_file(start_broker: StartBroker) -> None:
    broker = await start_broker(log_retention_hours="1")
    client = await Client.connect(broker.port)
    await client.create("t")
    await fill(client, "t", 25, -1)
    assert len(broker.groups[1].log.segments()) >= 2
    assert await broker.enforce_retention() == 0
    assert [r.offset for r in records_of(await client.fetch("t", 0))][:1] == [0]
    # An hour later the sealed files are old enough, the newest one never is.
    later = int(time.time() * 1000) + 2 * 3_600_000
    assert await Retention(broker.assembly.cluster, broker.clock_ms).enforce(later) == 1
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    assert 10 <= partition.log.log_start_offset < 25
    await client.close()


async def test_everything_may_be_too_old(broker: Broker, client: Client) -> None:
    await client.create("t", retention_ms="1000")
    await client.produce("t", batch(b"a", b"b", timestamp_ms=5))
    assert await broker.enforce_retention() == 1
    fetched = await client.fetch("t", 2)
    assert (fetched.log_start_offset, fetched.high_watermark) == (2, 2)
    assert (await client.produce("t", batch(b"c"))).base_offset == 2


@pytest.mark.parametrize("call", [1, 2])
async def test_a_join_beside_the_look_at_sizes_deletes_nothing(
    call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A joined file counts with what lies below the log start of a partition: sizes are of one moment."""
    log, _, _ = small_segments(16, SimulatedFileSystem())
    start = [share for segment in log.segments() for share in segment.partitions() if share.local_id == 1][9]
    limit = log.partition_bytes(1, start.first_offset)
    config = SimpleNamespace(cleanup_policy="delete", retention_ms=-1, retention_bytes=limit)
    partition_log = SimpleNamespace(local_id=1, log_start_offset=start.first_offset, high_watermark=100)
    group = SimpleNamespace(group_id=1, is_leader=True, log=log, free_deleted_segments=lambda: 0)
    partition = SimpleNamespace(group=group, log=partition_log, topic=SimpleNamespace(config=config))
    topic = SimpleNamespace(config=config, partitions=[partition])
    cluster = SimpleNamespace(topics=lambda: [topic], groups={1: group})
    calls = 0

    async def to_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            assert log.join() == 15
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    assert await Retention(cast("MetadataCache", cluster), lambda: 0).enforce(0) == 0


async def test_by_size_end_to_end(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t", retention_bytes="1000000")
    await fill(client, "t", 45, int(time.time() * 1000))
    assert await broker.enforce_retention() == 1
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    left = partition.log.high_watermark - partition.log.log_start_offset
    assert 10 <= left <= 22  # at least the limit, at most two log files more


async def test_a_deleted_topics_files_are_freed(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    await fill(client, "t", 45, int(time.time() * 1000))
    log = broker.groups[1].log
    assert len(log.segments()) >= 4
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    await client.create("u")
    # Rolls bring later checkpoints, below which files may go, however slow the disk is.
    for _ in range(20):
        await fill(client, "u", 12, int(time.time() * 1000))
        await asyncio.sleep(0.1)
        await broker.enforce_retention()
        if min(segment.sequence for segment in log._table) > 4:
            break
    assert min(segment.sequence for segment in log._table) > 4


async def test_metadata_does_not_pile_up(start_broker: StartBroker) -> None:
    broker = await start_broker()
    topics = broker.assembly.topics
    kept = await topics.create(topics.plan("kept", 2, 1, {}))
    for number in range(40):
        gone = TopicEntry(f"gone{number}", bytes([number]) * 16, [1] * 50_000, {}, TopicState.CREATING)
        await topics.record([create_command(gone)])
        await topics.record([delete_command(gone.topic_id), deleted_command(gone.topic_id)])
    checkpointer = broker.groups[0]._replica.checkpointer
    await until(lambda: checkpointer.under_way is None, 60)
    log = broker.groups[0].log
    before = len(log.segments())
    assert before >= 2
    await broker.enforce_retention()
    assert len(log.segments()) < before
    index = log.last_index
    assert await broker.enforce_retention() == 0
    assert log.last_index == index  # nothing more to forget, so nothing is written
    await broker.stop()
    again = await start_broker()
    topic = again.assembly.cluster.topic("kept")
    assert topic is not None
    assert topic.topic_id == kept.topic_id
    assert len(again.assembly.cluster.image.topics) == 1


async def test_it_goes_on_after_a_failure(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    async def fail(now_ms: int) -> int:
        tried.append(now_ms)
        raise ValueError("the group was given up")

    retention = broker.assembly.retention
    monkeypatch.setattr(retention, "enforce", fail)
    running = asyncio.ensure_future(retention.run(0.01))
    await until(lambda: len(tried) > 1, 60)
    assert not running.done()
    running.cancel()


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_group_without_room_holds_up_no_other_and_no_freeing(
    broker: Broker,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_refused: bool,
) -> None:
    monkeypatch.setattr("lockstep.broker.maintenance.retention.COMMIT_SECONDS", 0.05)
    now = int(time.time() * 1000)
    await client.create("old", retention_ms="1000")
    await client.produce("old", batch(b"old", timestamp_ms=now - 60_000))
    freed: list[int] = []

    async def no_room(starts: object) -> None:
        if is_refused:
            raise StorageFull("not even for this")
        await asyncio.Event().wait()  # the followers have none

    def free(number: int) -> int:
        freed.append(number)
        return 0

    for number, group in broker.groups.items():
        monkeypatch.setattr(group, "advance_log_starts", no_room)
        monkeypatch.setattr(group, "free_deleted_segments", partial(free, number))
    await broker.enforce_retention()
    why = "not even for this" if is_refused else "no majority commits it"
    assert f"group 1: retention is delayed: {why}" in caplog.text
    assert sorted(freed) == sorted(broker.groups)


async def test_a_log_that_cannot_be_read_holds_up_no_other_topic(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(log_retention_hours="1")
    client = await Client.connect(broker.port)
    now = int(time.time() * 1000)
    for name in ("bad", "old"):
        await client.create(name)
        await client.produce(name, batch(b"old", timestamp_ms=now - 2 * 3_600_000))

    def rotten(partition: Partition, now_ms: int, retention_ms: int) -> BatchLocation | None:
        if partition.topic.name == "bad":
            raise CorruptLog("its index cannot be made again")
        return first_kept_by_time(partition, now_ms, retention_ms)

    monkeypatch.setattr("lockstep.broker.maintenance.retention.first_kept_by_time", rotten)
    assert await broker.enforce_retention() == 1
    assert "bad-0: retention is delayed: its index cannot be made again" in caplog.text
    await client.close()


async def test_a_record_of_the_future_that_delays_retention_is_logged_once(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA-18929: nothing behind it is removed by time, and nobody was told why."""
    broker = await start_broker(log_retention_hours="1")
    client = await Client.connect(broker.port)
    await client.create("t", message_timestamp_after_max_ms=str(10**12))
    await client.create("skewed")
    now = int(time.time() * 1000)
    await client.produce("t", batch(b"old", timestamp_ms=5))
    await client.produce("t", batch(b"of the future", timestamp_ms=now + 5_000_000))
    await client.produce("t", batch(b"old", timestamp_ms=5))
    await client.produce("skewed", batch(b"of the next second", timestamp_ms=now + 1_000))
    for _ in range(3):
        await broker.enforce_retention()
    assert (await client.fetch("t", 1)).log_start_offset == 1
    told = [each.getMessage() for each in caplog.records if "is blocked at" in each.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("t-0: retention by time is blocked at offset 1 by a record with a timestamp ")
    assert "message.timestamp.after.max.ms=1000000000000" in told[0]
    await client.close()
