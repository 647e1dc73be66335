"""The segments of one log: their files, which of them holds an offset, and their batch indexes.

Invariants: sequences rise in log order; the last one is active and the only one written to. A partition's
`PartitionSpans` names, in offset order, the segments that hold a batch of it. A file is closed or
recycled only while no reader uses it (`readers` under the lock). What stays in memory of a sealed segment is
its summary; its batch indexes are loaded per partition through a cache with a byte limit. A truncation, an
installation or a rewriting puts new `Segment` objects in the place of others in one step; a reader of a
former one continues with its file and finds at its next look-up that it has been replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from lockstep.storage.log.batch_index import DEAD_PARTITION, BatchIndex
from lockstep.storage.log.file_system import FileSystem, unless_lost, write_all
from lockstep.storage.log.index_file import (
    IndexHeader,
    SegmentPartition,
    SegmentSummary,
    decode_section,
    encode_index,
    section_of,
)
from lockstep.storage.log.partition_spans import PartitionSpans, runs_of_sequences
from lockstep.storage.log.segment_files import INDEX_SUFFIX
from lockstep.storage.log.segment_scan import LogTail

OPEN_FILES_MAX = 128
"""Open sealed segments at once; more are opened and closed as reads need them."""


_SERIALS = itertools.count(1)


class Segment:
    """One segment in use. `end` is where its frames end; `tail` what they amount to up to there."""

    __slots__ = (
        "chain",
        "end",
        "fd",
        "first_index",
        "first_live_row",
        "first_lsn",
        "first_sequence",
        "frame_ends",
        "generation",
        "has_exact_begin",
        "indexed",
        "indexes",
        "path",
        "previous_end",
        "readers",
        "retired",
        "sequence",
        "serial",
        "size",
        "summary",
        "tail",
        "written_end",
    )

    def __init__(
        self,
        sequence: int,
        path: Path,
        size: int,
        generation: int,
        first_index: int,
        first_lsn: int,
        chain: int,
    ) -> None:
        self.serial = next(_SERIALS)
        """Distinguishes the segments that have had this sequence."""
        self.sequence = sequence
        self.first_sequence = sequence
        """Its first sequence: lower than its own where former neighbours were joined into it."""
        self.path = path
        self.size = size
        self.generation = generation
        self.first_index = first_index
        self.first_lsn = first_lsn
        self.chain = chain
        """The chain value before its first frame."""
        self.end = 0
        self.fd = -1
        self.readers = 0
        self.retired = False
        """Out of the table: its file is closed with the last reader."""
        self.previous_end = 0
        """As in its header: where the segment before it ended, 0 for none."""
        self.written_end = 0
        """As in its header: where it ended before it was rewritten; 0 if it was not."""
        self.tail = LogTail(first_index - 1, 0, first_lsn, 0, 0)
        self.indexes: dict[int, BatchIndex] | None = {}
        """The whole index, while active and until the index file is written; then None."""
        self.summary: SegmentSummary | None = None
        """Set when sealed."""
        self.indexed = False
        self.has_exact_begin = True
        """False for a lost file behind freed segments: its first index and LSN are lower bounds, and the
        chain value before them is unknown."""
        self.first_live_row = 0
        """A row of its summary whose partition had records left at the last check, where the next begins."""
        self.frame_ends: array[int] | None = array("I")
        """Where each frame ends; None below the older kept checkpoint, where only sent snapshots need it."""

    @property
    def is_mostly_unused(self) -> bool:
        """True where it was sealed long before its file was full: the file still has its whole size."""
        return 2 * self.end < self.size

    @property
    def rewritten(self) -> bool:
        return self.written_end > 0

    @property
    def is_joined(self) -> bool:
        return self.first_sequence < self.sequence

    @property
    def index_path(self) -> Path:
        """The path of the file with its index, beside its own."""
        return self.path.with_suffix(INDEX_SUFFIX)


def _first_offsets(segment: Segment) -> list[tuple[int, int]]:
    """(partition, first offset) of each partition that the segment holds batches of."""
    if segment.summary is not None:
        rows = zip(segment.summary.local_ids, segment.summary.firsts, strict=True)
        return [row for row in rows if row[0] != DEAD_PARTITION]
    indexes = segment.indexes or {}
    return [(local_id, indexes[local_id].bases[0]) for local_id in sorted(indexes) if indexes[local_id].bases]


Rebuild = Callable[[Segment], dict[int, BatchIndex]]
"""Rebuilds a sealed segment's index from its frames; raises CorruptLog where they are corrupt."""


class SegmentTable:
    """All segments in use. Changed by the log's own thread; iterating, `sealed`, `get`, `acquire`, `release`
    and `index_of` from any."""

    def __init__(self, fs: FileSystem, index_cache_bytes: int, rebuild: Rebuild) -> None:
        self._fs = fs
        self._rebuild = rebuild
        self._lock = threading.RLock()
        self._segments: dict[int, Segment] = {}
        self._joining: frozenset[int] = frozenset()
        """Serials of segments that are just being joined: they are not removed meanwhile."""
        self.spans: dict[int, PartitionSpans] = {}
        self._cache: OrderedDict[tuple[int, int], BatchIndex] = OrderedDict()
        self._cache_bytes = 0
        self._cache_limit_bytes = index_cache_bytes
        self.index_bytes = 0
        """Written to index files since open."""
        self._open_sealed: OrderedDict[int, None] = OrderedDict()

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._segments.values()))

    def sealed(self) -> list[Segment]:
        """Oldest first."""
        return [s for s in self if s.summary is not None]

    def get(self, sequence: int) -> Segment | None:
        return self._segments.get(sequence)

    def add(self, segment: Segment) -> None:
        """The next segment in order, sealed or active."""
        with self._lock:  # a join in its thread may be about to replace all of this
            self._segments[segment.sequence] = segment
            for local_id, first in _first_offsets(segment):
                self.span(local_id).add(first, segment.sequence)

    def begin(self, local_id: int, first: int, sequence: int) -> None:
        """A segment that is written to has got its first batch of a partition, at offset `first`."""
        with self._lock:  # a repair in its thread may be about to replace what lies before
            self.span(local_id).add(first, sequence)

    def replace_from(self, sequence: int, segments: list[Segment]) -> list[Segment]:
        """In one step, for readers in any thread: these segments instead of all from a sequence on. Gives
        the replaced ones; their files are closed once no reader uses them."""
        with self._lock:
            old = [each for each in self._segments.values() if each.sequence >= sequence]
            kept = {s: each for s, each in self._segments.items() if s < sequence}
            spans = {local_id: span.below(sequence) for local_id, span in self.spans.items()}
            spans = {local_id: span for local_id, span in spans.items() if span.sequences()}
            for segment in segments:
                kept[segment.sequence] = segment
                for local_id, first in _first_offsets(segment):
                    spans.setdefault(local_id, PartitionSpans()).add(first, segment.sequence)
            self._segments, self.spans = kept, spans
            for each in old:
                self._retire(each)
        self._forget_indexes({each.serial for each in old})
        return old

    def replace(self, old: Segment, new: Segment, swap_files: Callable[[], None]) -> bool:
        """In one step, with what `swap_files` does: another segment with the same batches instead of this
        one, or all but the first of them. False, and nothing done, where that is not in use any more."""
        with self._lock:
            if self._segments.get(old.sequence) is not old:
                return False
            swap_files()
            self._segments[new.sequence] = new
            if new.first_index != old.first_index:
                self._begin_later(old, new)
            else:
                self._drop_spans(old, new)
            self._retire(old)
        self._forget_indexes({old.serial})
        return True

    @contextlib.contextmanager
    def hold_for_join(self, segments: Sequence[Segment]) -> Iterator[bool]:
        """While this lasts none of these neighbours is removed. False where one of them was already, or was
        replaced."""
        with self._lock:
            is_current = all([self.is_current(each) for each in segments])
            self._joining = frozenset([each.serial for each in segments])
        try:
            yield is_current
        finally:
            self._joining = frozenset()

    def replace_run(self, old: Sequence[Segment], new: Segment) -> None:
        """In one step, for readers in any thread: one segment, under the last one's sequence, in the place of
        neighbours that are being joined. Readers find that `spans` is another object now."""
        firsts = dict(_first_offsets(new))
        local_ids = {local_id for each in old for local_id, _ in _first_offsets(each)}
        with self._lock:  # short: the event loop waits for it
            run = (old[0].first_sequence, new.sequence)
            gone = {each.sequence for each in old[:-1]}
            kept = {sequence: each for sequence, each in self._segments.items() if sequence not in gone}
            kept[new.sequence] = new
            spans = dict(self.spans)
            for local_id in local_ids:
                if local_id in spans:  # else the partition is closed
                    spans[local_id] = spans[local_id].join_run(run, firsts.get(local_id))
                    if spans[local_id].first_offset is None:
                        del spans[local_id]
            self._segments, self.spans = kept, spans
            for each in old:
                self._retire(each)
        self._forget_indexes({each.serial for each in old})

    def _drop_spans(self, old: Segment, new: Segment) -> None:
        """Drops the spans of closed partitions, which have no rows in the new segment."""
        kept = {local_id for local_id, _ in _first_offsets(new)}
        for local_id, _ in _first_offsets(old):
            spans = self.spans.get(local_id) if local_id not in kept else None
            if spans is not None and spans.remove([(old.sequence, old.sequence)]):
                del self.spans[local_id]

    def forget_closed(self, is_closed: Callable[[int], bool]) -> list[int]:
        """Drop where the batches of closed partitions lie; which partitions those are."""
        with self._lock:
            closed = [local_id for local_id in self.spans if is_closed(local_id)]
            for local_id in closed:
                del self.spans[local_id]
            return closed

    def forget_partition(self, local_id: int) -> None:
        """Drop where the batches of a closed partition lie."""
        with self._lock:
            self.spans.pop(local_id, None)

    def _begin_later(self, old: Segment, new: Segment) -> None:
        firsts = dict(_first_offsets(new))
        for local_id, _ in _first_offsets(old):
            spans = self.spans.get(local_id)
            if spans is None:
                continue  # the partition is closed
            if local_id in firsts:
                spans.begin_at(new.sequence, firsts[local_id])
            elif spans.remove([(new.sequence, new.sequence)]):
                del self.spans[local_id]

    def _retire(self, segment: Segment) -> None:
        self._open_sealed.pop(segment.sequence, None)
        segment.retired = True
        self._close_retired(segment)

    def _close_retired(self, segment: Segment) -> None:
        if segment.retired and segment.readers == 0 and segment.fd >= 0:
            self._fs.close(segment.fd)
            segment.fd = -1

    def span(self, local_id: int) -> PartitionSpans:
        found = self.spans.get(local_id)
        if found is None:
            found = self.spans[local_id] = PartitionSpans()
        return found

    def remove(self, segments: Iterable[Segment]) -> list[Segment]:
        """Out of the table: no new reader finds them. Readers they have keep their files until they release
        them. Gives those that were in it: one may just have been replaced. However many they are, each
        partition is looked at once."""
        with self._lock:
            gone = {
                each.sequence: each
                for each in segments
                if self.is_current(each) and each.serial not in self._joining
            }
            if not gone:
                return []
            runs = runs_of_sequences(self._segments, gone)
            for sequence in gone:
                del self._segments[sequence]
                self._open_sealed.pop(sequence, None)
            for local_id, spans in list(self.spans.items()):
                if spans.remove(runs):
                    del self.spans[local_id]
        self._forget_indexes({each.serial for each in gone.values()})
        return list(gone.values())

    def _forget_indexes(self, serials: Container[int]) -> None:
        """Drop cached indexes of segments that are out of the table, so nothing adds any. The cache is
        large, and the event loop waits for the lock: it is taken for a step at a time."""
        with self._lock:
            keys = list(self._cache)
        for key in keys:
            if key[0] in serials:
                with self._lock:
                    index = self._cache.pop(key, None)
                    self._cache_bytes -= index.memory_bytes if index is not None else 0

    def acquire(self, sequence: int) -> Segment | None:
        """The segment with its file open and held; None when it is gone. Pair with `release`."""
        with self._lock:
            segment = self._segments.get(sequence)
            if segment is None:
                return None
            if segment.fd < 0:
                segment.fd = self._fs.open(segment.path)
            if segment.summary is not None:
                self._note_open(sequence)
            segment.readers += 1
            return segment

    def acquire_current(self, segment: Segment) -> bool:
        """Acquire this very segment; False, and nothing is held, where it was freed or replaced."""
        held = self.acquire(segment.sequence)
        if held is not None and held is not segment:
            self.release(held)
        return held is segment

    def release(self, segment: Segment) -> None:
        with self._lock:
            segment.readers -= 1
            self._close_retired(segment)

    def note_sealed(self, segment: Segment) -> None:
        """It was the active segment; from now on its file is one of the open sealed ones."""
        with self._lock:
            self._note_open(segment.sequence)

    def _note_open(self, sequence: int) -> None:
        self._open_sealed[sequence] = None
        self._open_sealed.move_to_end(sequence)
        if len(self._open_sealed) > OPEN_FILES_MAX:
            self._close_oldest()

    def _close_oldest(self) -> None:
        for sequence in list(self._open_sealed)[:-1]:
            segment = self._segments.get(sequence)
            if segment is None or segment.readers == 0:
                del self._open_sealed[sequence]
                if segment is not None and segment.fd >= 0:
                    self._fs.close(segment.fd)
                    segment.fd = -1
                return

    def close_if_unread(self, segment: Segment) -> bool:
        """Close a removed segment's file; False while a reader uses it."""
        with self._lock:
            if segment.readers:
                return False
            if segment.fd >= 0:
                self._fs.close(segment.fd)
                segment.fd = -1
            return True

    def close(self) -> None:
        """Close every file; one that is being read follows when its reader is done with it."""
        with self._lock:
            for segment in self._segments.values():
                segment.retired = True
                self._close_retired(segment)

    def partition_in_segments(self, local_id: int, from_offset: int) -> tuple[list[SegmentPartition], int]:
        """Implements `DataLog.partition_in_segments`."""
        with self._lock:  # a join would have some segments counted twice
            spans = self.spans.get(local_id)
            sequences = spans.sequences() if spans is not None else []
            segments = [self._segments[s] for s in sequences if s in self._segments]
        found: list[SegmentPartition] = []
        total = 0
        for segment in segments:
            summary, indexes = segment.summary, segment.indexes
            if summary is not None:
                found += [
                    each for each in summary.partitions_among((local_id,)) if each.last_offset >= from_offset
                ]
            elif indexes is not None and local_id in indexes:
                index = indexes[local_id]
                total += index.bytes_from(from_offset)
        return found, total + sum([each.total_bytes for each in found])

    def is_current(self, segment: Segment) -> bool:
        """Returns whether it is still the segment of its sequence."""
        return self._segments.get(segment.sequence) is segment

    def partitions_of(self, segment: Segment) -> Iterator[SegmentPartition]:
        return segment.summary.partitions() if segment.summary is not None else iter(())

    def index_of(self, segment: Segment, local_id: int, load: bool) -> BatchIndex | None:
        """The batches of a partition in a segment; None where it must be loaded and `load` is False, or
        where the segment has none or has just been replaced. A damaged index file is rebuilt."""
        indexes = segment.indexes
        if indexes is not None:
            return indexes.get(local_id)
        key = (segment.serial, local_id)
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._cache.move_to_end(key)
                return found
        return self._load_index(segment, local_id) if load else None

    def _load_index(self, segment: Segment, local_id: int) -> BatchIndex | None:
        summary = segment.summary
        row = summary.row(local_id) if summary is not None else -1
        if summary is None or row < 0:
            return None
        found = unless_lost(partial(self._read_index, segment, summary, row))
        if self._segments.get(segment.sequence) is not segment:
            return None  # the file may be the new one's
        if found is None:
            # Written without a flush: a power loss, or corruption. The segment has everything.
            return self._rebuild(segment).get(local_id)
        self._remember(segment, local_id, found)
        return found

    def _read_index(self, segment: Segment, summary: SegmentSummary, row: int) -> BatchIndex | None:
        at, length = section_of(summary, row)
        fd = self._fs.open(segment.index_path)
        try:
            return decode_section(self._fs.pread(fd, length, at), summary, row)
        finally:
            self._fs.close(fd)

    def _remember(self, segment: Segment, local_id: int, index: BatchIndex) -> None:
        key = (segment.serial, local_id)
        with self._lock:
            if self._segments.get(segment.sequence) is not segment:
                return
            former = self._cache.get(key)  # of an index file before it was made again
            self._cache_bytes -= former.memory_bytes if former is not None else 0
            self._cache[key] = index
            self._cache_bytes += index.memory_bytes
            while self._cache_bytes > self._cache_limit_bytes and len(self._cache) > 1:
                self._cache_bytes -= self._cache.popitem(last=False)[1].memory_bytes

    def write_index(self, segment: Segment) -> None:
        """Write a sealed segment's index file; from then on its index is loaded on demand. OSError."""
        indexes, summary, tail = segment.indexes, segment.summary, segment.tail
        if indexes is None or summary is None:
            return
        if not segment.indexed:
            header = IndexHeader(
                segment.sequence,
                segment.generation,
                segment.end,
                tail.index,
                tail.next_lsn,
                tail.chain,
                tail.term,
                tail.time_ms,
            )
            path = segment.index_path
            parts = encode_index(header, summary, indexes)
            fd = self._fs.open(path, create=True)
            try:
                write_all(self._fs, fd, parts, 0)
            except OSError:
                with contextlib.suppress(OSError):  # half of one is of no use, and takes the last room
                    self._fs.unlink(path)
                raise
            finally:
                self._fs.close(fd)
            # As a whole: a reader has found its section by the former one, and decodes it by that.
            segment.summary = summary.with_sizes(map(len, parts[1:]))
            self.index_bytes += sum(map(len, parts))
            segment.indexed = True
        for local_id, index in indexes.items():
            if local_id in self.spans:
                self._remember(segment, local_id, index)
        segment.indexes = None
