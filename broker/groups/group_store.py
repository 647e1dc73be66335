"""The way of a group's records into its partition of `__consumer_offsets`.

Owns: `GroupStore`, one per data log group: one append is one record batch (several where they would not
fit), like a producer's, and shares the group commit with whatever else the turn brings. Invariants: `done` is
called exactly once, never before `append` returns, and with NONE only when `state` has the records; whose
records are under way is known, because what is decided from `state` alone is then out of date; nothing of
this is left of a leadership that is over (`resign`).
Does not: decide what may be written (handlers and the coordinator do; of transactions the log group's
append path), or follow the leadership (`broker/coordination/`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from lockstep.broker.groups.group_records import Record
from lockstep.broker.groups.group_state import GroupsState
from lockstep.broker.process.log_text import printable
from lockstep.broker.produce.append_result import Unverified
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import BatchHeader
from lockstep.protocol.records.record import key_value_batch
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import BatchTooLarge, NotLeader, StorageError

log = logging.getLogger("lockstep.groups")

BATCH_BYTES: Final = 256 << 10
"""Records beyond this go into a batch of their own: readers take whole batches."""

RECORD_OVERHEAD_BYTES: Final = 20
"""At most, besides key and value."""

Done = Callable[[ErrorCode], None]
AppendBatch = Callable[[PartitionLog, Sequence[Record]], Unverified | None]


class OffsetTransaction(NamedTuple):
    """The transaction that a commit is part of, and its coordinator's verification."""

    producer_id: int
    producer_epoch: int
    verified: bool = False
    guard: int | None = None
    """The guard of the `Unverified` result that started the verification."""


class OwnAppender(Protocol):
    """The append path into the log group; `lockstep.broker.produce.appender.Appender`."""

    def append_coordinator_batch(
        self,
        partition: PartitionLog,
        batch: bytearray,
        header: BatchHeader,
        *,
        verified: bool = False,
        guard: int | None = None,
    ) -> int | Unverified:
        """Append a batch of a transaction. Raises RequestError, StorageError."""


class _Write:
    """One append, until its `done` has been called."""

    __slots__ = ("done", "group_id")

    def __init__(self, group_id: str, done: Done) -> None:
        self.group_id = group_id
        self.done = done


class GroupStore:
    """Writes records of consumer groups, reads what they came to.

    Args:
        group: the data log group.
        state: what its partitions of `__consumer_offsets` are replayed into.
        partition_of: the partition that holds a group's records; None where there is none here.
        clock_ms: milliseconds since 1970.
        appender: the append path of what is part of a transaction; None where nothing will be.
    """

    def __init__(
        self,
        group: LogGroup,
        state: GroupsState,
        partition_of: Callable[[str], PartitionLog | None],
        clock_ms: Callable[[], int],
        appender: OwnAppender | None = None,
    ) -> None:
        self.group = group
        self.state = state
        self._partition_of = partition_of
        self._clock_ms = clock_ms
        self._appender = appender
        self._loop = asyncio.get_running_loop()
        self._writes: dict[_Write, None] = {}
        """Those whose outcome is not known yet."""
        self._under_way: dict[str, int] = {}

    def time_ms(self) -> int:
        """The time to write into records. Like the log's it never goes back."""
        return max(self._clock_ms(), self.group.time_ms)

    def clock_ms(self) -> int:
        """The time by which expiration is decided: by the log's time, everything would expire after one frame
        with a future time."""
        return self._clock_ms()

    def partition(self, group_id: str) -> PartitionLog | None:
        """The partition that holds a group's records; None where there is none here."""
        return self._partition_of(group_id)

    def is_under_way(self, group_id: str) -> bool:
        """Are records of this group appended that `state` does not have yet?"""
        return group_id in self._under_way

    def append(self, group_id: str, records: Sequence[Record], done: Done) -> None:
        """Write records of one group, in order; `done` gets NONE after the commit, or the error of the
        response.

        Nothing to write is done at the next commit. After an error some of the records may be there all the
        same: each has the whole state of its key, so appending them again is safe.
        """
        self._write(group_id, records, done, self._append_batch)

    def append_within(
        self, transaction: OffsetTransaction, group_id: str, records: Sequence[Record], done: Done
    ) -> Unverified | None:
        """The same within a transaction: readers of `state` find it when its marker is committed.

        After an `Unverified` result nothing has changed, and `done` is never called.
        """
        return self._write(group_id, records, done, partial(self._append_within, transaction))

    def _write(
        self,
        group_id: str,
        records: Sequence[Record],
        done: Done,
        append_batch: AppendBatch,
    ) -> Unverified | None:
        write = _Write(group_id, done)
        self._writes[write] = None
        partition = self._partition_of(group_id)
        if partition is None or not self.group.is_leader:
            self._loop.call_soon(self._settle, write, ErrorCode.NOT_COORDINATOR)
            return None
        try:
            unverified = _append_batches(partition, records, append_batch)
        except StorageError as error:
            self._loop.call_soon(self._settle, write, kafka_error(error))
            return None
        except RequestError as rejection:
            self._loop.call_soon(self._settle, write, rejection.error)
            return None
        except BaseException:
            del self._writes[write]
            raise
        if unverified is not None:
            del self._writes[write]
            return unverified
        under_way = self._under_way
        under_way[group_id] = under_way.get(group_id, 0) + 1
        self.group.when_committed(lambda error: self._on_commit(write, error))
        return None

    async def committed(self) -> None:
        """Wait until everything appended so far is committed. Raises NotLeader where this node does not lead
        any more.

        Unlike the log group's, which waits for the outcome, this ends as soon as the leadership is lost.
        """
        lost = NotLeader(f"log group {self.group.group_id} is not led here any more")
        if not self.group.is_leader:
            raise lost
        future: asyncio.Future[None] = self._loop.create_future()

        def settle(error: ErrorCode) -> None:
            if future.done():
                return
            if error is ErrorCode.NONE:
                future.set_result(None)
            else:
                future.set_exception(lost)

        write = _Write("", settle)
        self._writes[write] = None
        self.group.when_committed(
            lambda error: self._settle(write, ErrorCode.NONE if error is None else ErrorCode.NOT_COORDINATOR)
        )
        await future

    def resign(self) -> None:
        """Completes the pending writes with an error: the leadership is lost, and the next leader knows their
        outcome."""
        writes, self._writes, self._under_way = self._writes, {}, {}
        for write in writes:
            try:
                write.done(ErrorCode.NOT_COORDINATOR)
            except Exception:  # the others get their responses all the same
                log.exception("group %s: a response failed", printable(write.group_id))

    def _on_commit(self, write: _Write, error: BaseException | None) -> None:
        if write not in self._writes:
            return  # it got its response when the leadership was lost
        left = self._under_way[write.group_id] - 1
        if left:
            self._under_way[write.group_id] = left
        else:
            del self._under_way[write.group_id]
        self._settle(write, ErrorCode.NONE if error is None else ErrorCode.NOT_COORDINATOR)

    def _settle(self, write: _Write, error: ErrorCode) -> None:
        if write in self._writes:
            del self._writes[write]
            write.done(error)

    def _append_batch(self, partition: PartitionLog, records: Sequence[Record]) -> Unverified | None:
        batch, header = key_value_batch(records, self.time_ms())
        self.group.append(partition, batch, header)
        return None

    def _append_within(
        self, transaction: OffsetTransaction, partition: PartitionLog, records: Sequence[Record]
    ) -> Unverified | None:
        assert self._appender is not None
        producer_id, producer_epoch, verified, guard = transaction
        batch, header = key_value_batch(records, self.time_ms(), (producer_id, producer_epoch))
        result = self._appender.append_coordinator_batch(
            partition, batch, header, verified=verified, guard=guard
        )
        return None if isinstance(result, int) else result


def _append_batches(
    partition: PartitionLog,
    records: Sequence[Record],
    append_batch: AppendBatch,
) -> Unverified | None:
    """Append the records in batches; returns the result of the first one, if it is to be verified."""
    first = size = 0
    for place, (key, value) in enumerate(records):
        size += len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if size > BATCH_BYTES and place > first:
            unverified = append_batch(partition, records[first:place])
            if unverified is not None:
                return unverified
            first, size = place, len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
    if records:
        return append_batch(partition, records[first:] if first else records)
    return None


def kafka_error(error: StorageError) -> ErrorCode:
    """Returns the error response for a failed append. Source: Kafka's CoordinatorOperationExceptionHelper.

    A full disk and a backlog are COORDINATOR_NOT_AVAILABLE, not Kafka's NOT_COORDINATOR: clients retry either
    way, and this error has the reason.
    """
    if isinstance(error, NotLeader):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, BatchTooLarge):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
