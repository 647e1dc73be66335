"""Appends without a server: a log group, the append path into it, and batches that it may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lockstep.broker.locks.lock_check import LockChecks
from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.produce.append_result import AppendResult, Unverified, VerificationRequired
from lockstep.broker.produce.appender import Appender, BatchRejected
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_config import LOCKS_IGNORED, LOCKS_KEPT
from lockstep.broker.settings.topic_default_settings import MAX_DECOMPRESSED_BYTES
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import crc_of, read_header
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.partition import PartitionLog

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Limits:
    max_message_bytes: int = 100_000
    max_decompressed_message_bytes: int = MAX_DECOMPRESSED_BYTES
    log_append_time: bool = False
    timestamp_before_max_ms: int = 1 << 62
    timestamp_after_max_ms: int = HOUR_MS
    is_compacted: bool = False
    compression_type: str = "producer"
    lockstep_locks: str = LOCKS_IGNORED


LIMITS = Limits()
LOCKED = Limits(lockstep_locks=LOCKS_KEPT)

ID = "a transactional id"
COMMIT = TxnMarkerEntry(9, 0, 3, True, 1)
ABORT = COMMIT._replace(is_commit=False)


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
        with pytest.raises(RequestError) as refused:
            self.append(data, limits, produce_version)
        assert refused.value.error is error
        assert (self.partition.next_offset, self.producers.snapshot(NOW_MS)) == (end, producers)
        return refused.value.message


class Transactional:
    """One group, two partitions, the append path into them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.producers = ProducerState(1 << 40)
        self.locks = LockTable()

    async def open(self) -> Transactional:
        self.group = await LogGroup.open(
            self.directory,
            GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20)),
            clock_ms=lambda: NOW_MS,
            on_fatal=lambda error: None,
            tail_machines={"producers": self.producers, "locks": self.locks},
        )
        self.appender = Appender(self.group, self.producers, lambda: NOW_MS)
        cluster = SimpleNamespace(metadata_index=1, topic_by_id=lambda _: None)
        self.appender.locks = LockChecks(self.locks, self.group, cast(MetadataCache, cluster))
        if len(self.group.partitions) == 1:
            await self.group.open_partitions([(bytes(range(16)), 0), (bytes(range(16)), 1)])
        self.one, self.two = self.group.partitions[1], self.group.partitions[2]
        return self

    async def replayed(self) -> tuple[Transactional, object]:
        """Another one over what is on the disk, all of it replayed, as there is no checkpoint; and what this
        one knew of producers."""
        await self.group.committed()
        live = self.producers.snapshot(NOW_MS)
        self.group.abandon()
        self.group.log.close()
        return await Transactional(self.directory).open(), live

    def append(
        self,
        partition: PartitionLog,
        sequence: int,
        epoch: int = 0,
        verified: bool = False,
        guard: int | None = None,
        produce_version: int = 9,
        limits: Limits = LIMITS,
    ) -> int:
        """Its base offset."""
        result = self.try_append(partition, sequence, epoch, verified, guard, produce_version, limits)
        assert isinstance(result, AppendResult)
        return result.base_offset

    def try_append(
        self,
        partition: PartitionLog,
        sequence: int,
        epoch: int = 0,
        verified: bool = False,
        guard: int | None = None,
        produce_version: int = 9,
        limits: Limits = LIMITS,
    ) -> AppendResult | Unverified:
        return self.appender.append_transactional(
            partition,
            of_transaction(sequence, epoch),
            limits,
            produce_version,
            ID,
            verified=verified,
            guard=guard,
        )

    def together(self, one: bytes, two: bytes, limits: Limits = LIMITS) -> list[int]:
        """Append one batch to each partition, both or none."""
        result = self.try_together(one, two, limits)
        assert not isinstance(result, BatchRejected)
        return [each.base_offset for each in result]

    def try_together(
        self, one: bytes, two: bytes, limits: Limits = LIMITS
    ) -> list[AppendResult] | BatchRejected:
        wanted = [(self.one, one, limits), (self.two, two, limits)]
        return self.appender.append_atomically(wanted, 9)

    def state(self) -> tuple[object, ...]:
        """What a refusal must not change."""
        snapshots = self.producers.snapshot(NOW_MS), self.locks.snapshot(NOW_MS)
        return self.one.next_offset, self.two.next_offset, *snapshots

    def refuse_together(
        self, error: ErrorCode, guilty: int, one: bytes, two: bytes, limits: Limits = LIMITS
    ) -> None:
        before = self.state()
        result = self.try_together(one, two, limits)
        assert isinstance(result, BatchRejected)
        assert (result.index, result.error.error) == (guilty, error)
        assert self.state() == before

    def refuse_batch(self, error: ErrorCode, data: bytes, limits: Limits = LIMITS) -> None:
        """In partition one."""
        before = self.state()
        with pytest.raises(RequestError) as refused:
            self.appender.append(self.one, data, limits, 9)
        assert refused.value.error is error
        assert self.state() == before

    def refuse(
        self,
        error: ErrorCode,
        partition: PartitionLog,
        sequence: int,
        epoch: int = 0,
        limits: Limits = LIMITS,
    ) -> None:
        with pytest.raises(RequestError) as refused:
            self.append(partition, sequence, epoch, verified=True, limits=limits)
        assert refused.value.error is error

    def guard(self, partition: PartitionLog, sequence: int, epoch: int = 0) -> int:
        """The batch must be verified; with what guard."""
        end, producers = partition.next_offset, self.producers.snapshot(NOW_MS)
        found = self.try_append(partition, sequence, epoch)
        assert isinstance(found, VerificationRequired)
        assert (found.producer_id, found.producer_epoch) == (9, epoch)
        assert (partition.next_offset, self.producers.snapshot(NOW_MS)) == (end, producers)
        return found.guard

    def refuse_end(self, error: ErrorCode, *partitions: PartitionLog, marker: TxnMarkerEntry) -> None:
        ends = [each.next_offset for each in partitions]
        producers = self.producers.snapshot(NOW_MS)
        with pytest.raises(RequestError) as refused:
            self.appender.end_transactions(partitions, marker)
        assert refused.value.error is error
        assert [each.next_offset for each in partitions] == ends
        assert self.producers.snapshot(NOW_MS) == producers


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


def idempotent(sequence: int, producer_epoch: int = 0) -> bytes:
    return bytes(batch(producer_id=9, producer_epoch=producer_epoch, base_sequence=sequence))


def of_transaction(
    sequence: int, epoch: int = 0, transactional: bool = True, producer_id: int = 9
) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    builder.append(timestamp_ms=NOW_MS, key=None, value=b"value")
    return bytearray(builder.build())


def dated(*times_ms: int, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for each in times_ms:
        builder.append(timestamp_ms=each, key=None, value=b"value")
    return bytearray(builder.build())
