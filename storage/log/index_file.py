"""The index file beside a sealed segment, and its summary, which stays in memory.

`SegmentSummary` has one row for each partition, in arrays sorted by local id, so that memory grows with
(segments x partitions), never with batches. The file has the summary and, for each of its rows, a section:
the partition's `BatchIndex` with a leader epoch for each row, and a checksum. (A row of a `BatchIndex` is a
batch, or a run: neighbouring batches of one frame.) The file is derived: a missing, stale or broken one is
rebuilt from the segment.
"""

from __future__ import annotations

import itertools
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from crc32c import crc32c

from lockstep.storage.log.batch_index import CLEANED_TIMESTAMP, BatchIndex
from lockstep.storage.log.run_table import BATCH_BYTES, RUN_BYTES, RunTable


class SegmentPartition:
    """A summary of the batches of one partition in one sealed segment; `last_offset` is inclusive."""

    __slots__ = ("first_offset", "last_offset", "local_id", "max_timestamp", "total_bytes")

    def __init__(
        self, local_id: int, first_offset: int, last_offset: int, max_timestamp: int, total_bytes: int
    ) -> None:
        self.local_id = local_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.total_bytes = total_bytes

    def __repr__(self) -> str:
        return (
            f"SegmentPartition({self.local_id}, {self.first_offset}..{self.last_offset}, "
            f"max_timestamp={self.max_timestamp}, {self.total_bytes} bytes)"
        )


class SegmentSummary:
    """By partition of a segment: first and next offset, newest timestamp, bytes, size of its section."""

    __slots__ = ("firsts", "index_format", "local_ids", "nexts", "sizes", "timestamps", "totals")

    def __init__(self, index_format: int = 0) -> None:
        self.index_format = index_format or INDEX_FORMAT
        """The format of the index file beside the segment."""
        self.local_ids = array("I")
        self.sizes = array("I")
        """The bytes of each partition's section of the index file."""
        self.firsts = array("q")
        self.nexts = array("q")
        self.timestamps = array("q")
        self.totals = array("q")

    @classmethod
    def of(cls, indexes: dict[int, BatchIndex]) -> SegmentSummary:
        """The summary of a segment's indexes. By columns: a segment is sealed on the loop, and may hold
        batches of 100,000 partitions."""
        ids = [each for each in sorted(indexes) if indexes[each].bases or indexes[each].total_bytes]
        rows = [indexes[each] for each in ids]
        summary = cls()
        summary.local_ids.extend(ids)
        summary.sizes.extend([_section_bytes(each) for each in rows])
        summary.firsts.extend([each.bases[0] if each.bases else 0 for each in rows])
        summary.nexts.extend([each.next_offset for each in rows])
        summary.timestamps.extend([max(each.timestamps, default=CLEANED_TIMESTAMP) for each in rows])
        summary.totals.extend([each.total_bytes for each in rows])
        return summary

    def row(self, local_id: int) -> int:
        """The partition's row, or -1."""
        row = bisect_left(self.local_ids, local_id)
        return row if row < len(self.local_ids) and self.local_ids[row] == local_id else -1

    def partitions(self) -> Iterator[SegmentPartition]:
        """The partitions that have batches in the segment, in the order of local ids."""
        return map(self._at, range(len(self.local_ids)))

    def partitions_among(self, local_ids: Collection[int]) -> Iterator[SegmentPartition]:
        """Some partitions, where they have batches in the segment, in no order. Takes one step for each
        requested partition, or for each row, whichever are fewer."""
        if len(local_ids) < len(self.local_ids):
            rows = [row for local_id in local_ids if (row := self.row(local_id)) >= 0]
        else:
            rows = [row for row, local_id in enumerate(self.local_ids) if local_id in local_ids]
        return map(self._at, rows)

    def _at(self, row: int) -> SegmentPartition:
        return SegmentPartition(
            self.local_ids[row], self.firsts[row], self.nexts[row] - 1, self.timestamps[row], self.totals[row]
        )

    def live_row(self, log_start: Callable[[int], int], first: int) -> int:
        """A row whose partition has a record in this segment at or above its log start; -1 where none has, so
        that the segment may be freed. The search begins at row `first` and wraps around. With the last result
        as `first` it takes one step in general: log starts only rise, so a dead row stays dead."""
        for row in itertools.chain(range(first, len(self.local_ids)), range(first)):
            if self.totals[row] and self.nexts[row] > log_start(self.local_ids[row]):
                return row
        return -1

    def dead_bytes(self, log_start: Callable[[int], int]) -> int:
        """See `SealedSegment.dead_bytes`. Called for every segment again and again, so it makes no object
        for a row."""
        rows = zip(self.local_ids, self.nexts, self.totals, strict=True)
        return sum([total for local_id, end, total in rows if end <= log_start(local_id)])

    def with_sizes(self, sizes: Iterable[int]) -> SegmentSummary:
        """The same of another index file, of the present format, with sections of these sizes."""
        changed = SegmentSummary()
        changed.sizes = array("I", sizes)
        changed.local_ids, changed.firsts, changed.nexts = self.local_ids, self.firsts, self.nexts
        changed.timestamps, changed.totals = self.timestamps, self.totals
        return changed

    def arrays(self) -> tuple[array[int], ...]:
        return self.local_ids, self.sizes, self.firsts, self.nexts, self.timestamps, self.totals


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
        """The segment's sequence."""
        self.generation = generation
        """The log generation of the segment's last write."""
        self.end = end
        """The byte in the segment where its last frame ends."""
        self.last_index = last_index
        """The Raft index of the segment's last frame."""
        self.next_lsn = next_lsn
        """The LSN after its last record."""
        self.chain = chain
        """The chain checksum after its last frame."""
        self.term = term
        """The term of its last frame."""
        self.time_ms = time_ms
        """The leader's time in its last frame."""


INDEX_FORMAT: Final = 3
"""The format of index files that are written; those of the others are read until a scrub of the segment
rewrites them. Format 2 has a row for each batch; format 1 has no leader epochs either, and those of its
batches are not verified."""
_MAGIC = b"LSTKIDX1"
_HEADER = struct.Struct(">8sIHHQQQQQIQqI")
"""magic, crc (over header and summary), format, flags, sequence, generation, end, last index, next LSN,
chain, term, time ms, partition count."""
INDEX_HEADER_BYTES = _HEADER.size
_CRC_FROM = 12
_SUMMARY_ROW_BYTES = 4 + 4 + 8 * 4
"""The bytes of one partition in the summary."""
_COLUMNS: Final = {1: "qIIq", 2: "qIIqi", 3: "qIIqi"}
"""By format, the arrays of a partition's rows: base offsets, positions, lengths, times, leader epochs."""
_BATCH_ROW_BYTES: Final = {1: 8 + 4 + 4 + 8, 2: 8 + 4 + 4 + 8 + 4, 3: 8 + 4 + 4 + 8 + 4}
"""By format, the bytes of one row of a partition's section."""
_RUN_COUNT_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4
_NO_RUNS: Final = RunTable()
_SWAP = sys.byteorder == "little"


def _to_big_endian(values: array[int]) -> bytes:
    if _SWAP:
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _from_big_endian(code: str, data: bytes) -> array[int]:
    values: array[int] = array(code)
    values.frombytes(data)
    if _SWAP:
        values.byteswap()
    return values


def _epoch_column(index: BatchIndex) -> array[int]:
    """The leader epoch of each row."""
    column, first = array("i"), 0
    for end, epoch in index.epoch_runs(0, len(index.bases)):
        column.extend(array("i", (epoch,)) * (end - first))
        first = end
    return column


def _set_epochs(index: BatchIndex, column: array[int]) -> None:
    """Set the index's leader epochs from a column with one epoch per row."""
    if not column:
        return
    index.newest_epoch = column[-1]
    if column.count(column[-1]) != len(column):
        starts = [row for row in range(1, len(column)) if column[row] != column[row - 1]]
        index.earlier_epochs = tuple([(row, column[row - 1]) for row in starts])


def _section_bytes(index: BatchIndex) -> int:
    """The bytes of a partition's section of an index file."""
    columns = (index.runs or _NO_RUNS).file_bytes + _BATCH_ROW_BYTES[3] * len(index.bases)
    return _CHECKSUM_BYTES + _RUN_COUNT_BYTES + columns


def _encode_section(local_id: int, index: BatchIndex) -> bytes:
    """A partition's section of an index file: checksum, number of runs, their arrays, the rows' arrays."""
    runs = index.runs or _NO_RUNS
    columns = (
        runs.rows,
        runs.batch_ends,
        runs.checksums,
        runs.batch_fields,
        index.bases,
        index.positions,
        index.lengths,
        index.timestamps,
        _epoch_column(index),
    )
    data = len(runs.rows).to_bytes(_RUN_COUNT_BYTES, "big") + b"".join(map(_to_big_endian, columns))
    return crc32c(data, local_id).to_bytes(_CHECKSUM_BYTES, "big") + data


def encode_index(header: IndexHeader, summary: SegmentSummary, indexes: dict[int, BatchIndex]) -> list[bytes]:
    """The index file: header and summary, then for each row of the summary the partition's section."""
    nothing = BatchIndex()
    sections = [_encode_section(local_id, indexes.get(local_id, nothing)) for local_id in summary.local_ids]
    rows = b"".join(map(_to_big_endian, summary.with_sizes(map(len, sections)).arrays()))
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
    return [_MAGIC + crc32c(body).to_bytes(4, "big") + body, *sections]


def index_head_bytes(first: bytes) -> int:
    """Returns the size of header and summary, from the header's bytes; 0 where they are no index header."""
    if len(first) < _HEADER.size:
        return 0
    fields = _HEADER.unpack_from(first)
    return _HEADER.size + _SUMMARY_ROW_BYTES * int(fields[-1]) if fields[0] == _MAGIC else 0


def decode_index_head(data: bytes) -> tuple[IndexHeader, SegmentSummary] | None:
    """Header and summary; None for a broken file or one of an unknown format: both are rebuilt."""
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
        columns.append(_from_big_endian(code, data[at : at + width * count]))
        at += width * count
    (
        summary.local_ids,
        sizes,
        summary.firsts,
        summary.nexts,
        summary.timestamps,
        summary.totals,
    ) = columns
    if fields[2] < 3:  # these formats have the number of a partition's batches there
        sizes = array("I", [_CHECKSUM_BYTES + _BATCH_ROW_BYTES[fields[2]] * rows for rows in sizes])
    summary.sizes = sizes
    return IndexHeader(*fields[4:-1]), summary


def section_of(summary: SegmentSummary, row: int) -> tuple[int, int]:
    """Position and size in bytes of a partition's section of the index file."""
    before = INDEX_HEADER_BYTES + _SUMMARY_ROW_BYTES * len(summary.local_ids)
    return before + sum(summary.sizes[:row]), summary.sizes[row]


def decode_section(data: bytes, summary: SegmentSummary, row: int) -> BatchIndex | None:
    """The index in a partition's section, or None where its checksum or size is wrong."""
    if len(data) != summary.sizes[row] or len(data) < _CHECKSUM_BYTES:
        return None
    if int.from_bytes(data[:4], "big") != crc32c(data[4:], summary.local_ids[row]):
        return None
    index = BatchIndex()
    at = _CHECKSUM_BYTES
    if summary.index_format >= 3:
        index.runs, at = _decode_runs(data, at)
    count = (len(data) - at) // _BATCH_ROW_BYTES[summary.index_format]
    columns = []
    for code in _COLUMNS[summary.index_format]:
        width = 8 if code == "q" else 4
        columns.append(_from_big_endian(code, data[at : at + width * count]))
        at += width * count
    if at != len(data):
        return None
    index.bases, index.positions, index.lengths, index.timestamps, *epochs = columns
    for column in epochs:
        _set_epochs(index, column)
    index.next_offset = summary.nexts[row]
    index.total_bytes = summary.totals[row]
    return index


def _decode_runs(data: bytes, at: int) -> tuple[RunTable | None, int]:
    """The runs of a partition's section from byte `at` on (None without any), and the byte where its rows
    begin."""
    count = int.from_bytes(data[at : at + _RUN_COUNT_BYTES], "big")
    at += _RUN_COUNT_BYTES
    if not count:
        return None, at
    runs = RunTable()
    runs.rows, runs.batch_ends, runs.checksums = [
        _from_big_endian("I", data[at + 4 * count * column : at + 4 * count * (column + 1)])
        for column in range(3)
    ]
    at += RUN_BYTES * count
    end = at + BATCH_BYTES * runs.batch_ends[-1]
    runs.batch_fields = _from_big_endian("H", data[at:end])
    return runs, end
