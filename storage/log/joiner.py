"""Joins small neighbouring sealed segments into one, so that small files do not accumulate.

Cleaning leaves a small file of each segment in which anything lives. `plan_groups` chooses the neighbours
that are worth one file; `Joiner` writes it: the same frames, one after the other, under the last one's
sequence, so the chain of heads stays whole, and the next header stays right about its end. Its name is new
(`JoinedFile`).

The order that crashes rely on: the new file is whole and flushed under a temporary name, gets its name,
the directory is flushed, and then **one save of the state file switches**: up to there the file counts
for nothing; after it the segments that are in it count for nothing, even if files with their names
reappear. Only then are those removed, a few at a time: nothing relies on it, and readers continue in the
files they have open. A flush of the directory that failed, here or beside a join, leaves unknown what the
disk has: nothing is switched, and the log ends as after any failed flush.

A join changes no frame. It takes only segments below the older kept checkpoint, without the position of one.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

from lockstep.storage.log.background_maintenance import BackgroundMaintenance
from lockstep.storage.log.file_system import WatchedFileSystem, is_corruption, is_full, write_error
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.segment_compaction import SegmentRewriter
from lockstep.storage.log.segment_files import JoinedFile
from lockstep.storage.log.segment_rewrite import OVERHEAD_BYTES, head_bytes, max_frames_bytes
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.types import CorruptLog, FlushFailed, Frame, FramesUnavailable

MAX_FILES: Final = 1000
"""LIMIT. Files joined at a time: one replaces them in the table while readers wait."""
MAX_GROUPS: Final = 8
"""LIMIT. Groups of neighbours that one pass joins, each at most a segment: the cleaner has other logs to look
after. The next pass continues."""


def plan_groups(
    segments: Sequence[Segment], segment_bytes: int, excluded: Collection[int] = ()
) -> Iterator[list[Segment]]:
    """Groups of neighbours that are worth one file, oldest first.

    Each is at most half of a segment, together they fit into one, and none is more than twice as large as all
    others of its group: so a byte is written again only a few times, however the files come. Their heads take
    at most half of a segment: a repair holds the frames of one in memory.

    Args: excluded: sequences that are left as they are.
    """
    run: list[Segment] = []
    size = heads = 0
    for each in segments:
        if not _is_small(each, segment_bytes) or each.sequence in excluded:
            yield from _worthwhile(run)
            run = []
            continue
        size += max_frames_bytes(each)
        heads += head_bytes(each)
        fits = OVERHEAD_BYTES + size <= segment_bytes and heads <= segment_bytes // 2
        if not run or not fits or len(run) == MAX_FILES or not _follows(run[-1], each):
            yield from _worthwhile(run)
            run = []
            size, heads = max_frames_bytes(each), head_bytes(each)
        run.append(each)
    yield from _worthwhile(run)


def _is_small(segment: Segment, segment_bytes: int) -> bool:
    return segment.first_index <= segment.tail.index and segment.end <= segment_bytes // 2


def _follows(before: Segment, segment: Segment) -> bool:
    """True if nothing was freed between these two."""
    return (before.sequence + 1, before.tail.index + 1, before.tail.chain) == (
        segment.first_sequence,
        segment.first_index,
        segment.chain,
    )


def _worthwhile(run: Sequence[Segment]) -> Iterator[list[Segment]]:
    if len(run) < 2:
        return
    sizes = [each.end for each in run]
    largest = max(range(len(run)), key=sizes.__getitem__)
    if sizes[largest] > 2 * (sum(sizes) - sizes[largest]):
        yield from _worthwhile(run[:largest])
        yield from _worthwhile(run[largest + 1 :])
    else:
        yield list(run)


class Joiner:
    """Joins segments of one log. `run` may be called in another thread than the log's own.

    Args:
        fail: makes the log end with this error's text, and gives the error to raise.
        is_failed: whether it has ended.
        may_join: False while a file of a join that did not finish before this open could not be removed.
    """

    def __init__(
        self,
        fs: WatchedFileSystem,
        directory: Path,
        options: LogOptions,
        table: SegmentTable,
        maintenance: BackgroundMaintenance,
        segment_rewriter: SegmentRewriter,
        fail: Callable[[str], FlushFailed],
        is_failed: Callable[[], bool],
        may_join: bool,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._segment_bytes = options.segment_bytes
        self._reserve_bytes = options.reserve_bytes
        self._table = table
        self._maintenance = maintenance
        self._segment_rewriter = segment_rewriter
        self._fail = fail
        self._is_failed = is_failed
        self._may_join = may_join
        self.joins = 0
        """The number of joins since open."""
        self.joined_files = 0
        """The number of files that these joins replaced."""

    def find_groups(self, damaged: Collection[int]) -> Iterator[list[Segment]]:
        """The groups to join now; none while the disk is full or a write fails, and none whose file finds no
        room beside what the log's own writes need next. For any thread."""
        if not self._may_join or self._maintenance.disk_error or self._maintenance.write_error:
            return iter(())
        below = self._maintenance.freeable_below()
        sealed = [each for each in self._table.sealed() if each.sequence < below]
        return filter(self._has_room, plan_groups(sealed, self._segment_bytes, damaged))

    def _has_room(self, group: list[Segment]) -> bool:
        """A file that does not fit would take the last room from appends, and be removed. So it is begun
        only where the next segments, and a checkpoint and an index beside them, find room after it."""
        kept = self._maintenance.pool.missing_bytes + self._reserve_bytes
        needed = OVERHEAD_BYTES + sum([max_frames_bytes(each) for each in group])
        return self._fs.free_bytes(self._directory) >= needed + kept

    def run(
        self,
        damaged: Collection[int],
        throttle: Callable[[int], None],
        is_closed: Callable[[int], bool],
    ) -> int:
        """Join what is planned, at most `MAX_GROUPS` groups; how many files fewer there are. `throttle` as
        `SegmentRewriter.clean`. CorruptLog or OSError, after the other groups, where a segment is corrupt or
        is
        lost: once it is known to be damaged it is left out. StorageFull where the room went meanwhile,
        WriteFailed; FlushFailed: the log has ended."""
        fewer = 0
        errors: list[OSError | CorruptLog] = []
        for group in itertools.islice(self.find_groups(damaged), MAX_GROUPS):
            try:
                self._join(group, throttle, is_closed)
                fewer += len(group) - 1
            except FramesUnavailable:  # freed or replaced meanwhile
                continue
            except (OSError, CorruptLog) as error:
                if not is_corruption(error):
                    raise
                errors.append(error)
        if errors:
            raise errors[0]
        return fewer

    def _join(
        self, old: list[Segment], throttle: Callable[[int], None], is_closed: Callable[[int], bool]
    ) -> None:
        with self._segment_rewriter.lock:
            self._require_joinable(old)
            file = JoinedFile(old[0].first_sequence, old[-1].sequence, self._maintenance.state.joins + 1)
            temporary = self._directory / f"{file.stem}.join.tmp"
            try:
                new = self._write_file(old, temporary, throttle, is_closed)
                new.path, new.first_sequence = self._directory / file.name, file.first
                self._switch(old, new, temporary, file.number)
            except BaseException:
                self._discard(temporary)
                raise
            self._remove_former(old, new)

    def _require_joinable(self, old: list[Segment]) -> None:
        for each in old:
            try:
                found = self._segment_rewriter.require_rewritable(
                    each.sequence, self._maintenance.freeable_below()
                )
            except ValueError as error:
                raise FramesUnavailable(str(error)) from None
            if found is not each:
                raise FramesUnavailable(f"{each.path} has been replaced meanwhile")

    def _write_file(
        self,
        old: list[Segment],
        temporary: Path,
        throttle: Callable[[int], None],
        is_closed: Callable[[int], bool],
    ) -> Segment:
        """The file, flushed. ValueError where it is not what was planned; OSError, CorruptLog where a segment
        cannot be read; StorageFull, WriteFailed."""
        first, last = old[0], old[-1]
        with contextlib.closing(self._frames(old, throttle)) as frames:
            head = next(frames)
            before = LogTail(first.first_index - 1, head.term, first.first_lsn, first.chain, head.time_ms)
            whole = itertools.chain((head,), frames)
            new = self._segment_rewriter.write_file(old, temporary, whole, before, throttle, is_closed)
        joined, expected = new.tail, last.tail
        if (joined.index, joined.next_lsn, joined.chain) != (
            expected.index,
            expected.next_lsn,
            expected.chain,
        ):
            raise ValueError(f"segments {first.first_sequence} to {last.sequence}: not the frames they had")
        if new.size > self._segment_bytes:
            raise ValueError(f"segments {first.first_sequence} to {last.sequence}: {new.size} bytes in one")
        return new

    def _frames(self, old: list[Segment], throttle: Callable[[int], None]) -> Generator[Frame, None, None]:
        for each in old:
            with contextlib.closing(self._segment_rewriter.frames_of(each, throttle)) as frames:
                yield from frames

    def _switch(self, old: list[Segment], new: Segment, temporary: Path, number: int) -> None:
        fs, directory = self._fs, self._directory
        with self._maintenance.pause(), self._table.hold_for_join(old) as is_current:
            if not is_current:
                raise FramesUnavailable(
                    f"{new.path}: what was to be joined has been freed or replaced meanwhile"
                )
            if self._is_failed():
                raise FlushFailed(f"{new.path}: the log has ended")
            failed = fs.failed_directory_flushes
            try:
                self._rename(temporary, new.path)
                fs.fsync_dir(directory)
                if fs.failed_directory_flushes != failed:
                    raise OSError("another flush of the directory failed")
                self._maintenance.save_join_count(number)
            except OSError as error:  # recovery finds out which of both counts, and removes the other
                raise self._fail(f"{new.path}: join failed: {error}") from error
            self._table.replace_run(old, new)
        self.joins += 1
        self.joined_files += len(old)

    def _remove_former(self, old: list[Segment], new: Segment) -> None:
        """After the switch. The event loop may wait for other housekeeping, so this lets it in between."""
        self._maintenance.remove_joined(old)
        with self._maintenance.pause():
            if self._maintenance.is_stopped:
                return
            try:
                self._fs.fsync_dir(self._directory)
            except OSError as error:  # it may have been about another's change
                raise self._fail(f"{new.path}: flush failed: {error}") from error
            if self._table.is_current(new):
                with contextlib.suppress(OSError):  # it can be made again
                    self._table.write_index(new)
        if not new.indexed:
            self._maintenance.add_unindexed(new)

    def _rename(self, temporary: Path, path: Path) -> None:
        """StorageFull: the name is not there. After another OSError it may be."""
        try:
            self._fs.rename(temporary, path)
        except OSError as error:
            if not is_full(error):
                raise
            raise write_error(path, error) from error

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._fs.unlink(path)
