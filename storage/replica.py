"""One member of a log group: drives the Raft core, the data log, the replayed state, and its messages.

The replica does the core's work in order: hard state first, then log work (truncations, writes, a switch to a
snapshot) one thing at a time and none while a flush is under way, then messages, then a flush. A lone member
with nothing else to do does the same with its own frames in a straight line and queues nothing. Invariants:
a message never leaves before the state that it depends on is on the disk (the core holds it back); the tail
machines replay frames when they are appended, the commit machines when they are committed, in log order;
replicas whose logs differ at one index stop. Inputs are peer messages, time, finished flushes and the
leader's own frames; a `ReplicaListener` receives progress. Source: LogStore paper, sections 3 and 4;
docs/storage_rules.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVarTuple

from lockstep.storage.append_codec import AppendSender, Send, put_configuration, unpack
from lockstep.storage.applier import Applier
from lockstep.storage.checkpointer import CONFIGURATION_SECTION, Checkpointer
from lockstep.storage.compaction_progress import CompactionProgress
from lockstep.storage.deadline_timer import DeadlineTimer
from lockstep.storage.flusher import Flusher
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import frame_bytes
from lockstep.storage.log_work import NOTHING_RECEIVED, LogWork, OwnWrite, ReceivedFrames
from lockstep.storage.message_validation import is_well_formed
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Append, Message, RangeRequest, RangeResponse
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.ready import NOTHING, Ready
from lockstep.storage.raft.settings import NEVER_MS
from lockstep.storage.replica_listener import ReplicaListener
from lockstep.storage.segment_repair import SegmentRepair
from lockstep.storage.snapshot_install import SnapshotInstaller
from lockstep.storage.state_machines import StateMachines
from lockstep.storage.types import CorruptLog, Frame, FrameKind, HardState, StorageFull, WriteFailed

log_of_peers = logging.getLogger(__name__)

DISK_SPACE_RETRY_MS = 500

Arguments = TypeVarTuple("Arguments")


class Replica:
    """One member of a log group.

    Args: log, raft: open, with the same entries. state: has replayed the log, up to `applied_index` as
        committed. send: sends a message to a member. monotonic: a clock in seconds. clock_ms: the time of
        frames. threads: for work on files. kept_entries: a follower that is at most so many entries behind
        gets entries, not a snapshot. straight_commit: see `GroupOptions`.
    """

    def __init__(
        self, log: DataLog, raft: Raft, state: StateMachines, applied_index: int, listener: ReplicaListener,
        send: Send, monotonic: Callable[[], float], clock_ms: Callable[[], int], threads: Executor,
        kept_entries: int, straight_commit: bool = True,
    ) -> None:  # fmt: skip
        self.log = log
        self.raft = raft
        self._straight_commit = straight_commit
        self._listener = listener
        self._monotonic = monotonic
        self._clock_ms = clock_ms
        loop = self._loop = asyncio.get_running_loop()
        self._threads = threads
        self.checkpointer = Checkpointer(
            log, state, lambda index: raft.configurations.at(index), loop, threads, self._on_checkpoint,
            self.fail,
        )  # fmt: skip
        self.applier = Applier(log, state, self.checkpointer, applied_index)
        self._send = send
        self.append_sender = AppendSender(
            log, raft, self._post, loop, threads, kept_entries, self._on_entries_unavailable
        )
        self.installer = SnapshotInstaller(
            log, raft, self._post, self.now_ms, loop, threads, self.trim, self._step, state.control
        )
        self._control = state.control
        self._log_start: Callable[[int], int] = lambda local_id: state.control.log_start(local_id)
        self.compaction_progress = CompactionProgress()
        forget = self.compaction_progress.forget
        self.repairing = SegmentRepair(log, raft, self._log_start, self._post, forget, self._loop, threads)
        self.flusher = Flusher(log, f"group-{log.group_id}-flush", self._loop, monotonic, self._on_flush_end)
        self._work: deque[LogWork] = deque()
        """Log work in the core's order."""
        self._received = NOTHING_RECEIVED
        self._unflushed = False
        self._truncation_count = raft.truncation_count
        """The core's count of truncations at the newest write."""
        self.time_ms = log.last_time_ms
        """The leader's time in the newest frame."""
        self._own_writes: list[OwnWrite] = []
        """The writes in `_work` of frames that this member proposed as the leader."""
        self._pumping = self._pump_again = False
        self._tick_timer = DeadlineTimer(loop, self.now_ms, self._tick)
        self._disk_space_timer = DeadlineTimer(loop, self.now_ms, self._retry)
        self.failed: BaseException | None = None
        self.stopped = False
        """Failed, closed or abandoned."""

    def _post(self, to: int, message: Message) -> None:
        """Sends a message of this member, unless it is stopped."""
        if not self.stopped:
            self._send(to, message)

    def now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    # --- inputs -------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while a flush is under way or log work waits: the leader's next frames have to wait too."""
        return self.flusher.busy or bool(self._work)

    @property
    def applied_index(self) -> int:
        return self.applier.index

    @property
    def is_serving(self) -> bool:
        """True where this member accepts entries and has applied its term's no-op, and the last entry from
        before a leadership transfer that failed."""
        raft, applied_index = self.raft, self.applier.index
        leader_state = raft.leader_state
        return (
            leader_state is not None
            and raft.accepts_proposals
            and leader_state.no_op_index <= applied_index >= leader_state.resumed_index
            and self.failed is None
        )

    def receive(self, message: Message) -> None:
        """Handles a peer's message; one that does not verify is dropped."""
        if self.stopped:
            return
        if not is_well_formed(message):
            log_of_peers.warning("log group %d: malformed message: %.200r", self.log.group_id, message)
            return
        if isinstance(message, RangeRequest | RangeResponse):
            self._step(self.repairing.receive, message)
            return
        try:
            self._received = NOTHING_RECEIVED
            if isinstance(message, Append) and message.last_index > message.prev_index:
                self._received = ReceivedFrames(unpack(message), message.chain)
        except ValueError as error:
            log_of_peers.warning("log group %d: dropped an append: %s", self.log.group_id, error)
            return
        self._step(self.raft.step, message, self.now_ms())

    def start(self) -> None:
        """Starts the member: the only voter leads at once, the others wait for messages or a timeout."""
        if self.raft.configuration.members == (self.raft.member_id,):
            self.log.keep_recent_frames(False)
            self._step(self.raft.campaign, self.now_ms())
        else:
            self._step(_no_input)

    async def write_last_checkpoint(self) -> None:
        """Writes a checkpoint at the end of the log, if it is applied. Raises StorageFull, WriteFailed."""
        checkpointer = self.checkpointer
        if checkpointer.under_way is not None:
            await asyncio.wait([checkpointer.under_way])
        if checkpointer.index < self.log.last_index and self.checkpoint_now():
            assert checkpointer.under_way is not None
            await checkpointer.under_way

    def checkpoint_now(self) -> bool:
        """Begins a checkpoint at the end of the log; returns False where anything is pending."""
        checkpointer, last_index = self.checkpointer, self.log.last_index
        if self.failed is not None or self.busy or checkpointer.under_way is not None:
            return False
        if not last_index or not last_index == self.applied_index == self.raft.last_index:
            return False
        checkpointer.cut(self.time_ms)
        checkpointer.on_apply(last_index, self.time_ms)
        return True

    def seal(self, last_index: int) -> None:
        """Begins another segment, once no flush is under way, if entries up to the index are in this one."""
        self._work.append(LogWork(lambda: self._seal(last_index)))
        self._step(_no_input)

    def _seal(self, last_index: int) -> None:
        if not self.log.is_sealed(last_index):
            self.log.seal()

    def write(self, frames: Sequence[Frame], proposed: Callable[[int, int], None]) -> None:
        """Proposes the leader's own frames, in order; sets index, term and first LSN. Not while `busy`.

        `proposed` is called with index and term of the last one before anything else happens to it.
        """
        if self._straight_commit and self._commits_alone():
            self._write_alone(frames, proposed)
        else:
            self._step(self._propose, frames, proposed)

    def _propose(self, frames: Sequence[Frame], proposed: Callable[[int, int], None]) -> None:
        raft, lsn, now_ms = self.raft, self.log.next_lsn, self.now_ms()
        for frame in frames:
            frame.index = raft.propose(frame_bytes(frame), now_ms)
            frame.term = raft.term
            frame.first_lsn = lsn
            lsn += frame.record_count
        self._queue_proposed(frames)
        proposed(frames[-1].index, raft.term)

    def _queue_proposed(self, frames: Sequence[Frame]) -> None:
        write = OwnWrite(frames, self.raft.truncation_count)
        self._own_writes.append(write)
        self._work.append(LogWork(lambda: self._append_proposed(write)))

    # --- the only voter's straight commit -----------------------------------------------------------------

    def _commits_alone(self) -> bool:
        """Returns whether the leader's next frames will be all that there is to do: this member is the only
        one, and nothing is under way; all earlier entries are committed and applied."""
        raft = self.raft
        return (
            not (self.stopped or self._pumping or self.installer.is_busy)
            and raft.commits_alone
            and self.applier.index == raft.commit_index == self.log.last_index
        )

    def _write_alone(self, frames: Sequence[Frame], proposed: Callable[[int, int], None]) -> None:
        """Does what `_step` does with `_propose`, where `_commits_alone`: the same in the same order, but
        nothing is queued. The general loop does all that turns out to wait."""
        raft, log = self.raft, self.log
        try:
            lsn, term = log.next_lsn, raft.term
            for frame in frames:
                frame.index = raft.extend(frame_bytes(frame))
                frame.term = term
                frame.first_lsn = lsn
                lsn += frame.record_count
            proposed(frames[-1].index, term)
            self._pumping, self._pump_again = True, False
            try:
                all_written = self._append_alone(frames)
            finally:
                self._pumping = False
            if self._pump_again:  # something was requested meanwhile
                if all_written and (self._work or not raft.idle):
                    self._pump()
                else:
                    self._arm()
        except Exception as error:
            self.fail(error)

    def _append_alone(self, frames: Sequence[Frame]) -> bool:
        """Writes, flushes, commits, applies and reports frames. Returns False where they do not all fit."""
        raft, log, listener = self.raft, self.log, self._listener
        try:
            log.append(frames)
        except (StorageFull, WriteFailed):
            self._queue_proposed(frames)
            self._on_written(frames, frames, raft.truncation_count, is_in_tail=True)
            self._wait_for_disk_space()
            self._flush_and_apply()
            return False
        self.time_ms = frames[-1].time_ms
        self._truncation_count = raft.truncation_count
        tail_matches_log = not listener.has_unproposed_batches
        if self.flusher.start():
            raft.on_persisted(log.last_index, log.last_term, raft.truncation_count, self.now_ms())
            listener.on_flushed()
            advanced: dict[PartitionLog, None] = {}
            self.applier.apply_at_once(frames, tail_matches_log, advanced)
            listener.on_progress(advanced)
        else:
            self.applier.on_append(frames, True, tail_matches_log)  # the loop continues after the flush
        return True

    def request(self, step: Callable[[], None]) -> None:
        """Runs a request to the core, then all that follows. The errors of `step` are the caller's."""
        step()
        self._step(_no_input)

    def _step(self, step: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Runs an input of the core, then all that follows from it. An error stops this member."""
        if self.stopped:
            return
        try:
            step(*arguments)
            self._pump()
        except Exception as error:
            self.fail(error)

    # --- the core's work ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        if self._pumping:
            self._pump_again = True
            return  # the drain that is under way continues until nothing is left
        self._pumping = True
        try:
            while self._drain():
                pass
        finally:
            self._pumping = False
        self._arm()

    def _drain(self) -> bool:
        """Drains the core once; returns whether there may be more to do."""
        ready = NOTHING if self.raft.idle else self.raft.ready()
        hard_state = ready.hard_state
        if hard_state is not None:
            saved = HardState(hard_state.term, hard_state.voted_for, self.log.hard_state.incarnation)
            self.log.save_hard_state(saved)
            self.raft.on_hard_state_persisted(saved)
        if not self.raft.accepts_proposals:
            self._listener.on_not_accepting()
        if ready is not NOTHING:
            self._queue(ready)
        worked = self._do_log_work()
        if ready is not NOTHING:
            self.append_sender.send(ready.messages)
        self.installer.drain(ready)
        self._flush_and_apply()
        if not worked and hard_state is None:
            return False
        return bool(self._work) or not self.raft.idle

    def _flush_and_apply(self) -> None:
        """Flushes what was written, applies what is committed, and reports both."""
        if self._unflushed and not self.flusher.busy:
            self._unflushed = False
            if self.flusher.start():
                self._report_flushed()
        if self.installer.incoming is not None:
            self.installer.abort_if_passed(self.raft.commit_index)
        advanced: dict[PartitionLog, None] = {}
        more = self.applier.apply(self.raft.commit_index, advanced)
        if more:
            self._loop.call_soon(self._step, _no_input)
        self._listener.on_progress(advanced)

    def _queue(self, ready: Ready) -> None:
        """Queues the core's log work, in its order."""
        work, truncation_count = self._work, self.raft.truncation_count
        if ready.truncate_after is not None:
            last_index = ready.truncate_after
            work.append(LogWork(lambda: self._truncate(last_index, truncation_count), after_checkpoint=True))
        if ready.accepted is not None:
            received = self._received.between(*ready.accepted)
            work.append(LogWork(lambda: self._append_received(received, truncation_count)))
        if ready.no_op_index is not None:
            no_op = self._own_frame(FrameKind.NO_OP, ready.no_op_index)
            work.append(LogWork(lambda: self._append_own(no_op, truncation_count)))
        if ready.configuration is not None:
            change = self._own_frame(FrameKind.CONFIGURATION, ready.configuration[0])
            put_configuration(change, ready.configuration[1])
            work.append(LogWork(lambda: self._append_own(change, truncation_count)))
        for chunk in ready.chunks:
            self.installer.take(chunk, self._on_chunk_stored)

    def _do_log_work(self) -> bool:
        """Does log work until none is left, a flush is under way, or it has to wait for a checkpoint."""
        worked = False
        work = self._work
        while work and not self.flusher.busy:
            if work[0].after_checkpoint and self.checkpointer.under_way is not None:
                break
            try:
                work[0].run()
            except (StorageFull, WriteFailed):
                self._wait_for_disk_space()
                break
            if work:  # a switch clears it
                work.popleft()
            worked = True
        return worked

    def _wait_for_disk_space(self) -> None:
        """Retries failed writes later, on a full disk or not: nothing is acknowledged, reads continue.

        A leader that cannot even write its no-op resigns; `_tick` starts no election meanwhile.
        """
        if not self._disk_space_timer.is_armed:
            self._disk_space_timer.arm(self.now_ms() + DISK_SPACE_RETRY_MS)
        if self.raft.leader_state is not None and not self.raft.is_serving:
            self.raft.resign()

    @property
    def waits_for_disk_space(self) -> bool:
        """True while log work that found no disk space waits for its retry."""
        return self._disk_space_timer.is_armed

    def _retry(self) -> None:
        self.log.retry_space()
        self._step(_no_input)

    def next_time_ms(self) -> int:
        """Returns the time for a frame that this leader makes now: like the log it never goes back."""
        return max(self.time_ms, self._clock_ms())

    def _own_frame(self, kind: FrameKind, index: int) -> Frame:
        return Frame(kind, self.raft.term, index, 0, 0, [], [], 0)

    def _append_own(self, frame: Frame, truncation_count: int) -> None:
        frame.first_lsn = self.log.next_lsn
        # The open frame has its time already: a configuration before it may not have a later one.
        frame.time_ms = self.next_time_ms() if frame.kind is FrameKind.NO_OP else self.time_ms
        self._append([frame], truncation_count, is_in_tail=True)

    def _append_received(self, received: ReceivedFrames, truncation_count: int) -> None:
        frames = received.frames
        is_retry = self.log.last_index >= frames[0].index  # some of them were written
        if not is_retry and received.chain != self.log.chain:
            raise CorruptLog(
                f"group {self.log.group_id}: entry {frames[0].index} of the leader does not continue this "
                f"log, although their last common entry has the same term"
            )
        self._append(frames, truncation_count, is_in_tail=False)

    def _append_proposed(self, write: OwnWrite) -> None:
        self._append(write.frames, write.truncation_count, write.is_in_tail)
        self._own_writes.remove(write)

    def _append(self, frames: Sequence[Frame], truncation_count: int, is_in_tail: bool) -> None:
        """Writes frames. Where only some fit on the disk, these are in the log and the others are retried."""
        log = self.log
        remaining = frames
        if frames[0].index <= log.last_index:
            remaining = [frame for frame in frames if frame.index > log.last_index]
        try:
            log.append(remaining)
        finally:
            self._on_written(frames, remaining, truncation_count, is_in_tail)

    def _on_written(
        self, frames: Sequence[Frame], remaining: Sequence[Frame], truncation_count: int, is_in_tail: bool
    ) -> None:
        """Hands those of the remaining frames that are in the log now to the applier."""
        written, last_index = remaining, self.log.last_index
        if remaining and remaining[-1].index != last_index:
            written = [frame for frame in remaining if frame.index <= last_index]
        if written:
            self.time_ms = written[-1].time_ms
            is_ahead = (
                self._listener.has_unproposed_batches
            )  # the tail machines have seen more than the log has
            is_ahead |= any([each.is_in_tail for each in self._own_writes if each.frames is not frames])
            self.applier.on_append(written, is_in_tail, len(written) == len(remaining) and not is_ahead)
            self._unflushed = True
            self._truncation_count = truncation_count

    def rebuild_tail(self) -> None:
        """Rebuilds the speculative state without batches that were not proposed, or not written yet."""
        self.applier.rebuild_tail()
        for write in self._own_writes:
            write.is_in_tail = False

    def _truncate(self, last_index: int, truncation_count: int) -> None:
        self.log.truncate(last_index)
        self.time_ms = self.log.last_time_ms
        self.applier.on_truncate(last_index)
        self._listener.on_truncated(last_index)
        self._unflushed = True  # so that the core learns the new flushed index
        self._truncation_count = truncation_count

    def _on_chunk_stored(self, is_complete: bool) -> None:
        if is_complete:
            self._work.append(LogWork(self._install_snapshot, after_checkpoint=True))
        self._step(_no_input)

    def _install_snapshot(self) -> None:
        """Switches the log to a whole snapshot, unless the log has passed it by itself meanwhile."""
        checkpoint = self.installer.switch()
        if checkpoint is None:
            return
        self.compaction_progress.forget()
        self._own_writes.clear()
        self._work.clear()  # it concerned entries that the core forgets now; this item included
        self._unflushed = False
        self.time_ms = checkpoint.time_ms
        self.applier.on_install(checkpoint)
        self._listener.on_truncated(checkpoint.index)
        members = Configuration.decode(checkpoint.sections[CONFIGURATION_SECTION])
        self.raft.on_installed(checkpoint.index, checkpoint.term, members, self.now_ms())

    # --- flushes, checkpoints, time -----------------------------------------------------------------------

    def _report_flushed(self) -> None:
        log = self.log
        self.raft.on_persisted(log.last_index, log.last_term, self._truncation_count, self.now_ms())
        self._listener.on_flushed()

    def _on_flush_end(self, error: BaseException | None) -> None:
        if self.stopped:
            return
        if error is not None:
            self.fail(error)
            return
        self._step(self._report_flushed)

    def _on_checkpoint(self, index: int) -> None:
        self._step(self.trim)

    def trim(self) -> None:
        """Lets the core forget entries that no follower will be sent."""
        self.raft.on_checkpoint(self.append_sender.last_unneeded_index(self.installer.outgoing_index))

    def _on_entries_unavailable(self, upto_index: int | None) -> None:
        """Handles entries for a follower that cannot be sent as such, see `AppendSender`."""
        self._step(self.trim if upto_index is None else lambda: self.raft.on_checkpoint(upto_index))

    def _arm(self) -> None:
        """Sets the timer for the core's next deadline."""
        deadline_ms = self.raft.deadline_ms
        if deadline_ms < NEVER_MS and not self.stopped:
            self._tick_timer.arm(deadline_ms)

    def _tick(self) -> None:
        now_ms = self.now_ms()
        if now_ms < self.raft.deadline_ms:
            self._arm()
        elif self.waits_for_disk_space and self.raft.leader_state is None:
            # This member could not write a leader's entries: others may.
            self._tick_timer.arm(now_ms + DISK_SPACE_RETRY_MS)
        else:
            self._step(self.raft.tick, now_ms)

    def fail(self, error: BaseException) -> None:
        """Stops this member after an error: it sends nothing more."""
        if self.failed is not None:
            return
        self.failed = error
        self.stop()
        self._listener.on_failed(error)

    def stop(self) -> None:
        """Stops all work, messages and writes, whatever is still under way."""
        self.stopped = True
        self._disk_space_timer.cancel()
        self._tick_timer.cancel()
        self.repairing.stop()


def _no_input() -> None:
    """The input of a drain that only continues queued work."""
