"""The positions and leader epochs of a segment's batches: arrays per partition, and their file beside a
sealed segment. (Leader epochs are runs of rows in memory, and an array of rows in the file.)

`BatchIndex` is the arrays of one partition in one segment, in offset order. A row is a batch, or a run of
neighbouring batches of a frame, whose batches `RunTable` has. `SegmentSummary` is what stays
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
from lockstep.storage.log.batch_runs import group_batches
from lockstep.storage.log.run_table import BATCH_BYTES, RUN_BYTES, RunTable, fits
from lockstep.storage.types import Buffer, EntryFields

NO_TIMESTAMP = -(1 << 63)
"""The timestamp of a batch that was cleaned away."""
DEAD_PARTITION = (1 << 32) - 2
"""The number of no partition: its row counts the bytes of partitions that were closed while their segment was
written to, and that have no rows of their own."""

UNKNOWN_EPOCH: Final = -(1 << 31)
"""In place of the leader epoch of batches whose index file has none (format 1). Not Kafka's -1 for no epoch,
which a batch may carry."""

MAX_MEAN_BYTES: Final = 4 << 10
"""LIMIT. Bytes of a batch, in the mean of a run that is one row. Of larger ones a row is a small part, and a
checksum more at each write is more than a read saves."""
INDEX_COST_BYTES = 600
"""What an index costs in memory beside its batches: the object, four arrays and their place in a cache.
Measured by `tracemalloc` (Python 3.11)."""


class BatchIndex:
    """The batches of one partition in one segment; one that was cleaned away is a row of length 0. Appended
    by one thread, read by several: they look at `bases` first, and at `runs` only then."""

    __slots__ = (
        "bases",
        "earlier_epochs",
        "lengths",
        "newest_epoch",
        "next_offset",
        "positions",
        "runs",
        "timestamps",
        "total_bytes",
    )

    def __init__(self) -> None:
        self.bases = array("q")
        self.positions = array("I")
        self.lengths = array("I")
        self.timestamps = array("q")
        """The newest of a row's batches."""
        self.runs: RunTable | None = None
        """The rows that are several batches; None where each is one."""
        self.next_offset = 0
        self.total_bytes = 0
        self.newest_epoch = UNKNOWN_EPOCH
        """The leader epoch of the last row, and of the rows before it that `earlier_epochs` does not name."""
        self.earlier_epochs: tuple[tuple[int, int], ...] = ()
        """(row after its last, leader epoch) of each run of rows before those of `newest_epoch`."""

    def add(self, base: int, count: int, place: int, length: int, timestamp: int, leader_epoch: int) -> None:
        """One batch at byte `place` of the segment. The base offset goes last: readers look at it first."""
        if leader_epoch != self.newest_epoch:
            self._begin_epoch(leader_epoch, len(self.bases))
        self.positions.append(place)
        self.lengths.append(length)
        self.timestamps.append(timestamp)
        self.next_offset = base + count
        self.total_bytes += length
        self.bases.append(base)

    def add_run(
        self,
        entries: Sequence[EntryFields],
        next_offset: int,
        place: int,
        length: int,
        leader_epoch: int,
        newest: int,
        payloads: memoryview | Sequence[Buffer],
    ) -> None:
        """Add neighbouring batches by their directory entries, `length` bytes in all from byte `place` on.

        Args: payloads: these bytes, as one buffer or one for each batch.
        """
        if leader_epoch != self.newest_epoch:
            self._begin_epoch(leader_epoch, len(self.bases))
        _, bases, counts, lengths, _, _, timestamps, _ = zip(*entries, strict=True)
        if length <= MAX_MEAN_BYTES * len(bases) and fits(lengths, counts, timestamps, newest):
            runs = self.runs
            if runs is None:
                runs = self.runs = RunTable()
            ages = [newest - timestamp for timestamp in timestamps]
            runs.add(len(self.bases), lengths, counts, ages, _checksum(payloads))
            bases, lengths, timestamps = bases[:1], (length,), (newest,)
        self.positions.extend(itertools.accumulate(lengths[:-1], initial=place))
        self.lengths.extend(lengths)
        self.timestamps.extend(timestamps)
        self.next_offset = next_offset
        self.total_bytes += length
        self.bases.extend(bases)

    def _begin_epoch(self, leader_epoch: int, row: int) -> None:
        """From a row on, which is the next one, the leader epoch is another."""
        if row:
            self.earlier_epochs += ((row, self.newest_epoch),)
        self.newest_epoch = leader_epoch

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

    def extend(self, other: BatchIndex, first: int, last: int) -> None:
        """Add rows [first, last) of another index, which follow on what is here."""
        if first >= last:
            return
        shift = len(self.bases) - first
        begin = len(self.bases)
        for end, epoch in other.epoch_runs(first, last):
            if epoch != self.newest_epoch or not begin:
                self._begin_epoch(epoch, begin)
            begin = end + shift
        if other.runs is not None and other.runs.has_any(first, last):
            if self.runs is None:
                self.runs = RunTable()
            self.runs.extend(other.runs, first, last, shift)
        lengths = other.lengths[first:last]
        self.positions.extend(other.positions[first:last])
        self.lengths.extend(lengths)
        self.timestamps.extend(other.timestamps[first:last])
        self.next_offset = other.bases[last] if last < len(other.bases) else other.next_offset
        self.total_bytes += sum(lengths)
        self.bases.extend(other.bases[first:last])

    def run_checksums(self, first: int, last: int) -> dict[int, int]:
        """CRC-32C of all bytes of each run among rows [first, last), by row."""
        runs = self.runs
        return {} if runs is None else runs.checksums_of(first, last)

    def is_run(self, row: int) -> bool:
        """Returns whether a row is several batches."""
        return self.runs is not None and self.runs.find(row) >= 0

    def batches(self, row: int) -> BatchIndex:
        """The batches of a row, each as a row of its own."""
        found = BatchIndex()
        runs = self.runs
        run = runs.find(row) if runs is not None else -1
        if runs is None or run < 0:
            found.extend(self, row, row + 1)
            return found
        lengths, counts, ages = runs.batches(run)
        base, newest = self.bases[row], self.timestamps[row]
        *bases, found.next_offset = itertools.accumulate(counts, initial=base)
        found.bases = array("q", bases)
        found.positions = array("I", itertools.accumulate(lengths[:-1], initial=self.positions[row]))
        found.lengths = array("I", lengths)
        found.timestamps = array("q", [newest - age for age in ages])
        found.total_bytes = self.lengths[row]
        ((_, found.newest_epoch),) = self.epoch_runs(row, row + 1)
        return found

    def by_batch(self) -> BatchIndex:
        """All batches, each as a row of its own; itself where it has no runs."""
        count = len(self.bases)
        runs = self.runs
        if runs is None:
            return self
        whole = BatchIndex()
        row = 0
        for run in runs.rows[: bisect_left(runs.rows, count)]:
            batches = self.batches(run)
            whole.extend(self, row, run)
            whole.extend(batches, 0, len(batches.bases))
            row = run + 1
        whole.extend(self, row, count)
        return whole

    def bytes_from(self, offset: int) -> int:
        """The bytes of the batches that begin at an offset or behind it."""
        row = bisect_left(self.bases, offset)
        total = sum(self.lengths[row:])
        if row and self.is_run(row - 1):
            batches = self.batches(row - 1)
            total += sum(batches.lengths[bisect_left(batches.bases, offset) :])
        return total

    def cut(self, end: int) -> BatchIndex | None:
        """The batches before byte `end` of the segment, as an index of its own; None where there are none."""
        rows = bisect_left(self.positions, end)
        if rows == 0:
            return None
        left = BatchIndex()
        if self.is_run(rows - 1) and self.positions[rows - 1] + self.lengths[rows - 1] > end:
            batches = self.batches(rows - 1)
            left.extend(self, 0, rows - 1)
            left.extend(batches, 0, bisect_left(batches.positions, end))
        else:
            left.extend(self, 0, rows)
        return left

    @property
    def memory_bytes(self) -> int:
        runs = self.runs
        return INDEX_COST_BYTES + 24 * len(self.bases) + (runs.memory_bytes if runs is not None else 0)


def forget_partition(batches: dict[int, BatchIndex], local_id: int) -> None:
    """Drop a closed partition from the index of a segment that is written to; its bytes count as dead."""
    index = batches.pop(local_id, None)
    if index is not None:
        dead = batches.get(DEAD_PARTITION)
        if dead is None:
            dead = batches[DEAD_PARTITION] = BatchIndex()
        dead.total_bytes += index.total_bytes


def add_to_index(
    batches: dict[int, BatchIndex],
    entries: Sequence[EntryFields],
    offset: int,
    payloads: memoryview | Sequence[Buffer],
    is_left_out: Callable[[int], bool] = lambda local_id: False,
) -> int:
    """Index a frame's batches, whose payloads begin at `offset`; where they end.

    Args:
        payloads: as one buffer, or one for each entry; of a batch that was removed nothing, or an empty one.
        is_left_out: partitions of which a batch that was removed gets no row.
    """
    at, row = offset, 0
    for local_id, base, next_offset, count, length, leader_epoch, newest, flags in group_batches(entries):
        first = row
        row += count
        if flags & ENTRY_REMOVED:
            if is_left_out(local_id):
                continue
            length, newest = 0, NO_TIMESTAMP
        index = batches.get(local_id)
        if index is None:
            index = batches[local_id] = BatchIndex()
        if count == 1:
            index.add(base, next_offset - base, at, length, newest, leader_epoch)
        else:
            begin = at - offset
            is_one = isinstance(payloads, memoryview)
            taken = payloads[begin : begin + length] if is_one else payloads[first:row]
            index.add_run(entries[first:row], next_offset, at, length, leader_epoch, newest, taken)
        at += length
    return at


def _checksum(payloads: memoryview | Sequence[Buffer]) -> int:
    """CRC-32C of some payloads one after the other."""
    if isinstance(payloads, memoryview):
        return crc32c(payloads)
    checksum = 0
    for payload in payloads:
        checksum = crc32c(payload, checksum)
    return checksum


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
