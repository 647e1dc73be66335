"""Limits a micro-batch by bytes, for `maxBytesPerTrigger`, before it is planned.

Owns: reading the headers of record batches on the driver. No broker reports the size of a range of offsets,
so the range is fetched once more than without this limit; nothing of it is decompressed or decoded.

Invariants: a range ends with a batch of the log; all of them stay within the limit, but for one batch of one
partition: a batch is always included. Each partition has its share, and what others leave unused. Sizes
are as stored and sent, compressed where producers compress."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from random import randrange

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse
from lockstep.protocol.records.batch import iter_headers
from spark_connector.connection import BrokerError, ClusterClient
from spark_connector.options import EARLIEST, TopicPartition
from spark_connector.source.positions import offsets_at
from spark_connector.source.range_plan import Offsets, shared_bytes
from spark_connector.source.range_reader import fetch_request, records_of

_FETCH_BYTES = 8 * 1024 * 1024


class PartitionRotation:
    """The order of partitions, by rotation, so that a batch larger than the limit is read eventually."""

    def __init__(self) -> None:
        self._last: TopicPartition | None = None

    def order(self, parts: Iterable[TopicPartition]) -> list[TopicPartition]:
        """All of them, beginning behind the first one of the last call, or at random."""
        ordered = sorted(parts)
        if not ordered:
            return []
        at = randrange(len(ordered)) if self._last is None else bisect_right(ordered, self._last)
        ordered = [*ordered[at:], *ordered[:at]]
        self._last = ordered[0]
        return ordered


def limit_bytes(
    cluster: ClusterClient,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    max_bytes: int,
    *,
    committed: bool,
    rotation: PartitionRotation | None = None,
) -> Offsets:
    """The end of a micro-batch of at most `max_bytes` between `start` and `end`. BrokerError.

    Deleted offsets count as 0 bytes: the tasks report them.

    Args: rotation: of a stream's micro-batches. The first partition may include a batch larger than the
        limit: it would never be read otherwise.
    """
    found = dict(end)
    taken = 0
    shares = shared_bytes(start, end, max_bytes)
    order = sorted(shares) if rotation is None else rotation.order(shares)
    for part in order:
        share = min(shares[part], max_bytes - taken)
        reached, size = start[part], 0
        if share > 0:
            reached, size = _end_within(cluster, part, start[part], end[part], share, committed=committed)
        if size > share and taken:  # its first batch alone is more, and others have moved on
            reached, size = start[part], 0
        found[part] = reached
        taken += size
    for part in order:
        room = max_bytes - taken
        if found[part] < end[part] and room > 0:
            reached, size = _end_within(cluster, part, found[part], end[part], room, committed=committed)
            if size <= room:
                found[part] = reached
                taken += size
    return found


def _end_within(
    cluster: ClusterClient, part: TopicPartition, start: int, end: int, share: int, *, committed: bool
) -> tuple[int, int]:
    """The end, and the bytes up to there: whole batches within `share`, or the first one."""
    position, size = start, 0

    def fetch() -> list[tuple[int, int]]:
        leader = cluster.leader(*part)
        request = fetch_request(
            cluster,
            *part,
            position,
            max_bytes=max(min(share - size, _FETCH_BYTES), 1),
            committed=committed,
            version=leader.version_of(FetchRequest),
        )
        for topic in leader.call(request, FetchResponse).responses:
            for data in topic.partitions:
                if data.error_code:
                    raise BrokerError(data.error_code, f"{part[0]}, partition {part[1]}")
                return [(each.next_offset, each.total_bytes) for _, each in iter_headers(records_of(data))]
        return []

    while position < end and size < share:
        try:
            batches = cluster.retry(fetch)
        except BrokerError as error:
            earliest = _earliest(cluster, part) if error.code == ErrorCode.OFFSET_OUT_OF_RANGE else position
            if earliest <= position:
                return end, size
            position = earliest
            continue
        if not batches:
            return end, size
        for after, batch_bytes in batches:
            if size and size + batch_bytes > share:
                return position, size
            position, size = max(after, position), size + batch_bytes
            if position >= end:
                return end, size
    return min(position, end), size


def _earliest(cluster: ClusterClient, part: TopicPartition) -> int:
    """The present start offset of a partition; -1 where it is unavailable."""
    try:
        return offsets_at(cluster, [part], EARLIEST, committed=False)[part]
    except BrokerError:
        return -1
