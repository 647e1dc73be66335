"""The append path: what is refused, with which error, and that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from broker.append import Appender
from broker.producer_state import ProducerState
from broker.refused import Refused
from protocol.errors import ErrorCode
from protocol.records.batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_of,
    read_header,
    verify,
)
from protocol.records.compression import Codec
from protocol.records.record import BatchBuilder, iter_records
from storage.group import Backlogged, GroupOptions, LogGroup
from storage.log.options import LogOptions
from storage.partition import PartitionLog
from storage.types import StorageFull

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Limits:
    max_message_bytes: int = 100_000
    log_append_time: bool = False
    timestamp_before_max_ms: int = 1 << 62
    timestamp_after_max_ms: int = HOUR_MS


LIMITS = Limits()


class World:
    """One group, one partition, the append path into it."""

    def __init__(self, group: LogGroup, partition: PartitionLog, producers: ProducerState) -> None:
        self.group = group
        self.partition = partition
        self.producers = producers
        self.appender = Appender(group, producers, lambda: NOW_MS)

    def append(self, data: bytes, limits: Limits = LIMITS, produce_version: int = 9) -> int:
        return self.appender.append(self.partition, data, limits, produce_version).base_offset

    def refuse(self, data: bytes, error: ErrorCode, limits: Limits = LIMITS, produce_version: int = 9) -> str:
        end, producers = self.partition.next_offset, self.producers.snapshot(NOW_MS)
        with pytest.raises(Refused) as refused:
            self.append(data, limits, produce_version)
        assert refused.value.error is error
        assert (self.partition.next_offset, self.producers.snapshot(NOW_MS)) == (end, producers)
        return refused.value.message


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    producers = ProducerState(HOUR_MS * 24)
    group = await LogGroup.open(
        tmp_path,
        GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20)),
        clock_ms=lambda: NOW_MS,
        on_fatal=lambda error: None,
        tail_machines={"producers": producers},
    )
    (partition,) = await group.open_partitions([(bytes(range(16)), 0)])
    yield World(group, partition, producers)
    await group.close()


def batch(
    *values: bytes,
    codec: Codec = Codec.NONE,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    builder = BatchBuilder(
        codec=codec, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )
    for value in values or (b"value",):
        builder.append(timestamp_ms=timestamp_ms, key=None, value=value)
    return bytearray(builder.build())


def changed(data: bytearray, **fields: int) -> bytes:
    """The batch with header fields changed and its checksum right again."""
    header = read_header(data)
    for name, value in fields.items():
        setattr(header, name, value)
    data[:61] = header.pack()
    header.crc = crc_of(data, 0, len(data))
    data[:61] = header.pack()
    return bytes(data)


async def test_offsets_follow_and_the_sender_keeps_its_buffer(world: World) -> None:
    data = bytes(batch(b"a", b"b"))
    assert world.append(data) == 0
    assert world.append(memoryview(data)) == 2  # type: ignore[arg-type]
    assert read_header(data).base_offset == 0
    await world.group.committed()
    stored = world.group.read(world.partition, 2, 1 << 20).buffers[0]
    header = read_header(stored)
    verify(stored, 0, header)
    assert (header.base_offset, header.leader_epoch) == (2, world.group.leader_epoch(world.partition))
    assert [bytes(record.value or b"") for record in iter_records(stored)] == [b"a", b"b"]


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec_is_stored_unopened(world: World, codec: Codec) -> None:
    assert world.append(bytes(batch(b"a" * 100, codec=codec))) == 0


async def test_what_is_not_one_good_batch_is_refused(world: World) -> None:
    good = bytes(batch())
    world.refuse(good[:40], ErrorCode.INVALID_RECORD)
    world.refuse(good[:-1], ErrorCode.INVALID_RECORD)
    world.refuse(b"\0" * 7 + b"\7" + good[8:], ErrorCode.INVALID_RECORD)
    world.refuse(good + good, ErrorCode.INVALID_RECORD)
    world.refuse(good[:-1] + bytes([good[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE)
    for magic in (0, 1):
        world.refuse(good[:16] + bytes([magic]) + good[17:], ErrorCode.INVALID_RECORD)
    world.refuse(good[:16] + b"\x03" + good[17:], ErrorCode.CORRUPT_MESSAGE)
    assert world.append(good) == 0


async def test_headers_that_lie_are_refused(world: World) -> None:
    world.refuse(changed(batch(), record_count=2), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), record_count=0), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), last_offset_delta=4), ErrorCode.INVALID_RECORD)
    tiny = batch(b"", b"")
    world.refuse(changed(tiny, record_count=3, last_offset_delta=2), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), attributes=CONTROL_FLAG), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), attributes=TRANSACTIONAL_FLAG), ErrorCode.INVALID_TXN_STATE)
    for codec in (5, 6, 7):
        world.refuse(changed(batch(), attributes=codec), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    world.refuse(changed(batch(), producer_id=5), ErrorCode.INVALID_RECORD)


async def test_batches_that_claim_billions_of_records_end_nothing(world: World) -> None:
    """What is compressed is not opened, so its count is believed; a frame's count has four bytes."""
    claim = changed(batch(codec=Codec.GZIP), record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    assert [world.append(claim) for _ in range(4)] == [place * (2**31 - 1) for place in range(4)]
    await world.group.committed()
    assert world.partition.high_watermark == 4 * (2**31 - 1)
    assert world.group.log.next_lsn == 2 + 4 * (2**31 - 1)


async def test_zstd_needs_a_produce_version_that_knows_it(world: World) -> None:
    data = bytes(batch(codec=Codec.ZSTD))
    world.refuse(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, produce_version=6)
    assert world.append(data, produce_version=7) == 0


async def test_the_size_limit_is_the_topics(world: World) -> None:
    data = bytes(batch(b"x" * 1000))
    assert "max.message.bytes" in world.refuse(
        data, ErrorCode.MESSAGE_TOO_LARGE, Limits(max_message_bytes=len(data) - 1)
    )
    assert world.append(data, Limits(max_message_bytes=len(data))) == 0


async def test_timestamps_are_bounded_or_replaced(world: World) -> None:
    world.refuse(bytes(batch(timestamp_ms=NOW_MS + HOUR_MS + 1)), ErrorCode.INVALID_TIMESTAMP)
    assert world.append(bytes(batch(timestamp_ms=NOW_MS + HOUR_MS))) == 0
    world.refuse(
        bytes(batch(timestamp_ms=NOW_MS - 11)),
        ErrorCode.INVALID_TIMESTAMP,
        Limits(timestamp_before_max_ms=10),
    )
    assert world.append(bytes(batch(timestamp_ms=-1))) == 1
    stamped = world.appender.append(
        world.partition, bytes(batch(timestamp_ms=5)), Limits(log_append_time=True), 9
    )
    assert (stamped.base_offset, stamped.log_append_time_ms) == (2, NOW_MS)
    await world.group.committed()
    stored = world.group.read(world.partition, 2, 1 << 20).buffers[0]
    verify(stored, 0, read_header(stored))
    assert [record.timestamp for record in iter_records(stored)] == [NOW_MS]


async def test_a_producer_does_not_choose_whose_clock_counts(world: World) -> None:
    claimed = changed(batch(timestamp_ms=NOW_MS), attributes=LOG_APPEND_TIME_FLAG)
    assert world.append(claimed) == 0
    await world.group.committed()
    stored = world.group.read(world.partition, 0, 1 << 20).buffers[0]
    verify(stored, 0, read_header(stored))
    assert not read_header(stored).is_log_append_time


def idempotent(sequence: int, producer_epoch: int = 0) -> bytes:
    return bytes(batch(producer_id=9, producer_epoch=producer_epoch, base_sequence=sequence))


async def test_a_batch_sent_again_is_found_and_not_appended(world: World) -> None:
    assert [world.append(idempotent(0)), world.append(idempotent(1))] == [0, 1]
    assert world.append(idempotent(0)) == 0
    assert world.partition.next_offset == 2
    world.refuse(idempotent(3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert world.append(idempotent(0, producer_epoch=1)) == 2
    world.refuse(idempotent(2), ErrorCode.INVALID_PRODUCER_EPOCH)


async def test_a_clock_set_back_makes_no_producer_expire(tmp_path: Path) -> None:
    """After a frame of the future the log's time stays there; what is appended then is not older."""
    producers, now_ms = ProducerState(HOUR_MS * 24), [NOW_MS + 72 * HOUR_MS]
    group = await LogGroup.open(
        tmp_path,
        GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20)),
        clock_ms=lambda: now_ms[0],
        on_fatal=lambda error: None,
        tail_machines={"producers": producers},
    )
    (partition,) = await group.open_partitions([(bytes(range(16)), 0)])
    now_ms[0] = NOW_MS
    appender = Appender(group, producers, lambda: now_ms[0])
    data = bytes(batch(producer_id=5, producer_epoch=0, base_sequence=0))
    assert appender.append(partition, data, LIMITS, 9).base_offset == 0
    await group.close()  # cuts a checkpoint, which forgets the expired
    assert producers.count() == 1


async def test_what_storage_refuses_has_a_kafka_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for failure, error in (
        (StorageFull("full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (Backlogged("busy"), ErrorCode.REQUEST_TIMED_OUT),
    ):

        def refuse(
            partition: PartitionLog, data: bytearray, header: BatchHeader, failure: Exception = failure
        ) -> int:
            raise failure

        monkeypatch.setattr(world.group, "append", refuse)
        world.refuse(idempotent(0), error)
        monkeypatch.undo()
    assert world.append(idempotent(0)) == 0
    await world.group.close()
    world.refuse(idempotent(1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
