"""The source inside a broker: the log is read where it is led, from memory, woken by the commit itself.

Owns: reading one partition's committed batches through the objects that the broker serves its clients from.
Invariants: nothing at or above the last stable offset is read; waiting readers are woken by the waiters of
long-poll Fetches, never by polling; bounds are read only under the leader's lease, when no other node can
have committed more. A source is of one topic id, and of the time that this node leads: after that every call
raises `NotLeading`, and the next leader continues.
Does not: copy batches (but for the disk's), or choose the player (`lockstep/player_host/local_players.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from lockstep.broker.fetch.aborted_transactions import aborted_transactions
from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.player.core.messages import Entry
from lockstep.player.source.batch_entries import split_into_entries
from lockstep.player.source.interface import LogBounds, LogChunk, RangeLost, SourceClosed
from lockstep.player.source.log_id import log_id
from lockstep.storage.types import Buffer, DamagedBatch, OffsetOutOfRange, ReadResult, StorageError

log = logging.getLogger("lockstep.player")

LEASE_POLL_INTERVAL_SECONDS: Final = 0.02
"""The lease of a leader that was delayed comes back with the next response of its followers."""
UNREADABLE_SECONDS: Final = 1.0
"""The pause before an unreadable part of the log is read again: another node may repair it."""


class NotLeading(SourceClosed):
    """This node does not lead the partition, or may not: there is nothing more to be read here."""


class InProcessSource:
    """One partition that this node leads. See `lockstep.player.source.interface.Source`.

    Args:
        partition: one of a topic that clients can see; of this very topic, not of its name.
    """

    log_group = None

    def __init__(self, cluster: MetadataCache, fetch_purgatory: FetchPurgatory, partition: Partition) -> None:
        self._fetch_purgatory = fetch_purgatory
        self._cluster = cluster
        self._partition = partition
        self._group = partition.group
        self._term = partition.group.term
        self._closed = False

    @property
    def log_id(self) -> str:
        partition = self._partition
        return log_id(self._cluster.cluster_id or "", partition.topic.topic_id, partition.index)

    @property
    def topic(self) -> str:
        return self._partition.topic.name

    @property
    def partition(self) -> int:
        return self._partition.index

    @property
    def is_over(self) -> bool:
        """True if every call raises SourceClosed from now on."""
        group = self._group
        is_led = group is self._partition.group and group.is_leader and group.term == self._term
        return self._closed or self._partition.topic.deleted or not is_led

    async def bounds(self) -> LogBounds:
        """Same as `Source.bounds`; waits for the leader's lease. Raises SourceClosed, NotLeading."""
        while True:
            self._check()
            if self._group.has_lease:
                found = self._partition.log
                return LogBounds(found.log_start_offset, found.last_stable_offset)
            await asyncio.sleep(LEASE_POLL_INTERVAL_SECONDS)

    async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
        """Same as `Source.read`. Raises RangeLost, SourceClosed, NotLeading."""
        self._check()
        if first_position >= self._partition.log.last_stable_offset:
            await self._growth(first_position, wait_s)
            self._check()
        found = self._partition.log
        if first_position < found.log_start_offset:
            raise RangeLost(found.log_start_offset)
        end = found.last_stable_offset
        if first_position >= end:
            return LogChunk((), first_position - 1)
        try:
            result = self._group.read(found, first_position, max_bytes, end)
            if result.cold:
                result = await self._from_disk(first_position, max_bytes, end)
        except (OSError, StorageError) as error:
            return await self._unreadable(first_position, error)
        if not result.buffers:
            return LogChunk((), end - 1)  # compaction took all of it
        return self._cut(result.buffers, first_position)

    async def close(self) -> None:
        """Ends what is under way with SourceClosed."""
        self._closed = True
        self._fetch_purgatory.wake(self._partition)

    # --- private ------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raises SourceClosed or NotLeading where nothing may be read here any more."""
        if not self.is_over:
            return
        topic = self._partition.topic
        if topic.deleted:
            raise SourceClosed(f"topic {topic.name} was deleted")
        if self._closed:
            raise SourceClosed(f"{topic.name}-{self.partition} is not read any more")
        raise NotLeading(f"{topic.name}-{self.partition} is not led here any more")

    async def _growth(self, position: int, wait_s: float) -> None:
        """Wait until something from `position` on is stable, the source is over, or the time."""
        partition = self._partition
        grown: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def attempt(expired: bool) -> bool:
            if not expired and not self.is_over and partition.log.last_stable_offset <= position:
                return False
            if not grown.done():
                grown.set_result(None)
            return True

        waiting = self._fetch_purgatory.wait(attempt, [partition], int(wait_s * 1000))
        try:
            await grown
        finally:
            self._fetch_purgatory.cancel(waiting)

    async def _from_disk(self, position: int, max_bytes: int, end: int) -> ReadResult:
        found = self._partition.log
        try:
            result = await self._group.read_cold(found, position, max_bytes, end)
        except DamagedBatch as damaged:
            if not await self._group.read_repair.repair(damaged.sequence, UNREADABLE_SECONDS):
                raise
            result = await self._group.read_cold(found, position, max_bytes, end)
        if result.cold:
            raise OSError(f"{self.topic}-{self.partition}: the file ends before offset {position}")
        self._check()
        if position < found.log_start_offset:  # the record of aborts below it may be deleted
            raise OffsetOutOfRange(f"offset {position} was deleted")
        return result

    async def _unreadable(self, position: int, error: OSError | StorageError) -> LogChunk:
        """Returns or raises the outcome of a failed read."""
        self._check()
        first = self._partition.log.log_start_offset
        if position < first:
            raise RangeLost(first) from error
        log.error("%s-%d: offset %d cannot be read: %s", self.topic, self.partition, position, error)
        await asyncio.sleep(UNREADABLE_SECONDS)
        return LogChunk((), position - 1)

    def _cut(self, buffers: Sequence[Buffer], position: int) -> LogChunk:
        entries: list[Entry] = []
        for buffer in buffers:
            aborted = aborted_transactions(self._partition.log, position, [buffer])
            chunk = split_into_entries(buffer, position, aborted)
            entries += chunk.entries
            position = chunk.through_position + 1
        return LogChunk(entries, position - 1)
