"""One pass over the partitions of a plain Fetch request, and the bytes of its response.

Owns: which partitions are plain (led here, known, allowed, with an offset within the log and no epoch to be
looked up), and the response of versions 11 to 18 without errors. What is read, and how much, are the rules of
`partition_reads.py`. Invariants: `read` changes nothing; it returns None where one partition is not plain,
its bytes must come from the disk, or the client needs a list of aborted transactions. Does not: know
sessions, or wait (`fetch_fast_path.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from lockstep.broker.fetch.aborted_transactions import aborted_transactions
from lockstep.broker.fetch.fetch_session import FetchItem
from lockstep.broker.fetch.partition_check import PartitionCheck
from lockstep.broker.fetch.partition_reads import ReadLimits, read_from_memory
from lockstep.broker.metadata.leader_epoch_check import NO_EPOCH
from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.protocol.frame_reader import LENGTH_BYTES
from lockstep.protocol.primitives import Buffer, uvarint_bytes

FLEXIBLE_MIN_VERSION: Final = 12
_HEAD: Final = Struct(">iixihi")
"""Length, correlation id, no tags, throttle time, error, session id."""
_OLD_HEAD: Final = Struct(">iiihi")
_PARTITION: Final = Struct(">ihqqqBi").pack
"""Index, error, high watermark, last stable offset, log start offset, transactions, preferred replica."""
_OLD_PARTITION: Final = Struct(">ihqqqii").pack
_SHORT: Final = Struct(">h").pack
_INT: Final = Struct(">i").pack
_NO_REPLICA: Final = -1
_SHORT_VARINTS: Final = [bytes((value,)) for value in range(128)]

Requested = tuple[int, int, int, int]
"""Offset, largest size, leader epoch and last fetched epoch of one partition."""


class Found(NamedTuple):
    """One partition of the response."""

    item: FetchItem
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    buffers: list[Buffer]
    total_bytes: int


class PlainRead(NamedTuple):
    """A pass: the partition objects of all items, what the response names, and the bytes of its records."""

    partitions: list[Partition]
    found: list[Found]
    total: int


def read(
    items: Iterable[FetchItem],
    moved: Mapping[FetchItem, Requested],
    check: PartitionCheck,
    limits: ReadLimits,
    is_incremental: bool,
) -> PlainRead | None:
    """Read the partitions. Args: moved: the offsets that the request changes for some of them."""
    read_committed = limits.read_committed
    allowed_bytes, total = limits.allowed_bytes(), 0
    partitions: list[Partition] = []
    found: list[Found] = []
    for item in items:
        requested = moved.get(item) if moved else None
        offset, item_bytes, leader_epoch, last_fetched_epoch = requested or (
            item.fetch_offset, item.max_bytes, item.current_leader_epoch, item.last_fetched_epoch
        )  # fmt: skip
        partition = item.partition
        if partition is None or partition.topic.deleted:
            partition = check.find_partition(item)
            if partition is None:
                return None
        group, log = partition.group, partition.log
        if (
            not group.is_leader
            or not check.may_read(partition)
            or last_fetched_epoch >= 0
            or (leader_epoch != NO_EPOCH and leader_epoch != group.leader_epoch(log))
            or not log.log_start_offset <= offset <= log.next_offset
        ):
            return None
        partitions.append(partition)
        high_watermark, stable, log_start = log.high_watermark, log.last_stable_offset, log.log_start_offset
        end = stable if read_committed else high_watermark
        buffers: list[Buffer] = []
        size = 0
        if offset < end and (allowed_bytes > total or not total):
            max_bytes = max(0, min(item_bytes, allowed_bytes - total))
            result = read_from_memory(partition, offset, max_bytes, end)
            if result is None:
                return None
            if result.total_bytes and not (total and result.total_bytes > max_bytes):
                buffers, size = list(result.buffers), result.total_bytes
                if read_committed and aborted_transactions(log, offset, buffers):
                    return None
                total += size
        if (
            not is_incremental
            or size
            or high_watermark != item.high_watermark
            or log_start != item.log_start_offset
        ):
            found.append(Found(item, high_watermark, stable, log_start, buffers, size))
    return PlainRead(partitions, found, total)


def encode(
    version: int, correlation_id: int, session_id: int, found: list[Found], read_committed: bool
) -> tuple[list[Buffer], int]:
    """The whole reply, length first, and its size."""
    is_flexible = version >= FLEXIBLE_MIN_VERSION
    count, end = (_compact_count, b"\0") if is_flexible else (_INT, b"")
    head = _HEAD if is_flexible else _OLD_HEAD
    pieces: list[Buffer] = []
    small: list[bytes] = []
    topic_count = 0
    topic: str | bytes | None = None
    for number, (item, high_watermark, stable, log_start, buffers, size) in enumerate(found):
        if item.topic != topic:
            if topic_count:
                small.append(end)
            topic_count += 1
            topic = item.topic
            small += _topic(topic, is_flexible), count(_same_topic(found, number))
        if is_flexible:
            small.append(
                _PARTITION(item.index, 0, high_watermark, stable, log_start, read_committed, _NO_REPLICA)
            )
        else:
            transactions = 0 if read_committed else -1
            small.append(
                _OLD_PARTITION(item.index, 0, high_watermark, stable, log_start, transactions, _NO_REPLICA)
            )
        small.append(count(size))
        if size:
            pieces += b"".join(small), *buffers
            small = []
        small.append(end)
    small.append(end + end if topic_count else end)
    pieces.append(b"".join(small))
    topics = count(topic_count)
    total = sum(map(len, pieces)) + head.size + len(topics)
    start = head.pack(total - LENGTH_BYTES, correlation_id, 0, 0, session_id) + topics
    return [start, *pieces], total


def _compact_count(value: int) -> bytes:
    """A compact array's or string's length."""
    return _SHORT_VARINTS[value + 1] if value < 127 else uvarint_bytes(value + 1)


def _topic(topic: str | bytes, is_flexible: bool) -> bytes:
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    return (_compact_count(len(name)) if is_flexible else _SHORT(len(name))) + name


def _same_topic(found: list[Found], number: int) -> int:
    """The number of partitions from this index on that are of one topic, one after the other."""
    topic, last = found[number].item.topic, number
    while last < len(found) and found[last].item.topic == topic:
        last += 1
    return last - number
