"""The way of a group's records into its partition of `__consumer_offsets`.

Owns: `GroupStore`, one per data log group: one append is one record batch (several where they would not
fit), like a producer's, and shares the group commit with whatever else the turn brings. Invariants: `done` is
called exactly once, never before `append` returns, and with NONE only when `state` has the records; whose
records are under way is known, because what is decided from `state` alone is then out of date.
Does not: decide what may be written (handlers and the coordinator do).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from broker.groups.records import Record
from broker.groups.state import GroupsState
from protocol.errors import ErrorCode
from protocol.records.record import key_value_batch
from storage.group import BatchTooLarge, LogGroup
from storage.partition import PartitionLog
from storage.types import NotLeader, StorageError

BATCH_BYTES: Final = 256 << 10
"""Records beyond this go into a batch of their own: readers take whole batches."""

RECORD_OVERHEAD_BYTES: Final = 20
"""At most, besides key and value."""

Done = Callable[[ErrorCode], None]


class GroupStore:
    """Writes records of consumer groups, reads what they came to.

    Args:
        group: the data log group.
        state: what its partitions of `__consumer_offsets` are replayed into.
        partition_of: the partition that holds a group's records; None where there is none here.
        clock_ms: milliseconds since 1970.
    """

    def __init__(
        self,
        group: LogGroup,
        state: GroupsState,
        partition_of: Callable[[str], PartitionLog | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self.group = group
        self.state = state
        self._partition_of = partition_of
        self._clock_ms = clock_ms
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[str, int] = {}
        self.noted: set[bytes] | None = None
        """Keys of what has been appended since this was made a set (`rewriting.py`); None: nobody asks."""

    def time_ms(self) -> int:
        """The time to write into records. Like the log's it never goes back."""
        return max(self._clock_ms(), self.group.time_ms)

    def partition(self, group_id: str) -> PartitionLog | None:
        """The partition that holds a group's records; None where there is none here."""
        return self._partition_of(group_id)

    def is_under_way(self, group_id: str) -> bool:
        """Are records of this group appended that `state` does not have yet?"""
        return group_id in self._under_way

    def append(self, group_id: str, records: Sequence[Record], done: Done) -> None:
        """Write records of one group, in order; `done` gets NONE after the commit, or the error to answer.

        Nothing to write is done at the next commit. After an error some of the records may be there all the
        same: each says what holds, so sending them again is safe.
        """
        partition = self._partition_of(group_id)
        if partition is None:
            self._loop.call_soon(done, ErrorCode.NOT_COORDINATOR)
            return
        try:
            self._append_batches(partition, records)
        except StorageError as error:
            self._loop.call_soon(done, kafka_error(error))
            return
        under_way = self._under_way
        under_way[group_id] = under_way.get(group_id, 0) + 1

        def committed(error: BaseException | None) -> None:
            left = under_way[group_id] - 1
            if left:
                under_way[group_id] = left
            else:
                del under_way[group_id]
            done(ErrorCode.NONE if error is None else ErrorCode.NOT_COORDINATOR)

        self.group.when_committed(committed)

    def _append_batches(self, partition: PartitionLog, records: Sequence[Record]) -> None:
        first = size = 0
        for place, (key, value) in enumerate(records):
            size += len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
            if size > BATCH_BYTES and place > first:
                self._append_batch(partition, records[first:place])
                first, size = place, len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if records:
            self._append_batch(partition, records[first:] if first else records)

    def _append_batch(self, partition: PartitionLog, records: Sequence[Record]) -> None:
        batch, header = key_value_batch(records, self.time_ms())
        self.group.append(partition, batch, header)
        if self.noted is not None:
            self.noted.update(key for key, _ in records)  # of a refused batch nothing is there


def kafka_error(error: StorageError) -> ErrorCode:
    """What a coordinator answers when its append fails. Source: Kafka's CoordinatorOperationExceptionHelper.

    A full disk and a backlog are COORDINATOR_NOT_AVAILABLE, not Kafka's NOT_COORDINATOR: clients ask again
    either way, and this one says why.
    """
    if isinstance(error, NotLeader):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, BatchTooLarge):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
