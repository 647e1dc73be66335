"""The positions and leader epochs of a segment's batches: arrays for each partition. (Leader epochs are runs
of rows.)

`BatchIndex` is the arrays of one partition in one segment, in offset order. A row is an entry of these
arrays: a batch, or a run of neighbouring batches of one frame, whose batches `RunTable` has. `index_file`
writes and reads the file.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from crc32c import crc32c

from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.batch_runs import group_batches
from lockstep.storage.log.run_table import RunTable, fits
from lockstep.storage.types import Buffer, EntryFields

CLEANED_TIMESTAMP = -(1 << 63)
"""The timestamp of a batch that was cleaned away, below every other one. Not Kafka's -1 for no timestamp,
which a batch may carry."""
DEAD_PARTITION = (1 << 32) - 2
"""A reserved id: its row counts the bytes of partitions that were closed while their segment was
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

    def add(
        self, base: int, count: int, position: int, length: int, timestamp: int, leader_epoch: int
    ) -> None:
        """Add a batch at byte `position` of the segment. Its base offset goes last: readers take it first."""
        if leader_epoch != self.newest_epoch:
            self._begin_epoch(leader_epoch, len(self.bases))
        self.positions.append(position)
        self.lengths.append(length)
        self.timestamps.append(timestamp)
        self.next_offset = base + count
        self.total_bytes += length
        self.bases.append(base)

    def add_run(
        self,
        entries: Sequence[EntryFields],
        next_offset: int,
        position: int,
        length: int,
        leader_epoch: int,
        newest: int,
        payloads: memoryview | Sequence[Buffer],
    ) -> None:
        """Add neighbouring batches by their directory entries, `length` bytes from byte `position` on.

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
        self.positions.extend(itertools.accumulate(lengths[:-1], initial=position))
        self.lengths.extend(lengths)
        self.timestamps.extend(timestamps)
        self.next_offset = next_offset
        self.total_bytes += length
        self.bases.extend(bases)

    def _begin_epoch(self, leader_epoch: int, row: int) -> None:
        """Records that the leader epoch changes with the next row."""
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

    def below(self, end: int) -> BatchIndex | None:
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


def forget_partition(indexes: dict[int, BatchIndex], local_id: int) -> None:
    """Drop a closed partition from the index of a segment that is written to; its bytes count as dead."""
    index = indexes.pop(local_id, None)
    if index is not None:
        dead = indexes.get(DEAD_PARTITION)
        if dead is None:
            dead = indexes[DEAD_PARTITION] = BatchIndex()
        dead.total_bytes += index.total_bytes


def add_to_index(
    indexes: dict[int, BatchIndex],
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
            length, newest = 0, CLEANED_TIMESTAMP
        index = indexes.get(local_id)
        if index is None:
            index = indexes[local_id] = BatchIndex()
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
