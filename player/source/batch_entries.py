"""Fetched bytes as entries: whole committed batches, each at its last offset.

Owns: which batches are entries, and the last position read. Invariants: the entries depend on the log alone,
not on the first position or the reader; skipped batches (control batches, aborted ones, those that compaction
has emptied) count as read. Does not: open a batch's records, or choose targets.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.player.core.messages import Entry
from lockstep.player.source.interface import LogChunk
from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.records.batch import Buffer, iter_headers
from lockstep.protocol.records.committed import CommittedReader


def split_into_entries(
    records: Buffer, first_position: int, aborted: Iterable[AbortedTransaction] | None
) -> LogChunk:
    """The entries from `first_position` on in the records of a read_committed Fetch.

    Args:
        records: batches, the last of them perhaps cut.
        first_position: batches that end before it are passed over; one that it lies in is an entry.
        aborted: the aborted transactions from the broker's response, with their first offsets.
    Raises MalformedBatch, CorruptBatch.
    """
    entries: list[Entry] = []
    through_position = first_position - 1
    reader = CommittedReader(aborted or ())
    view = memoryview(records)
    for pos, header in iter_headers(records):
        last_offset = header.last_offset
        if reader.is_visible(records, pos, header) and last_offset >= first_position and header.record_count:
            # A copy, which does not keep the whole response in memory for as long as one part of it waits.
            entries.append(Entry(last_offset, bytes(view[pos : pos + header.total_bytes])))
        if last_offset > through_position:
            through_position = last_offset
    return LogChunk(entries, through_position)
