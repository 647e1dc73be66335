"""Bytes of frames and segment headers: pure packing and unpacking, all big-endian (docs/disk_format.md).

A frame is one Raft entry: a fixed header, a directory with one entry per record batch, then the batches
as they came off the wire. Its checksum covers header and directory and is seeded with the checksum of the
frame before (the chain); the very first is seeded from the group id. So a frame verifies only at its own
position in its own group. Payloads are covered by the batches' own CRC-32C, kept in the directory, and by
the 21 bytes before it, which the directory repeats.

This module opens no file and knows nothing of markers (`marker`), which are local and not replicated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from lockstep.storage.log.batch_flags import (
    ENTRY_LOCAL,
    ENTRY_REMOVED,
    apply_marks,
    encode_marks,
    min_marks_bytes,
)
from lockstep.storage.types import ENTRY, ENTRY_BYTES, Buffer, DirectoryEntry, Frame, FrameKind

FORMAT = 1
"""The format that this code writes. A higher one is rejected (`NewerFormat`)."""

FRAME_FLAGS_KNOWN = 0
"""Frame flags a reader must understand to read the frame at all; none yet."""

FRAME = struct.Struct(">IBBHIQQQqIIII16x")
"""crc, format, kind, header length, flags, term, index, first LSN, leader time ms, record count,
batch count, directory bytes, payload bytes, 16 reserved zero bytes."""
FRAME_BYTES = FRAME.size

FRAME_BODY = struct.Struct(">BBHIQQQqIIII16x")
CRC = struct.Struct(">I")

ENTRY_RAW = 1
"""Entry flag: the payload is no Kafka batch; the entry's crc covers all of it."""
ENTRY_NOTES = 8
"""Entry flag beside `ENTRY_RAW`: what tail machines replay of the other batches of the frame."""

BATCH_PREFIX = struct.Struct(">qiibI")
"""Base offset, batch length, leader epoch, magic, CRC: the part of a batch its own CRC leaves out."""
BATCH_PREFIX_BYTES = BATCH_PREFIX.size
BATCH_LENGTH_OFFSET = 12
"""A batch's length field counts what follows it: 12 bytes less than the whole batch."""

SEGMENT_HEADER_BYTES = 4096
SEGMENT_MAGIC = b"LSTKSEG1"
SEGMENT = struct.Struct(">8sIHHIQQQQIIQqQQI")
"""magic, crc, format, flags, group id, generation, sequence, first index, first LSN, chain before,
end of the segment before, term before, leader time before ms, segment bytes, flushed position, where a
rewritten segment ended before it was rewritten (0 in others)."""
SEGMENT_REWRITTEN_FORMAT = 3
"""A segment's format when it was not appended but written as a whole: marks follow each head. Format 2 is the
same without shortened batches."""
SEGMENT_CRC_FROM = 12
VOID_MAGIC = b"LSTKVOID"


def group_seed(group_id: int) -> int:
    """The chain value before a group's first frame."""
    return crc32c(b"lockstep group" + group_id.to_bytes(4, "big"))


def position_of(sequence: int, offset: int) -> int:
    """A position in the log as one number that orders like the log: segment sequence, byte in the segment."""
    return sequence << 32 | offset


def segment_of(position: int) -> int:
    """The sequence of the segment that a position is in."""
    return position >> 32


def byte_of(position: int) -> int:
    """The byte of a position within its segment."""
    return position & 0xFFFFFFFF


def position_text(position: int) -> str:
    """A position as log lines name it."""
    return f"segment {segment_of(position)} byte {byte_of(position)}"


def encode_frame_head(frame: Frame, chain: int) -> tuple[bytes, int]:
    """Header and directory of a frame that follows `chain`, and the chain value after it."""
    entries = frame.entries
    batches = len(entries)
    if batches == 1:
        payload_bytes = entries[0][3]
        directory = ENTRY.pack(*entries[0])
    else:
        payload_bytes = sum([fields[3] for fields in entries])
        directory = b"".join([ENTRY.pack(*fields) for fields in entries])
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
            batches,
            len(directory),
            payload_bytes,
        )
        + directory
    )
    crc = crc32c(body, chain)
    return CRC.pack(crc) + body, crc


MAX_FRAME_RECORDS = (1 << 32) - 1
"""The largest record count that a frame's header can have; one batch may claim up to 2**31 - 1 records."""


def frame_size(batch_count: int, payload_bytes: int) -> int:
    """Returns the size in a segment of a frame with this number of batches."""
    return FRAME_BYTES + ENTRY_BYTES * batch_count + payload_bytes


def frame_bytes(frame: Frame) -> int:
    """Returns the size of a frame in a segment; added up once: its batches stay as they are from now on."""
    if not frame.total_bytes:
        entries = frame.entries
        frame.total_bytes = frame_size(len(entries), sum([fields[3] for fields in entries]))
    return frame.total_bytes


def chain_of(head: bytes) -> int:
    """The chain value after the frame with this head."""
    return int.from_bytes(head[:4], "big")


LENGTHS_DIFFER = "payloads and directory of different lengths"


def payload_problem(
    view: memoryview, at: int, end: int, entries: Sequence[tuple[int, ...]], marked: bool = False
) -> str:
    """Why the payloads in `view[at:end]` are not those of the directory; empty where they are. Only in a
    frame with marks (`marked`) may some be removed or shortened."""
    prefix = BATCH_PREFIX.unpack_from
    for local_id, base, _, length, crc, leader_epoch, _, flags in entries:
        if flags & ENTRY_LOCAL:
            if not marked:
                return f"partition {local_id} offset {base}: an entry with an unknown flag"
            if flags & ENTRY_REMOVED:
                continue
        after = at + length
        if after > end:
            return LENGTHS_DIFFER
        if flags & ENTRY_RAW:
            verifies = crc32c(view[at:after]) == crc
        else:
            verifies = (
                length >= BATCH_PREFIX_BYTES
                and prefix(view, at) == (base, length - BATCH_LENGTH_OFFSET, leader_epoch, 2, crc)
                and crc32c(view[at + BATCH_PREFIX_BYTES : after]) == crc
            )
        if not verifies:
            where = f"partition {local_id} offset {base}"
            return f"{where}: batch does not match its directory entry"
        at = after
    return "" if at == end else LENGTHS_DIFFER


LAST_KIND = max(FrameKind)


def decode_frame(view: memoryview, at: int, chain: int, marked: bool = False) -> tuple[Frame, int]:
    """The frame at `at`, which must follow `chain`, and where it ends; its payloads are views. The text of
    ValueError names what does not verify: chain, format, directory, marks, payloads."""
    start, room = at, len(view) - at
    if room < FRAME_BYTES:
        raise ValueError("a frame cut short")
    (crc, fmt, kind, head, flags, term, index, lsn, time_ms, records, count, directory, payload) = (
        FRAME.unpack_from(view, at)
    )
    minimum = head + directory + (min_marks_bytes(count) if marked else payload)
    if head < FRAME_BYTES or minimum > room or directory != count * ENTRY_BYTES:
        raise ValueError("a frame header with impossible lengths")
    at += head + directory
    if crc32c(view[start + 4 : at], chain) != crc:
        raise ValueError("a frame header that does not continue the chain")
    if fmt > FORMAT or flags & ~FRAME_FLAGS_KNOWN or kind > LAST_KIND:
        raise ValueError(f"a newer version's frame: format {fmt}, kind {kind}, flags {flags:#x}")
    head_bytes = bytes(view[start:at])
    entries = list(ENTRY.iter_unpack(view[start + head : at]))
    if marked:
        marks, payload = apply_marks(view, at, entries, crc)
        at += marks
    if at + payload > len(view):
        raise ValueError("payloads cut short")
    problem = payload_problem(view, at, at + payload, entries, marked)
    if problem:
        raise ValueError(problem)
    if marked:
        directory_entries = [DirectoryEntry(*fields) for fields in entries]
        payloads = payload_views(view, at, entries)
        frame = Frame(
            FrameKind(kind), term, index, lsn, time_ms, directory_entries, payloads, records, head_bytes
        )
        return frame, at + payload
    frame = Frame(FrameKind(kind), term, index, lsn, time_ms, [], [], records, head_bytes)
    frame.pack(entries, view if count else None, at, at + payload)
    frame.total_bytes = frame_size(count, payload)
    return frame, at + payload


def payload_views(view: memoryview, at: int, entries: Sequence[tuple[int, ...]]) -> list[Buffer]:
    """One payload for each directory entry; a removed one is empty."""
    payloads: list[Buffer] = []
    for fields in entries:
        if fields[7] & ENTRY_REMOVED:
            payloads.append(b"")
        else:
            payloads.append(view[at : at + fields[3]])
            at += fields[3]
    return payloads


def frame_buffers(frame: Frame, marked: bool = False) -> list[Buffer]:
    """Returns the bytes to send of a frame that has its head. `marked` for frames that a checkpoint is sent
    with: some of their batches may have been cleaned away."""
    assert frame.head is not None
    return [frame.head, encode_marks(frame), *frame.payloads] if marked else [frame.head, *frame.buffers]


def decode_frames(data: Buffer, chain: int, marked: bool = False) -> list[Frame]:
    """Frames that were sent as `frame_buffers` one after the other, the first following `chain`; their
    payloads are views of `data`. The text of ValueError names the frame that does not verify, or does not
    follow."""
    view = memoryview(data)
    frames: list[Frame] = []
    at = 0
    while at < len(view):
        try:
            frame, at = decode_frame(view, at, chain, marked)
        except ValueError as error:
            before = f" after frame {frames[-1].index}" if frames else ""
            raise ValueError(f"byte {at}{before}: {error}") from None
        if frames and not follows(frame, frames[-1]):
            raise ValueError(f"frame {frame.index} cannot follow frame {frames[-1].index}")
        assert frame.head is not None
        chain = chain_of(frame.head)
        frames.append(frame)
    return frames


def follows(frame: Frame, before: Frame) -> bool:
    """Returns whether a frame can directly follow another one."""
    return (
        frame.index == before.index + 1
        and frame.first_lsn == before.first_lsn + before.record_count
        and frame.term >= before.term
    )


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
        "written_end",
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
        written_end: int = 0,
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
        self.written_end = written_end
        """The end before the segment was rewritten, which the next segment's header has; 0 if it was not
        rewritten."""

    @property
    def rewritten(self) -> bool:
        return self.written_end > 0


def encode_segment_header(header: SegmentHeader) -> bytes:
    """4,096 bytes, the unused ones zero."""
    body = SEGMENT.pack(
        SEGMENT_MAGIC,
        0,
        SEGMENT_REWRITTEN_FORMAT if header.rewritten else FORMAT,
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
        header.written_end,
    ).ljust(SEGMENT_HEADER_BYTES, b"\0")
    crc = crc32c(body[SEGMENT_CRC_FROM:])
    return body[: SEGMENT_CRC_FROM - 4] + CRC.pack(crc) + body[SEGMENT_CRC_FROM:]


def encode_void_header(name: str) -> bytes:
    """The first bytes of a joined segment's file that was abandoned before it counted: zeros in their place
    are a lost page, not this."""
    body = name.encode()
    return VOID_MAGIC + CRC.pack(crc32c(body)) + body


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
