"""Upkeep of a log's sealed segments: retention, damage, repair, cleaning and joining.

Owns the reader of batches, since reading is what finds damage, and the table of what is damaged. A segment
is freed, rewritten or joined only below the checkpoints, so none of it touches the log's end. It does not
decide what is due (`storage/log_cleaner.py`, `storage/segment_repair.py`, and the broker's maintenance) nor
write files (`segment_compaction`, `joiner`). `DataLog` is this plus opening, state and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lockstep.storage.log.background_maintenance import BackgroundMaintenance
from lockstep.storage.log.batch_index import DEAD_PARTITION
from lockstep.storage.log.batch_reader import LogReader
from lockstep.storage.log.damage import DamageTable
from lockstep.storage.log.file_system import WatchedFileSystem, is_corruption
from lockstep.storage.log.frame_rewrite import BatchFilter
from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.log.joiner import Joiner
from lockstep.storage.log.log_truncation import TruncatableLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.sealed_segment import SealedSegment
from lockstep.storage.log.segment_pool import SegmentPool
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.log.shared_reads import SharedReads
from lockstep.storage.types import CONTROL_PARTITION, NOTES_PARTITION, Frame


class MaintainedLog(TruncatableLog):
    """A log whose sealed segments are freed, verified, repaired, cleaned and joined.

    Args: may_join: as `Joiner`."""

    def __init__(
        self,
        fs: WatchedFileSystem,
        directory: Path,
        group_id: int,
        options: LogOptions,
        table: SegmentTable,
        pool: SegmentPool,
        maintenance: BackgroundMaintenance,
        tail: LogTail,
        may_join: bool,
    ) -> None:
        super().__init__(fs, directory, group_id, options, table, pool, maintenance, tail)
        self._joiner = Joiner(
            fs,
            directory,
            options,
            table,
            maintenance,
            self._segment_rewriter,
            self._fail,
            lambda: bool(self._failed),
            may_join,
        )
        self.damage = DamageTable(fs, directory, table, self._on_new_damage)
        self._reader = LogReader(fs, table, SharedReads(options.shared_reads_bytes), self.damage)
        self.corruption_found = False
        """A reader found damage since the last scrub; the next scrub resets it."""

    # -- retention --------------------------------------------------------------------------------------

    def partition_bytes(self, partition: int, from_offset: int) -> int:
        """Bytes of batches from `from_offset` on; a sealed segment that holds it counts whole."""
        return self._table.partition_in_segments(partition, from_offset)[1]

    def partition_in_segments(self, partition: int, from_offset: int) -> tuple[list[SegmentPartition], int]:
        """A partition's parts of the sealed segments that end at `from_offset` or later, oldest first, and
        its `partition_bytes`, both at one moment. For any thread."""
        return self._table.partition_in_segments(partition, from_offset)

    def first_offset(self, partition: int) -> int | None:
        """The lowest offset of a partition that any segment holds, None for none. For any thread."""
        spans = self._table.spans.get(partition)
        return spans.first_offset if spans is not None else None

    def segments(self) -> list[SealedSegment]:
        """The sealed segments, oldest first. For any thread."""
        return [SealedSegment(segment, self._table) for segment in self._table.sealed()]

    def drop_indexes(self, last_index: int) -> None:
        """Remove the index files of the sealed segments up to a Raft index: on a full disk a checkpoint needs
        their room. The next reader of such a segment rebuilds its index."""
        damaged = self._damaged_sequences()  # theirs cannot be rebuilt
        for segment in self._table.sealed():
            if segment.tail.index <= last_index and segment.sequence not in damaged:
                self._maintenance.forget_index(segment)

    def free_deleted_segments(self, log_starts: Callable[[int], int]) -> int:
        """Free the sealed segments in which every partition ends below its log start, or has nothing left
        since it was cleaned; how many. Only below the older of the two kept checkpoints, so that either
        serves. Files follow in the background."""
        below = self._maintenance.freeable_below()
        deleted = []
        for segment in self._table.sealed():
            if segment.sequence >= below:
                break
            summary = segment.summary
            assert summary is not None
            row = summary.live_row(log_starts, segment.first_live_row)
            if row < 0:
                deleted.append(segment)
            else:
                segment.first_live_row = row
        return self._free(deleted)

    @property
    def whole_index(self) -> int:
        """Until this entry is applied, records may be missing whose replacements come from a snapshot; no
        client may read."""
        return self._maintenance.state.whole_index

    def expect_whole_at(self, index: int) -> None:
        """Raise `whole_index` to this entry; it is on the disk when this returns. Raises FlushFailed."""
        try:
            self._maintenance.raise_whole_index(index)
        except OSError as error:
            raise self._fail(f"state: {error}") from error

    def free_below(self, index: int, whole_index: int) -> int:
        """Free the sealed segments whose frames all come before this one, as far as both kept checkpoints
        lie above them; how many. Records that replace theirs are there once the entry `whole_index` is
        applied. Raises FlushFailed."""
        below = self._maintenance.freeable_below()
        freed = [s for s in self._table.sealed() if s.sequence < below and s.tail.index < index]
        if freed:
            self.expect_whole_at(whole_index)
        return self._free(freed)

    def _free(self, segments: list[Segment]) -> int:
        removed = self._table.remove(segments)
        if removed:
            self._maintenance.queue_dead(removed)
            self._maintenance.wake()
        return len(removed)

    # --- corruption and cleaning --------------------------------------------------------------------------

    def scrub(
        self, sequence: int, throttle: Callable[[int], None] = lambda count: None
    ) -> tuple[int, int] | None:
        """`SegmentRewriter.scrub`: the frames that a sealed segment needs from another node, None where it is
        whole or gone. Afterwards `damage` names its damaged batches. `throttle` is called with the bytes that
        were just read. For any thread."""
        segment = self._table.get(sequence)
        corrupt_frames = self._segment_rewriter.scrub(sequence, throttle)
        if segment is None or corrupt_frames is None:
            self.damage.forget(sequence)
            return None
        self._reader.scan_for_damage(sequence, throttle)
        if not self.damage.is_damaged(sequence):
            problem = f"segment {sequence}: frames {corrupt_frames[0]} to {corrupt_frames[1]} do not verify"
            self.damage.note_frames(segment, *corrupt_frames, problem)
        return corrupt_frames if self._table.is_current(segment) else None

    def _on_new_damage(self) -> None:
        self.corruption_found = True

    def reading_failed(self, error: BaseException) -> None:
        """Reports an error of a reader of frames, which may be corruption."""
        self.corruption_found = self.corruption_found or is_corruption(error)

    def call_on_corrupt_frames(self, callback: Callable[[int], None]) -> None:
        """Registers what is called, in any thread, with the sequence of a segment of which a reader of frames
        found some that do not verify."""
        self._frame_reader.on_corrupt = callback

    def rewritable(self, sequence: int, later: bool = False) -> bool:
        """Returns whether `rewrite_segment` may take this segment now: below the checkpoint, and no kept
        checkpoint ends in it; `later`: without its first frames, so it has to be the log's first, below both
        kept checkpoints. On an idle log that may stay so until the next two checkpoints."""
        return self._segment_rewriter.rewritable(sequence, later)

    def rewrite_segment(
        self,
        sequence: int,
        frames: Sequence[Frame],
        chain: int | None = None,
        log_starts: Callable[[int], int] | None = None,
    ) -> None:
        """`SegmentRewriter.repair`: write a sealed segment afresh from frames sent by another node. For
        any thread, one rewriting at a time. A restart does not know of its damage any more."""
        self._segment_rewriter.repair(sequence, frames, chain, log_starts)
        self.damage.forget(sequence)

    def clean(
        self,
        sequence: int,
        filter_batch: BatchFilter,
        throttle: Callable[[int], None] = lambda _: None,
        is_closed: Callable[[int], bool] = lambda _: False,
    ) -> int:
        """`SegmentRewriter.clean`: remove or shorten batches of a sealed segment by `filter_batch`.
        `throttle` is called with the bytes that were just read or written. For any thread."""
        return self._segment_rewriter.clean(sequence, filter_batch, throttle, is_closed)

    def has_small_neighbours(self) -> bool:
        """True if `join` would find something. For any thread."""
        return next(self._joiner.find_groups(self._damaged_sequences()), None) is not None

    def join(
        self,
        throttle: Callable[[int], None] = lambda _: None,
        is_closed: Callable[[int], bool] = lambda _: False,
    ) -> int:
        """`Joiner.run`: join small neighbouring sealed segments. `throttle` as `clean`. For any thread."""
        return self._joiner.run(self._damaged_sequences(), throttle, is_closed)

    def _damaged_sequences(self) -> set[int]:
        return {each.sequence for each in self.damage.known()}

    def drop_deleted_damage(self, sequence: int, log_starts: Callable[[int], int]) -> None:
        """`SegmentRewriter.drop_deleted_damage`: write a joined segment without damaged batches that are
        deleted. For any thread."""
        self._segment_rewriter.drop_deleted_damage(sequence, log_starts)

    def as_cleaned(self, sequence: int, frames: Sequence[Frame]) -> list[Frame]:
        """`SegmentRewriter.as_cleaned`: another node's frames of a segment, as far as this log still has
        them. For any thread."""
        return self._segment_rewriter.as_cleaned(sequence, frames)

    def is_joined(self, sequence: int) -> bool:
        """True if this segment was joined of several."""
        segment = self._table.get(sequence)
        return segment is not None and segment.is_joined

    def has_exact_begin(self, sequence: int) -> bool:
        """False for a segment whose file is lost behind freed segments: any frame may be its first."""
        segment = self._table.get(sequence)
        return segment is None or segment.has_exact_begin

    def frames_from_begin(self, sequence: int, frames: Sequence[Frame]) -> Sequence[Frame]:
        """The frames from the first on that has a batch of this segment; none where all have only older ones,
        and all where they have none."""
        segment = self._table.get(sequence)
        parts = () if segment is None else self._table.partitions_of(segment)
        others = (CONTROL_PARTITION, NOTES_PARTITION, DEAD_PARTITION)
        firsts = {part.local_id: part.first_offset for part in parts if part.local_id not in others}
        has_older = False
        for at, frame in enumerate(frames):
            for entry in frame.directory:
                first = firsts.get(entry.partition)
                if first is not None and entry.base_offset >= first:
                    return frames[at:]
                has_older = has_older or first is not None
        return () if has_older else frames

    def max_repaired_bytes(self, sequence: int) -> int:
        """Returns the largest size that this segment may have after a repair."""
        segment = self._table.get(sequence)
        return max(self.options.segment_bytes, segment.size if segment is not None else 0)

    def has_segment(self, sequence: int) -> bool:
        """Returns whether this segment is still one of the log's. For any thread."""
        return self._table.get(sequence) is not None

    def forget_cleaned(self, ends: Mapping[int, int]) -> None:
        """Drop what is in memory from before a cleaning. Args: ends: by partition, the offset up to which it
        was cleaned. On the log's own thread."""
        for partition, end in ends.items():
            self._tail_cache.forget_below(partition, end)

    def is_sealed(self, last_index: int) -> bool:
        """Returns whether the frames up to there are in sealed segments."""
        return self._active.first_index > last_index

    def is_cleanable(self, last_index: int) -> bool:
        """Returns whether `clean` takes the frames up to there: sealed, and both kept checkpoints lie above
        them."""
        below = self._maintenance.freeable_below()
        above = [segment for segment in self._table.sealed() if segment.sequence >= below]
        return self.is_sealed(last_index) and all([segment.first_index > last_index for segment in above])

    def cleanable_segments(self) -> list[SealedSegment]:
        """Returns the segments that `clean` takes now, oldest first; they follow one another. For any
        thread."""
        below = self._maintenance.freeable_below()
        return [segment for segment in self.segments() if segment.sequence < below]
