"""Looking at a log's directory without opening it as a log, file by file. So far only tests use it: `lockstep
log verify` and `dump` read through `lockstep.log_reading`.

Reads only. `verify` judges every file, `frames` gives every frame with its place. Both may run beside a
broker that is writing; then the last segment may seem to end in a torn tail. The rules are recovery's
(`recovery`, `scan`); what differs is that segments below the checkpoint are read in full as well, and that
the first fault does not end the walk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storage.log.batch_index import decode_batches, decode_index_head
from storage.log.checkpoint_file import PREFIX, decode_checkpoint
from storage.log.file_system import FileSystem, RealFileSystem, read_whole
from storage.log.format import (
    FORMAT,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    group_seed,
    position,
)
from storage.log.scan import LogTail, SegmentScan, highest_promise
from storage.log.segments import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    TOMBSTONE_SUFFIX,
    index_name,
    segment_name,
    sequences_of,
)
from storage.log.state_file import SLOT_BYTES, STATE_NAME, LogState, decode_slot
from storage.types import CorruptLog, Frame, NewerFormat

OK = "ok"
TORN_TAIL = "torn tail"
ROT = "rot"
UNUSED = "unused"
REBUILDABLE = "rebuildable"


@dataclass(frozen=True)
class Verdict:
    """One file, judged. `position` is where in it the verdict applies: the end of what verifies."""

    path: str
    verdict: str
    """OK, TORN_TAIL (a crash left it, nothing acknowledged is lost), ROT, UNUSED (ready for use),
    REBUILDABLE (an index file that does not fit; the next start makes a new one)."""
    position: int
    frames: int
    detail: str

    @property
    def harmless(self) -> bool:
        return self.verdict != ROT


@dataclass(frozen=True)
class PlacedFrame:
    """A frame and where it is."""

    path: str
    position: int
    end: int
    frame: Frame


class ReadOnlyFileSystem(RealFileSystem):
    """Opens files for reading only."""

    def open(self, path: Path, create: bool = False) -> int:
        if create:
            raise PermissionError(f"{path}: inspection does not write")
        return os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))


class _Directory:
    """A log's directory as its state file describes it."""

    def __init__(self, directory: Path, fs: FileSystem) -> None:
        self.directory = directory
        self.fs = fs
        self.names = fs.list_dir(directory)
        data = read_whole(fs, directory / STATE_NAME)
        if data is None:
            raise CorruptLog(f"{directory / STATE_NAME}: no state file, so no log")
        self.slots = [decode_slot(data[i * SLOT_BYTES : (i + 1) * SLOT_BYTES]) for i in (0, 1)]
        whole = [slot for slot in self.slots if slot is not None]
        if not whole:
            raise CorruptLog(f"{directory / STATE_NAME}: neither slot is whole")
        fmt, self.group_id, _, self.state = max(whole, key=lambda slot: slot[2])
        if fmt > FORMAT:
            raise NewerFormat(f"{directory}: format {fmt}, this version knows up to {FORMAT}")
        self.seed = group_seed(self.group_id)
        freed = set(sequences_of(self.names, TOMBSTONE_SUFFIX))
        present = sequences_of(self.names, SEGMENT_SUFFIX)
        self.live = [s for s in present if s >= self.state.oldest_sequence and s not in freed]
        self.gone = [s for s in present if s not in self.live]

    def header(self, sequence: int) -> SegmentHeader | None:
        """The header that counts for this sequence, or None."""
        if sequence not in self.live:
            return None
        fd = self.fs.open(self.directory / segment_name(sequence))
        try:
            decoded = decode_segment_header(self.fs.pread(fd, SEGMENT_HEADER_BYTES, 0))
        finally:
            self.fs.close(fd)
        if decoded is None or decoded[1].sequence != sequence or decoded[1].group_id != self.group_id:
            return None
        if decoded[0] > FORMAT:
            raise NewerFormat(f"{segment_name(sequence)}: format {decoded[0]}")
        state: LogState = self.state
        generation = decoded[1].generation
        if position(sequence, 0) >= state.generation_start:
            return decoded[1] if generation == state.generation else None
        return decoded[1] if generation <= state.generation else None

    def marker_promise(self, sequence: int) -> int:
        """The highest position that a marker anywhere in this segment speaks of."""
        fd = self.fs.open(self.directory / segment_name(sequence))
        try:
            return highest_promise(
                lambda length, offset: self.fs.pread(fd, length, offset),
                self.fs.size(fd),
                sequence,
                self.seed,
                self.state.generation,
                SEGMENT_HEADER_BYTES,
            )[0]
        finally:
            self.fs.close(fd)

    def checkpoints(self) -> Iterator[tuple[str, int, int]]:
        """(name, position after it or -1 where it is broken, index)."""
        for name in sorted(n for n in self.names if n.startswith(PREFIX)):
            data = read_whole(self.fs, self.directory / name)
            loaded = decode_checkpoint(data, name, self.group_id) if data is not None else None
            yield name, loaded.place if loaded else -1, loaded.checkpoint.index if loaded else -1


class _SegmentWalk:
    """One segment read from its header on."""

    def __init__(self, where: _Directory, header: SegmentHeader) -> None:
        self.where = where
        self.header = header
        self.path = segment_name(header.sequence)
        self.following = where.header(header.sequence + 1)
        self.count = 0
        self.problem = ""
        self.end = SEGMENT_HEADER_BYTES
        self.promise = header.flushed
        self.reason = ""

    def frames(self) -> Iterator[PlacedFrame]:
        where, header = self.where, self.header
        fs = where.fs
        fd = fs.open(where.directory / self.path)
        try:
            size = fs.size(fd)
            scan = SegmentScan(
                lambda length, offset: fs.pread(fd, length, offset),
                min(size, self.following.previous_end) if self.following is not None else size,
                header.sequence,
                where.seed,
                LogTail(header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms),
                SEGMENT_HEADER_BYTES,
                where.state.generation,
                where.state.generation_start,
            )
            for found in scan.frames():
                self.count += 1
                yield PlacedFrame(self.path, found.offset, found.end, found.frame())
            self.end, self.reason = scan.offset, scan.reason
            claim, _ = highest_promise(
                lambda length, offset: fs.pread(fd, length, offset),
                size,
                header.sequence,
                where.seed,
                where.state.generation,
                scan.offset,
            )
            self.promise = max(self.promise, scan.promise, claim)
        finally:
            fs.close(fd)

    def verdict(self, promise: int) -> Verdict:
        """After `frames`. `promise`: the highest position anything else in the directory speaks of."""
        end, following = self.end, self.following
        detail = f"frames {self.header.first_index} to {self.header.first_index + self.count - 1}"
        if not self.count:
            detail = "no frames"
        if following is not None and end == following.previous_end:
            return Verdict(self.path, OK, end, self.count, detail)
        place = position(self.header.sequence, end)
        if place < max(promise, self.promise):
            return Verdict(self.path, ROT, end, self.count, f"{detail}, then {self.reason}")
        if self.reason.startswith(("no marker", "a marker of", "the segment is full")):
            return Verdict(self.path, OK, end, self.count, f"{detail}, the log ends here")
        return Verdict(self.path, TORN_TAIL, end, self.count, f"{detail}, then {self.reason}")


def group_of(directory: Path, fs: FileSystem | None = None) -> int:
    """Whose log a directory holds. CorruptLog where it holds none, NewerFormat."""
    return _Directory(directory, fs or ReadOnlyFileSystem()).group_id


def frames(directory: Path, fs: FileSystem | None = None) -> Iterator[PlacedFrame]:
    """Every frame that verifies, in order; after one that does not, the next segment's."""
    where = _Directory(directory, fs or ReadOnlyFileSystem())
    for sequence in where.live:
        header = where.header(sequence)
        if header is not None:
            yield from _SegmentWalk(where, header).frames()


def verify(directory: Path, fs: FileSystem | None = None) -> Iterator[Verdict]:
    """A verdict on every file. CorruptLog where there is no log to judge, NewerFormat."""
    where = _Directory(directory, fs or ReadOnlyFileSystem())
    yield _state_verdict(where)
    promise = where.state.generation_start
    for name, place, index in where.checkpoints():
        promise = max(promise, place)
        if place < 0:
            yield Verdict(name, ROT, 0, 0, "not whole")
        else:
            yield Verdict(name, OK, 0, 0, f"state as of frame {index}")
    expected = where.state.oldest_sequence
    for sequence in where.live:
        while expected < sequence and expected not in sequences_of(where.names, TOMBSTONE_SUFFIX):
            yield Verdict(segment_name(expected), ROT, 0, 0, "the segment is missing")
            expected += 1
        expected = sequence + 1
        yield from _segment_verdicts(where, sequence, promise)
    for sequence in where.gone:
        yield Verdict(segment_name(sequence), UNUSED, 0, 0, "freed")


def _state_verdict(where: _Directory) -> Verdict:
    whole = sum(slot is not None for slot in where.slots)
    state = where.state
    detail = (
        f"group {where.group_id}, term {state.hard.term}, generation {state.generation}, {whole} of 2 slots"
    )
    return Verdict(STATE_NAME, OK if whole == 2 else ROT, 0, 0, detail)


def _segment_verdicts(where: _Directory, sequence: int, promise: int) -> Iterator[Verdict]:
    header = where.header(sequence)
    name = segment_name(sequence)
    later = [h for s in where.live if s > sequence and (h := where.header(s)) is not None]
    promise = max([promise, *(h.flushed for h in later)])
    if header is None:
        used = later or position(sequence, 0) < max(promise, where.marker_promise(sequence))
        yield Verdict(name, ROT if used else UNUSED, 0, 0, "no valid header" if used else "ready for use")
        return
    walk = _SegmentWalk(where, header)
    for _ in walk.frames():
        pass
    yield walk.verdict(promise)
    if sequence in sequences_of(where.names, INDEX_SUFFIX):
        yield _index_verdict(where, sequence, walk)


def _index_verdict(where: _Directory, sequence: int, walk: _SegmentWalk) -> Verdict:
    name = index_name(sequence)
    data = read_whole(where.fs, where.directory / name) or b""
    head = decode_index_head(data)
    if head is None:
        return Verdict(name, REBUILDABLE, 0, 0, "header or summary does not verify")
    index, summary = head
    if (index.generation, index.end) != (walk.header.generation, walk.end):
        return Verdict(name, REBUILDABLE, 0, 0, "of another life of its segment")
    at = len(data) - sum(4 + 24 * count for count in summary.counts)
    for row, count in enumerate(summary.counts):
        if decode_batches(data[at : at + 4 + 24 * count], summary, row) is None:
            return Verdict(name, REBUILDABLE, at, 0, f"partition {summary.numbers[row]} does not verify")
        at += 4 + 24 * count
    return Verdict(
        name, OK, len(data), 0, f"{sum(summary.counts)} batches of {len(summary.counts)} partitions"
    )
