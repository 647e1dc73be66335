"""The records that compaction keeps: pure rules over the batches of one partition, fed batch by batch.

Owns: `OffsetMap` (key to its last offset, of bounded memory) and `PartitionCleaning` (one partition's pass).
A pass has two parts: every batch of the dirty range is put into the map, in order, until that is full or
the range ends; then every batch from the log start up to there is filtered. Where the map was full the next
pass begins there.

Kept are: the last record of each key below the end of the map, and all above it; a tombstone, until its
batch's delete horizon is over; the marker of a transaction that committed, while any record of that is left,
then for as long as a tombstone; the marker of one that was aborted for ever, because readers receive that
transaction in the list of aborted ones and end it there. Gone are: older records of a key, records without a
key, the records of aborted transactions, which never count as the last of anything. A batch that cannot be
opened, or not be made again, stays as it is. Nobody needs the last batch of a producer: its state is in
checkpoints.

Invariants: nothing at or above `end` changes, which is at most the last stable offset and never beyond the
partition's newest batch; when a tombstone goes nothing that it deletes is left before it, whichever member
set its horizon, as long as batches are filtered in order and all below `dirty_offset` is clean. Reads no
clock.
Source: Kafka's Cleaner, CleanedTransactionMetadata, RecordFilter; KIP-534.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from operator import itemgetter

from lockstep.protocol.records.batch import BatchHeader, MalformedBatch, iter_headers, read_header, verify
from lockstep.protocol.records.batch_filter import (
    FilteredBatch,
    OpenedBatch,
    RecordSpan,
    filter_batch,
    open_batch,
)
from lockstep.protocol.records.control import ControlKind, parse
from lockstep.storage.aborted_transactions import AbortedTransaction
from lockstep.storage.types import Buffer, CorruptLog

DIGEST_BYTES = 20
MAX_OWN_KEY_LENGTH = DIGEST_BYTES - 1
"""A longer key is in the map as a digest, which is longer than any other: they cannot be mixed up."""
LATEST_MS = (1 << 63) - 1
"""The last time that a batch can name: a `delete.retention.ms` may reach beyond it."""
ENTRY_BYTES = 200
"""The memory of a key in the map, about: a digest, an offset, and their share of a half empty dict."""


class OffsetMap:
    """Keys of one partition and the last offset of each. Args: room: how many keys it may hold."""

    __slots__ = ("_offsets", "room")

    def __init__(self, room: int) -> None:
        self.room = room
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, spans: Iterable[RecordSpan]) -> bool:
        """Adds all records of one batch; False, and nothing is added, where there may be no room for them."""
        spans = list(spans)
        if len(self._offsets) + len(spans) > self.room and self._offsets:
            return False
        for span in spans:
            if span.key is not None:
                self._offsets[_own(span.key)] = span.offset
        return True

    def last_offset(self, key: bytes) -> int:
        """-1 for a key that is not in the map."""
        return self._offsets.get(_own(key), -1)


def _own(key: bytes) -> bytes:
    return key if len(key) <= MAX_OWN_KEY_LENGTH else blake2b(key, digest_size=DIGEST_BYTES).digest()


class PartitionCleaning:
    """One pass over one partition.

    Args:
        dirty_offset: where the map begins: all below it has been cleaned before.
        end: nothing from there on is looked at; it is where a batch begins, or beyond all of them.
        now_ms, delete_retention_ms: what delete horizons are made of.
        aborted: the aborted transactions below `end`.
        room: keys that the map may hold.
        horizons_end: while it returns False, records whose delete horizon is over are kept.
    """

    def __init__(
        self,
        local_id: int,
        dirty_offset: int,
        end: int,
        now_ms: int,
        delete_retention_ms: int,
        aborted: Sequence[AbortedTransaction] = (),
        room: int = 1 << 20,
        horizons_end: Callable[[], bool] = lambda: True,
    ) -> None:
        self.local_id = local_id
        self.dirty_offset = dirty_offset
        self.end = end
        """While the map is filled, the limit of its range; then the end of its range."""
        self.unreadable: list[int] = []
        """Base offsets of batches that could not be opened, or not be made again."""
        self._now_ms = now_ms
        self._horizons_end = horizons_end
        self._horizon_ms = min(now_ms + delete_retention_ms, LATEST_MS)
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        """By producer, ascending: each of its transactions begins above the marker of the one before."""
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        self._with_records: set[int] = set()
        """Producers with a record that is kept since their last marker; looked into, never walked."""
        self.map = OffsetMap(room)

    # -- the map ----------------------------------------------------------------------------------------

    def fill(self, batches: Buffer, throttle: Callable[[int], None]) -> int:
        """Put neighbouring batches into the map; the offset after them, or `end` where that comes first.
        CorruptLog where one does not verify: its keys cannot be believed."""
        view = memoryview(batches)
        next_offset = self.dirty_offset
        for at, header in iter_headers(view):
            if header.next_offset > self.end:
                self.end = min(self.end, header.base_offset)
                return self.end
            batch = view[at : at + header.total_bytes]
            if header.next_offset > self.dirty_offset and not self._note(batch, header):
                self.end = header.base_offset
                return self.end
            next_offset = header.next_offset
            throttle(header.total_bytes)
        return next_offset

    def _note(self, batch: memoryview, header: BatchHeader) -> bool:
        try:
            verify(batch, 0, header)
        except MalformedBatch as error:
            raise CorruptLog(f"partition {self.local_id} offset {header.base_offset}: {error}") from None
        if header.is_control or self._is_aborted(header):
            return True
        try:
            return self.map.note(open_batch(batch).spans)
        except MalformedBatch:
            return True  # it stays whole, and so does what came before

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        ranges = self._aborted.get(header.producer_id, ())
        behind = bisect_right(ranges, header.base_offset, key=itemgetter(0))
        return behind > 0 and header.base_offset <= ranges[behind - 1][1]

    # -- the batches ------------------------------------------------------------------------------------

    def filter_batch(self, batch: Buffer) -> FilteredBatch | bool:
        """Filters a batch, in order of offsets: True to keep it, False to remove it, else the shortened
        one."""
        header = read_header(batch)
        left: FilteredBatch | bool = True
        try:
            opened = open_batch(batch)
            if header.next_offset <= self.end:
                left = self._marker(batch, opened) if header.is_control else self._filter_records(opened)
        except MalformedBatch:  # from here on tombstones stay: clients may be able to read what they delete
            self.unreadable.append(header.base_offset)
        if left and header.is_transactional and not header.is_control:
            self._with_records.add(header.producer_id)
        return left

    def _filter_records(self, opened: OpenedBatch) -> FilteredBatch | bool:
        header = opened.header
        if self._is_aborted(header):
            return False
        over = header.has_delete_horizon and self._is_over(header)
        last_offset = self.map.last_offset
        kept = [
            span
            for span in opened.spans
            if (span.has_value or not over) and span.key is not None and span.offset >= last_offset(span.key)
        ]
        if not kept:
            return False
        if not header.has_delete_horizon and not all([span.has_value for span in kept]):
            return filter_batch(opened, kept, self._horizon_ms)
        return filter_batch(opened, kept) if len(kept) < len(opened.spans) else True

    def _marker(self, batch: Buffer, opened: OpenedBatch) -> FilteredBatch | bool:
        """A commit marker is removed as tombstones are, after its records; any other control record stays."""
        header = opened.header
        has_records = header.producer_id in self._with_records
        self._with_records.discard(header.producer_id)
        if parse(batch).kind is not ControlKind.COMMIT or has_records:
            return True
        if not header.has_delete_horizon:
            return filter_batch(opened, opened.spans, self._horizon_ms)
        return not self._is_over(header)

    def _is_over(self, header: BatchHeader) -> bool:
        return header.base_timestamp <= self._now_ms and not self.unreadable and self._horizons_end()
