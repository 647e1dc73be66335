"""Reads a stopped broker's log without changing a byte: one group's frames, and a verification of all of it.

Owns: reading every frame of a group in order, each verified, and the report of `lockstep log verify` on a
group. The places of damage are `damage_search`'s.

Invariants: nothing is written. Recovery itself runs, on a file system that drops its writes, so that this
and the broker agree about what is a torn tail and what is corruption; then every segment is scanned from its
first byte, also those that recovery takes on trust because a checkpoint covers them.

Does not: repair, read a directory that a broker is using, or know what partitions are called
(`lockstep.stopped_broker`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from lockstep.protocol.records.batch import MalformedBatch, peek_header
from lockstep.storage.log.checkpoint_file import load_checkpoints
from lockstep.storage.log.damage_search import Damage, DamageSearch
from lockstep.storage.log.file_system import RealFileSystem, open_file
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    group_seed,
    payload_views,
)
from lockstep.storage.log.recovery import Recovery
from lockstep.storage.log.recovery_result import RecoveryReport
from lockstep.storage.log.salvage import salvaged_state
from lockstep.storage.log.segment_files import SEGMENT_SUFFIX
from lockstep.storage.log.segment_scan import LogTail, ScannedFrame, SegmentScan
from lockstep.storage.log.segments import Segment
from lockstep.storage.log.state_file import STATE_NAME, LogState, LostState, StateFile
from lockstep.storage.types import (
    CONTROL_PARTITION,
    NOTES_PARTITION,
    Buffer,
    Checkpoint,
    CorruptLog,
    HardState,
    StorageError,
)


class NoLog(StorageError):
    """There is no log to read; the text has the reason."""


class ReadOnlyFileSystem(RealFileSystem):
    """A file system that reads and drops every write, so that nothing on the disk changes."""

    def make_dir(self, path: Path) -> None:
        """Nothing: it is there, or there is nothing to read."""

    def open(self, path: Path, create: bool = False) -> int:
        if create:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return open_file(path, os.O_RDONLY | os.O_CLOEXEC)

    def allocate(self, fd: int, length: int) -> None:
        """Nothing."""

    def rename(self, old: Path, new: Path) -> None:
        """Nothing."""

    def unlink(self, path: Path) -> None:
        """Nothing."""

    def fsync_dir(self, path: Path) -> None:
        """Nothing."""

    @staticmethod
    def pwritev(fd: int, buffers: Sequence[Buffer], position: int, /) -> int:  # type: ignore[override]
        """Writes nothing and reports that all was written."""
        return sum(map(len, buffers))

    @staticmethod
    def fdatasync(fd: int, /) -> None:  # type: ignore[override]
        """Nothing."""


class GroupLog:
    """One group's log. Opening it raises CorruptLog, NewerFormat or NoLog."""

    def __init__(self, directory: Path, group_id: int) -> None:
        self.directory = directory
        self.group_id = group_id
        self._fs = ReadOnlyFileSystem()
        if not (directory / STATE_NAME).exists() and not any(directory.glob("*.segment")):
            raise NoLog(f"{directory} holds no log")
        state_file = StateFile.open(self._fs, directory, group_id)
        self.state = LogState(HardState()) if state_file is None else state_file.state
        """As it was before this opening."""
        if state_file is not None:
            state_file.close()
        found = Recovery(self._fs, directory, group_id, 0).run()
        found.state_file.close()
        self.report: RecoveryReport = found.report
        self.checkpoint: Checkpoint | None = found.checkpoints[-1].checkpoint if found.checkpoints else None
        self.segments: list[Segment] = found.segments
        for segment in self.segments:
            if segment.fd >= 0:
                self._fs.close(segment.fd)
                segment.fd = -1

    def frames(self) -> Iterator[tuple[Segment, ScannedFrame]]:
        """Every frame that counts, oldest first, header, directory and payloads verified; CorruptLog."""
        tail: LogTail | None = None
        sequence = -1
        for segment in self.segments:
            if segment.first_sequence != sequence + 1:
                tail = None  # those between them have been freed
            sequence = segment.sequence
            try:
                fd = self._fs.open(segment.path)
            except FileNotFoundError:
                raise CorruptLog(f"{segment.path}: the segment is missing") from None
            try:
                tail = yield from self._frames_of(segment, fd, tail)
            finally:
                self._fs.close(fd)

    def _frames_of(
        self, segment: Segment, fd: int, before: LogTail | None
    ) -> Generator[tuple[Segment, ScannedFrame], None, LogTail]:
        found = decode_segment_header(self._fs.pread(fd, SEGMENT_HEADER_BYTES, 0))
        if found is None:
            raise CorruptLog(f"{segment.path} byte 0: the segment header does not verify")
        header = found[1]
        if before is not None and (before.chain, before.index + 1) != (header.chain, header.first_index):
            raise CorruptLog(f"{segment.path} byte 0: does not continue the segment before it")
        tail = LogTail(header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms)
        scan = SegmentScan(
            lambda length, offset: self._fs.pread(fd, length, offset),
            min(segment.size, self._fs.size(fd)),
            segment.sequence,
            group_seed(self.group_id),
            tail,
            SEGMENT_HEADER_BYTES,
            self.state.generation,
            self.state.generation_start,
            header.rewritten,
        )
        scan.last_generation = header.generation
        for frame in scan.frames():
            yield segment, frame
        if scan.offset < segment.end:
            raise CorruptLog(
                f"{segment.path} byte {scan.offset}: {scan.reason}, but the segment "
                f"continues to {segment.end}"
            )
        return scan.tail


class Verdict:
    """The result of `verify` for one group's log: the verified part, and the rest."""

    __slots__ = (
        "batches",
        "bytes",
        "checkpoint",
        "control_records",
        "corruption",
        "damage",
        "ends_at",
        "frames",
        "notes",
        "records",
        "segments",
    )

    def __init__(self) -> None:
        self.segments = self.frames = self.batches = self.records = self.bytes = 0
        self.control_records = 0
        """Not among `records`: what the log writes for itself, and the markers of transactions."""
        self.ends_at: str | None = None
        """Where the log ends, in words; None where corruption hides it. A torn end, which is truncated, is no
        corruption."""
        self.corruption: list[str] = []
        """Why the log cannot be opened, and damaged checkpoints."""
        self.damage: list[Damage] = []
        """All that does not verify in the segments, in the order of the log."""
        self.notes: list[str] = []
        """Damage that costs nothing: another copy serves, or the next start makes it again."""
        self.checkpoint: Checkpoint | None = None
        """The newest whole one."""

    @property
    def is_corrupt(self) -> bool:
        return bool(self.corruption or self.damage)


def verify(
    directory: Path,
    group_id: int,
    reading: Callable[[int, int], None] = lambda read, total: None,
    on_frame: Callable[[ScannedFrame], None] = lambda frame: None,
) -> Verdict:
    """Read the whole log, behind what is damaged as well. NewerFormat; NoLog where there is none.

    Args:
        reading: called after each frame with the bytes of frames that were read, and the bytes there are.
        on_frame: called with each frame, also where some of its batches do not verify.
    """
    found = Verdict()
    fs, ends = ReadOnlyFileSystem(), {}
    names = fs.list_dir(directory) if directory.is_dir() else []
    try:
        log = GroupLog(directory, group_id)
        _note_report(found, log.report)
        found.checkpoint, ends = log.checkpoint, {each.sequence: each.end for each in log.segments}
        state = log.state
    except CorruptLog as error:
        found.corruption.append(str(error))
        try:
            state = _state(fs, directory, group_id, names)
        except CorruptLog:
            return found
        whole, _ = load_checkpoints(fs, directory, names, group_id, state.oldest_sequence)
        found.checkpoint = whole[-1].checkpoint if whole else None
    total = sum(ends.values()) or sum(each.stat().st_size for each in directory.glob(f"*{SEGMENT_SUFFIX}"))

    def count(frame: ScannedFrame) -> None:
        found.frames += 1
        found.batches += frame.batch_count
        control_records = _control_records(frame)
        found.records += frame.record_count - control_records
        found.control_records += control_records
        found.bytes += frame.end - frame.offset
        reading(found.bytes, total)
        on_frame(frame)

    search = DamageSearch(fs, directory, group_id, state, ends)
    search.run(count)
    found.segments, found.damage = search.segments, search.damage
    return found


def _control_records(frame: ScannedFrame) -> int:
    """Records of the control partition, of notes, and of control batches, which no consumer sees."""
    count = 0
    payloads = payload_views(frame.view, frame.payload_at, frame.entries)
    for entry, payload in zip(frame.entries, payloads, strict=True):
        if entry[0] in (CONTROL_PARTITION, NOTES_PARTITION) or _is_control_batch(payload):
            count += entry[2]
    return count


def _is_control_batch(payload: Buffer) -> bool:
    try:
        return peek_header(payload).is_control
    except MalformedBatch:  # a removed batch has no bytes
        return False


def _note_report(found: Verdict, report: RecoveryReport) -> None:
    found.corruption += [f"checkpoint {name} is damaged" for name in report.ignored_checkpoints]
    if report.damaged_slot:
        found.notes.append(
            "one of the two copies of the state is damaged: a crash, or corruption that did no harm yet"
        )
    if report.rebuilt_indexes:
        found.notes.append(
            f"{report.rebuilt_indexes} index files are missing or damaged; they can be made again"
        )
    found.notes += [f"a .freed file names {name}, which is whole" for name in report.wrongly_freed]
    found.ends_at = report.end_text


def _state(fs: ReadOnlyFileSystem, directory: Path, group_id: int, names: list[str]) -> LogState:
    """The log's state, from its segments where its file is lost. CorruptLog where they do not have it."""
    try:
        state_file = StateFile.open(fs, directory, group_id)
    except LostState:
        state_file = None
    if state_file is None:
        return salvaged_state(fs, directory, group_id, names)
    state_file.close()
    return state_file.state
