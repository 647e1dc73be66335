"""Sealed segments written afresh: looked through for corruption, repaired from another node's frames,
cleaned.

A rewritten segment holds the same frames, so heads, chain and offsets stay as they were; the old segment's
end in the next segment's header stays right through `written_end`. Only the log's first segment may come to
begin later, without frames of which every record is deleted. The order that crashes rely on: the new file is
whole and flushed under a temporary name, the old index file's removal is durable, then one rename. A
checkpoint's position is a byte in a segment, so the segments that hold one are left alone.

All of it may run in another thread than the log's own, one call at a time. Readers continue in the old file.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from lockstep.storage.log.background_maintenance import BackgroundMaintenance
from lockstep.storage.log.batch_flags import is_changed
from lockstep.storage.log.batch_index import BatchIndex, add_to_index
from lockstep.storage.log.file_system import FileSystem, read_whole, unless_lost, write_error
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    frame_bytes,
    payload_problem,
    segment_of,
)
from lockstep.storage.log.frame_reader import FrameReader
from lockstep.storage.log.frame_rewrite import (
    BatchFilter,
    Changes,
    RewrittenBatch,
    apply_changes,
    filter_frame,
    rewrite_frame,
)
from lockstep.storage.log.index_file import IndexHeader, encode_index
from lockstep.storage.log.segment_rewrite import OVERHEAD_BYTES, SegmentRewrite, max_frames_bytes
from lockstep.storage.log.segment_scan import LogTail, SegmentScan
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.types import Buffer, CorruptLog, Frame, FramesUnavailable, StorageFull

FRAMES_PER_WRITE = 64
"""Frames of a rewritten segment that are written in one go."""
BYTES_PER_WRITE = 1 << 20
"""A write is complete at this number of bytes, also with fewer frames."""


def _no_throttle(_: int) -> None:
    """The default: no pause."""


def _is_open(_: int) -> bool:
    """No partition is known to be closed."""
    return False


class _Everything:
    """A container of every base offset."""

    def __contains__(self, base_offset: object) -> bool:
        return True


_EVERYTHING = _Everything()


class SegmentRewriter:
    """Rewrites segments of one log."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        group_id: int,
        table: SegmentTable,
        maintenance: BackgroundMaintenance,
        frames: FrameReader,
        scan: Callable[[Segment], SegmentScan],
        segment_bytes: int,
    ) -> None:
        self._fs = fs
        self._segment_bytes = segment_bytes
        self._directory = directory
        self._group_id = group_id
        self._table = table
        self._maintenance = maintenance
        self._frames = frames
        self._scan = scan
        self.lock = threading.Lock()
        """Held while a segment is written afresh, or some are joined: a repair waits for a cleaning, and the
        other way round."""

    # -- looking for corruption -------------------------------------------------------------------------

    def scrub(self, sequence: int, throttle: Callable[[int], None] = _no_throttle) -> tuple[int, int] | None:
        """Read all of a sealed segment: the first and last index that it needs from elsewhere, or None
        where all verifies. A damaged index file is made again from the frames. `throttle` as `clean`. Raises
        OSError where it cannot be read for another reason than that the disk has lost it."""
        held, unread = self._table.get(sequence), list[OSError]()
        if held is None or held.summary is None:
            return None
        if not unless_lost(partial(self._acquire_by_name, held), unread):
            is_lost = unread and self._table.is_current(held)
            return (held.first_index, held.tail.index) if is_lost else None
        try:
            indexes = unless_lost(lambda: self._verify_segment(held, throttle))
            if indexes is None and self.was_replaced(held):
                return None
            if indexes is not None and not self._index_is_whole(held, indexes):
                held.indexed, held.indexes = False, indexes
                self._maintenance.add_unindexed(held)
            if indexes is not None:
                return None
            return (
                self._damaged_frames(held, throttle)
                if held.is_joined
                else (held.first_index, held.tail.index)
            )
        finally:
            self._table.release(held)

    def _acquire_by_name(self, segment: Segment) -> bool:
        """`SegmentTable.acquire_current`; raises FileNotFoundError also where only an open file is left."""
        self._fs.close(self._fs.open(segment.path))
        return self._table.acquire_current(segment)

    def was_replaced(self, held: Segment) -> bool:
        """A truncation cuts a segment in two steps and then writes over its end, so what was read beside it
        does not verify and is no damage. Waits for one that is under way."""
        with self._maintenance.pause():
            return not self._table.is_current(held)

    def _damaged_frames(self, held: Segment, throttle: Callable[[int], None]) -> tuple[int, int]:
        """The first and the last frame of a segment that do not verify: other members may have freed what
        was joined with them, or not have cleaned it."""
        first, last = held.first_index, held.tail.index
        try:
            located = unless_lost(lambda: self._frames.last_located(held)) or 0
        except CorruptLog:
            located = 0
        if located < first:
            return first, last
        damaged = [] if located == last else [located + 1, last]
        index, max_bytes = first, BYTES_PER_WRITE
        while index <= located:
            try:
                frames = unless_lost(partial(self._frames.read, index, max_bytes, located))
            except (CorruptLog, FramesUnavailable):
                frames = None
            if frames is None:
                damaged.append(index)
            max_bytes = BYTES_PER_WRITE if frames else 0  # many may be damaged: each is read once
            index = frames[-1].index + 1 if frames else index + 1
            throttle(sum([frame_bytes(frame) for frame in frames or ()]))
        return (min(damaged), max(damaged)) if damaged else (first, last)

    def _verify_segment(self, held: Segment, throttle: Callable[[int], None]) -> dict[int, BatchIndex] | None:
        indexes: dict[int, BatchIndex] = {}
        header = self._header(held)
        if header is None or (header.first_index, header.chain) != (held.first_index, held.chain):
            return None
        scan = self._scan(held)
        for frame in scan.frames():
            add_to_index(indexes, frame.entries, frame.payload_offset, frame.payloads)
            throttle(frame.end - frame.offset)
        whole = scan.offset == held.end and scan.tail.chain == held.tail.chain
        return indexes if whole else None

    def _header(self, held: Segment) -> SegmentHeader | None:
        decoded = decode_segment_header(self._fs.pread(held.fd, SEGMENT_HEADER_BYTES, 0))
        return decoded[1] if decoded is not None else None

    def _index_is_whole(self, held: Segment, indexes: dict[int, BatchIndex]) -> bool:
        summary, tail = held.summary, held.tail
        if held.indexes is not None or summary is None:
            return True  # it is still to be written
        header = IndexHeader(
            held.sequence,
            held.generation,
            held.end,
            tail.index,
            tail.next_lsn,
            tail.chain,
            tail.term,
            tail.time_ms,
        )
        there = unless_lost(lambda: read_whole(self._fs, held.index_path))
        return there == b"".join(encode_index(header, summary, indexes))

    # -- rewriting --------------------------------------------------------------------------------------

    def repair(
        self,
        sequence: int,
        frames: Sequence[Frame],
        chain: int | None = None,
        log_starts: Callable[[int], int] | None = None,
    ) -> None:
        """Write a sealed segment afresh from frames that another node has sent: all of its frames, or,
        with the chain value before them and the partitions' log starts, those after dead ones that no node
        has any more. Of a joined segment they may be some, the others are those that are here. What had been
        cleaned away here stays away. ValueError where they are not those, or the segment must stay as it is,
        or would be too large; FramesUnavailable where it has been freed or replaced meanwhile;
        StorageFull, WriteFailed; OSError where its own frames cannot be read."""
        with self.lock:
            self._repair(sequence, frames, chain, log_starts)

    def _repair(
        self,
        sequence: int,
        frames: Sequence[Frame],
        chain: int | None,
        log_starts: Callable[[int], int] | None,
    ) -> None:
        segment = self.require_rewritable(sequence, self._maintenance.checkpoint_sequence)
        first, last = segment.first_index, segment.tail.index
        before = after = range(0)
        if segment.is_joined and frames:
            before, after = range(first, frames[0].index), range(frames[-1].index + 1, last + 1)
        is_later = bool(frames) and (frames[0].index > first or not segment.has_exact_begin)
        if is_later and chain is not None and log_starts is not None:
            self._must_be_droppable(segment, itertools.chain(frames, self._own(segment, after)), log_starts)
            first, before = frames[0].index, range(0)
        indexes = [frame.index for frame in frames]
        if [*before, *indexes, *after] != list(range(first, last + 1)):
            raise ValueError(f"segment {sequence} has frames {segment.first_index} to {last}")
        if sequence >= self._maintenance.freeable_below() and any(is_changed(frame) for frame in frames):
            raise ValueError(f"segment {sequence} may be replayed from, and comes with batches cleaned away")
        whole = itertools.chain(
            self._own(segment, before), self._as_cleaned(segment, frames), self._own(segment, after)
        )
        self._require_room_beside(segment)
        self._rewrite(segment, whole, chain if is_later else None)

    def _own(self, segment: Segment, indexes: range) -> Iterator[Frame]:
        """Frames of a segment that verify where they are. CorruptLog, FramesUnavailable."""
        index = indexes.start
        while index < indexes.stop:
            frames = self._frames.read(index, BYTES_PER_WRITE, indexes.stop - 1)
            index = frames[-1].index + 1
            yield from frames

    def drop_deleted_damage(self, sequence: int, log_starts: Callable[[int], int]) -> None:
        """Write a joined segment afresh without its damaged batches, where each of them is deleted: no other
        member may have them any more, and what lives in the same file must not wait for that. ValueError
        where the segment must stay as it is; CorruptLog or OSError where more is damaged; FramesUnavailable,
        StorageFull, WriteFailed."""
        with self.lock:
            segment = self.require_rewritable(sequence, self._maintenance.freeable_below())
            if not segment.is_joined:
                raise ValueError(f"segment {sequence} was not joined")
            self._require_room_beside(segment)
            with contextlib.closing(self._without_deleted_damage(segment, log_starts)) as frames:
                self._rewrite(segment, frames)

    def _without_deleted_damage(
        self, segment: Segment, log_starts: Callable[[int], int]
    ) -> Generator[Frame, None, None]:
        held = self._acquire(segment)
        try:
            scan = self._scan(held)
            scan.heads_only = True
            for scanned in scan.frames():
                frame = scanned.frame()
                changes: Changes = {}
                for row, (entry, payload) in enumerate(zip(scanned.entries, frame.payloads, strict=True)):
                    if problem := payload_problem(memoryview(payload), 0, len(payload), [entry], True):
                        partition, base, count = entry[:3]
                        if base + count > log_starts(partition):
                            raise CorruptLog(f"{held.path} byte {scanned.offset}: {problem}")
                        changes[row] = False
                yield apply_changes(frame, changes)
            if scan.offset != held.end:
                raise CorruptLog(f"{held.path} byte {scan.offset}: {scan.reason}")
        finally:
            self._table.release(held)

    def as_cleaned(self, sequence: int, frames: Sequence[Frame]) -> list[Frame]:
        """Another node's frames of a segment without what this log does not have any more; they hold no
        memory but their own."""
        segment = self._table.get(sequence)
        left = frames if segment is None else self._as_cleaned(segment, frames)
        return [_with_own_payloads(frame) for frame in left]

    def _as_cleaned(self, segment: Segment, frames: Sequence[Frame]) -> Iterator[Frame]:
        """Yields the frames without the batches that are missing from this log's index: their tombstone may
        be gone as well."""
        gone: dict[int, Container[int]] = {}
        readable = True
        for frame in frames:
            for entry in frame.directory:
                if readable and entry.partition not in gone:
                    try:
                        gone[entry.partition] = self._cleaned_away(segment, entry.partition)
                    except (CorruptLog, OSError):  # the index is lost as well
                        readable = False
            yield rewrite_frame(
                frame, lambda entry, _: entry.base_offset not in gone.get(entry.partition, ())
            )

    def _cleaned_away(self, segment: Segment, partition: int) -> Container[int]:
        """The base offsets of a partition's batches that are gone: all of them where a segment that was
        cleaned has no row for it. CorruptLog, OSError."""
        index = self._table.index_of(segment, partition, load=True)
        if index is None:
            return _EVERYTHING if segment.rewritten else frozenset()
        return frozenset(base for base, length in zip(index.bases, index.lengths, strict=True) if not length)

    def _must_be_droppable(
        self, segment: Segment, frames: Iterable[Frame], log_starts: Callable[[int], int]
    ) -> None:
        """ValueError unless what comes before these frames in their segment could be freed, were it one."""
        sequence = segment.sequence
        self._must_be_first(sequence)
        firsts: dict[int, int] = {}
        for frame in frames:
            for entry in frame.directory:
                firsts.setdefault(entry.partition, entry.base_offset)
        for part in self._table.partitions_of(segment):
            local_id, start = part.local_id, max(part.first_offset, log_starts(part.local_id))
            if start <= part.last_offset and firsts.get(local_id, start + 1) > start:
                raise ValueError(f"segment {sequence}: offset {start} of partition {local_id} would be lost")

    def clean(
        self,
        sequence: int,
        filter_batch: BatchFilter,
        throttle: Callable[[int], None] = _no_throttle,
        is_closed: Callable[[int], bool] = _is_open,
    ) -> int:
        """Remove from a sealed segment what `filter_batch` does, and from its file what was never written
        because it was sealed early; how many bytes less its file has.

        Only below the older of the two kept checkpoints (ValueError): until then either may be replayed from.
        A segment in which something changes is read twice, so that memory holds only what changes.
        Somebody must keep the newest batch of every partition, so that reads have an end to reach. `throttle`
        is called often, with the bytes that were just read or written: it may pause, or raise to stop.
        A partition that `is_closed` has no row left in the segment's index when all its batches are gone.
        CorruptLog where the segment is corrupt, OSError where it cannot be read; FramesUnavailable,
        StorageFull, WriteFailed as `repair`. A disk without the room for the new file is not filled."""
        with self.lock:
            segment = self.require_rewritable(sequence, self._maintenance.freeable_below())
            changes: dict[int, Changes] = {}
            removed_bytes = 0
            with contextlib.closing(self.frames_of(segment, throttle)) as frames:
                for frame in frames:
                    if found := filter_frame(frame, filter_batch):
                        changes[frame.index] = found
                        removed_bytes += _removed_bytes(frame, found)
            if not changes and not segment.is_mostly_unused:
                return 0
            self._require_room_beside(segment, removed_bytes)
            with contextlib.closing(self.frames_of(segment, throttle)) as frames:
                left = (apply_changes(frame, changes.pop(frame.index, {})) for frame in frames)
                return segment.size - self._rewrite(segment, left, None, throttle, is_closed).size

    def frames_of(self, segment: Segment, throttle: Callable[[int], None]) -> Generator[Frame, None, None]:
        """All frames of a segment, each verified. CorruptLog, FramesUnavailable."""
        held = self._acquire(segment)
        try:
            scan = self._scan(held)
            for scanned in scan.frames():
                yield scanned.frame()
                throttle(scanned.end - scanned.offset)
            if scan.offset != held.end:
                raise CorruptLog(f"{held.path} byte {scan.offset}: {scan.reason}")
        finally:
            self._table.release(held)

    def _acquire(self, segment: Segment) -> Segment:
        """The segment with its file open, to be released. FramesUnavailable where it is not in use."""
        if not self._table.acquire_current(segment):
            raise FramesUnavailable(f"{segment.path} has been freed or replaced meanwhile")
        return segment

    def _require_room_beside(self, segment: Segment, removed_bytes: int = 0) -> None:
        """StorageFull where what is left of a segment finds no room: its new file would take what there is
        from the log's own writes, and be removed."""
        needed = OVERHEAD_BYTES + max_frames_bytes(segment) - removed_bytes
        free = self._fs.free_bytes(self._directory)
        if free < needed:
            raise StorageFull(f"{segment.path}: rewritten it takes {needed} bytes, and {free} are free")

    def rewritable(self, sequence: int, later: bool = False) -> bool:
        """Returns whether `repair` may take this segment now; `later`: without its first frames, where those
        are dead."""
        try:
            self.require_rewritable(sequence, self._maintenance.checkpoint_sequence)
            if later:
                self._must_be_first(sequence)
        except ValueError:
            return False
        return True

    def require_rewritable(self, sequence: int, below: int) -> Segment:
        segment = self._table.get(sequence)
        if segment is None or segment.summary is None:
            raise ValueError(f"segment {sequence} is no sealed segment of this log")
        sequences = [segment_of(placed.position) for placed in self._maintenance.checkpoints]
        if sequence >= below or sequence in sequences or segment.tail.index < segment.first_index:
            raise ValueError(f"segment {sequence} is not below the checkpoint, or holds the position of one")
        return segment

    def _must_be_first(self, sequence: int) -> None:
        """Checks that the segment is the log's first, or that its begin is unknown as the one before it was
        freed: a header has the end of the segment before, so no other one may begin later. The state file
        decides, not memory: until it records the first segment a crash brings freed segments back."""
        segment, oldest = self._table.get(sequence), self._maintenance.state.oldest_sequence
        is_first = segment is not None and segment.first_sequence <= oldest <= sequence
        may_begin_later = is_first or (segment is not None and not segment.has_exact_begin)
        if not may_begin_later or sequence >= self._maintenance.freeable_below():
            raise ValueError(f"segment {sequence} is not the log's first, or not below both checkpoints")

    def _rewrite(
        self,
        old: Segment,
        frames: Iterable[Frame],
        chain: int | None = None,
        throttle: Callable[[int], None] = _no_throttle,
        is_closed: Callable[[int], bool] = _is_open,
    ) -> Segment:
        """`chain`: what the first frame follows, where that is not the segment's first."""
        frames = iter(frames)
        first = next(frames)
        if chain is None:
            before = LogTail(old.first_index - 1, first.term, old.first_lsn, old.chain, first.time_ms)
        else:
            before = LogTail(first.index - 1, first.term, first.first_lsn, chain, first.time_ms)
        temporary = self._directory / f"{old.sequence:016d}.rewrite.tmp"
        try:
            whole = itertools.chain((first,), frames)
            new = self.write_file([old], temporary, whole, before, throttle, is_closed)
            new.path, new.first_sequence = old.path, old.first_sequence
            if old.is_joined and new.size > max(self._segment_bytes, old.size):
                raise ValueError(f"segment {old.sequence}: {new.size} bytes of members that cleaned less")
            if (new.tail.index, new.tail.chain) != (old.tail.index, old.tail.chain):
                raise ValueError(f"segment {old.sequence}: not the frames it had")
            self._swap(old, new, temporary)
        except BaseException:
            self._discard(temporary)
            raise
        return new

    def write_file(
        self,
        old: Sequence[Segment],
        temporary: Path,
        frames: Iterator[Frame],
        before: LogTail,
        throttle: Callable[[int], None],
        is_closed: Callable[[int], bool],
    ) -> Segment:
        """Write the frames of neighbouring segments into one flushed file, under the last one's sequence.
        `before`: the end that the first frame follows. StorageFull, WriteFailed; OSError is one of reading
        the frames."""
        last, generation = old[-1], max([each.generation for each in old])
        with _as_write_errors(temporary):
            rewrite = SegmentRewrite(
                self._fs, temporary, self._group_id, last.sequence, generation, before, is_closed
            )
        try:
            for some in _pieces(frames):
                with _as_write_errors(temporary):
                    count = rewrite.add(some)
                    rewrite.write_back(count)
                throttle(count)
            with _as_write_errors(temporary):
                return rewrite.finish(self._previous_end(old[0]), last.written_end or last.end)
        finally:
            rewrite.close()

    def _previous_end(self, old: Segment) -> int:
        """Returns the end of the segment before, as the header has it, also where the header is corrupt, or
        where that segment is freed: until the freeing is on the disk a crash brings it back, and the two have
        to fit."""
        before = self._table.get(old.first_sequence - 1)
        return (before.written_end or before.end) if before is not None else old.previous_end

    def _swap(self, old: Segment, new: Segment, temporary: Path) -> None:
        with self._maintenance.pause(), _as_write_errors(new.path):
            self._maintenance.forget_index(old)
            self._fs.fsync_dir(self._directory)
            if not self._table.replace(old, new, lambda: self._fs.rename(temporary, new.path)):
                raise FramesUnavailable(f"{new.path} has been freed or replaced meanwhile")
            self._fs.fsync_dir(self._directory)
            with contextlib.suppress(OSError):  # it can be made again
                self._table.write_index(new)
        if not new.indexed:
            self._maintenance.add_unindexed(new)

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._fs.unlink(path)


@contextlib.contextmanager
def _as_write_errors(path: Path) -> Iterator[None]:
    """An error of the disk in here is one of writing this file."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def _removed_bytes(frame: Frame, changes: Changes) -> int:
    """The payload bytes that these changes take out of a frame."""
    removed = 0
    for row, change in changes.items():
        removed += len(frame.payloads[row]) - (
            len(change.payload) if isinstance(change, RewrittenBatch) else 0
        )
    return removed


def _pieces(frames: Iterator[Frame]) -> Iterator[list[Frame]]:
    """Groups the frames that one write takes."""
    some: list[Frame] = []
    size = 0
    for frame in frames:
        some.append(frame)
        size += frame_bytes(frame)
        if len(some) == FRAMES_PER_WRITE or size >= BYTES_PER_WRITE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _with_own_payloads(frame: Frame) -> Frame:
    """The same frame, without what else was read or sent together with it."""
    payloads: list[Buffer] = [bytes(payload) for payload in frame.payloads]
    return Frame(
        frame.kind,
        frame.term,
        frame.index,
        frame.first_lsn,
        frame.time_ms,
        frame.directory,
        payloads,
        frame.record_count,
        frame.head,
    )
