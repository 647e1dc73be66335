"""The append time of a duplicate batch, for topics with log append time.

The time is read from the log, so that producers' state need not have it: only duplicates cost a read. Source:
Kafka's UnifiedLog, which remembers the newest time in each of a producer's last batches, and reports it on
every topic. Here no time is reported where times are the producers' own, as for a new batch: clients take a
reported time for that of each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.broker.produce.producer_state import ProducerState
from lockstep.protocol.records.batch import NO_TIMESTAMP, BatchHeader, MalformedBatch, read_header
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import StorageError

if TYPE_CHECKING:
    from lockstep.storage.log_group import LogGroup


def append_time_of_duplicate(
    group: LogGroup,
    producers: ProducerState,
    partition: PartitionLog,
    duplicate: BatchHeader,
    base_offset: int,
) -> int:
    """The log append time, in milliseconds, of the batch at `base_offset`; -1 where it has its producer's.

    A batch that cannot be read here (not committed yet, only on the disk, compacted away) gets the log's time
    at its producer's newest batch, which came soon after it or is it.

    Args:
        duplicate: the header that the batch has now that it was sent again.
    """
    try:
        for batch in group.read(partition, base_offset, 1).buffers:
            stored = read_header(batch)
            if stored.base_offset == base_offset:
                return stored.max_timestamp if stored.is_log_append_time else NO_TIMESTAMP
    except (OSError, StorageError, MalformedBatch):
        pass  # its readers get the error
    producer = producers.find(partition.local_id, duplicate.producer_id)
    return NO_TIMESTAMP if producer is None else producer.last_time_ms
