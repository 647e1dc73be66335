"""Recovery: opens a log's directory, finds the log's end, and separates a torn tail from corruption.

The order of work, each step safe to repeat after another crash:
1. the state file: it is created first in a new directory, so a directory with segments and no state file is
   damaged; an origin file without a state file is a leftover of a deleted log, and is removed before that;
2. the newest valid checkpoint;
3. segments below it: header and index file's summary, their index rebuilt where the file does not fit;
4. segments from it on: scanned frame by frame;
5. the decision about the scan's end: below the highest promise it is corruption (`CorruptLog`), otherwise
   the end of the log or a torn tail, and nothing after it counts;
6. everything scanned is flushed, then a new generation that begins at the log's end is saved: from then on no
   frame or marker beyond that end counts, although none is erased.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from lockstep.storage.log.batch_index import add_to_index
from lockstep.storage.log.checkpoint_file import PlacedCheckpoint, is_checkpoint, load_checkpoints
from lockstep.storage.log.file_system import FileSystem, unless_lost
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_REWRITTEN_FORMAT,
    SegmentHeader,
    byte_of,
    decode_segment_header,
    group_seed,
    position_of,
    position_text,
    segment_of,
)
from lockstep.storage.log.freed_segments import FreedSequences
from lockstep.storage.log.index_file import IndexHeader, SegmentSummary
from lockstep.storage.log.lost_segments import (
    LostFile,
    find_lost_files,
    frames_between,
    is_index_of,
    load_index_head,
    read_header_bytes,
    segment_without_file,
    tail_before,
    unknown_end,
)
from lockstep.storage.log.missing_segment import EMPTY_DIRECTORY, NO_INDEX, NO_STATE, describe_missing
from lockstep.storage.log.origin_file import ORIGIN_NAME
from lockstep.storage.log.recovery_result import Recovered, RecoveryReport
from lockstep.storage.log.salvage import begin_search, salvaged_state
from lockstep.storage.log.segment_files import SEGMENT_SUFFIX, SegmentFiles, joined_of, sequences_of
from lockstep.storage.log.segment_scan import LogTail, SegmentScan, highest_promise
from lockstep.storage.log.segments import Segment
from lockstep.storage.log.startup_cleanup import (
    finish_installation,
    flush_scanned,
    invalidate_unfinished_joins,
    is_invalidated,
    remove_file,
    remove_stale_files,
    reuse_ready_files,
)
from lockstep.storage.log.state_file import LostState, StateFile
from lockstep.storage.log.wrongly_freed import find_wrongly_freed
from lockstep.storage.types import CorruptLog, HardState, NewerFormat


class Recovery:
    """One opening of one directory."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        group_id: int,
        segment_bytes: int,
        salvage_incarnation: int | None = None,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._group_id = group_id
        self._seed = group_seed(group_id)
        self._segment_bytes = segment_bytes
        self._frames = self._bytes = self._rebuilt = 0
        self._reason = ""
        self._promise = 0
        self._salvage_incarnation = salvage_incarnation
        """Not None: truncate at corruption above the newest checkpoint, and re-create a lost hard state."""
        self._start = 0
        """The sequence of the newest checkpoint's segment, or the oldest one."""
        self._salvaged_from = 0
        self._salvaged_state = False
        self._files = SegmentFiles((), 1, 0, lambda name: False)
        self._headers: dict[int, SegmentHeader | None] = {}
        self._wrongly_freed: tuple[str, ...] = ()
        self._opened: list[Segment] = []
        self._lost: dict[int, LostFile] = {}
        """By sequence; of segments below the checkpoint."""

    def run(self) -> Recovered:
        """Opens the log. Raises CorruptLog, NewerFormat; OSError from the file system."""
        fs, directory = self._fs, self._directory
        fs.make_dir(directory)
        names = fs.list_dir(directory)
        state_file = self._open_state(names)
        kept = [n for n in names if n.endswith(SEGMENT_SUFFIX) or is_checkpoint(n)]
        if state_file is None and kept:
            raise CorruptLog(f"{directory}: no state file, but {kept[0]} and {len(kept) - 1} more")
        for name in names:
            if name.endswith(".tmp"):
                remove_file(fs, directory / name)
        if state_file is None:
            if ORIGIN_NAME in names:  # of a deleted log, whose promises went with its state file
                fs.unlink(directory / ORIGIN_NAME)
                fs.fsync_dir(directory)
            state_file = StateFile.create(fs, directory, self._group_id)
        try:
            return self._run(state_file, names)
        except BaseException:
            state_file.close()
            self._close_opened()
            raise

    def _close_opened(self) -> None:
        for segment in self._opened:
            if segment.fd >= 0:
                self._fs.close(segment.fd)
        self._opened.clear()

    def _open_state(self, names: list[str]) -> StateFile | None:
        try:
            return StateFile.open(self._fs, self._directory, self._group_id)
        except LostState:
            if self._salvage_incarnation is None:
                raise
            found = salvaged_state(self._fs, self._directory, self._group_id, names)
            begin_search(self._fs, self._directory)
            self._salvaged_state = True
            found.hard.incarnation = self._salvage_incarnation
            return StateFile.in_place_of_lost(self._fs, self._directory, self._group_id, found)

    def _run(self, state_file: StateFile, names: list[str]) -> Recovered:
        fs, directory = self._fs, self._directory
        state = self._state = state_file.state
        checkpoints, broken = load_checkpoints(fs, directory, names, self._group_id, state.oldest_sequence)
        promised = 0 if self._salvaged_state else state.generation_start
        self._promise = max([promised, *[each.position for each in checkpoints]])
        dropped: PlacedCheckpoint | None = None
        try:
            segments, scanned, tail = self._find(checkpoints, broken, names)
        except CorruptLog as error:
            if self._salvage_incarnation is None or self._salvaged_state or len(checkpoints) < 2:
                raise
            dropped = checkpoints.pop()
            segments, scanned, tail = self._find_from_older(checkpoints, broken, names, error)
        files, end = self._files, _end_of(scanned, self._start)
        skipped_segments = self._describe_skipped_segments(names) if self._salvaged_state else ""
        for segment in segments:
            flush_scanned(fs, segment, self._promise)
        if dropped is not None:  # the log may end below its place from now on
            broken.append(dropped.name)
            fs.unlink(directory / dropped.name)
        fs.fsync_dir(directory)  # a file may have its name since a moment before the process was killed
        # This save truncates corruption and ends this member at once: it may have promised those frames.
        hard, generation = self._hard_state(), state.generation + 1
        state_file.save(replace(state, hard=hard, generation=generation, generation_start=end))
        next_sequence = segment_of(end) + 1 if scanned else self._start
        may_join = invalidate_unfinished_joins(fs, directory, files)
        remove_stale_files(fs, directory, names, files, next_sequence, state.oldest_sequence)
        ready = reuse_ready_files(fs, directory, files.live, next_sequence, self._segment_bytes)
        finish_installation(fs, directory, checkpoints)
        report = RecoveryReport(
            self._frames,
            self._bytes,
            position_text(end),
            self._reason,
            tuple(broken),
            self._rebuilt,
            state_file.damaged,
            self._salvaged_from,
            self._salvaged_state,
            skipped_segments,
            tuple(each.problem for _, each in sorted(self._lost.items())),
            self._wrongly_freed,
        )
        present = set(names)
        leftover = [directory / name for name in files.leftover if name in present]
        return Recovered(
            state_file, checkpoints, segments, tail, ready, leftover, report, may_join, self._lost
        )

    def _find_from_older(
        self, checkpoints: list[PlacedCheckpoint], broken: list[str], names: list[str], error: CorruptLog
    ) -> tuple[list[Segment], list[Segment], LogTail]:
        """`_find` without the newest checkpoint, which a member that comes back as another may forget. Raises
        `error`, about the newest, where the older one does not serve."""
        self._close_opened()
        self._headers.clear()
        self._lost.clear()
        self._frames = self._bytes = self._rebuilt = 0
        try:
            return self._find(checkpoints, broken, names)
        except CorruptLog:
            raise error from None

    def _find(
        self, checkpoints: list[PlacedCheckpoint], broken: list[str], names: list[str]
    ) -> tuple[list[Segment], list[Segment], LogTail]:
        """The segments, those that were scanned, and the log's tail. Changes nothing. Raises CorruptLog."""
        fs, directory, state = self._fs, self._directory, self._state
        placed = checkpoints[-1] if checkpoints else None
        oldest = state.oldest_sequence
        is_void = cache(partial(is_invalidated, fs, directory))
        below = segment_of(checkpoints[0].position) if checkpoints else None
        wrong = find_wrongly_freed(fs, directory, self._group_id, names, oldest, state.joins, is_void, below)
        files = self._files = SegmentFiles(names, oldest, state.joins, is_void, wrong)
        named = FreedSequences(names)
        self._wrongly_freed = tuple(files.name(each) for each in files.live if each in named)
        start = self._start = segment_of(placed.position) if placed is not None else oldest
        if not self._salvaged_state:  # a guessed state may be wrong about what there must be
            lost = find_lost_files(names, files, oldest, start, state.joins)
            files = self._files = SegmentFiles([*names, *lost], oldest, state.joins, is_void, wrong)
        live = files.live
        missing = files.first_missing(oldest)
        # Freed files above that belong to an installation that was not finished.
        if placed is None and (oldest > 1 or files.freed.any_below(missing) or files.has_joined):
            raise CorruptLog(
                f"{directory}: segments were freed or joined, but no checkpoint is whole: "
                f"{broken or 'no file'}"
            )
        if missing < start or (missing == start and placed is not None):
            reason = NO_INDEX if missing < start else "it holds the position of the newest checkpoint"
            raise CorruptLog(self._describe_missing(missing, names, reason))
        if start in files.covered:
            raise CorruptLog(f"{directory / files.name(start)}: joined, but not below the checkpoint")
        sealed: list[Segment] = []
        for sequence in live:
            if sequence < start:
                sealed.append(self._sealed(sequence, sealed[-1] if sealed else None, names))
        scanned, tail = self._scan_from(start, placed)
        self._check_end(_end_of(scanned, start), start, scanned, placed, tail)
        return sealed + scanned, scanned, tail

    def _hard_state(self) -> HardState:
        hard = self._state.hard
        if not self._salvaged_from or self._salvaged_state:
            return hard  # a new hard state has another incarnation already
        return HardState(hard.term, -1, max(hard.incarnation + 1, self._salvage_incarnation or 0))

    def _describe_missing(self, missing: int, names: list[str], reason: str) -> str:
        """Returns the error text about a missing segment, with the entries it held as far as its neighbours
        show, and the reason why the log cannot do without it."""
        reason = NO_STATE if self._salvaged_state else reason
        held = frames_between(missing, self._files, self._load_index_head, self._header)
        return describe_missing(self._directory, names, missing, self._state.joins, *held, reason=reason)

    def _describe_skipped_segments(self, names: list[str]) -> str:
        """The line about segments that are missing below those that salvage took, while there are older ones.
        They may have been freed: the state with that record is lost. The new one begins behind them, so to
        put them back does not help. Empty after an installation: what is older is of the log before it."""
        oldest = self._state.oldest_sequence
        older = [*sequences_of(names, SEGMENT_SUFFIX), *[each.last for each in joined_of(names)]]
        live = self._files.live
        if not live or min(older) >= oldest:
            return ""
        header = self._header(live[0])
        if header is None or not header.previous_end:
            return ""
        joins, last_index = self._state.joins, header.first_index - 1
        return describe_missing(self._directory, names, oldest - 1, joins, 0, last_index, EMPTY_DIRECTORY)

    # -- segments below the checkpoint ------------------------------------------------------------------

    def _header(self, sequence: int) -> SegmentHeader | None:
        """Returns the valid header of this sequence, or None; it is read once. Raises as `_read_header`."""
        if sequence not in self._headers:
            self._headers[sequence] = self._read_header(sequence)
        return self._headers[sequence]

    def _read_header(self, sequence: int) -> SegmentHeader | None:
        """Raises CorruptLog for a truncated file: segments have their full size before they have a header.
        Below the checkpoint that, and a lost file, is only noted."""
        path = self._directory / self._files.name(sequence)
        must_be_readable = sequence >= self._start or self._salvaged_state
        read, unread = partial(read_header_bytes, self._fs, path), list[OSError]()
        got = read() if must_be_readable else unless_lost(read, unread)
        if got is None:
            problem = "the segment is missing" if unread[0].errno == errno.ENOENT else str(unread[0])
            self._lost[sequence] = LostFile(f"{path}: {problem}", 0)
            return None
        data, size = got
        if not must_be_readable:
            self._lost[sequence] = LostFile(f"{path} byte 0: the segment header does not verify", size)
        found = decode_segment_header(data)
        if found is None:
            return None
        fmt, header = found
        if fmt > SEGMENT_REWRITTEN_FORMAT:
            raise NewerFormat(f"{path}: format {fmt}, this version knows up to {SEGMENT_REWRITTEN_FORMAT}")
        current = self._state.generation
        if position_of(sequence, 0) >= self._state.generation_start:
            counts = header.generation == current
        else:
            counts = header.generation <= current
        if not counts or (header.group_id, header.sequence) != (self._group_id, sequence):
            return None
        if size < header.segment_bytes:
            problem = f"{path} byte {size}: the file ends here, it had {header.segment_bytes} bytes"
            if not must_be_readable:
                self._lost[sequence] = LostFile(problem, size)
                return header
            if self._salvage_incarnation is not None and sequence > self._start:
                return None
            raise CorruptLog(problem)
        self._lost.pop(sequence, None)
        return header

    def _new_segment(self, header: SegmentHeader) -> Segment:
        path = self._directory / self._files.name(header.sequence)
        segment = Segment(
            header.sequence,
            path,
            header.segment_bytes,
            header.generation,
            header.first_index,
            header.first_lsn,
            header.chain,
        )
        segment.first_sequence = self._files.first(header.sequence)
        segment.previous_end, segment.written_end = header.previous_end, header.written_end
        segment.tail = LogTail(
            header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms
        )
        return segment

    def _sealed(self, sequence: int, before: Segment | None, names: list[str]) -> Segment:
        header = self._header(sequence)
        path = self._directory / self._files.name(sequence)
        after = self._files.segment_from(sequence + 1)
        following = self._header(after) if self._files.is_live(after) else None
        loaded = self._load_index_head(sequence)
        if header is None:
            return self._without_file(sequence, before, following, loaded, names)
        segment = self._new_segment(header)
        if loaded is not None and is_index_of(loaded[0], header, following):
            index, segment.summary = loaded
            segment.end = index.end
            segment.tail = LogTail(index.last_index, index.term, index.next_lsn, index.chain, index.time_ms)
            segment.indexes, segment.indexed, segment.frame_ends = None, True, None
            if sequence in self._lost and self._lost[sequence].readable_bytes >= segment.end:
                del self._lost[sequence]  # nothing was written beyond its end
            return segment
        self._rebuilt += 1
        scan = self._scan_segment(segment)
        if (header.rewritten and scan.offset != header.segment_bytes) or (
            following is not None
            and (header.written_end or scan.offset, scan.tail.chain)
            != (following.previous_end, following.chain)
        ):
            raise CorruptLog(f"{path} byte {scan.offset}: {scan.reason}, below the last checkpoint")
        if following is None and self._files.is_live(after) and not header.rewritten:
            raise unknown_end(path, self._directory / self._files.name(after))
        segment.summary = SegmentSummary.of(segment.indexes or {})
        segment.frame_ends = None
        return segment

    def _without_file(
        self,
        sequence: int,
        before: Segment | None,
        following: SegmentHeader | None,
        loaded: tuple[IndexHeader, SegmentSummary] | None,
        names: list[str],
    ) -> Segment:
        """The segment of a lost file, or of one without a valid header. Raises CorruptLog."""
        path, first = self._directory / self._files.name(sequence), self._files.first(sequence)
        follows = tail_before(first, before, self._seed)
        segment = None
        if loaded is not None and not self._salvaged_state:
            segment = segment_without_file(
                path, first, self._segment_bytes, loaded, follows, before, following
            )
        if segment is None:
            reason = NO_INDEX if loaded is None else "its index file does not fit the segments beside it"
            problem = f"{path} byte 0: the segment header does not verify, and {reason}"
            is_there = path.name in names
            raise CorruptLog(problem if is_there else self._describe_missing(sequence, names, reason))
        return segment

    def _load_index_head(self, sequence: int) -> tuple[IndexHeader, SegmentSummary] | None:
        return load_index_head(self._fs, self._directory / self._files.index_name(sequence))

    # -- segments from the checkpoint on ----------------------------------------------------------------

    def _scan_segment(self, segment: Segment, placed: PlacedCheckpoint | None = None) -> SegmentScan:
        """Scans all of a segment into its index, `end` and `tail`."""
        fs = self._fs
        fd = segment.fd = fs.open(segment.path)
        self._opened.append(segment)
        scan = SegmentScan(
            lambda length, offset: fs.pread(fd, length, offset),
            min(segment.size, fs.size(fd)),
            segment.sequence,
            self._seed,
            segment.tail,
            SEGMENT_HEADER_BYTES,
            self._state.generation,
            self._state.generation_start,
            segment.rewritten,
        )
        scan.last_generation = segment.generation
        indexes, ends = segment.indexes, segment.frame_ends
        assert indexes is not None and ends is not None
        at = byte_of(placed.position) if placed is not None else -1
        matches = placed is None or (at == SEGMENT_HEADER_BYTES and _is_checkpoint_of(placed, scan.tail))
        for frame in scan.frames():
            add_to_index(indexes, frame.entries, frame.payload_offset, frame.payloads)
            ends.append(frame.end)
            if frame.end == at and placed is not None:
                matches = _is_checkpoint_of(placed, scan.tail)
        if not matches and scan.offset >= at:
            raise CorruptLog(f"{segment.path} byte {at}: the newest checkpoint is not of this log")
        segment.end = scan.offset
        self._frames += len(ends)
        self._bytes += scan.offset
        self._reason = scan.reason
        return scan

    def _scan_from(self, start: int, placed: PlacedCheckpoint | None) -> tuple[list[Segment], LogTail]:
        scanned: list[Segment] = []
        tail = LogTail(0, 0, 1, self._seed, 0)
        sequence = start
        while self._files.is_live(sequence):
            header = self._header(sequence)
            if header is None:
                break
            if scanned or placed is None:
                previous_end = (scanned[-1].written_end or scanned[-1].end) if scanned else 0
                if (header.previous_end, header.chain, header.first_index, header.first_lsn) != (
                    previous_end,
                    tail.chain,
                    tail.index + 1,
                    tail.next_lsn,
                ):
                    break
            if scanned:
                scanned[-1].summary = SegmentSummary.of(scanned[-1].indexes or {})
                self._adopt_index(scanned[-1])
            segment = self._new_segment(header)
            scan = self._scan_segment(segment, placed if sequence == start else None)
            self._promise = max(self._promise, header.flushed, scan.promise)
            scanned.append(segment)
            tail = scan.tail.copy()
            sequence += 1
        return scanned, tail

    def _adopt_index(self, segment: Segment) -> None:
        """Keeps an index file with the same content, so that it is not written again."""
        loaded = self._load_index_head(segment.sequence)
        if loaded is None or segment.summary is None:
            return
        index, summary = loaded
        segment.indexed = (
            index.generation,
            index.end,
            index.chain,
            index.last_index,
            summary.arrays(),
        ) == (
            segment.generation,
            segment.end,
            segment.tail.chain,
            segment.tail.index,
            segment.summary.arrays(),
        )

    def _check_end(
        self,
        end: int,
        start: int,
        scanned: list[Segment],
        placed: PlacedCheckpoint | None,
        tail: LogTail,
    ) -> None:
        """Decides whether the scan's end is corruption or an end that a crash can leave. Raises CorruptLog
        with the place. For salvage, corruption above the checkpoint is an end as well."""
        claim, promise_at = self._promise, ""
        last = scanned[-1] if scanned else None
        if last is not None:
            found, at = self._highest_promise(last.sequence, last.end)
            if found > claim:
                claim, promise_at = found, f"a marker at byte {at}"
        following = last.sequence + 1 if last is not None else start
        for sequence in [s for s in self._files.live if s >= following]:
            header = self._header(sequence)
            if header is not None and header.flushed > claim:
                claim, promise_at = header.flushed, f"the header of segment {sequence}"
            if sequence == following:
                found, at = self._highest_promise(sequence, SEGMENT_HEADER_BYTES)
                if found > claim:
                    claim, promise_at = found, f"a marker in segment {sequence} at byte {at}"
        if end < claim:
            is_salvage = self._salvage_incarnation is not None
            if is_salvage and scanned and (placed is None or end >= placed.position):
                self._salvaged_from = tail.index + 1
                return
            position, reason = end, self._reason
            beyond = last is None or segment_of(claim) > segment_of(end)
            is_there = self._files.is_live(following)
            if beyond and (not is_there or self._header(following) is None):
                position = position_of(following, 0)
                reason = "no valid segment header" if is_there else "the segment is missing"
            path = self._directory / self._files.name(segment_of(position))
            raise CorruptLog(
                f"{path} byte {byte_of(position)}: {reason}, but the log was flushed up to "
                f"{position_text(claim)}{f' (by {promise_at})' if promise_at else ''}"
            )

    def _highest_promise(self, sequence: int, offset: int) -> tuple[int, int]:
        fs = self._fs
        fd = fs.open(self._directory / self._files.name(sequence))
        try:
            return highest_promise(
                lambda length, at: fs.pread(fd, length, at),
                fs.size(fd),
                sequence,
                self._seed,
                self._state.generation,
                offset,
            )
        finally:
            fs.close(fd)


def _end_of(scanned: list[Segment], start: int) -> int:
    """The position of the log's end, by the scanned segments."""
    return position_of(scanned[-1].sequence, scanned[-1].end) if scanned else position_of(start, 0)


def _is_checkpoint_of(placed: PlacedCheckpoint, tail: LogTail) -> bool:
    """Returns whether the checkpoint's frame is the last one before the tail."""
    c = placed.checkpoint
    return (c.index, c.chain, c.next_lsn) == (tail.index, tail.chain, tail.next_lsn)
