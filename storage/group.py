"""A log group: the drive loop between callers, the Raft core and the data log.

Appends of one loop turn share one frame, one write and one flush. Invariants: nothing above the commit index
is readable; waiters fire in append order, after the state they wait for is applied; an error that leaves the
disk in doubt is handed to `on_fatal` and the group takes nothing more. Whoever appends also updates the tail
machines (producer state, for one); commit machines change only when their batch is committed. A checkpoint
is cut at one frame: tail machines when it closes, commit machines when it is committed.

It does not validate batches and does not speak to other nodes. Source: specs of LogStore (seed 001), Raft.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from protocol.records.batch import BatchHeader, patch, read_header
from storage import control_partition as control
from storage.derived_state import DerivedState
from storage.log.data_log import DataLog
from storage.log.format import MAX_FRAME_RECORDS, frame_size
from storage.log.options import LogOptions
from storage.partition import PartitionLog
from storage.raft.core import Raft
from storage.raft.term_index import TermIndex
from storage.types import (
    CONTROL_PARTITION,
    Buffer,
    Checkpoint,
    DirectoryEntry,
    Frame,
    FrameKind,
    HardState,
    NotLeader,
    ReadResult,
    StateMachine,
    StorageError,
    StorageFull,
)

Waiter = Callable[[BaseException | None], None]

IDLE_MARKER_SECONDS = 0.008
"""An idle log writes its marker within 10 ms of the last flush."""
IDLE_TIMER_SLACK_SECONDS = 0.001
"""Loops count in milliseconds: a timer may fire a little early."""
SLOW_FLUSH_SECONDS = 0.003
"""A disk whose flushes average longer gets a flusher thread, so that it stalls no heartbeat."""
FAST_FLUSH_SECONDS = 0.0015
FLUSH_AVERAGE_WEIGHT = 0.1
GATHER_LOOKS = 8
"""How often a busy group looks for one more batch before it flushes; each look is one turn of the loop."""
COMMANDS_PER_BATCH = 1000
"""The group's own commands are some 130 bytes each: so many fit a frame of the smallest segments."""


@dataclass(frozen=True)
class GroupOptions:
    """What a group is and where its limits lie."""

    group_id: int
    node_id: int
    log: LogOptions = field(default_factory=LogOptions)
    max_uncommitted_bytes: int = 256 << 20


class Backlogged(StorageError):
    """More is waiting for the disk than the limit allows; try again."""


class BatchTooLarge(StorageError):
    """No frame of this log can hold the batch."""


class LogGroup:
    """One Raft group with one data log, on this node. Make it with `open`."""

    def __init__(
        self,
        log: DataLog,
        options: GroupOptions,
        clock_ms: Callable[[], int],
        commit_machines: Mapping[bytes, tuple[str, StateMachine]],
        tail_machines: Mapping[str, StateMachine],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.group_id = options.group_id
        self.log = log
        self._state = DerivedState(commit_machines, tail_machines)
        self.control = self._state.control
        self.failed: BaseException | None = None
        self.checkpoint_index = log.checkpoint.index if log.checkpoint else 0
        """The newest entry that a flushed checkpoint covers."""
        self._options = options
        self._clock_ms = clock_ms
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix=f"group-{options.group_id}")
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix=f"group-{options.group_id}-flush")
        """A thread of its own: on a slow disk cold reads must not hold up commits."""
        self._recover()
        self.raft = Raft(
            options.node_id, [options.node_id], log.hard_state, self._terms, self._terms.base_index
        )
        self._serving = False
        self._closed_for_good = False
        self._next_lsn = log.next_lsn
        self._next_number = self.control.next_number
        self._max_frame_bytes = log.max_frame_bytes
        # The open frame, and what has been closed but not written.
        self._directory: list[DirectoryEntry] = []
        self._payloads: list[Buffer] = []
        self._partitions: list[PartitionLog] = []
        self._open_bytes = 0
        self._open_records = 0
        self._closed: list[tuple[Frame, list[PartitionLog]]] = []
        self._closed_bytes = 0
        self._open_waiters: list[Waiter] = []
        # Written, not committed.
        self._in_flight: deque[tuple[Frame, list[PartitionLog]]] = deque()
        self._waiters: deque[tuple[int, int, list[Waiter]]] = deque()
        self.after_commit: Callable[[], None] | None = None
        """Called once per commit, after its waiters: whoever gathered their output sends it now."""
        self._turn_scheduled = False
        self._busy = False
        self._gathered = self._looks = 0
        self._flushing = False
        self._flush_seconds = 0.0
        self._flushed_at = 0.0
        self._threaded_flush = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._cut: Checkpoint | None = None
        self._checkpointing: asyncio.Future[None] | None = None

    # --- life ---------------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        directory: Path,
        options: GroupOptions,
        *,
        clock_ms: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
        commit_machines: Mapping[bytes, tuple[str, StateMachine]] | None = None,
        tail_machines: Mapping[str, StateMachine] | None = None,
    ) -> LogGroup:
        """Recover the group in `directory` (made if missing) and lead it in a new term.

        Args:
            commit_machines: topic id to (checkpoint section, machine): what that topic's committed batches
                are replayed into.
            tail_machines: checkpoint section to machine: replayed every batch at recovery; kept up to date by
                whoever appends afterwards.
            on_fatal: called once with the error that ends this group.
        Raises:
            CorruptLog, NewerFormat, StorageFull: as DataLog.open.
        """
        log = DataLog.open(directory, options.group_id, options.log)
        try:
            group = cls(log, options, clock_ms, commit_machines or {}, tail_machines or {}, on_fatal)
            group._elect()
            if group.failed is not None:
                raise group.failed
        except BaseException:
            log.close()
            raise
        log.start_preparing()
        return group

    async def close(self) -> None:
        """Commit what was accepted, write a checkpoint, release the files. A second call does nothing."""
        if self._closed_for_good:
            return
        self._closed_for_good = True
        try:
            if self.failed is None:
                self._serving = False
                await self.committed()
                with contextlib.suppress(StorageFull):  # the next start replays a little more
                    await self._last_checkpoint()
        finally:
            self._serving = False
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._flusher.shutdown(wait=True)
            self._threads.shutdown(wait=True)
            self.log.close()

    async def _last_checkpoint(self) -> None:
        if self._checkpointing is not None:
            await self._checkpointing
        if self.log.last_index > self.checkpoint_index:
            await self._write_checkpoint(self._cut_checkpoint())

    def _recover(self) -> None:
        checkpoint = self.log.checkpoint
        self._state.restore(checkpoint.sections if checkpoint else {})
        self._terms = TermIndex(checkpoint.index, checkpoint.term) if checkpoint else TermIndex()
        self._time_ms = checkpoint.time_ms if checkpoint else 0
        for frame in self.log.replay():
            self._terms.append(frame.index, frame.term)
            self._time_ms = frame.time_ms
            self._state.replay(frame)
        # With log.flush=os a power loss may take back a log start, but not the freeing that followed it.
        for partition in self.control.partitions.values():
            first = self.log.first_offset(partition.number)
            there = partition.next_offset if first is None else first
            partition.log_start_offset = max(partition.log_start_offset, there)

    def _elect(self) -> None:
        self.raft.campaign()
        hard_state = self.raft.ready().hard_state
        assert hard_state is not None
        hard_state = HardState(hard_state.term, hard_state.voted_for, self.log.hard_state.incarnation)
        self.log.save_hard_state(hard_state)
        self.raft.hard_state_persisted(hard_state)
        index = self.raft.ready().no_op_index
        assert index is not None
        no_op = Frame(FrameKind.NO_OP, self.raft.term, index, self._next_lsn, self._now(), [], [], 0)
        self._closed.append((no_op, []))
        self._turn()
        self._serving = self.raft.serving

    def _now(self) -> int:
        self._time_ms = max(self._time_ms, self._clock_ms())
        return self._time_ms

    # --- what callers ask ---------------------------------------------------------------------------------

    @property
    def partitions(self) -> dict[int, PartitionLog]:
        """Open partitions by number, the control partition (0) included."""
        return self.control.partitions

    @property
    def is_leader(self) -> bool:
        return self._serving

    @property
    def time_ms(self) -> int:
        """The newest frame's time. Like the log it never goes back, whatever the clock does."""
        return self._time_ms

    @property
    def term(self) -> int:
        return self.raft.term

    def leader_epoch(self, partition: PartitionLog) -> int:
        """The leader epoch of a partition on the Kafka wire."""
        return self.raft.term + partition.epoch_base

    def append(
        self, partition: PartitionLog, batch: bytearray, header: BatchHeader, *, reserved: bool = False
    ) -> int:
        """Put one validated record batch at the partition's end; returns its base offset.

        Patches base offset and leader epoch into `batch`, which must not be changed afterwards. Durable only
        when a later `when_committed` fires. `reserved` appends may use the space kept for the group's own.

        Raises:
            NotLeader, BatchTooLarge, StorageFull, Backlogged: nothing was appended.
        """
        if not self._serving:
            raise NotLeader(f"group {self.group_id} is not led here")
        size = len(batch)
        count = header.record_count
        if (
            frame_size(len(self._directory) + 1, self._open_bytes + size) > self._max_frame_bytes
            or self._open_records + count > MAX_FRAME_RECORDS
        ):
            self._begin_frame_for(size)
        pending = self._open_bytes + self._closed_bytes + size
        if not self.log.room_for(pending, reserved=reserved):
            raise StorageFull(f"group {self.group_id} has no room for {size} bytes")
        if pending > self._options.max_uncommitted_bytes:
            raise Backlogged(f"group {self.group_id} holds {pending} bytes that wait for the disk")
        base_offset = partition.next_offset
        leader_epoch = self.raft.term + partition.epoch_base
        patch(batch, base_offset, leader_epoch)
        self._directory.append(
            DirectoryEntry(
                partition.number, base_offset, count, size, header.crc, leader_epoch, header.max_timestamp
            )
        )
        self._payloads.append(batch)
        self._partitions.append(partition)
        self._open_bytes += size
        self._open_records += count
        epochs = partition.leader_epochs
        if not epochs or epochs[-1][0] != leader_epoch:
            partition.note_epoch(leader_epoch, base_offset)
        partition.next_offset = base_offset + count
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)
        return base_offset

    def _begin_frame_for(self, batch_bytes: int) -> None:
        """The open frame has no room for a batch of this size: close it. Raises BatchTooLarge."""
        if frame_size(1, batch_bytes) > self._max_frame_bytes:
            raise BatchTooLarge(f"a batch of {batch_bytes} bytes; a frame takes {self._max_frame_bytes}")
        self._close_frame()

    def when_committed(self, waiter: Waiter) -> None:
        """Call `waiter(None)` once everything appended so far is committed, `waiter(error)` if it never is.

        Never calls back before it returns.
        """
        if self.failed is not None:
            self._loop.call_soon(waiter, self.failed)
        elif self._directory or self._closed:
            self._open_waiters.append(waiter)
        elif self._in_flight:
            newest = self._in_flight[-1][0]
            if not self._waiters or self._waiters[-1][0] != newest.index:
                self._waiters.append((newest.index, newest.term, []))
            self._waiters[-1][2].append(waiter)
        else:
            self._loop.call_soon(waiter, None)

    async def committed(self) -> None:
        """Wait until everything appended so far is committed. Raises what ended the group."""
        future: asyncio.Future[None] = self._loop.create_future()

        def settle(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.when_committed(settle)
        await future

    def read(self, partition: PartitionLog, offset: int, max_bytes: int) -> ReadResult:
        """Committed batches from the one that holds `offset`; at least one where there is one.

        `cold` in the answer: not in memory, ask `read_cold`. `max_bytes` bounds all but the first batch.
        """
        return self.log.read(partition.number, offset, max_bytes, partition.high_watermark)

    async def read_cold(self, partition: PartitionLog, offset: int, max_bytes: int) -> ReadResult:
        """`read` on a reader thread, for bytes that must come from the disk."""
        return await self._loop.run_in_executor(
            self._threads,
            self.log.read_cold,
            partition.number,
            offset,
            max_bytes,
            partition.high_watermark,
        )

    # --- the group's own entries --------------------------------------------------------------------------

    async def append_values(self, partition: PartitionLog, values: Sequence[bytes]) -> int:
        """Commit one batch whose records have these values; returns its base offset. Raises as `append`."""
        batch = bytearray(control.encode_values(values, self._now()))
        base_offset = self.append(partition, batch, read_header(batch), reserved=True)
        await self.committed()
        return base_offset

    async def _command(self, commands: Sequence[control.Command]) -> None:
        """Commit commands in order, as many batches as they need."""
        for first in range(0, len(commands), COMMANDS_PER_BATCH):
            values = [control.encode_command(each) for each in commands[first : first + COMMANDS_PER_BATCH]]
            await self.append_values(self.partitions[CONTROL_PARTITION], values)

    async def open_partitions(self, wanted: Sequence[tuple[bytes, int]]) -> list[PartitionLog]:
        """Open a partition for each (topic id, Kafka partition number), in order. Raises as `append`."""
        first = self._next_number
        self._next_number += len(wanted)
        commands = [
            control.open_command(first + place, topic_id, index, 0)
            for place, (topic_id, index) in enumerate(wanted)
        ]
        await self._command(commands)
        return [self.partitions[first + place] for place in range(len(wanted))]

    async def close_partitions(self, numbers: Sequence[int]) -> None:
        """End partitions for good; their records are dead. Raises as `append`."""
        await self._command([control.close_command(number) for number in numbers])

    async def advance_log_starts(self, offsets: Mapping[int, int]) -> None:
        """Delete the records of each partition below its offset. Raises as `append`.

        Raises ValueError for an offset above the high watermark.
        """
        for number, offset in offsets.items():
            if offset > self.partitions[number].high_watermark:
                raise ValueError(f"offset {offset} of partition {number} is not committed")
        await self._command([control.log_start_command(n, offset) for n, offset in offsets.items()])

    def free_dead_segments(self) -> int:
        """Give back segments that hold only deleted records; returns how many."""
        return self.log.free_dead_segments(self.control.log_start)

    # --- the turn: write, flush, commit -------------------------------------------------------------------

    def _close_frame(self) -> None:
        index = self.raft.propose()
        frame = Frame(
            FrameKind.DATA,
            self.raft.term,
            index,
            self._next_lsn,
            self._now(),
            self._directory,
            self._payloads,
            self._open_records,
        )
        self._next_lsn += self._open_records
        self._closed.append((frame, self._partitions))
        self._closed_bytes += self._open_bytes
        self._directory, self._payloads, self._partitions = [], [], []
        self._open_bytes = self._open_records = 0

    def _gathering(self) -> bool:
        """Where the last frame had several batches, look at the sockets again before paying for a flush,
        as long as each look finds more: whoever is about to send joins this frame, not the next."""
        waiting = len(self._directory)
        if not self._busy or waiting <= self._gathered or self._looks >= GATHER_LOOKS:
            return False
        self._gathered = waiting
        self._looks += 1
        return True

    def _turn(self) -> None:
        if self._gathering():
            self._loop.call_soon(self._turn)
            return
        self._turn_scheduled = False
        if self._flushing or self.failed is not None:
            return
        self._gathered = self._looks = 0
        if self._directory:
            self._busy = len(self._directory) > 1
            self._close_frame()
        closed = self._closed
        if not closed:
            return
        try:
            self.log.append([frame for frame, _ in closed])
            if self.log.sealed_since_checkpoint and self._cut is None and self._checkpointing is None:
                self._cut = self._cut_checkpoint()
            if self._open_waiters:
                newest = closed[-1][0]
                self._waiters.append((newest.index, newest.term, self._open_waiters))
                self._open_waiters = []
            self._in_flight.extend(closed)
            self._closed = []
            self._closed_bytes = 0
            if self._threaded_flush:
                self._flushing = True
                flush = self._loop.run_in_executor(self._flusher, self._flush)
                flush.add_done_callback(self._thread_flushed)
            else:
                self._flush()
                self._flushed()
        except Exception as error:
            self._fail(error)

    def _flush(self) -> None:
        started = time.perf_counter()
        self.log.flush()
        taken = time.perf_counter() - started
        self._flush_seconds += (taken - self._flush_seconds) * FLUSH_AVERAGE_WEIGHT

    def _thread_flushed(self, flush: asyncio.Future[None]) -> None:
        self._flushing = False
        error = flush.exception()
        if error is not None:
            self._fail(error)
            return
        try:
            self._flushed()
        except Exception as failure:
            self._fail(failure)
            return
        self._turn()

    def _flushed(self) -> None:
        limit = FAST_FLUSH_SECONDS if self._threaded_flush else SLOW_FLUSH_SECONDS
        self._threaded_flush = self._flush_seconds > limit
        newest = self._in_flight[-1][0]
        self.raft.persisted(newest.index, newest.term)
        self._commit(self.raft.commit_index)
        self._flushed_at = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(IDLE_MARKER_SECONDS, self._idle)

    def _commit(self, commit_index: int) -> None:
        in_flight = self._in_flight
        moved: dict[PartitionLog, None] = {}
        while in_flight and in_flight[0][0].index <= commit_index:
            frame, partitions = in_flight.popleft()
            payloads = frame.payloads
            for place, entry in enumerate(frame.directory):
                partition = partitions[place]
                partition.high_watermark = entry.base_offset + entry.record_count
                if partition.machine is not None:
                    self._state.commit(partition, entry, payloads[place], frame.time_ms)
                moved[partition] = None
            if self._cut is not None and self._cut.index == frame.index:
                self._write_checkpoint(self._cut)
        waiters = self._waiters
        while waiters and waiters[0][0] <= commit_index:
            for waiter in waiters.popleft()[2]:
                waiter(None)
        for partition in moved:
            for listener in partition.on_advance:
                listener()
        if self.after_commit is not None:
            self.after_commit()

    def _idle(self) -> None:
        self._idle_timer = None
        if self.failed is not None or self._closed_for_good or self._flushing:
            return  # the end of a flush starts the timer again
        left = self._flushed_at + IDLE_MARKER_SECONDS - self._loop.time()
        if left > IDLE_TIMER_SLACK_SECONDS:
            self._idle_timer = self._loop.call_later(left, self._idle)
            return
        try:
            self.log.idle()
        except Exception as error:
            self._fail(error)

    def _cut_checkpoint(self) -> Checkpoint:
        """The state that follows the appended log, as of the last frame; no append may be open."""
        log, time_ms = self.log, self._time_ms
        return Checkpoint(
            log.last_index, log.last_term, log.next_lsn, log.chain, time_ms, self._state.cut(time_ms)
        )

    def _write_checkpoint(self, cut: Checkpoint) -> asyncio.Future[None]:
        """Add the state that follows the commit, which has just reached the cut, and write it all."""
        self._cut = None
        self._state.complete(cut.sections, self._time_ms)
        written = self._loop.run_in_executor(self._threads, self.log.write_checkpoint, cut)
        written.add_done_callback(lambda done: self._checkpointed(done, cut.index))
        self._checkpointing = written
        return written

    def _checkpointed(self, done: asyncio.Future[None], index: int) -> None:
        self._checkpointing = None
        error = done.exception()
        if error is None:
            self.checkpoint_index = index
            self.raft.checkpointed(index)
        elif not isinstance(error, StorageFull):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the group: nobody is told that an append succeeded, and nothing more is taken."""
        if self.failed is not None:
            return
        self.failed = error
        self._serving = False
        lost = NotLeader(f"group {self.group_id} ended: {error}")
        pending = [waiter for _, _, waiters in self._waiters for waiter in waiters] + self._open_waiters
        self._waiters.clear()
        self._open_waiters = []
        for waiter in pending:
            waiter(lost)
        self._on_fatal(error)
