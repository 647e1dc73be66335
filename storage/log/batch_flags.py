"""Marks: which batches of a frame were removed or shortened since it was written; local, never in its head.

In a segment that was written as a whole, and in a checkpoint's frames on their way, marks follow each head:
a bit per batch (the lowest first), 1 where the batch is not the one in the head, filled up to bytes, and
their CRC-32C. If it is seeded with the frame's own checksum, these batches were removed. Seeded with the
complement of that, a change follows for each of them: the length, CRC and newest timestamp of the shortened
batch that is there instead, a length of 0 for one that was removed; then the changes' CRC-32C, seeded with
the one before. So frames without a shortened batch are as format 2 has them.

Heads stay as they are: the chain verifies over changed frames. In memory an entry of the directory has the
changes in it, with a flag. Does not: decide which records stay (`storage/compaction_rules.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from lockstep.storage.types import DirectoryEntry, Frame

ENTRY_REMOVED = 1 << 31
"""Entry flag, local: the batch was cleaned away and its payload is empty."""
ENTRY_SHORTENED = 1 << 30
"""Entry flag, local: fewer records than it had; length, CRC and newest timestamp are those it has now."""
ENTRY_LOCAL = ENTRY_REMOVED | ENTRY_SHORTENED
"""Never in a head."""

_CRC = struct.Struct(">I")
_CHANGE = struct.Struct(">IIq")
"""Length, CRC, newest timestamp ms."""
_COMPLEMENT = 0xFFFF_FFFF


def encode_marks(frame: Frame) -> bytes:
    """The marks of a frame that has its head."""
    bits = bytearray((len(frame.directory) + 7) // 8)
    changed: list[DirectoryEntry] = []
    for row, entry in enumerate(frame.directory):
        if entry.flags & ENTRY_LOCAL:
            bits[row >> 3] |= 1 << (row & 7)
            changed.append(entry)
    assert frame.head is not None
    chain = int.from_bytes(frame.head[:4], "big")
    if not any(entry.flags & ENTRY_SHORTENED for entry in changed):
        return bytes(bits) + _CRC.pack(crc32c(bits, chain))
    seed = crc32c(bits, chain ^ _COMPLEMENT)
    changes = b"".join(
        _CHANGE.pack(e.length, e.crc, e.max_timestamp) if e.flags & ENTRY_SHORTENED else _CHANGE.pack(0, 0, 0)
        for e in changed
    )
    return bytes(bits) + _CRC.pack(seed) + changes + _CRC.pack(crc32c(changes, seed))


def min_marks_bytes(batch_count: int) -> int:
    """Returns the size of the marks of a frame with this number of batches, none of them shortened."""
    return (batch_count + 7) // 8 + _CRC.size


def max_marks_bytes(batch_count: int) -> int:
    """Returns the size of the marks of a frame with this number of batches, all of them shortened."""
    return min_marks_bytes(batch_count) + _CHANGE.size * batch_count + _CRC.size


def apply_marks(view: memoryview, at: int, entries: list[tuple[int, ...]], chain: int) -> tuple[int, int]:
    """Put the marks at `at` into a directory's entries: the bytes of the marks, and of the payloads that
    follow them. ValueError where the marks do not verify."""
    width = (len(entries) + 7) // 8
    if at + width + _CRC.size > len(view):
        raise ValueError("marks cut short")
    bits = bytes(view[at : at + width])
    seed = _CRC.unpack_from(view, at + width)[0]
    begin = at + width + _CRC.size
    changes: Sequence[tuple[int, int, int]]
    rows = [row for row in range(len(entries)) if bits[row >> 3] >> (row & 7) & 1]
    if seed == crc32c(bits, chain):
        changes, end = [(0, 0, 0)] * len(rows), begin
    elif seed == crc32c(bits, chain ^ _COMPLEMENT):
        end = begin + _CHANGE.size * len(rows)
        if end + _CRC.size > len(view):
            raise ValueError("marks cut short")
        if _CRC.unpack_from(view, end)[0] != crc32c(view[begin:end], seed):
            raise ValueError("marks that do not verify")
        changes = list(_CHANGE.iter_unpack(view[begin:end]))
        end += _CRC.size
    else:
        raise ValueError("marks that do not verify")
    for row, (length, crc, timestamp) in zip(rows, changes, strict=True):
        entries[row] = _changed(entries[row], length, crc, timestamp)
    kept = sum([fields[3] for fields in entries if not fields[7] & ENTRY_REMOVED])
    return end - at, kept


def _changed(fields: tuple[int, ...], length: int, crc: int, timestamp: int) -> tuple[int, ...]:
    if length == 0:
        return (*fields[:7], fields[7] | ENTRY_REMOVED)
    local_id, base, count, _, _, leader_epoch, _, flags = fields
    return local_id, base, count, length, crc, leader_epoch, timestamp, flags | ENTRY_SHORTENED


def is_changed(frame: Frame) -> bool:
    """Returns whether a batch of this frame differs from its entry in the head."""
    return any([entry.flags & ENTRY_LOCAL for entry in frame.directory])
