"""The reads of one Fetch request: its partitions in order, from memory or the disk, within its limits.

Owns the rule of how much is read: nothing above the high watermark, and for readers of committed records
nothing above the last stable offset; the first batch found comes whatever its size, later ones within the
limits of the request, the partition and the unsent bytes of all clients. Records are never opened. Bytes that
must come from the disk are read on a reader thread, and count as unsent meanwhile.
Does not: check what the client knows (`broker/fetch/partition_check.py`), or wait for more
(`broker/fetch/api/fetch.py`).
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from lockstep.broker.fetch.aborted_transactions import aborted_transactions
from lockstep.broker.fetch.fetch_session import FetchContext, FetchItem
from lockstep.broker.fetch.follower_fetch import is_whole
from lockstep.broker.fetch.partition_check import PartitionCheck
from lockstep.broker.metadata.leader_epoch_check import log_read_failure, read_error
from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.broker.metadata.topic_names import MAX_NAME_CHARACTERS
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.settings.config import Settings
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import PartitionData
from lockstep.protocol.records.batch import empty_batch
from lockstep.storage.types import DamagedBatch, OffsetOutOfRange, ReadResult, StorageError

MAX_UNKNOWN: Final = 100
"""LIMIT. Unknown partitions of a waiting request. With more of them, or one with an impossible topic name,
the response comes at once; Kafka delays it."""
_EMPTY: Final = ReadResult([], 0)


class ReadLimits:
    """The limits of one request.

    Args: max_bytes: of the whole response.
    """

    __slots__ = ("_settings", "_unsent_bytes", "max_bytes", "read_committed")

    def __init__(
        self, max_bytes: int, read_committed: bool, settings: Settings, unsent_bytes: UnsentBytes
    ) -> None:
        self.max_bytes = max_bytes
        self.read_committed = read_committed
        self._settings = settings
        self._unsent_bytes = unsent_bytes

    def allowed_bytes(self, own_bytes: int = 0) -> int:
        """The bytes that the response may have: fewer while other responses are unsent.

        A connection's write buffer is always allowed, so that readers keep a good pace. `own_bytes` of the
        unsent ones are the response's own.
        """
        settings = self._settings
        available = settings.lockstep_unsent_max_bytes - self._unsent_bytes.total + own_bytes
        return min(self.max_bytes, max(available, settings.lockstep_connection_write_buffer_bytes))

    def end_offset(self, partition: Partition) -> int:
        """The end of what this client may read."""
        log = partition.log
        return log.last_stable_offset if self.read_committed else log.high_watermark

    def count_unsent(self, more_bytes: int) -> None:
        """Change the bytes of responses that are under way."""
        self._unsent_bytes.total += more_bytes


class ColdRead(NamedTuple):
    """A read whose bytes must come from the disk."""

    partition: Partition
    item: FetchItem
    data: PartitionData
    end: int


class PartitionReads:
    """One pass over the partitions of a request.

    `found` has the content of each that the response names: a partition without news for the session's client
    is left out.
    """

    __slots__ = (
        "_check", "_counted_bytes", "_has_urgent", "_is_incremental", "_item_count", "_items", "_limits",
        "_unknown_count", "found", "total",
    )  # fmt: skip

    def __init__(self, context: FetchContext, check: PartitionCheck, limits: ReadLimits) -> None:
        self.found: list[tuple[FetchItem, PartitionData]] = []
        self.total = 0
        """The bytes of all records read."""
        self._items = iter(context.items)
        self._item_count = len(context.items)
        self._is_incremental = context.is_incremental
        self._check = check
        self._limits = limits
        self._has_urgent = False
        self._unknown_count = 0
        self._counted_bytes = 0
        """What is counted as unsent."""

    @property
    def is_urgent(self) -> bool:
        """True if the client is to learn of an error or a redirect at once. Unknown partitions end its wait
        only if all are unknown, as in Kafka, or if there are too many."""
        return self._has_urgent or self._unknown_count == self._item_count

    def read(self) -> ColdRead | None:
        """Read what is in memory, up to a partition whose bytes must come from the disk, or all (None)."""
        limits = self._limits
        check, read_committed, is_incremental = self._check.check, limits.read_committed, self._is_incremental
        allowed_bytes = limits.allowed_bytes(self._counted_bytes)
        for item in self._items:
            data = check(item)
            partition = item.partition
            if partition is None or _has_other_content(item, data):
                self._note_urgent(item, data)
            else:
                end = data.last_stable_offset if read_committed else data.high_watermark
                if item.fetch_offset < end and (max_bytes := self._max_bytes(item, allowed_bytes)) >= 0:
                    result = read_from_memory(partition, item.fetch_offset, max_bytes, end)
                    if result is None:
                        return ColdRead(partition, item, data, end)
                    self._take(partition, item, data, result, max_bytes)
            if not is_incremental or item.has_changed(data):
                self.found.append((item, data))
        return None

    async def read_all(self, cold: ColdRead, repair_deadline: float) -> None:
        """Read on from `cold`. Args: repair_deadline: the loop's time until which damage may be repaired.

        Bytes read, and those that may be, count as unsent, as many such reads may run concurrently.
        """
        left: ColdRead | None = cold
        try:
            while left is not None:
                await self._read_cold(left, repair_deadline)
                left = self.read()
        finally:
            self._count(0)

    async def _read_cold(self, cold: ColdRead, repair_deadline: float) -> None:
        partition, item, data, end = cold
        # Other requests have run since the read from memory, and may have left less.
        max_bytes = self._max_bytes(item, self._limits.allowed_bytes(self._counted_bytes))
        if max_bytes >= 0:
            self._count(self.total + max_bytes)
            result, error = await read_from_disk(
                partition, item.fetch_offset, max_bytes, end, repair_deadline
            )
            if error is not ErrorCode.NONE:
                data = self._check.error_data(item, error)
            self._take(partition, item, data, result, max_bytes)
            self._count(self.total)
        if not self._is_incremental or item.has_changed(data):
            self.found.append((item, data))

    def _max_bytes(self, item: FetchItem, allowed_bytes: int) -> int:
        """The bytes to read for `item`; 0 reads one batch; -1 for none, once something was read."""
        left = allowed_bytes - self.total
        return -1 if left <= 0 < self.total else max(0, min(item.max_bytes, left))

    def _take(
        self,
        partition: Partition,
        item: FetchItem,
        data: PartitionData,
        result: ReadResult,
        max_bytes: int,
    ) -> None:
        """Put the batches read into the response, if they fit or are the first ones."""
        if not result.total_bytes or (self.total and result.total_bytes > max_bytes):
            return
        data.records = list(result.buffers)
        if self._limits.read_committed:
            data.aborted_transactions = aborted_transactions(partition.log, item.fetch_offset, result.buffers)
        self.total += result.total_bytes

    def _note_urgent(self, item: FetchItem, data: PartitionData) -> None:
        if item.partition is None:
            self._unknown_count += 1
            if self._unknown_count > MAX_UNKNOWN or len(item.topic) > MAX_NAME_CHARACTERS:
                self._has_urgent = True
        elif data.error_code != ErrorCode.OFFSET_NOT_AVAILABLE:
            # An offset that this follower has not replicated yet may come while the request waits.
            self._has_urgent = True

    def _count(self, unsent_bytes: int) -> None:
        self._limits.count_unsent(unsent_bytes - self._counted_bytes)
        self._counted_bytes = unsent_bytes


def _has_other_content(item: FetchItem, data: PartitionData) -> bool:
    """True if `data` has an error or a redirect, so that no records are read."""
    return bool(data.error_code or item.is_diverging or data.preferred_read_replica >= 0)


def read_from_memory(partition: Partition, offset: int, max_bytes: int, end: int) -> ReadResult | None:
    """Batches from memory or page cache; None where they must come from the disk, or cannot be read."""
    try:
        result = partition.group.read(partition.log, offset, max_bytes, end)
    except (OSError, StorageError):
        return None  # the reader thread gets the same error and reports it
    return None if result.cold else _with_empty_batch(result, offset, end)


def _with_empty_batch(result: ReadResult, offset: int, end: int) -> ReadResult:
    """The result, or an empty batch in its place where no batch is left from the offset to the end: a client
    that reads to the end would otherwise wait there until something newer is written."""
    if result.buffers or result.cold or not offset < end <= result.next_offset:
        return result
    records = empty_batch(offset, end)
    return ReadResult([records], len(records), next_offset=end)


async def read_from_disk(
    partition: Partition, offset: int, max_bytes: int, end: int, repair_deadline: float
) -> tuple[ReadResult, ErrorCode]:
    """Batches read on a reader thread; or nothing, and an error."""
    group = partition.group
    try:
        result = await _read_with_repair(partition, offset, max_bytes, end, repair_deadline)
        if not is_whole(group):  # not any more
            return _EMPTY, ErrorCode.NOT_LEADER_OR_FOLLOWER
        high_watermark = partition.log.high_watermark
        # Below a transaction that is open all may have been cleaned away, or all damaged batches be skipped.
        is_end = offset >= high_watermark or result.next_offset >= end
        if result.buffers or is_end or (end < high_watermark and not result.cold):
            return _with_empty_batch(result, offset, end), ErrorCode.NONE
        problem, error = "the log's file ends before its records", ErrorCode.CORRUPT_MESSAGE
    except OffsetOutOfRange:  # deleted while we waited for the disk
        return _EMPTY, ErrorCode.OFFSET_OUT_OF_RANGE
    except (OSError, StorageError) as failure:
        problem, error = str(failure), read_error(failure)
    if partition.topic.deleted or offset < partition.log.log_start_offset:
        return _EMPTY, ErrorCode.OFFSET_OUT_OF_RANGE
    log_read_failure(partition, f"offset {offset} cannot be read: {problem}")
    return _EMPTY, error


async def _read_with_repair(
    partition: Partition, offset: int, max_bytes: int, end: int, repair_deadline: float
) -> ReadResult:
    """`read_cold`; after damage, once more if read repair succeeds before `repair_deadline` (loop time)."""
    group = partition.group
    try:
        return await group.read_cold(partition.log, offset, max_bytes, end)
    except DamagedBatch as damaged:
        left_s = repair_deadline - asyncio.get_running_loop().time()
        if not await group.read_repair.repair(damaged.sequence, left_s):
            raise
    return await group.read_cold(partition.log, offset, max_bytes, end)
