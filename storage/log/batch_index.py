"""The positions and leader epochs of a segment's batches: arrays per partition, and their file beside a
sealed segment. (Leader epochs are runs in memory, and a fifth array in the file.)

`BatchIndex` is the arrays of one partition in one segment, in offset order. `SegmentSummary` is what stays
in memory of a sealed segment: one row per partition, in arrays sorted by local id, so that memory
grows with (segments x partitions), never with batches. The index file holds both, each with its checksum;
it is derived: a missing, stale or broken one is rebuilt from the segment.
"""

from __future__ import annotations

import itertools
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from crc32c import crc32c

from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.types import EntryFields

NO_TIMESTAMP = -(1 << 63)
"""The timestamp of a batch that was cleaned away."""
DEAD_PARTITION = (1 << 32) - 2
"""The number of no partition: its row counts the bytes of partitions that were closed while their segment was
written to, and that have no rows of their own."""

UNKNOWN_EPOCH: Final = -(1 << 31)
"""In place of the leader epoch of batches whose index file has none (format 1). Not Kafka's -1 for no epoch,
which a batch may carry."""

INDEX_COST_BYTES = 600
"""What an index costs in memory beside its batches: the object, four arrays and their place in a cache.
Measured by `tracemalloc` (Python 3.11)."""


class BatchIndex:
    """The batches of one partition in one segment; one that was cleaned away is a row of length 0. Appended
    by one thread, read by several."""

    __slots__ = (
        "bases",
        "earlier_epochs",
        "lengths",
        "newest_epoch",
        "next_offset",
        "positions",
        "timestamps",
        "total_bytes",
    )

    def __init__(self) -> None:
        self.bases = array("q")
        self.positions = array("I")
        self.lengths = array("I")
        self.timestamps = array("q")
        self.next_offset = 0
        self.total_bytes = 0
        self.newest_epoch = UNKNOWN_EPOCH
        """The leader epoch of the last row, and of the rows before it that `earlier_epochs` does not name."""
        self.earlier_epochs: tuple[tuple[int, int], ...] = ()
        """(row after its last, leader epoch) of each run of rows before those of `newest_epoch`."""

    def add(self, base: int, count: int, place: int, length: int, timestamp: int, leader_epoch: int) -> None:
        """One batch at byte `place` of the segment. The base offset goes last: readers look at it first."""
        if leader_epoch != self.newest_epoch:
            if self.bases:
                self.earlier_epochs += ((len(self.bases), self.newest_epoch),)
            self.newest_epoch = leader_epoch
        self.positions.append(place)
        self.lengths.append(length)
        self.timestamps.append(timestamp)
        self.next_offset = base + count
        self.total_bytes += length
        self.bases.append(base)

    def add_run(
        self, entries: Sequence[EntryFields], next_offset: int, place: int, length: int, leader_epoch: int
    ) -> None:
        """Add neighbouring batches by their directory entries, `length` bytes in all from byte `place` on."""
        if leader_epoch != self.newest_epoch:
            if self.bases:
                self.earlier_epochs += ((len(self.bases), self.newest_epoch),)
            self.newest_epoch = leader_epoch
        _, bases, _, lengths, _, _, timestamps, _ = zip(*entries, strict=True)
        self.positions.extend(itertools.accumulate(lengths[:-1], initial=place))
        self.lengths.extend(lengths)
        self.timestamps.extend(timestamps)
        self.next_offset = next_offset
        self.total_bytes += length
        self.bases.extend(bases)

    def epoch_runs(self, first: int, last: int) -> list[tuple[int, int]]:
        """(row after its last, leader epoch) of each run of rows [first, last) with one epoch, in order."""
        newest = (
            self.newest_epoch
        )  # `add` sets `earlier_epochs` first, so a reader without a lock reads it last
        runs: list[tuple[int, int]] = []
        for end, epoch in self.earlier_epochs:
            if end >= last:
                return [*runs, (last, epoch)]
            if end > first:
                runs.append((end, epoch))
        runs.append((last, newest))
        return runs

    def cut(self, end: int) -> BatchIndex | None:
        """The batches before byte `end` of the segment, as an index of its own; None where there are none."""
        rows = bisect_left(self.positions, end)
        if rows == 0:
            return None
        left = BatchIndex()
        left.positions, left.lengths = self.positions[:rows], self.lengths[:rows]
        left.timestamps, left.bases = self.timestamps[:rows], self.bases[:rows]
        left.next_offset = self.bases[rows] if rows < len(self.bases) else self.next_offset
        left.total_bytes = sum(left.lengths)
        *earlier, (_, left.newest_epoch) = self.epoch_runs(0, rows)
        left.earlier_epochs = tuple(earlier)
        return left

    @property
    def memory_bytes(self) -> int:
        return INDEX_COST_BYTES + 24 * len(self.bases)


def forget_partition(batches: dict[int, BatchIndex], local_id: int) -> None:
    """Drop a closed partition from the index of a segment that is written to; its bytes count as dead."""
    index = batches.pop(local_id, None)
    if index is not None:
        dead = batches.get(DEAD_PARTITION)
        if dead is None:
            dead = batches[DEAD_PARTITION] = BatchIndex()
        dead.total_bytes += index.total_bytes


def add_to_index(batches: dict[int, BatchIndex], entries: Iterable[tuple[int, ...]], offset: int) -> int:
    """Index a frame's batches, whose payloads begin at `offset`; where they end."""
    for local_id, base, count, length, _, leader_epoch, timestamp, flags in entries:
        index = batches.get(local_id)
        if index is None:
            index = batches[local_id] = BatchIndex()
        if flags & ENTRY_REMOVED:
            index.add(base, count, offset, 0, NO_TIMESTAMP, leader_epoch)
            continue
        index.add(base, count, offset, length, timestamp, leader_epoch)
        offset += length
    return offset


class SegmentPartition:
    """One partition's share of one sealed segment; `last_offset` is inclusive."""

    __slots__ = ("first_offset", "last_offset", "max_timestamp", "partition", "total_bytes")

    def __init__(
        self, partition: int, first_offset: int, last_offset: int, max_timestamp: int, total_bytes: int
    ) -> None:
        self.partition = partition
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.total_bytes = total_bytes

    def __repr__(self) -> str:
        return (
            f"SegmentPartition({self.partition}, {self.first_offset}..{self.last_offset}, "
            f"max_timestamp={self.max_timestamp}, {self.total_bytes} bytes)"
        )


class SegmentSummary:
    """Per partition of a segment: first and next offset, newest timestamp, bytes, place in the index file."""

    __slots__ = ("counts", "firsts", "index_format", "local_ids", "nexts", "timestamps", "totals")

    def __init__(self, index_format: int = 0) -> None:
        self.index_format = index_format or INDEX_FORMAT
        """The format of the index file beside the segment."""
        self.local_ids = array("I")
        self.counts = array("I")
        self.firsts = array("q")
        self.nexts = array("q")
        self.timestamps = array("q")
        self.totals = array("q")

    @classmethod
    def of(cls, batches: dict[int, BatchIndex]) -> SegmentSummary:
        summary = cls()
        for local_id in sorted(batches):
            each = batches[local_id]
            if not each.bases and not each.total_bytes:
                continue
            summary.local_ids.append(local_id)
            summary.counts.append(len(each.bases))
            summary.firsts.append(each.bases[0] if each.bases else 0)
            summary.nexts.append(each.next_offset)
            summary.timestamps.append(max(each.timestamps, default=NO_TIMESTAMP))
            summary.totals.append(each.total_bytes)
        return summary

    def row(self, local_id: int) -> int:
        """The partition's row, or -1."""
        row = bisect_left(self.local_ids, local_id)
        return row if row < len(self.local_ids) and self.local_ids[row] == local_id else -1

    def partitions(self) -> Iterator[SegmentPartition]:
        """in order of local id."""
        return map(self._at, range(len(self.local_ids)))

    def shares(self, wanted: Collection[int]) -> Iterator[SegmentPartition]:
        """Returns the shares of some partitions, in no order: as many steps as there are of them, or rows,
        whichever is less."""
        if len(wanted) < len(self.local_ids):
            rows = [row for local_id in wanted if (row := self.row(local_id)) >= 0]
        else:
            rows = [row for row, local_id in enumerate(self.local_ids) if local_id in wanted]
        return map(self._at, rows)

    def _at(self, row: int) -> SegmentPartition:
        return SegmentPartition(
            self.local_ids[row], self.firsts[row], self.nexts[row] - 1, self.timestamps[row], self.totals[row]
        )

    def live_row(self, log_start: Callable[[int], int], first: int) -> int:
        """A row whose partition has something here from its log start on, -1 where none has. Looked for from
        row `first` on and round: log starts rise, so what was dead before the one found last stays dead."""
        for row in itertools.chain(range(first, len(self.local_ids)), range(first)):
            if self.totals[row] and self.nexts[row] > log_start(self.local_ids[row]):
                return row
        return -1

    def dead_bytes(self, log_start: Callable[[int], int]) -> int:
        """See `SealedSegment.dead_bytes`. Looked at for every segment again and again: no object for a
        row."""
        rows = zip(self.local_ids, self.nexts, self.totals, strict=True)
        return sum([total for local_id, end, total in rows if end <= log_start(local_id)])

    def arrays(self) -> tuple[array[int], ...]:
        return self.local_ids, self.counts, self.firsts, self.nexts, self.timestamps, self.totals


class IndexHeader:
    """The header of a segment's index file; it counts only where the segment agrees."""

    __slots__ = ("chain", "end", "generation", "last_index", "next_lsn", "sequence", "term", "time_ms")

    def __init__(
        self,
        sequence: int,
        generation: int,
        end: int,
        last_index: int,
        next_lsn: int,
        chain: int,
        term: int,
        time_ms: int,
    ) -> None:
        self.sequence = sequence
        self.generation = generation
        self.end = end
        self.last_index = last_index
        self.next_lsn = next_lsn
        self.chain = chain
        self.term = term
        self.time_ms = time_ms


INDEX_FORMAT: Final = 2
"""The format of index files that are written. Format 1 has no leader epochs; those of its batches are not
verified until a scrub of the segment rewrites the file."""
_MAGIC = b"LSTKIDX1"
_HEADER = struct.Struct(">8sIHHQQQQQIQqI")
"""magic, crc (over header and summary), format, flags, sequence, generation, end, last index, next LSN,
chain, term, time ms, partition count."""
INDEX_HEADER_BYTES = _HEADER.size
_CRC_FROM = 12
_ROW_BYTES = 4 + 4 + 8 * 4
_COLUMNS: Final = {1: "qIIq", 2: "qIIqi"}
"""By format, the arrays of a partition: base offsets, positions, lengths, timestamps, leader epochs."""
_BATCH_BYTES: Final = {1: 8 + 4 + 4 + 8, 2: 8 + 4 + 4 + 8 + 4}
_SWAP = sys.byteorder == "little"


def _big(values: array[int]) -> bytes:
    if _SWAP:
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _native(code: str, data: bytes) -> array[int]:
    values: array[int] = array(code)
    values.frombytes(data)
    if _SWAP:
        values.byteswap()
    return values


def _epochs(index: BatchIndex) -> array[int]:
    """The leader epoch of each row."""
    column, first = array("i"), 0
    for end, epoch in index.epoch_runs(0, len(index.bases)):
        column.extend(array("i", (epoch,)) * (end - first))
        first = end
    return column


def _take_epochs(index: BatchIndex, column: array[int]) -> None:
    """Set the index's leader epochs from a column with one epoch per row."""
    if not column:
        return
    index.newest_epoch = column[-1]
    if column.count(column[-1]) != len(column):
        starts = [row for row in range(1, len(column)) if column[row] != column[row - 1]]
        index.earlier_epochs = tuple([(row, column[row - 1]) for row in starts])


def encode_index(header: IndexHeader, summary: SegmentSummary, batches: dict[int, BatchIndex]) -> list[bytes]:
    """The index file: header and summary, then per row of the summary checksum and five arrays."""
    rows = b"".join(map(_big, summary.arrays()))
    fields = (
        header.sequence,
        header.generation,
        header.end,
        header.last_index,
        header.next_lsn,
        header.chain,
        header.term,
        header.time_ms,
    )
    body = _HEADER.pack(_MAGIC, 0, INDEX_FORMAT, 0, *fields, len(summary.local_ids))[_CRC_FROM:] + rows
    parts = [_MAGIC + crc32c(body).to_bytes(4, "big") + body]
    nothing = BatchIndex()
    for local_id in summary.local_ids:
        each = batches.get(local_id, nothing)
        columns = (each.bases, each.positions, each.lengths, each.timestamps, _epochs(each))
        data = b"".join(map(_big, columns))
        parts.append(crc32c(data, local_id).to_bytes(4, "big") + data)
    return parts


def index_head_bytes(first: bytes) -> int:
    """Returns the size of header and summary, from the header's bytes; 0 where they are no index header."""
    if len(first) < _HEADER.size:
        return 0
    fields = _HEADER.unpack_from(first)
    return _HEADER.size + _ROW_BYTES * int(fields[-1]) if fields[0] == _MAGIC else 0


def decode_index_head(data: bytes) -> tuple[IndexHeader, SegmentSummary] | None:
    """Header and summary, or None for a broken file or another format's (both are rebuilt)."""
    size = index_head_bytes(data)
    if size == 0 or len(data) < size:
        return None
    fields = _HEADER.unpack_from(data)
    if fields[1] != crc32c(data[_CRC_FROM:size]) or fields[2] not in _COLUMNS:
        return None
    summary = SegmentSummary(fields[2])
    count, at = fields[-1], _HEADER.size
    columns = []
    for code in "IIqqqq":
        width = 4 if code == "I" else 8
        columns.append(_native(code, data[at : at + width * count]))
        at += width * count
    (
        summary.local_ids,
        summary.counts,
        summary.firsts,
        summary.nexts,
        summary.timestamps,
        summary.totals,
    ) = columns
    return IndexHeader(*fields[4:-1]), summary


def batches_at(summary: SegmentSummary, row: int) -> tuple[int, int]:
    """(position, bytes) of a partition's checksum and arrays in the index file."""
    before = INDEX_HEADER_BYTES + _ROW_BYTES * len(summary.local_ids)
    each = _BATCH_BYTES[summary.index_format]
    return before + 4 * row + each * sum(summary.counts[:row]), 4 + each * summary.counts[row]


def decode_batches(data: bytes, summary: SegmentSummary, row: int) -> BatchIndex | None:
    """One partition's arrays, or None where they do not verify."""
    count = summary.counts[row]
    if len(data) != 4 + _BATCH_BYTES[summary.index_format] * count:
        return None
    if int.from_bytes(data[:4], "big") != crc32c(data[4:], summary.local_ids[row]):
        return None
    index = BatchIndex()
    at = 4
    columns = []
    for code in _COLUMNS[summary.index_format]:
        width = 8 if code == "q" else 4
        columns.append(_native(code, data[at : at + width * count]))
        at += width * count
    index.bases, index.positions, index.lengths, index.timestamps, *epochs = columns
    for column in epochs:
        _take_epochs(index, column)
    index.next_offset = summary.nexts[row]
    index.total_bytes = summary.totals[row]
    return index
