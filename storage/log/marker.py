"""The marker at the start of every physical write: how much of the log had been flushed before it.

Markers distinguish a torn tail from corruption: bytes below the highest position that a marker promises
were flushed, so if they do not verify they are corrupt. A marker is local, not part of the frame chain and
never replicated. It carries its own position and the log's generation: a marker that remains from before a
truncation (older generation) or from the file's former use (another segment sequence) never counts. Frames
are found only through markers; a torn write may still show, under its valid marker, frames that were
truncated at its position, which Raft tolerates (`docs/disk_format.md`, rule 2).
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from lockstep.storage.types import Buffer

MARKER_MAGIC = b"LSTKMARK"
MARKER = struct.Struct(">8sIQQQII")
"""magic, crc, generation, own position, flushed position, bytes of frames that follow, reserved zero."""
MARKER_BYTES = MARKER.size
MARKER_CRC_FROM = 12

_HEAD = struct.Struct(">8sI")
_BODY = struct.Struct(">QQQII")


def encode_marker(seed: int, generation: int, own: int, flushed: int, write_bytes: int) -> bytes:
    """A marker at position `own` that promises all below `flushed`; `seed` is the group's."""
    body = _BODY.pack(generation, own, flushed, write_bytes, 0)
    return _HEAD.pack(MARKER_MAGIC, crc32c(body, seed)) + body


def decode_marker(data: Buffer, at: int, seed: int) -> tuple[int, int, int, int] | None:
    """(generation, own position, flushed position, bytes that follow), or None where none is whole."""
    if at + MARKER_BYTES > len(data):
        return None
    magic, crc, generation, own, flushed, write_bytes, _ = MARKER.unpack_from(data, at)
    if magic != MARKER_MAGIC or crc != crc32c(
        memoryview(data)[at + MARKER_CRC_FROM : at + MARKER_BYTES], seed
    ):
        return None
    return generation, own, flushed, write_bytes
