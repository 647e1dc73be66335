"""The segments of one log: their files, which of them holds an offset, and their batch indexes.

Invariants: sequences rise in log order; the last one is active and the only one written to. A partition's
`PartitionSpans` names, in offset order, the segments that hold a batch of it. A file is closed or
recycled only while nobody reads it (`readers` under the lock). What stays in memory of a sealed segment is
its summary; its batch indexes are loaded per partition through a cache with a byte limit.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from storage.log.batch_index import (
    BatchIndex,
    IndexHeader,
    SegmentPartition,
    SegmentSummary,
    batches_at,
    decode_batches,
    encode_index,
)
from storage.log.file_system import FileSystem, write_all
from storage.log.scan import LogTail

SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
TOMBSTONE_SUFFIX = ".freed"
OPEN_FILES_MAX = 128
"""Open sealed segments at once; more are opened and closed as reads need them."""


def segment_name(sequence: int) -> str:
    return f"{sequence:016d}{SEGMENT_SUFFIX}"


def index_name(sequence: int) -> str:
    return f"{sequence:016d}{INDEX_SUFFIX}"


def tombstone_name(sequence: int) -> str:
    return f"{sequence:016d}{TOMBSTONE_SUFFIX}"


def sequences_of(names: list[str], suffix: str) -> list[int]:
    """The sequences of a directory's files of one sort, rising."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


class Segment:
    """One segment in use. `end` is where its frames end; `tail` what they amount to up to there."""

    __slots__ = (
        "batches",
        "end",
        "fd",
        "first_index",
        "first_lsn",
        "frame_ends",
        "generation",
        "indexed",
        "path",
        "readers",
        "sequence",
        "size",
        "summary",
        "tail",
    )

    def __init__(
        self, sequence: int, path: Path, size: int, generation: int, first_index: int, first_lsn: int
    ) -> None:
        self.sequence = sequence
        self.path = path
        self.size = size
        self.generation = generation
        self.first_index = first_index
        self.first_lsn = first_lsn
        self.end = 0
        self.fd = -1
        self.readers = 0
        self.tail = LogTail(first_index - 1, 0, first_lsn, 0, 0)
        self.batches: dict[int, BatchIndex] | None = {}
        """The whole index, while active and until the index file is written; then None."""
        self.summary: SegmentSummary | None = None
        """Set when sealed."""
        self.indexed = False
        self.frame_ends: array[int] | None = array("I")
        """Where each frame ends; None for segments below the checkpoint, whose frames nobody asks for."""


class PartitionSpans:
    """The segments that hold batches of one partition, by the first base offset there."""

    __slots__ = ("_pair",)

    def __init__(self) -> None:
        # One attribute for both, replaced as one: a reader in another thread sees a consistent pair.
        self._pair = (array("q"), array("q"))

    @property
    def first_offset(self) -> int:
        """The lowest offset there is; only while there is one."""
        return self._pair[0][0]

    def sequences(self) -> list[int]:
        return self._pair[1].tolist()

    def add(self, first: int, sequence: int) -> None:
        firsts, sequences = self._pair
        sequences.append(sequence)
        firsts.append(first)

    def remove(self, sequence: int) -> bool:
        """Forget a segment; True when none is left."""
        firsts, sequences = self._pair
        at = bisect_left(sequences, sequence)
        if at < len(sequences) and sequences[at] == sequence:
            self._pair = firsts[:at] + firsts[at + 1 :], sequences[:at] + sequences[at + 1 :]
        return not self._pair[0]

    def from_offset(self, offset: int) -> list[int]:
        """Sequences from the one that holds `offset` on; empty when it is below all of them."""
        firsts, sequences = self._pair
        at = bisect_right(firsts, offset) - 1
        return sequences[at:].tolist() if at >= 0 else []


Rebuild = Callable[[Segment], dict[int, BatchIndex]]
"""A sealed segment's index, from its frames, put into it again; CorruptLog where they have rotted."""


class SegmentTable:
    """All segments in use. Changed by the log's own thread; iterating, `sealed`, `get`, `acquire`, `release`
    and `index_of` from any."""

    def __init__(self, fs: FileSystem, directory: Path, index_cache_bytes: int, rebuild: Rebuild) -> None:
        self._fs = fs
        self._directory = directory
        self._rebuild = rebuild
        self._lock = threading.RLock()
        self._segments: dict[int, Segment] = {}
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
        self._segments[segment.sequence] = segment
        if segment.summary is not None:
            summary = segment.summary
            for row, number in enumerate(summary.numbers):
                self.span(number).add(summary.firsts[row], segment.sequence)
        elif segment.batches:
            for number in sorted(segment.batches):
                if segment.batches[number].bases:
                    self.span(number).add(segment.batches[number].bases[0], segment.sequence)

    def span(self, number: int) -> PartitionSpans:
        found = self.spans.get(number)
        if found is None:
            found = self.spans[number] = PartitionSpans()
        return found

    def remove(self, segment: Segment) -> None:
        """Out of the table: no new reader finds it. Readers it has keep its file until they release it."""
        with self._lock:
            del self._segments[segment.sequence]
            self._open_sealed.pop(segment.sequence, None)
            for number, spans in list(self.spans.items()):
                if spans.remove(segment.sequence):
                    del self.spans[number]
            for key in [k for k in self._cache if k[0] == segment.sequence]:
                self._cache_bytes -= self._cache.pop(key).memory_bytes

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

    def release(self, segment: Segment) -> None:
        with self._lock:
            segment.readers -= 1

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
        """Close a removed segment's file; False while somebody reads it."""
        with self._lock:
            if segment.readers:
                return False
            if segment.fd >= 0:
                self._fs.close(segment.fd)
                segment.fd = -1
            return True

    def close(self) -> None:
        for segment in self._segments.values():
            if segment.fd >= 0:
                self._fs.close(segment.fd)
                segment.fd = -1

    def partitions_of(self, segment: Segment) -> Iterator[SegmentPartition]:
        return segment.summary.partitions() if segment.summary is not None else iter(())

    def index_of(self, segment: Segment, number: int, load: bool) -> BatchIndex | None:
        """The batches of a partition in a segment; None where it must be loaded and `load` is False, or
        where the segment has none. A damaged index file is rebuilt from the segment."""
        batches = segment.batches
        if batches is not None:
            return batches.get(number)
        key = (segment.sequence, number)
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._cache.move_to_end(key)
                return found
        return self._load_index(segment, number) if load else None

    def _load_index(self, segment: Segment, number: int) -> BatchIndex | None:
        summary = segment.summary
        row = summary.row(number) if summary is not None else -1
        if summary is None or row < 0:
            return None
        found = self._read_index(segment, summary, row)
        if found is None:
            # Written without a flush: a power loss, or rot. The segment has everything.
            return self._rebuild(segment).get(number)
        self._remember(segment.sequence, number, found)
        return found

    def _read_index(self, segment: Segment, summary: SegmentSummary, row: int) -> BatchIndex | None:
        at, length = batches_at(summary, row)
        try:
            fd = self._fs.open(self._directory / index_name(segment.sequence))
        except FileNotFoundError:
            return None
        try:
            return decode_batches(self._fs.pread(fd, length, at), summary, row)
        finally:
            self._fs.close(fd)

    def _remember(self, sequence: int, number: int, index: BatchIndex) -> None:
        with self._lock:
            if sequence not in self._segments or (sequence, number) in self._cache:
                return
            self._cache[sequence, number] = index
            self._cache_bytes += index.memory_bytes
            while self._cache_bytes > self._cache_limit_bytes and len(self._cache) > 1:
                self._cache_bytes -= self._cache.popitem(last=False)[1].memory_bytes

    def write_index(self, segment: Segment) -> None:
        """Write a sealed segment's index file; from then on its index is loaded on demand. OSError."""
        batches, summary, tail = segment.batches, segment.summary, segment.tail
        if batches is None or summary is None:
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
            fd = self._fs.open(self._directory / index_name(segment.sequence), create=True)
            try:
                parts = encode_index(header, summary, batches)
                write_all(self._fs, fd, parts, 0)
                self.index_bytes += sum(map(len, parts))
            finally:
                self._fs.close(fd)
            segment.indexed = True
        for number, index in batches.items():
            self._remember(segment.sequence, number, index)
        segment.batches = None
