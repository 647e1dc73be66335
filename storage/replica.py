"""One member of a log group: drives the Raft core, the data log and the replayed state; speaks to its peers.

Everything the core wants is done here, in its order: hard state first, then log work (cuts, writes, a switch
to a shipped checkpoint) one thing at a time and none while a flush is under way, then messages, then a flush.
Invariants: a message never leaves before what it rests on is on the disk (the core holds it back); frames are
followed when they are appended and applied when they are committed, in log order; replicas whose logs differ
at one index stop. Inputs are peer messages, time, finished flushes and the leader's own frames; the
owner is told of progress through `Owner`. Source: seed 001, sections 3 and 4; docs/storage_rules.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol, TypeVarTuple

from storage.applying import Applier
from storage.checkpointing import CONFIGURATION_SECTION, Checkpointer
from storage.clean_ends import CleanEnds
from storage.cleaner import Cleaned, CleaningPaused, Wanted, clean
from storage.derived_state import DerivedState
from storage.entries import Outgoing, Send, carry, unpack
from storage.flusher import Flusher
from storage.installing import Installing
from storage.log.data_log import DataLog
from storage.log.format import chain_of, frame_bytes
from storage.partition import PartitionLog
from storage.plausible import plausible
from storage.raft.configuration import Configuration
from storage.raft.messages import Append, Message, RangeRequest, RangeResponse
from storage.raft.raft import Raft
from storage.raft.ready import NOTHING, Ready
from storage.raft.settings import NEVER_MS
from storage.repairing import Repairing
from storage.types import (
    CorruptLog,
    FlushFailed,
    Frame,
    FrameKind,
    HardState,
    StorageError,
    StorageFull,
)

log_of_peers = logging.getLogger(__name__)

ROOM_RETRY_SECONDS = 0.5

Arguments = TypeVarTuple("Arguments")


class Owner(Protocol):
    """Whom a replica tells what happened, always on the loop."""

    @property
    def is_filling(self) -> bool:
        """Whether the state has seen batches that were not handed in yet."""

    def on_progress(self, moved: dict[PartitionLog, None]) -> None:
        """The commit or the leadership may have moved; `moved` are the partitions that grew."""

    def on_flushed(self) -> None:
        """Everything written is flushed, as far as the log's options go."""

    def on_not_accepting(self) -> None:
        """This member takes no entries now: what was made and not handed in is lost. Often told again."""

    def on_truncated(self, last_index: int) -> None:
        """The entries after `last_index` are gone from this log, and all that was derived from them."""

    def on_failed(self, error: BaseException) -> None:
        """Nothing more is done here."""


class Work:
    """A piece of log work; a `quiet` one waits for a checkpoint that is being written."""

    __slots__ = ("quiet", "run")

    def __init__(self, run: Callable[[], None], quiet: bool = False) -> None:
        self.run = run
        self.quiet = quiet


class _OwnWrite:
    """Frames that this leader made; `followed`: the state has seen them as they were made."""

    __slots__ = ("followed", "frames", "truncation_count")

    def __init__(self, frames: Sequence[Frame], truncation_count: int) -> None:
        self.frames = frames
        self.truncation_count = truncation_count
        self.followed = True


class Replica:
    """See the module. `log` and `raft` are open and hold the same entries; `state` follows them."""

    def __init__(
        self,
        log: DataLog,
        raft: Raft,
        state: DerivedState,
        applied_index: int,
        owner: Owner,
        send: Send,
        seconds: Callable[[], float],
        clock_ms: Callable[[], int],
        threads: Executor,
        kept_entries: int,
    ) -> None:
        self.log = log
        self.raft = raft
        self._owner = owner
        self._seconds = seconds
        self._clock_ms = clock_ms
        self._kept_entries = kept_entries
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self.checkpointer = Checkpointer(
            log,
            state,
            lambda index: raft.configurations.at(index),
            self._loop,
            threads,
            self._checkpointed,
            self.fail,
        )
        self.applier = Applier(log, state, self.checkpointer, applied_index)
        self._send = send
        self.outgoing = Outgoing(log, raft, self._say, self._loop, threads, self._gone)
        self.installing = Installing(
            log, raft, self._say, self.now_ms, self._loop, threads, self.trim, self._guarded
        )
        self._control = state.control
        self._log_start: Callable[[int], int] = lambda number: state.control.log_start(number)
        self.clean_ends = CleanEnds()
        forget = self.clean_ends.forget
        self.repairing = Repairing(log, raft, self._log_start, self._say, forget, self._loop, threads)
        self.flusher = Flusher(log, f"group-{log.group_id}-flush", self._loop, seconds, self._flush_ended)
        self._work: deque[Work] = deque()
        """Log work in the core's order."""
        self._arrived: list[Frame] = []
        self._arrived_chain = 0
        self._unflushed = False
        self._truncation_count = raft.truncation_count
        """The core's count of truncations when the newest write was handed in."""
        self.time_ms = log.last_time_ms
        """The leader's time in the newest frame."""
        self._own_writes: list[_OwnWrite] = []
        """The leader's own frames among it."""
        self._room_timer: asyncio.TimerHandle | None = None
        self._pumping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.failed: BaseException | None = None
        self.stopped = False
        """Failed, closed or abandoned."""

    def _say(self, to: int, message: Message) -> None:
        """Whatever this member sends goes through here: once it is stopped it says nothing."""
        if not self.stopped:
            self._send(to, message)

    def now_ms(self) -> int:
        return int(self._seconds() * 1000)

    # --- inputs -------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """A flush is under way or log work waits: the leader's next frames have to wait too."""
        return self.flusher.busy or bool(self._work)

    @property
    def applied_index(self) -> int:
        return self.applier.index

    @property
    def is_serving(self) -> bool:
        """Whether this member takes entries and has applied everything up to its term's no-op, and up to
        where a hand-over that came to nothing left the log: what it decides rests on all of that."""
        leader_state = self.raft.leader_state
        if leader_state is None or not self.raft.accepts_proposals:
            return False
        whole_index = max(leader_state.no_op_index, leader_state.resumed_index)
        return self.applier.index >= whole_index and self.failed is None

    def receive(self, message: Message) -> None:
        """Take a peer's message; one that does not verify is dropped."""
        if self.stopped:
            return
        if not plausible(message):
            log_of_peers.warning("log group %d: dropped: %.200r", self.log.group_id, message)
            return
        if isinstance(message, RangeRequest | RangeResponse):
            self._guarded(self._repair, message)
            return
        try:
            self._arrived = []
            if isinstance(message, Append) and message.last_index > message.prev_index:
                self._arrived = unpack(message)
                self._arrived_chain = message.chain
        except ValueError as error:
            log_of_peers.warning("log group %d: an append was dropped: %s", self.log.group_id, error)
            return
        self._guarded(self.raft.step, message, self.now_ms())

    def _repair(self, message: RangeRequest | RangeResponse) -> None:
        if isinstance(message, RangeRequest):
            self.repairing.requested(message)
        else:
            self.repairing.answered(message)

    def start(self) -> None:
        """Begin: the only voter leads at once, the others wait for what they hear."""
        if self.raft.configuration.members == (self.raft.member_id,):
            self.log.keep_recent_frames(False)
            self._guarded(self.raft.campaign, self.now_ms())
        else:
            self._guarded(_nothing)

    async def last_checkpoint(self) -> None:
        """Write one at the end of the log, where all of it is applied. Raises StorageFull."""
        checkpointer = self.checkpointer
        if checkpointer.under_way is not None:
            await asyncio.wait([checkpointer.under_way])
        if checkpointer.index < self.log.last_index and self.checkpoint_now():
            assert checkpointer.under_way is not None
            await checkpointer.under_way

    def checkpoint_now(self) -> bool:
        """Begin to write one at the end of the log, where all of it is applied and nothing was taken that is
        not in it; whether that is so."""
        checkpointer, last_index = self.checkpointer, self.log.last_index
        if self.failed is not None or self.busy or checkpointer.under_way is not None:
            return False
        if not last_index or not last_index == self.applied_index == self.raft.last_index:
            return False
        checkpointer.cut(self.time_ms)
        checkpointer.applied(last_index, self.time_ms)
        return True

    def seal(self, last_index: int) -> None:
        """Go on in another segment once no flush is under way, where entries up to there are in this one."""
        self._work.append(Work(lambda: self._seal(last_index)))
        self._guarded(_nothing)

    def _seal(self, last_index: int) -> None:
        if not self.log.is_sealed(last_index):
            self.log.seal()

    def write(self, frames: Sequence[Frame], proposed: Callable[[int, int], None]) -> None:
        """The leader's own frames, in order; index, term and first LSN are given here. Not while `busy`.

        `proposed` is told index and term of the last one before anything else happens to it.
        """
        self._guarded(self._propose, frames, proposed)

    def _propose(self, frames: Sequence[Frame], proposed: Callable[[int, int], None]) -> None:
        raft, lsn, now_ms = self.raft, self.log.next_lsn, self.now_ms()
        for frame in frames:
            frame.index = raft.propose(frame_bytes(frame), now_ms)
            frame.term = raft.term
            frame.first_lsn = lsn
            lsn += frame.record_count
        write = _OwnWrite(frames, raft.truncation_count)
        self._own_writes.append(write)
        self._work.append(Work(lambda: self._append_proposed(write)))
        proposed(frames[-1].index, raft.term)

    async def clean(
        self, wanted: Sequence[Wanted], now_ms: int, memory_bytes: int, breathe: Callable[[int], None]
    ) -> Cleaned | None:
        """One pass of compaction over this member's log, on a thread; None where it has to wait because the
        log is being replaced, or was meanwhile. A partition counts as dirty from where `clean_ends` says, if
        that is below what is wanted. Raises as `cleaner.clean`."""
        if self.stopped or self.installing.arrival is not None:
            return None

        ends = self.clean_ends
        forgotten = ends.forgotten

        def go_on(count: int) -> None:
            if self.stopped or self.installing.arrival is not None or ends.forgotten != forgotten:
                raise CleaningPaused
            breathe(count)

        wanted = [
            each._replace(dirty_offset=min(each.dirty_offset, ends.of(each.partition))) for each in wanted
        ]
        arguments = (self.log, wanted, self._log_start, now_ms, memory_bytes, go_on, self._ships_nothing)
        try:
            done = await self._loop.run_in_executor(self._threads, clean, *arguments)
        except CleaningPaused:
            return None
        self.log.forget_cleaned(done.ends)
        if ends.forgotten != forgotten:
            return None
        ends.note(done.ends, self._control.partitions)
        return done

    def _ships_nothing(self) -> bool:
        return not self.installing.is_shipping

    def asked(self, step: Callable[[], None]) -> None:
        """What the owner asks of the core, then all that follows. The errors of `step` are the caller's."""
        step()
        self._guarded(_nothing)

    def _guarded(self, step: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """An input of the core, then all that follows from it. Whatever is raised ends this member."""
        if self.stopped:
            return
        try:
            step(*arguments)
            self._pump()
        except Exception as error:
            self.fail(error)

    # --- doing what the core wants ------------------------------------------------------------------------

    def _pump(self) -> None:
        if self._pumping:
            return  # the turn that is under way goes on until nothing is left
        self._pumping = True
        try:
            while self._turn():
                pass
        finally:
            self._pumping = False
        self._arm()

    def _turn(self) -> bool:
        """One drain of the core; whether there may be more to do."""
        ready = NOTHING if self.raft.idle else self.raft.ready()
        wanted = ready.hard_state
        if wanted is not None:
            saved = HardState(wanted.term, wanted.voted_for, self.log.hard_state.incarnation)
            self.log.save_hard_state(saved)
            self.raft.on_hard_state_persisted(saved)
        if not self.raft.accepts_proposals:
            self._owner.on_not_accepting()
        if ready is not NOTHING:
            self._queue(ready)
        worked = self._do_work()
        if ready is not NOTHING:
            self.outgoing.send(ready.messages)
        self.installing.drain(ready)
        if self._unflushed and not self.flusher.busy:
            self._unflushed = False
            if self.flusher.start():
                self._persisted()
        if self.installing.arrival is not None:
            self.installing.outrun(self.raft.commit_index)
        moved: dict[PartitionLog, None] = {}
        more = self.applier.apply(self.raft.commit_index, moved)
        if more:
            self._loop.call_soon(self._guarded, _nothing)
        self._owner.on_progress(moved)
        if not worked and wanted is None:
            return False
        return bool(self._work) or not self.raft.idle

    def _queue(self, ready: Ready) -> None:
        """Log work that the core asks for, in its order."""
        work, truncation_count = self._work, self.raft.truncation_count
        if ready.truncate_after is not None:
            last_index = ready.truncate_after
            work.append(Work(lambda: self._truncate(last_index, truncation_count), quiet=True))
        if ready.accepted is not None:
            first, last = ready.accepted
            arrived, before = self._arrived, first - self._arrived[0].index
            head = arrived[before - 1].head if before else None
            chain = chain_of(head) if head is not None else self._arrived_chain
            frames = arrived[before : before + last - first + 1]
            work.append(Work(lambda: self._append_shipped(frames, chain, truncation_count)))
        if ready.no_op_index is not None:
            no_op = self._own_frame(FrameKind.NO_OP, ready.no_op_index)
            work.append(Work(lambda: self._append_own(no_op, truncation_count)))
        if ready.configuration is not None:
            change = self._own_frame(FrameKind.CONFIGURATION, ready.configuration[0])
            carry(change, ready.configuration[1])
            work.append(Work(lambda: self._append_own(change, truncation_count)))
        for chunk in ready.chunks:
            self.installing.take(chunk, self._chunk_stored)

    def _do_work(self) -> bool:
        """Do log work until none is left, a flush is under way, or it has to wait for a checkpoint."""
        worked = False
        work = self._work
        while work and not self.flusher.busy:
            if work[0].quiet and self.checkpointer.under_way is not None:
                break
            try:
                work[0].run()
            except StorageFull:
                self._wait_for_room()
                break
            if work:  # a switch clears it
                work.popleft()
            worked = True
        return worked

    def _wait_for_room(self) -> None:
        """The disk is full: nothing is acknowledged, reads go on, and the work is tried again.

        A leader that cannot even write its no-op makes way; `_tick` stands for no election meanwhile.
        """
        if self._room_timer is None:
            self._room_timer = self._loop.call_later(ROOM_RETRY_SECONDS, self._try_again)
        if self.raft.leader_state is not None and not self.raft.is_serving:
            self.raft.resign()

    @property
    def waits_for_room(self) -> bool:
        """Log work could not be done for want of space, and will be tried again."""
        return self._room_timer is not None

    def _try_again(self) -> None:
        self._room_timer = None
        self.log.retry_space()
        self._guarded(_nothing)

    def next_time_ms(self) -> int:
        """The time of a frame that this leader makes now: like the log it never goes back."""
        return max(self.time_ms, self._clock_ms())

    def _own_frame(self, kind: FrameKind, index: int) -> Frame:
        return Frame(kind, self.raft.term, index, 0, 0, [], [], 0)

    def _append_own(self, frame: Frame, truncation_count: int) -> None:
        frame.first_lsn = self.log.next_lsn
        # A frame that is being filled has its time already: no configuration may come in ahead of it.
        frame.time_ms = self.next_time_ms() if frame.kind is FrameKind.NO_OP else self.time_ms
        self._append([frame], truncation_count, followed=True)

    def _append_shipped(self, frames: list[Frame], chain: int, truncation_count: int) -> None:
        again = self.log.last_index >= frames[0].index  # there was room for some of them
        if not again and chain != self.log.chain:
            raise CorruptLog(
                f"group {self.log.group_id}: entry {frames[0].index} of the leader does not continue this "
                f"log, although their last common entry has the same term"
            )
        self._append(frames, truncation_count, followed=False)

    def _append_proposed(self, write: _OwnWrite) -> None:
        self._append(write.frames, write.truncation_count, write.followed)
        self._own_writes.remove(write)

    def _append(self, frames: Sequence[Frame], truncation_count: int, followed: bool) -> None:
        """Write them. Where there is room for some only, these are in the log and the others tried again."""
        log = self.log
        left = frames
        if frames[0].index <= log.last_index:
            left = [frame for frame in frames if frame.index > log.last_index]
        try:
            log.append(left)
        finally:
            written = left
            if left and left[-1].index != log.last_index:
                written = [frame for frame in left if frame.index <= log.last_index]
            if written:
                self.time_ms = written[-1].time_ms
                own_wait = any([each.followed for each in self._own_writes if each.frames is not frames])
                is_all = len(written) == len(left) and not own_wait and not self._owner.is_filling
                self.applier.appended(written, followed, is_all)
                self._unflushed = True
                self._truncation_count = truncation_count

    def rebuild_tail(self) -> None:
        """Make the speculative state anew: what was taken and not handed in is lost. Frames that wait to be
        written are followed when they are."""
        self.applier.rebuild_tail()
        for write in self._own_writes:
            write.followed = False

    def _truncate(self, last_index: int, truncation_count: int) -> None:
        self.log.truncate(last_index)
        self.time_ms = self.log.last_time_ms
        self.applier.truncated(last_index)
        self._owner.on_truncated(last_index)
        self._unflushed = True  # so that the core hears what is flushed now
        self._truncation_count = truncation_count

    def _chunk_stored(self, whole: bool) -> None:
        if whole:
            self._work.append(Work(self._switch, quiet=True))
        self._guarded(_nothing)

    def _switch(self) -> None:
        """The shipped checkpoint is whole: become it, unless the log has reached it by itself meanwhile."""
        arrival = self.installing.arrival
        if arrival is None or not arrival.whole:
            return
        if not self.raft.needs_install(arrival.index, arrival.term):
            self.installing.abort()
            return
        self.clean_ends.forget()
        try:
            checkpoint = arrival.switch()
        except FlushFailed:
            raise
        except (ValueError, StorageError) as error:
            log_of_peers.warning("log group %d: an install was given up: %s", self.log.group_id, error)
            self.installing.abort()
            return
        self.installing.arrival = None
        self._own_writes.clear()
        self._work.clear()  # it spoke of entries that the core forgets now; this work included
        self._unflushed = False
        self.time_ms = checkpoint.time_ms
        self.applier.installed(checkpoint)
        self._owner.on_truncated(checkpoint.index)
        members = Configuration.decode(checkpoint.sections[CONFIGURATION_SECTION])
        self.raft.on_installed(checkpoint.index, checkpoint.term, members, self.now_ms())

    # --- flushes, checkpoints, time -----------------------------------------------------------------------

    def _persisted(self) -> None:
        log = self.log
        self.raft.on_persisted(log.last_index, log.last_term, self._truncation_count, self.now_ms())
        self._owner.on_flushed()

    def _flush_ended(self, error: BaseException | None) -> None:
        if self.stopped:
            return
        if error is not None:
            self.fail(error)
            return
        self._guarded(self._persisted)

    def _checkpointed(self, index: int) -> None:
        self._guarded(self.trim)

    def trim(self) -> None:
        """Let the core forget entries that no follower will be sent: those that are not on the disk any more,
        and beyond `kept_entries` those below a checkpoint, unless a shipment is to be followed by them."""
        log = self.log
        keep_from = min(log.last_index - self._kept_entries, log.first_kept_index - 1)
        pinned = self.installing.shipped_index
        if pinned is not None and pinned > keep_from - self._kept_entries:
            keep_from = min(keep_from, pinned)
        self.raft.on_checkpoint(max(keep_from, log.unbroken_index - 1))

    def _gone(self, upto_index: int | None) -> None:
        """As `Outgoing`: a follower wanted entries that it cannot be sent as such."""
        self._guarded(self.trim if upto_index is None else lambda: self.raft.on_checkpoint(upto_index))

    def _arm(self) -> None:
        """Wake up for the core's next deadline; one that moved on is looked at when the old one comes."""
        deadline = self.raft.deadline_ms
        if deadline >= NEVER_MS or self.stopped:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline:
                return
            self._timer.cancel()
        self._timer_ms = deadline
        self._timer = self._loop.call_later(max(0, deadline - self.now_ms()) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        if now_ms < self.raft.deadline_ms:
            self._arm()
            return
        if self.waits_for_room and self.raft.leader_state is None:
            # It could not write what a leader must: others may.
            self._timer_ms = now_ms + int(ROOM_RETRY_SECONDS * 1000)
            self._timer = self._loop.call_later(ROOM_RETRY_SECONDS, self._tick)
            return
        self._guarded(self.raft.tick, now_ms)

    def fail(self, error: BaseException) -> None:
        """End this member: it says nothing more."""
        if self.failed is not None:
            return
        self.failed = error
        self.stop()
        self._owner.on_failed(error)

    def stop(self) -> None:
        """Nothing more is done, said or written here, whatever is still under way."""
        self.stopped = True
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None
        self.repairing.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _nothing() -> None:
    """The input of a turn that only goes on with what is left."""
