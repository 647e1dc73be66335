"""The check that the batches of an index are what was read from their segment."""

from __future__ import annotations

from crc32c import crc32c

from lockstep.storage.log.batch_index import UNKNOWN_EPOCH, BatchIndex
from lockstep.storage.log.format import BATCH_LENGTH_OFFSET, BATCH_PREFIX, BATCH_PREFIX_BYTES


def first_bad_row(index: BatchIndex, first: int, last: int, view: memoryview) -> int:
    """The first of rows [first, last) whose batch does not verify or is cut off; `last` for none.

    A batch verifies if its CRC-32C matches and the fields outside of that are right: base offset, length and
    leader epoch are those of the index, the magic is 2. A run verifies if the CRC-32C of all of its bytes is
    the one in the index. `view` begins at row `first`.
    """
    start, begin = index.positions[first], first
    for end, leader_epoch in index.epoch_runs(first, last):
        bad_row = _first_bad_of_epoch(index, begin, end, view, start, leader_epoch)
        if bad_row < end:
            return bad_row
        begin = end
    return last


def _first_bad_of_epoch(
    index: BatchIndex, first: int, last: int, view: memoryview, start: int, leader_epoch: int
) -> int:
    """`first_bad_row` for rows of one leader epoch; `view` begins at byte `start` of the segment."""
    prefix, body_offset = BATCH_PREFIX.unpack_from, BATCH_PREFIX_BYTES
    positions, lengths, bases = index.positions, index.lengths, index.bases
    got = len(view)
    checksums = index.run_checksums(first, last)
    for row in range(first, last):
        length = lengths[row]
        if length == 0:
            continue
        at = positions[row] - start
        after = at + length
        if after > got:
            return row
        if row in checksums:
            if crc32c(view[at:after]) != checksums[row]:
                return row
            continue
        base, rest, epoch, magic, crc = prefix(view, at)
        if (
            base != bases[row]
            or rest != length - BATCH_LENGTH_OFFSET
            or (epoch != leader_epoch and leader_epoch != UNKNOWN_EPOCH)
            or magic != 2
            or crc32c(view[at + body_offset : after]) != crc
        ):
            return row
    return last
