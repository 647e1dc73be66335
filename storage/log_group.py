"""A log group: the API of one Raft group with one data log, on this node.

Appends of one loop iteration share one frame, one write and one flush. Invariants: nothing above the commit
index is readable; waiters fire in append order, after the state they wait for is applied; an error that
leaves the disk in doubt is passed to `on_fatal` and the group accepts nothing more. A caller that appends
also updates the tail machines (producer state, for one); commit machines change only when their batch is
committed. Batches that are lost with the leadership are removed from the tail machines before the next
append.

It does not validate batches; peers, log and core are the replica's. Source: LogStore paper, the Raft paper.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from lockstep.protocol.records.batch import BatchHeader, read_header
from lockstep.storage import control_partition as control
from lockstep.storage import gap_reads
from lockstep.storage.append_codec import Send, no_peers
from lockstep.storage.control_commands import ControlCommands
from lockstep.storage.group_options import GroupOptions, node_of
from lockstep.storage.group_recovery import RecoveredMember, open_member
from lockstep.storage.idle_marker import IdleMarker
from lockstep.storage.log.file_system import FileSystem
from lockstep.storage.log_cleaner import LogCleaner
from lockstep.storage.open_frame import OpenFrame
from lockstep.storage.partition import PartitionLog
from lockstep.storage.plain_appends import PlainAppends
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.raft.messages import Message
from lockstep.storage.read_ahead import ReadAhead
from lockstep.storage.read_index import ReadIndex
from lockstep.storage.read_repair import ReadRepair
from lockstep.storage.replica import Replica
from lockstep.storage.segment_sealer import SegmentSealer
from lockstep.storage.served_leadership import ServedLeadership
from lockstep.storage.state_machines import StateMachines
from lockstep.storage.threads import in_thread
from lockstep.storage.types import (
    Backlogged,
    NotLeader,
    ReadResult,
    StateMachine,
    StorageFull,
    WriteFailed,
)
from lockstep.storage.waiter_calls import call_waiters
from lockstep.storage.waiters import OpenWaiters, Waiter, Waiters

__all__ = ["GroupOptions", "LogGroup"]

MAX_GATHER_ITERATIONS = 8
"""The most loop iterations in which a busy group waits for more batches before it flushes."""


class LogGroup:
    """One Raft group with one data log, on this node. Make it with `open`."""

    def __init__(
        self,
        member: RecoveredMember,
        options: GroupOptions,
        state: StateMachines,
        on_fatal: Callable[[BaseException], None],
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        send: Send,
    ) -> None:
        log, self.raft = member.log, member.raft
        self.group_id = options.group_id
        self.log = log
        self.control = state.control
        self._state = state
        self._options = options
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix=f"group-{options.group_id}")
        self._waiters = Waiters(call_waiters)
        self._read_ahead = ReadAhead(self._loop, partial(gap_reads.read, log, wait=False))
        self.open_waiters = OpenWaiters()
        self.after_commit: Callable[[], None] | None = None
        """Called once per commit, after its waiters, to send the output that these gathered."""
        self._leadership = ServedLeadership(options.group_id, self._loop, self._fail_old_waiters)
        self._serve = self._leadership.serve
        self.on_leading = self._leadership.listeners
        """Called each time `is_leader` became True, all before the term being applied, or False. That is as
        soon as the core is drained, in order, none left out: a listener may call the group."""
        self._propose_scheduled = self._busy = False
        self._gathered_count = self._gather_iterations = 0
        self._is_closed = False
        self._notified_index = 0
        self.possible_losses = member.possible_losses
        """Records missing at the beginning of a salvaged log that may have been deleted."""
        self.recovered_index = log.last_index
        """The last entry that the log had when it was opened."""
        self._replica = Replica(
            log, self.raft, state, member.applied_index, self, send, monotonic, clock_ms, self._threads,
            options.kept_entries, options.straight_commit,
        )  # fmt: skip
        self._idle_marker = IdleMarker(self._replica, self._loop)
        self.read_index = ReadIndex(self._replica, self._loop)
        self.sealer = SegmentSealer(self._replica, lambda: not self.has_unproposed_batches)
        self.read_repair = ReadRepair(self._replica, self.sealer)
        self.compaction_progress = self._replica.compaction_progress
        cleaner = LogCleaner(self._replica, self.control, self._loop, self._threads)
        self.clean, self.join_small = cleaner.clean, cleaner.join
        self.installer = self._replica.installer
        self.flusher = self._replica.flusher
        self._open = OpenFrame(log.max_frame_bytes, self._replica.next_time_ms)
        self.plain = PlainAppends(
            self, self._leadership, self._open, self._replica.applier, options.max_uncommitted_bytes
        )
        self._commands = ControlCommands(self.control, self._leadership, self.append_values)
        self.open_partitions = self._commands.open_partitions
        self.close_partitions = self._commands.close_partitions
        self.advance_log_starts = self._commands.advance_log_starts

    # --- lifecycle ----------------------------------------------------------------------------------------

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
        send: Send = no_peers,
        monotonic: Callable[[], float] = time.monotonic,
        random_below: Callable[[int], int] = random.randrange,
        fs: FileSystem | None = None,
    ) -> LogGroup:
        """Recovers the group in `directory` (created if missing); a group of one voter leads on return.

        Args:
            clock_ms: the time of day, for frames.
            monotonic: a monotonic clock in seconds, for elections and leases.
            commit_machines: topic id to (checkpoint section, machine): that topic's committed batches are
            replayed into the machine.
            tail_machines: checkpoint section to machine: every batch of another leader is replayed into it; a
            caller that appends here updates it.
            on_fatal: called once with the error that ends this group.
            send: hands a message to the transport, which may lose it: (member id, message).
            random_below: random_below(n) is a random number below n, for election timeouts.
        Raises:
            CorruptLog, NewerFormat, StorageFull, WriteFailed: as DataLog.open.
        """
        state = StateMachines(commit_machines or {}, tail_machines or {})
        member = await open_member(directory, options, state, clock_ms, monotonic, random_below, fs)
        try:
            group = cls(member, options, state, on_fatal, clock_ms, monotonic, send)
            group._replica.start()
            if group.failed is not None:
                raise group.failed
        except BaseException:
            member.log.close()
            raise
        if options.background:
            member.log.start_preparing()
        return group

    async def close(self) -> None:
        """Commits accepted batches if this node alone can, writes a checkpoint, closes the files."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self.failed is None:
                self._serve(False)
                if self.raft.configuration.voter_sets() == ((self.raft.member_id,),):
                    await self.committed()
                else:
                    self.on_not_accepting()  # batches in no frame must not be in the checkpoint
                with contextlib.suppress(StorageFull, WriteFailed):  # the next start replays a little more
                    await self._replica.write_last_checkpoint()
        finally:
            self.abandon()
            await in_thread(self._shut_down_threads)
            self._replica.installer.close()
            await in_thread(self.log.close)

    def _shut_down_threads(self) -> None:
        """Waits for the work in this group's own threads. May run in any other one."""
        self._replica.flusher.close()
        self._threads.shutdown(wait=True)

    def abandon(self) -> None:
        """Accepts and sends nothing more; files stay as they are."""
        self._is_closed = True
        self.read_repair.stop()
        self._serve(False)
        self._replica.stop()
        self._idle_marker.stop()
        self._fail_all(NotLeader(f"group {self.group_id} is closed"))

    def _fail_all(self, error: BaseException) -> None:
        """Fails all waiters: nothing will be committed here any more."""
        self._read_ahead.close()
        waiters = self.open_waiters.take()
        self._waiters.fail(error)
        call_waiters(waiters, error)

    # --- the API ------------------------------------------------------------------------------------------

    @property
    def failed(self) -> BaseException | None:
        """The error that ended this group, if any did."""
        return self._replica.failed

    @property
    def partitions(self) -> dict[int, PartitionLog]:
        """Open partitions by local id, the control partition (0) included."""
        return self.control.partitions

    @property
    def is_leader(self) -> bool:
        """True where appends are accepted: this node leads, and all before its term is applied."""
        return self._leadership.is_serving

    @property
    def is_newly_led(self) -> bool:
        """True shortly after the leadership moved here: clients are still following it."""
        leading = self.raft.leader_state
        if leading is None or leading.is_only_voter or leading.no_op_index == 1:
            return False  # no other member led before
        return self._leadership.is_new

    @property
    def leader_id(self) -> int:
        """The node that leads as far as we know; -1 for none."""
        return node_of(self.raft.leader_id)

    @property
    def has_lease(self) -> bool:
        """True where no other member can lead at this moment, so that local state is the newest."""
        return self._leadership.is_serving and self.raft.has_lease(self._replica.now_ms())

    @property
    def time_ms(self) -> int:
        """The newest frame's time. Like the log it never goes back, whatever the clock does."""
        return self._replica.time_ms

    @property
    def append_time_ms(self) -> int:
        """The time that the newest batch appended here has in the log."""
        return self._open.time_ms

    @property
    def term(self) -> int:
        return self.raft.term

    @property
    def commit_index(self) -> int:
        return self.raft.commit_index

    @property
    def applied_index(self) -> int:
        """The last entry that the commit machines have seen."""
        return self._replica.applied_index

    @property
    def checkpoint_index(self) -> int:
        """The newest entry that a flushed checkpoint covers."""
        return self._replica.checkpointer.index

    def leader_epoch(self, partition: PartitionLog) -> int:
        """The leader epoch of a partition on the Kafka wire."""
        return self.raft.term + partition.epoch_base

    def receive(self, message: Message) -> None:
        """Handles a message of a peer; one that does not verify is dropped."""
        if not self._is_closed:
            self._replica.receive(message)

    def change_members(self, voters: Sequence[int], learners: Sequence[int] = ()) -> None:
        """Begins to change the membership (member ids). Raises NotLeader, ConfigurationRejected."""
        self.log.keep_recent_frames(True)
        self._replica.request(lambda: self.raft.change_members(tuple(voters), tuple(learners)))

    def transfer(self, member_id: int) -> None:
        """Begins a transfer of the leadership to a voter. Raises NotLeader, ConfigurationRejected."""
        self._propose_pending()  # so that the successor gets pending batches, too
        if self.is_leader and self.raft.last_index > self.log.last_index:
            raise ConfigurationRejected(
                "an entry waits for disk space on this node, and cannot be sent to any member"
            )
        self._replica.request(lambda: self.raft.transfer(member_id, self._replica.now_ms()))

    def transfer_to_best(self) -> None:
        """Transfers to the voter with most of the log, if there is one."""
        others = [each for each in self.raft.configuration.voters if each != self.raft.member_id]
        found = {each: self.raft.progress(each) for each in others}
        match = {each: progress.match_index for each, progress in found.items() if progress is not None}
        if match:
            self.transfer(max(match, key=lambda each: match[each]))

    def report_unreachable(self, node_id: int) -> None:
        """Reports that the transport lost its connection to a node, and the messages in flight."""
        members = [each for each in self.raft.configuration.members if node_of(each) == node_id]

        def lost() -> None:
            for member in members:
                self.raft.report_unreachable(member)

        if members and not self._is_closed and self.failed is None:
            self._replica.request(lost)

    def campaign_after(self, rank: int) -> None:
        """Elects the first leader of a new group at once, by rank."""
        self._replica.request(lambda: self.raft.campaign_after(rank, self._replica.now_ms()))

    def on_node_stopped(self, node_id: int) -> None:
        """Handles the end of a node's process: its followers need not wait for a timeout."""
        leader_id = self.raft.leader_id
        if node_of(leader_id) == node_id and not self._is_closed and self.failed is None:
            self._replica.request(lambda: self.raft.on_leader_stopped(leader_id, self._replica.now_ms()))

    def append(
        self, partition: PartitionLog, batch: bytearray, header: BatchHeader, *, reserved: bool = False
    ) -> int:
        """Appends one validated record batch to the partition; returns its base offset.

        Patches base offset and leader epoch into `batch`, which must not be changed afterwards. Durable only
        when a later `when_committed` fires. `reserved` appends may use the space kept for the group's own.

        Raises:
            NotLeader, BatchTooLarge, StorageFull, WriteFailed, Backlogged: nothing was appended.
        """
        self._admit(len(batch), header.record_count, 1, reserved)
        return self._open.add(partition, batch, header, self.raft.term + partition.epoch_base)

    def append_together(
        self,
        batches: Sequence[tuple[PartitionLog, bytearray, BatchHeader]],
        *,
        notes: bytes = b"",
        reserved: bool = False,
    ) -> list[int]:
        """`append` of several batches in one frame: all of them are committed, and applied, or none is.

        Tail machines get `notes` with them, on all members and at every replay.
        """
        records = sum([header.record_count for _, _, header in batches])
        size = sum([len(batch) for _, batch, _ in batches]) + len(notes)
        self._admit(size, records, len(batches) + bool(notes), reserved)
        term, add = self.raft.term, self._open.add
        offsets = [add(each, batch, header, term + each.epoch_base) for each, batch, header in batches]
        if notes:
            self._open.add_notes(notes)
        return offsets

    def _admit(self, size: int, record_count: int, batches: int, reserved: bool) -> None:
        """Makes room for batches in one frame, and schedules its write. Raises as `append`."""
        if not self._leadership.is_serving:
            raise NotLeader(f"group {self.group_id} is not led here")
        pending = self._open.close_if_full(size, record_count, batches)
        if not self.log.has_space_for(pending, reserved=reserved):
            if self.log.write_error and not self.log.disk_full:
                raise WriteFailed(f"log group {self.group_id}: {self.log.write_error}")
            raise StorageFull(f"log group {self.group_id} has no room for {size} bytes")
        pending += self._replica.applier.in_flight_bytes
        if pending > self._options.max_uncommitted_bytes:
            raise Backlogged(f"group {self.group_id} holds {pending} bytes that are not committed")
        self.schedule_propose()

    def schedule_propose(self) -> None:
        """Proposes what is in the open frame in the next iteration of the loop."""
        if not self._propose_scheduled:
            self._propose_scheduled = True
            self._loop.call_soon(self._propose_or_gather)

    def when_committed(self, waiter: Waiter) -> None:
        """Calls `waiter(None)` once everything appended so far is committed, `waiter(error)` if it never is,
        or if this node cannot know it. Never calls back before it returns.
        """
        if self._replica.stopped:
            error = self.failed or NotLeader(f"group {self.group_id} is closed")
            self._loop.call_soon(waiter, error)
        elif self._open.pending_bytes:
            self.open_waiters.add(waiter)
        elif self.raft.last_index > self._replica.applied_index:
            # The last index of the core, not of the log: an entry may wait for space on the disk.
            self._waiters.add(self.raft.last_index, self.raft.terms.last_term, [waiter])
        else:
            self._loop.call_soon(waiter, None)

    async def committed(self) -> None:
        """Waits until everything appended so far is committed. Raises the error that ended the group."""
        future: asyncio.Future[None] = self._loop.create_future()

        def complete(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.when_committed(complete)
        await future

    def read(
        self, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int | None = None
    ) -> ReadResult:
        """Reads committed batches from the one that holds `offset`; at least one where there is one.

        Up to the high watermark, or `end_offset` where that is lower. `cold` in the result: not in memory,
        call `read_cold`. `max_bytes` bounds all but the first batch.
        """
        end = partition.high_watermark if end_offset is None else min(end_offset, partition.high_watermark)
        return self._read_ahead.read(partition, offset, max_bytes, end)

    async def read_cold(
        self, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int | None = None
    ) -> ReadResult:
        """Reads like `read`, on a reader thread, bytes that must come from the disk."""
        end = partition.high_watermark if end_offset is None else min(end_offset, partition.high_watermark)
        arguments = (self.log, partition, offset, max_bytes, end, True)
        return await self._loop.run_in_executor(self._threads, gap_reads.read, *arguments)

    async def scrub(self, sequence: int, throttle: Callable[[int], None]) -> tuple[int, int] | None:
        """Verifies a sealed segment; a corrupt one is fetched from the other members and rewritten.

        Returns the first and last corrupt index; None where all verifies. Raises OSError, ScrubEnded."""
        return await self._replica.repairing.scrub(sequence, throttle)

    async def wait_until_repaired(self) -> None:
        """Waits for the end of the repair that is under way, if there is one."""
        await self._replica.repairing.wait_until_ended()

    # --- entries of the control partition -----------------------------------------------------------------

    async def append_values(
        self, partition: PartitionLog, values: Sequence[bytes], *, reserved: bool = True
    ) -> None:
        """Commits one batch whose records have these values. `reserved`, and raises, as `append`."""
        batch = bytearray(control.encode_values(values, self._replica.next_time_ms()))
        self.append(partition, batch, read_header(batch), reserved=reserved)
        await self.committed()

    def free_deleted_segments(self) -> int:
        """Frees segments that hold only deleted records; returns how many."""
        freed = self.log.free_deleted_segments(self.control.log_start)
        if freed:
            self._replica.trim()
        return freed

    # --- the loop iteration: close a frame, propose it -----------------------------------------------------

    def _should_gather_more(self) -> bool:
        """Returns whether to poll the sockets once more before a flush. A busy group does so as long as
        each iteration brings more batches: a client that is about to send joins this frame, not the next."""
        waiting = self._open.batch_count
        if waiting <= self._gathered_count or self._gather_iterations >= MAX_GATHER_ITERATIONS:
            return False
        self._gathered_count = waiting
        self._gather_iterations += 1
        return True

    @property
    def has_unproposed_batches(self) -> bool:
        return self._open.pending_bytes > 0

    def _propose_or_gather(self) -> None:
        if self._busy and self._should_gather_more():
            self._loop.call_soon(self._propose_or_gather)
            return
        self._propose_scheduled = False
        self._propose_pending()

    def _propose_pending(self) -> None:
        """Proposes the pending batches as entries, unless that has to wait."""
        if self._replica.stopped or self._replica.busy or not self.raft.accepts_proposals:
            return
        self._gathered_count = self._gather_iterations = 0
        if self._open.pending_bytes:
            self._busy = self._open.batch_count > 1
            self._replica.write(self._open.take(), self._on_proposed)

    def _on_proposed(self, index: int, term: int) -> None:
        """Binds the waiters of the open frames to their last entry (index, term)."""
        waiters = self.open_waiters.take()
        if waiters:
            self._waiters.add(index, term, waiters)

    # --- ReplicaListener ----------------------------------------------------------------------------------

    def _fail_old_waiters(self) -> None:
        """Fails the waiters of a lost leadership once the next leader has had time to commit their
        entries."""
        if not self._is_closed:
            error = NotLeader(
                f"group {self.group_id} lost the leadership before this was known to be committed"
            )
            self._waiters.fail(error)

    def on_progress(self, advanced: dict[PartitionLog, None]) -> None:
        """See `ReplicaListener`."""
        serving = self._replica.is_serving and not self._is_closed
        if serving != self._leadership.is_serving:
            self._commands.reset()  # a member that begins to serve has applied all
            self._serve(serving)
        applied = self._replica.applier.index
        if applied != self._notified_index:
            self._notified_index = applied
            self._waiters.on_commit(applied, self.raft.terms.term_at)
            for partition in advanced:
                for listener in partition.on_advance:
                    listener()
            if self.after_commit is not None:
                self.after_commit()
        if self._open.pending_bytes and not self._replica.busy:
            self.schedule_propose()

    def on_flushed(self) -> None:
        """See `ReplicaListener`."""
        self._idle_marker.on_flush()

    def on_not_accepting(self) -> None:
        """See `ReplicaListener`."""
        self._serve(False)
        if not self._open.pending_bytes and not self.open_waiters:
            return
        self._open.clear()
        waiters = self.open_waiters.take()
        self._replica.rebuild_tail()
        call_waiters(waiters, NotLeader(f"group {self.group_id} lost the leadership before it wrote this"))

    def on_truncated(self, last_index: int) -> None:
        """See `ReplicaListener`."""
        self._waiters.on_truncate(last_index)

    def on_failed(self, error: BaseException) -> None:
        """See `ReplicaListener`: all waiters fail, and nothing more is accepted."""
        self._serve(False)
        self._fail_all(NotLeader(f"group {self.group_id} ended: {error}"))
        self._on_fatal(error)
