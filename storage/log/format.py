"""Bytes of frames and segment headers: pure packing and unpacking, all big-endian (docs/disk_format.md).

A frame is one Raft entry: a fixed header, a directory with one entry per record batch, then the batches
as they came off the wire. Its checksum covers header and directory and is seeded with the checksum of the
frame before (the chain); the very first is seeded from the group id. So a frame verifies only in its own
place of its own group. Payloads are covered by the batches' own CRC-32C, kept in the directory, and by
the 21 bytes before it, which the directory repeats.

This module opens no file and knows nothing of markers (`marker`), which are local and not replicated.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from storage.types import Buffer, Frame

FORMAT = 1
"""What this code writes. Anything higher is refused by name (`NewerFormat`)."""

FRAME_FLAGS_KNOWN = 0
"""Frame flags a reader must understand to read the frame at all; none yet."""

FRAME = struct.Struct(">IBBHIQQQqIIII16x")
"""crc, format, kind, header length, flags, term, index, first LSN, leader time ms, record count,
batch count, directory bytes, payload bytes, 16 reserved zero bytes."""
FRAME_BYTES = FRAME.size

FRAME_BODY = struct.Struct(">BBHIQQQqIIII16x")
CRC = struct.Struct(">I")

ENTRY = struct.Struct(">IqIIIiqI")
"""partition, base offset, record count, length, batch CRC, leader epoch, max timestamp ms, flags."""
ENTRY_BYTES = ENTRY.size

ENTRY_RAW = 1
"""Entry flag: the payload is no Kafka batch; the entry's crc covers all of it."""

BATCH_PREFIX = struct.Struct(">qiibI")
"""Base offset, batch length, leader epoch, magic, CRC: the part of a batch its own CRC leaves out."""
BATCH_PREFIX_BYTES = BATCH_PREFIX.size
BATCH_LENGTH_OFFSET = 12
"""A batch's length field counts what follows it: 12 bytes less than the whole batch."""

SEGMENT_HEADER_BYTES = 4096
SEGMENT_MAGIC = b"LSTKSEG1"
SEGMENT = struct.Struct(">8sIHHIQQQQIIQqQQ")
"""magic, crc, format, flags, group id, generation, sequence, first index, first LSN, chain before,
end of the segment before, term before, leader time before ms, segment bytes, flushed position."""
SEGMENT_CRC_FROM = 12


def group_seed(group_id: int) -> int:
    """The chain value before a group's first frame."""
    return crc32c(b"lockstep group" + group_id.to_bytes(4, "big"))


def position(sequence: int, offset: int) -> int:
    """A place in the log as one number that orders like the log: segment sequence, byte in the segment."""
    return sequence << 32 | offset


def position_text(place: int) -> str:
    """`position` for people."""
    return f"segment {place >> 32} byte {place & 0xFFFFFFFF}"


def encode_frame_head(frame: Frame, chain: int) -> tuple[bytes, int]:
    """Header and directory of a frame that follows `chain`, and the chain value after it."""
    pack = ENTRY.pack
    payload_bytes = 0
    parts = []
    for e in frame.directory:
        payload_bytes += e.length
        parts.append(
            pack(
                e.partition,
                e.base_offset,
                e.record_count,
                e.length,
                e.crc,
                e.leader_epoch,
                e.max_timestamp,
                e.flags,
            )
        )
    directory = b"".join(parts)
    body = (
        FRAME_BODY.pack(
            FORMAT,
            frame.kind,
            FRAME_BYTES,
            0,
            frame.term,
            frame.index,
            frame.first_lsn,
            frame.time_ms,
            frame.record_count,
            len(parts),
            len(directory),
            payload_bytes,
        )
        + directory
    )
    crc = crc32c(body, chain)
    return CRC.pack(crc) + body, crc


MAX_FRAME_RECORDS = (1 << 32) - 1
"""What a frame's record count can say; one batch may claim up to 2**31 - 1 of them."""


def frame_size(batch_count: int, payload_bytes: int) -> int:
    """How many bytes a frame of so many batches takes in a segment."""
    return FRAME_BYTES + ENTRY_BYTES * batch_count + payload_bytes


def frame_bytes(frame: Frame) -> int:
    """How many bytes a frame takes in a segment."""
    return frame_size(len(frame.directory), sum([e.length for e in frame.directory]))


class SegmentHeader:
    """The first 4,096 bytes of a segment: what the frames in it follow. Local, never replicated."""

    __slots__ = (
        "chain",
        "first_index",
        "first_lsn",
        "flushed",
        "generation",
        "group_id",
        "previous_end",
        "segment_bytes",
        "sequence",
        "term",
        "time_ms",
    )

    def __init__(
        self,
        group_id: int,
        generation: int,
        sequence: int,
        first_index: int,
        first_lsn: int,
        chain: int,
        previous_end: int,
        term: int,
        time_ms: int,
        segment_bytes: int,
        flushed: int,
    ) -> None:
        self.group_id = group_id
        self.generation = generation
        self.sequence = sequence
        self.first_index = first_index
        self.first_lsn = first_lsn
        self.chain = chain
        self.previous_end = previous_end
        self.term = term
        self.time_ms = time_ms
        self.segment_bytes = segment_bytes
        self.flushed = flushed
        """The position that had been flushed when this header was written."""


def encode_segment_header(header: SegmentHeader) -> bytes:
    """4,096 bytes, the unused ones zero."""
    body = SEGMENT.pack(
        SEGMENT_MAGIC,
        0,
        FORMAT,
        0,
        header.group_id,
        header.generation,
        header.sequence,
        header.first_index,
        header.first_lsn,
        header.chain,
        header.previous_end,
        header.term,
        header.time_ms,
        header.segment_bytes,
        header.flushed,
    ).ljust(SEGMENT_HEADER_BYTES, b"\0")
    crc = crc32c(body[SEGMENT_CRC_FROM:])
    return body[: SEGMENT_CRC_FROM - 4] + CRC.pack(crc) + body[SEGMENT_CRC_FROM:]


def decode_segment_header(data: Buffer) -> tuple[int, SegmentHeader] | None:
    """(format, header), or None for bytes that are no whole header. A higher format's fields mean nothing."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    fields = SEGMENT.unpack_from(data)
    if fields[0] != SEGMENT_MAGIC or fields[1] != crc32c(
        memoryview(data)[SEGMENT_CRC_FROM:SEGMENT_HEADER_BYTES]
    ):
        return None
    return fields[2], SegmentHeader(*fields[4:])
