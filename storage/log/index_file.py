"""The index file beside a sealed segment, and its summary, which stays in memory.

`SegmentSummary` has one row for each partition, in arrays sorted by local id, so that memory grows with
(segments x partitions), never with batches. The file has the summary and each partition's `BatchIndex`, with
leader epochs as an array of rows, each with its checksum; it is derived: a missing, stale or broken one is
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

from lockstep.storage.log.batch_index import NO_TIMESTAMP, BatchIndex
from lockstep.storage.log.run_table import BATCH_BYTES, RUN_BYTES, RunTable


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

    __slots__ = ("firsts", "index_format", "local_ids", "nexts", "sizes", "timestamps", "totals")

    def __init__(self, index_format: int = 0) -> None:
        self.index_format = index_format or INDEX_FORMAT
        """The format of the index file beside the segment."""
        self.local_ids = array("I")
        self.sizes = array("I")
        """The bytes of each partition's share of the index file."""
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
            summary.sizes.append(_share_bytes(each))
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

    def with_sizes(self, sizes: Iterable[int]) -> SegmentSummary:
        """The same of another index file, of the present format, with shares of these sizes."""
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
        self.generation = generation
        self.end = end
        self.last_index = last_index
        self.next_lsn = next_lsn
        self.chain = chain
        self.term = term
        self.time_ms = time_ms


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
_ROW_BYTES = 4 + 4 + 8 * 4
_COLUMNS: Final = {1: "qIIq", 2: "qIIqi", 3: "qIIqi"}
"""By format, the arrays of a partition's rows: base offsets, positions, lengths, times, leader epochs."""
_ROWS_BYTES: Final = {1: 8 + 4 + 4 + 8, 2: 8 + 4 + 4 + 8 + 4, 3: 8 + 4 + 4 + 8 + 4}
_RUN_COUNT_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4
_NO_RUNS: Final = RunTable()
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


def _share_bytes(index: BatchIndex) -> int:
    """The bytes of a partition's share of an index file."""
    columns = (index.runs or _NO_RUNS).file_bytes + _ROWS_BYTES[3] * len(index.bases)
    return _CHECKSUM_BYTES + _RUN_COUNT_BYTES + columns


def _share(local_id: int, index: BatchIndex) -> bytes:
    """A partition's share of an index file: checksum, number of runs, their arrays, those of the rows."""
    runs = index.runs or _NO_RUNS
    columns = (
        runs.rows,
        runs.ends,
        runs.checksums,
        runs.details,
        index.bases,
        index.positions,
        index.lengths,
        index.timestamps,
        _epochs(index),
    )
    data = len(runs.rows).to_bytes(_RUN_COUNT_BYTES, "big") + b"".join(map(_big, columns))
    return crc32c(data, local_id).to_bytes(_CHECKSUM_BYTES, "big") + data


def encode_index(header: IndexHeader, summary: SegmentSummary, batches: dict[int, BatchIndex]) -> list[bytes]:
    """The index file: header and summary, then for each row of the summary the partition's share."""
    nothing = BatchIndex()
    shares = [_share(local_id, batches.get(local_id, nothing)) for local_id in summary.local_ids]
    rows = b"".join(map(_big, summary.with_sizes(map(len, shares)).arrays()))
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
    return [_MAGIC + crc32c(body).to_bytes(4, "big") + body, *shares]


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
        sizes,
        summary.firsts,
        summary.nexts,
        summary.timestamps,
        summary.totals,
    ) = columns
    if fields[2] < 3:  # it has the number of a partition's batches there
        sizes = array("I", [_CHECKSUM_BYTES + _ROWS_BYTES[fields[2]] * rows for rows in sizes])
    summary.sizes = sizes
    return IndexHeader(*fields[4:-1]), summary


def batches_at(summary: SegmentSummary, row: int) -> tuple[int, int]:
    """(position, bytes) of a partition's share of the index file."""
    before = INDEX_HEADER_BYTES + _ROW_BYTES * len(summary.local_ids)
    return before + sum(summary.sizes[:row]), summary.sizes[row]


def decode_batches(data: bytes, summary: SegmentSummary, row: int) -> BatchIndex | None:
    """One partition's arrays, or None where they do not verify."""
    if len(data) != summary.sizes[row] or len(data) < _CHECKSUM_BYTES:
        return None
    if int.from_bytes(data[:4], "big") != crc32c(data[4:], summary.local_ids[row]):
        return None
    index = BatchIndex()
    at = _CHECKSUM_BYTES
    if summary.index_format >= 3:
        index.runs, at = _decode_runs(data, at)
    count = (len(data) - at) // _ROWS_BYTES[summary.index_format]
    columns = []
    for code in _COLUMNS[summary.index_format]:
        width = 8 if code == "q" else 4
        columns.append(_native(code, data[at : at + width * count]))
        at += width * count
    if at != len(data):
        return None
    index.bases, index.positions, index.lengths, index.timestamps, *epochs = columns
    for column in epochs:
        _take_epochs(index, column)
    index.next_offset = summary.nexts[row]
    index.total_bytes = summary.totals[row]
    return index


def _decode_runs(data: bytes, at: int) -> tuple[RunTable | None, int]:
    """The runs of a partition's share from a byte on, None where there are none, and where its rows begin."""
    count = int.from_bytes(data[at : at + _RUN_COUNT_BYTES], "big")
    at += _RUN_COUNT_BYTES
    if not count:
        return None, at
    runs = RunTable()
    runs.rows, runs.ends, runs.checksums = [
        _native("I", data[at + 4 * count * column : at + 4 * count * (column + 1)]) for column in range(3)
    ]
    at += RUN_BYTES * count
    end = at + BATCH_BYTES * runs.ends[-1]
    runs.details = _native("H", data[at:end])
    return runs, end
