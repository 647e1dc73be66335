"""A log on a recording disk, with what is promised at every moment, and the judge of what a crash left.

`World` drives a `DataLog` and notes into the record, before and after each step, an `Expectation`: which
logs may be found, how much of them must be, which hard states, which checkpoint. `judge` opens a crashed
disk and compares; then it goes on with the log it got, because the worst a recovery can do shows only later:
a stale frame that comes back behind a new one.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log.data_log import DataLog, SealedSegment
from lockstep.storage.log.format import BATCH_LENGTH_OFFSET, BATCH_PREFIX, encode_frame_head, group_seed
from lockstep.storage.log.frame_rewrite import RewrittenBatch
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Buffer, Checkpoint, DirectoryEntry, Frame, HardState, StorageError
from tests.storage.log.frames import FrameMaker, by_turns, same, whole
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem

DIRECTORY = Path("disk")
GROUP = 3
OPTIONS = LogOptions(
    segment_bytes=16 << 10,
    tail_cache_bytes=1 << 12,
    reserve_bytes=1 << 10,
    spare_segments=1,
    pool_segments=1,
)


class Expectation:
    """What must and may be found after a crash here. Never changed once noted."""

    __slots__ = ("acknowledged", "checkpoint", "gone", "hard_states", "logs", "or_else", "starts")

    def __init__(
        self,
        logs: tuple[tuple[Frame, ...], ...],
        acknowledged: int,
        hard_states: tuple[HardState, ...],
        checkpoint: Checkpoint | None,
        starts: dict[int, int],
        or_else: Expectation | None = None,
        gone: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self.gone = gone
        """(partition, base offset) of batches that were cleaned away, and must not come back."""
        self.or_else = or_else
        """What is found may also be this, whole: while a log is replaced by an installed one."""
        self.logs = logs
        """What is found must be the beginning of one of these."""
        self.acknowledged = acknowledged
        """At least this many frames."""
        self.hard_states = hard_states
        self.checkpoint = checkpoint
        """The newest durable one; a newer one may be found."""
        self.starts = starts
        """From which offset a partition must be readable; 0 where it is not named."""


EMPTY = Expectation(((),), 0, (HardState(),), None, {})


class World:
    """Runs steps on a `DataLog` and notes what they promise."""

    def __init__(
        self, options: LogOptions = OPTIONS, image: Image | None = None, reserves: bool = False
    ) -> None:
        self.options = options
        self.disk = SimulatedFileSystem(image, reserves=reserves)
        self.make = FrameMaker()
        self.frames: list[Frame] = []
        self.acknowledged = 0
        self.hard = HardState()
        self.checkpoint: Checkpoint | None = None
        self.starts: dict[int, int] = {}
        self.gone: set[tuple[int, int]] = set()
        self.note()
        self.log = DataLog.open(DIRECTORY, GROUP, options, self.disk)

    def note(
        self,
        other_logs: tuple[tuple[Frame, ...], ...] = (),
        other_hard: HardState | None = None,
        or_else: Expectation | None = None,
    ) -> None:
        hard = (self.hard,) if other_hard is None else (self.hard, other_hard)
        logs = (tuple(self.frames), *other_logs)
        self.disk.note(
            Expectation(
                logs,
                self.acknowledged,
                hard,
                self.checkpoint,
                dict(self.starts),
                or_else,
                frozenset(self.gone),
            )
        )

    def append(self, *frames: Frame) -> None:
        self.frames.extend(frames)
        self.note()
        self.log.append(list(frames))

    def flush(self) -> None:
        self.log.flush()
        if self.options.flush:
            self.acknowledged = len(self.frames)
        self.note()

    def idle(self) -> None:
        self.log.idle()

    def save_hard_state(self, hard: HardState) -> None:
        self.note(other_hard=hard)
        self.log.save_hard_state(hard)
        self.hard = hard
        self.note()

    def write_checkpoint(self, behind: int = 0) -> None:
        index = len(self.frames) - behind
        checkpoint = self._checkpoint_after(self.frames[:index])
        self.log.write_checkpoint(checkpoint)
        self.checkpoint = checkpoint
        self.acknowledged = max(self.acknowledged, index)
        self.note()

    def free_below(self, keep_segments: int, closed: set[int] | None = None) -> int:
        """Move log starts to the last `keep_segments` sealed segments and free; partitions in `closed` keep
        all they have, so that segments die in the middle."""
        sealed = self.log.segments()
        for segment in sealed[: len(sealed) - keep_segments]:
            for share in segment.partitions():
                if share.local_id not in (closed or set()):
                    start = self.starts.get(share.local_id, 0)  # what was cleaned may lie above
                    self.starts[share.local_id] = max(start, share.last_offset + 1)
        self.note()
        return self.log.free_deleted_segments(lambda partition: self.starts.get(partition, 0))

    def install(self, frames: list[Frame], keep_from: int = 1, give_up: bool = False) -> None:
        """Replace the log by one of these frames and a checkpoint after the last; those before `keep_from`
        are not shipped, so that what they hold cannot be read."""
        checkpoint = self._checkpoint_after(frames)
        starts: dict[int, int] = {}
        for frame in frames[: keep_from - 1]:
            for entry in frame.directory:
                starts[entry.partition] = entry.base_offset + entry.record_count
        new = Expectation((tuple(frames),), len(frames), (self.hard,), checkpoint, starts)
        self.note(or_else=new)
        installation = self.log.begin_install()
        chain = [group_seed(GROUP), *chains(frames)][keep_from - 1]
        for at in range(keep_from - 1, len(frames), 5):
            installation.add(frames[at : at + 5], chain if at == keep_from - 1 else None)
        if give_up:
            installation.prepare(checkpoint)
            installation.abort()
            self.note()
            return
        installation.finish(checkpoint)
        self.frames, self.acknowledged, self.checkpoint = list(frames), len(frames), checkpoint
        self.starts = starts
        self.gone.clear()
        self._follow()
        self.note()

    def _checkpoint_after(self, frames: list[Frame]) -> Checkpoint:
        frame = frames[-1]
        return Checkpoint(
            len(frames),
            frame.term,
            frame.first_lsn + frame.record_count,
            chains(frames)[-1],
            frame.time_ms,
            {"state": b"as of %d" % len(frames) * 100, "empty": b""},
        )

    def _follow(self) -> None:
        self.make = FrameMaker()
        for frame in self.frames:
            self.make.follow(frame)

    def rewritable(self) -> list[SealedSegment]:
        below = self.log._maintenance.freeable_below()
        return [segment for segment in self.log.segments() if segment.sequence < below]

    def repair(self, segment: SealedSegment) -> None:
        """Write a segment afresh; what it holds stays."""
        frames = self.frames[segment.first_index - 1 : segment.last_index]
        self.log.rewrite_segment(segment.sequence, frames)

    def begin_later(self, frames_less: int) -> None:
        """Write the first segment afresh without its first frames, whose records are deleted."""
        segment = self.rewritable()[0]
        first = min(segment.first_index + frames_less, segment.last_index)
        for frame in self.frames[: first - 1]:
            for entry in frame.directory:
                start = max(self.starts.get(entry.partition, 0), entry.base_offset + entry.record_count)
                self.starts[entry.partition] = start
        self.note()
        frames, chain = self.frames[first - 1 : segment.last_index], chains(self.frames[: first - 1])[-1]
        self.log.rewrite_segment(segment.sequence, frames, chain, lambda number: self.starts.get(number, 0))

    def clean(self, segment: SealedSegment, partition: int) -> None:
        """Take away a partition's batches in a segment and below, or half of each; only what follows must be
        readable."""
        for share in segment.partitions():
            if share.local_id == partition:
                self.starts[partition] = max(self.starts.get(partition, 0), share.last_offset + 1)
        self.note()
        start = self.starts.get(partition, 0)
        turns = by_turns(start)

        taken = set()

        def judge(e: DirectoryEntry, payload: Buffer) -> RewrittenBatch | bool:
            said = True if e.partition != partition or e.base_offset >= start else turns(e, payload)
            if said is False:
                taken.add((e.partition, e.base_offset))
            return said

        self.log.clean(segment.sequence, judge)
        self.gone |= taken
        self.note()

    def join(self) -> int:
        """Join what is small; it holds what it held."""
        return self.log.join()

    def truncate(self, last_index: int) -> None:
        if last_index >= len(self.frames):
            return
        before = tuple(self.frames)
        del self.frames[last_index:]
        self.acknowledged = min(self.acknowledged, last_index)
        self.note(other_logs=(before,))
        self.log.truncate(last_index)
        self._follow()
        self.make.term += 1
        self.acknowledged = max(self.acknowledged, last_index)
        self.note()

    def kill_and_reopen(self, image: Image | None = None) -> None:
        """Start again on what is there, or on a crashed disk; the record begins anew."""
        self.disk = SimulatedFileSystem(image or self.disk.now(), reserves=self.disk.reserves)
        self.restart()

    def restart(self) -> None:
        """Start again after the process alone died: what was not flushed still is not."""
        self.note()
        self.log = DataLog.open(DIRECTORY, GROUP, self.options, self.disk)
        del self.frames[self.log.last_index :]
        self._follow()
        # What an opened log shows may be served, so it must stay.
        self.acknowledged = len(self.frames)
        self.note()


def chains(frames: list[Frame] | tuple[Frame, ...]) -> list[int]:
    """The chain value after each frame."""
    chain, found = group_seed(GROUP), []
    for frame in frames:
        chain = encode_frame_head(frame, chain)[1]
        found.append(chain)
    return found


class Judgement:
    """What came of one crashed disk."""

    __slots__ = ("after", "problem")

    def __init__(self, problem: str, after: SimulatedFileSystem) -> None:
        self.problem = problem
        """Empty when all is well."""
        self.after = after
        """The disk it was opened on, with the record of recovery and of what was appended then."""


def judge(image: Image, expected: Expectation, options: LogOptions = OPTIONS) -> Judgement:
    """Open the disk, compare, go on, open again."""
    disk = SimulatedFileSystem(image)
    disk.note(expected)
    try:
        problem = _recovered(disk, expected, options)
    except (StorageError, OSError, ValueError, AssertionError, IndexError, KeyError) as error:
        problem = f"{type(error).__name__}: {error}"
    return Judgement(problem, disk)


def _recovered(disk: SimulatedFileSystem, expected: Expectation, options: LogOptions) -> str:
    log = DataLog.open(DIRECTORY, GROUP, options, disk)
    count = log.last_index
    if expected.or_else is not None and _is_installed(log, expected, expected.or_else):
        expected = expected.or_else
    if count < expected.acknowledged:
        return f"{expected.acknowledged} frames were acknowledged, {count} are there"
    found = [
        c for c in expected.logs if len(c) >= count and (chains(c[:count]) or [log.chain])[-1] == log.chain
    ]
    if not found:
        return f"a log of {count} frames that nobody wrote"
    wrote = found[0]
    problem = (
        _state_problem(log, expected)
        or _content_problem(log, wrote[:count], expected.starts)
        or _return_problem(log, expected.gone)
    )
    if problem:
        return problem
    found_now = Expectation(
        (wrote[:count],),
        count,
        (log.hard_state,),
        expected.checkpoint,
        expected.starts,
        gone=expected.gone,
    )
    disk.note(found_now)
    return _going_on(disk, log, wrote, expected, options)


def _is_installed(log: DataLog, old: Expectation, new: Expectation) -> bool:
    """Which one it is the checkpoint says: an installed one is of its own index."""
    assert new.checkpoint is not None
    assert old.checkpoint is None or old.checkpoint.index != new.checkpoint.index
    return log.checkpoint is not None and log.checkpoint.index == new.checkpoint.index


def _state_problem(log: DataLog, expected: Expectation) -> str:
    if log.hard_state not in expected.hard_states:
        return f"hard state {log.hard_state}, not among {expected.hard_states}"
    if expected.checkpoint is not None:
        loaded = log.checkpoint
        if loaded is None or loaded.index < expected.checkpoint.index:
            return f"the checkpoint at {expected.checkpoint.index} is gone"
        if loaded.sections["state"] != b"as of %d" % loaded.index * 100:
            return "a checkpoint with another state"
    return ""


def _content_problem(log: DataLog, wrote: tuple[Frame, ...], starts: dict[int, int]) -> str:
    after = log.checkpoint.index if log.checkpoint is not None else 0
    replayed = list(log.replay())
    if len(replayed) != len(wrote) - after or not all(map(same, replayed, wrote[after:])):
        return f"replay of {len(replayed)} frames differs from what was written"
    batches: dict[int, list[tuple[int, bytes]]] = {}
    for frame in wrote:
        for entry, payload in zip(frame.directory, frame.payloads, strict=True):
            batches.setdefault(entry.partition, []).append((entry.base_offset, bytes(payload)))
    for partition, each in batches.items():
        start = starts.get(partition, 0)
        expected = b"".join(payload for base, payload in each if base >= start)
        if expected:
            got = whole(log.read_cold(partition, start, 1 << 30, 1 << 40).buffers)
            if got != expected:
                return f"partition {partition}: {len(got)} bytes read, {len(expected)} written, or others"
    return ""


def _return_problem(log: DataLog, gone: frozenset[tuple[int, int]]) -> str:
    """Does anything come back that was cleaned away?"""
    for partition in sorted({number for number, _ in gone}):
        first = log.first_offset(partition)
        if first is None:
            continue
        data = memoryview(whole(log.read_cold(partition, first, 1 << 30, 1 << 40).buffers))
        while data:
            base, length, *_ = BATCH_PREFIX.unpack_from(data)
            if (partition, base) in gone:
                return f"partition {partition}: the batch at {base} was cleaned away and is back"
            data = data[length + BATCH_LENGTH_OFFSET :]
    return ""


def _going_on(
    disk: SimulatedFileSystem,
    log: DataLog,
    wrote: tuple[Frame, ...],
    expected: Expectation,
    options: LogOptions,
) -> str:
    """Append the very frame that was lost (or a new one) and reopen: nothing may follow it."""
    count = log.last_index
    longest = max(expected.logs, key=len)
    make = FrameMaker()
    for frame in wrote[:count]:
        make.follow(frame)
    lost = wrote[count] if len(wrote) > count else longest[count] if len(longest) > count else None
    following = lost is not None and (lost.first_lsn, lost.term >= make.term) == (make.next_lsn, True)
    next_frame = lost if lost is not None and following else make.data((1, 1, b"after the crash"))
    now = (*wrote[:count], next_frame)
    hard, starts, gone = (log.hard_state,), expected.starts, expected.gone
    disk.note(Expectation((now,), count, hard, expected.checkpoint, starts, gone=gone))
    log.append([next_frame])
    log.flush()
    log.write_checkpoint(
        Checkpoint(
            count + 1,
            next_frame.term,
            log.next_lsn,
            log.chain,
            log.last_time_ms,
            {"state": b"as of %d" % (count + 1) * 100},
        )
    ) if count % 5 == 4 else None
    acknowledged = count + 1 if options.flush or count % 5 == 4 else count
    disk.note(Expectation((now,), acknowledged, hard, expected.checkpoint, starts, gone=gone))
    again = DataLog.open(DIRECTORY, GROUP, options, SimulatedFileSystem(disk.now()))
    if again.last_index != count + 1 or again.chain != log.chain:
        return f"one frame was appended after {count}, then the log had {again.last_index}"
    return _content_problem(again, now, starts) or _return_problem(again, gone)
