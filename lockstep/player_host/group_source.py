"""The source of a log group inside a broker: a topic's partitions there as one log, in the order of LSNs.

Owns: reading a group's committed frames as one log whose positions are LSNs. Invariants: nothing behind the
first undecided batch of a delivered partition is read, so that a transaction's records keep their place among
the others; partitions that are created later are delivered from their first record on, since the group's own
log decides which ones are delivered; bounds are read only under the leader's lease. As with
`InProcessSource`, commits wake waiting readers, and a source is of one topic id and one leadership.
Does not: read from other nodes. What a Fetch brings has offsets, and no LSN.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.player.source.interface import (
    MULTIPLE_PARTITIONS,
    LogBounds,
    LogChunk,
    RangeLost,
    SourceClosed,
    log_name,
)
from lockstep.player.source.log_id import group_log_id
from lockstep.player_host.group_entries import GroupChunk, split_into_entries
from lockstep.player_host.in_process_source import LEASE_POLL_INTERVAL_SECONDS, UNREADABLE_SECONDS, NotLeading
from lockstep.storage.log_group import LogGroup
from lockstep.storage.lsn_reader import LsnFrames, LsnReader
from lockstep.storage.missing_records import has_missing_records, require_none_missing
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import DamagedBatch, StorageError

log = logging.getLogger("lockstep.player")

READ_BYTES: Final = 1 << 20
"""The least bytes of frames in a read, whatever its limit: most of their batches may be other partitions'."""

OTHERS_SECONDS: Final = 30.0
"""The interval at which other partitions' records count as read where no delivered partition has new ones:
each time wakes a player."""


class GroupSource:
    """See the module, and `lockstep.player.source.interface.Source`.

    Args:
        topic: one that clients can see; this very topic, not its name.
        partition_filter: its delivered partitions; None for all there are and will be.
    """

    partition = MULTIPLE_PARTITIONS

    def __init__(
        self,
        cluster: MetadataCache,
        fetch_purgatory: FetchPurgatory,
        topic: Topic,
        group: LogGroup,
        partition_filter: Collection[int] | None = None,
    ) -> None:
        self._fetch_purgatory = fetch_purgatory
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._partition_filter = partition_filter
        self._term = group.term
        self._closed = False
        self._reader = LsnReader(group)
        self._played: dict[int, PartitionLog] = {}
        self._known_number = -1
        """The partitions below this number have been checked."""
        self._rest: tuple[int, Callable[[], bool]] = (0, lambda: True)
        """The position where the main stream found nothing more, and a check whether there is more now."""
        self._rested_at = 0.0
        """The loop time since when the main stream is at that position."""

    @property
    def log_id(self) -> str:
        return group_log_id(self._cluster.cluster_id or "", self._topic.topic_id, self.log_group)

    @property
    def topic(self) -> str:
        return self._topic.name

    @property
    def log_group(self) -> int:
        return self._group.group_id

    @property
    def is_over(self) -> bool:
        """True if every call raises SourceClosed from now on."""
        group = self._group
        is_here = self._cluster.groups.get(group.group_id) is group
        is_led = is_here and group.is_leader and group.term == self._term
        return self._closed or self._topic.deleted or not is_led

    async def bounds(self) -> LogBounds:
        """Same as `Source.bounds`; waits for the leader's lease. Raises SourceClosed, NotLeading."""
        while True:
            self._check()
            if not self._group.has_lease:
                await asyncio.sleep(LEASE_POLL_INTERVAL_SECONDS)
                continue
            logs = self._logs()
            opened = {n: each.transactions for n, each in logs.items() if each.transactions is not None}
            first_open = {n: each.first_open_offset for n, each in opened.items()}
            try:
                end = await self._reader.committed_end()
                undecided = await self._reader.first_of(
                    {number: offset for number, offset in first_open.items() if offset is not None}
                )
                first = await self._first_kept()
            except (OSError, StorageError) as error:
                await self._unreadable("its bounds", error)
                continue
            return LogBounds(first, max(first, end if undecided is None else min(end, undecided)))

    async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
        """Same as `Source.read`. Raises RangeLost, SourceClosed, NotLeading."""
        self._check()
        if wait_s > 0 and not self._has_news(first_position):
            await self._growth(first_position, wait_s)
            self._check()
            if not self._has_news(first_position) and self._now() < self._rested_at + OTHERS_SECONDS:
                return LogChunk((), first_position - 1)
        logs = self._logs()
        stable = self._stable_sum()
        try:
            found = await self._reader.read(first_position, max(max_bytes, READ_BYTES), tuple(logs))
        except (OSError, StorageError) as error:
            await self._unreadable(f"LSN {first_position}", error)
            return LogChunk((), first_position - 1)
        self._check()
        if found.over_gap:
            await self._check_for_deleted(first_position)
            try:
                require_none_missing(self._group.log, logs.values(), first_position)
            except DamagedBatch as error:
                await self._unreadable(f"LSN {first_position}", error)
                return LogChunk((), first_position - 1)
        read_through = max(first_position, found.first_lsn) - 1
        made = split_into_entries(found.frames, first_position, logs, max_bytes, read_through)
        if made.is_deleted and made.through_lsn < first_position:
            await self._check_for_deleted(first_position)
            raise RangeLost(first_position + 1)
        if made.next_index:
            self._reader.note(made.through_lsn + 1, made.next_index)
        if wait_s > 0:
            self._record_rest(found, made, stable)
        return LogChunk(made.entries, made.through_lsn)

    async def close(self) -> None:
        """Ends what is under way with SourceClosed."""
        self._closed = True
        for partition in self._topic.partitions:
            self._fetch_purgatory.wake(partition)

    # --- private ------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raises SourceClosed or NotLeading where nothing may be read here any more."""
        if not self.is_over:
            return
        if self._topic.deleted:
            raise SourceClosed(f"topic {self.topic} was deleted")
        if self._closed:
            raise SourceClosed(f"{log_name(self)} is not read any more")
        raise NotLeading(f"{log_name(self)} is not led here any more")

    def _logs(self) -> dict[int, PartitionLog]:
        """The partitions of the topic in the group's own log: records never come before their partition."""
        control = self._group.control
        if control.next_local_id != self._known_number:
            self._known_number = control.next_local_id
            self._played = {
                number: each
                for number, each in control.partitions.items()
                if each.topic_id == self._topic.topic_id
                and (self._partition_filter is None or each.index in self._partition_filter)
            }
        return self._played

    def _stable_sum(self) -> int:
        """A sum that grows whenever a last stable offset rises."""
        return sum([each.last_stable_offset for each in self._logs().values()])

    def _has_news(self, position: int) -> bool:
        rest, is_new = self._rest
        return position != rest or is_new()

    def _record_rest(self, found: LsnFrames, made: GroupChunk, stable: int) -> None:
        """Records where the main stream found nothing more. `stable`: the sum before the frames were read."""
        undecided, position = made.undecided, made.through_lsn + 1
        if position != self._rest[0]:
            self._rested_at = self._now()
        if undecided is not None:
            self._rest = position, lambda: undecided.is_over
        elif found.is_all and made.is_whole:
            self._rest = position, lambda: self._stable_sum() != stable
        else:
            self._rest = 0, lambda: True

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _growth(self, position: int, wait_s: float) -> None:
        """Wait until there may be something from `position` on, the source is over, or the time."""
        grown: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def attempt(expired: bool) -> bool:
            if not expired and not self.is_over and not self._has_news(position):
                return False
            if not grown.done():
                grown.set_result(None)
            return True

        partitions = [each for each in self._topic.partitions if each.group is self._group]
        waiting = self._fetch_purgatory.wait(attempt, partitions, int(wait_s * 1000))
        try:
            await grown
        finally:
            self._fetch_purgatory.cancel(waiting)

    async def _first_kept(self) -> int:
        """Returns the LSN from which on no record of a delivered partition is deleted. Raises StorageError,
        OSError."""
        log = self._group.log
        starts = {
            number: each.log_start_offset
            for number, each in self._logs().items()
            if not has_missing_records(log, each)  # its LSN is among those of what is missing
        }
        return await self._reader.first_kept(starts)

    async def _check_for_deleted(self, position: int) -> None:
        """Records from `position` on are deleted: raises RangeLost if one was of a delivered partition."""
        while True:
            try:
                first = await self._first_kept()
                break
            except (OSError, StorageError) as error:
                await self._unreadable("where it begins", error)
                self._check()
        if position < first:
            raise RangeLost(first)

    async def _unreadable(self, what: str, error: OSError | StorageError) -> None:
        """Logs what could not be read, and waits before the next try."""
        self._check()
        log.error("%s: %s cannot be read: %s", log_name(self), what, error)
        await asyncio.sleep(UNREADABLE_SECONDS)
