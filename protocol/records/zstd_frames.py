"""An upper bound of a zstd stream's output, from its headers alone.

Owns: a walk over frame and block headers. Nothing is decompressed and nothing allocated, so a bomb is
recognised at a fraction of a microsecond per block.

Does not: look into compressed blocks, check checksums, know dictionaries.

Source: RFC 8878 §3.1.1 (frames, blocks) and §3.1.2 (skippable frames).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lockstep.protocol.records.batch import Buffer, MalformedBatch

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
LARGEST_BLOCK: Final = 128 * 1024
_RAW_BLOCK: Final = 0
_RUN_BLOCK: Final = 1
_COMPRESSED_BLOCK: Final = 2
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)


class ZstdBounds(NamedTuple):
    """The bounds of a whole stream, or of one frame in it."""

    max_output_bytes: int
    """The most bytes that a decoder can produce."""
    window_bytes: int
    """The largest window that a frame requires of its decoder."""


class _FrameHeader(NamedTuple):
    blocks_at: int
    content_bytes: int | None
    window_bytes: int
    has_checksum: bool


def bounds_of(data: Buffer, max_blocks: int) -> ZstdBounds:
    """Bounds of all frames in `data`.

    Raises MalformedBatch where a frame is cut, followed by something else or needs a dictionary, or where
    there are more than `max_blocks` blocks and frames.
    """
    end = len(data)
    if end == 0:
        raise MalformedBatch("zstd: no data")
    pos = max_output_bytes = window_bytes = 0
    steps_left = max_blocks
    while pos < end:
        magic = int.from_bytes(data[pos : pos + 4], "little")
        if magic == _MAGIC:
            header = _frame_header(data, pos + 4)
            pos, frame_bytes, steps_left = _walk_blocks(data, header, steps_left)
            max_output_bytes += frame_bytes
            window_bytes = max(window_bytes, header.window_bytes)
        elif magic & 0xFFFF_FFF0 == _SKIPPABLE_MAGIC and end - pos >= 8:
            pos += 8 + int.from_bytes(data[pos + 4 : pos + 8], "little")
            steps_left -= 1
        else:
            raise MalformedBatch(f"zstd: no frame at byte {pos}")
        if pos > end:
            raise MalformedBatch("zstd: the last frame is cut")
        if steps_left < 0:
            raise MalformedBatch(f"zstd: more than {max_blocks} blocks")
    return ZstdBounds(max_output_bytes, window_bytes)


def _frame_header(data: Buffer, pos: int) -> _FrameHeader:
    """The header whose descriptor byte is at `pos`."""
    if pos >= len(data):
        raise MalformedBatch("zstd: frame header is cut")
    descriptor = data[pos]
    pos += 1
    if descriptor & 0x08:
        raise MalformedBatch("zstd: reserved bit set in a frame header")
    if descriptor & 0x03:
        raise MalformedBatch("zstd: the frame needs a dictionary")
    single_segment = bool(descriptor & 0x20)
    content_size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    if len(data) - pos < content_size_bytes + (not single_segment):
        raise MalformedBatch("zstd: frame header is cut")
    window_bytes = 0
    if not single_segment:
        base = 1 << (10 + (data[pos] >> 3))
        window_bytes = base + base // 8 * (data[pos] & 7)
        pos += 1
    content_bytes = None
    if content_size_bytes:
        content_bytes = int.from_bytes(data[pos : pos + content_size_bytes], "little")
        content_bytes += 256 if content_size_bytes == 2 else 0
        pos += content_size_bytes
    if single_segment:
        window_bytes = content_bytes or 0
    return _FrameHeader(pos, content_bytes, window_bytes, bool(descriptor & 0x04))


def _walk_blocks(data: Buffer, header: _FrameHeader, steps_left: int) -> tuple[int, int, int]:
    """(position after the frame, its maximum output, steps left)."""
    pos = header.blocks_at
    end = len(data)
    max_output_bytes = 0
    is_last = 0
    while not is_last:
        if end - pos < 3:
            raise MalformedBatch("zstd: the last frame is cut")
        block = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        is_last = block & 1
        kind = block >> 1 & 3
        size = block >> 3
        if kind == _COMPRESSED_BLOCK:
            max_output_bytes += LARGEST_BLOCK
        elif kind in (_RAW_BLOCK, _RUN_BLOCK):
            max_output_bytes += size
        else:
            raise MalformedBatch("zstd: reserved block type")
        pos += 3 + (1 if kind == _RUN_BLOCK else size)
        steps_left -= 1
        if steps_left < 0:
            break
    if header.content_bytes is not None:
        if header.content_bytes > max_output_bytes:
            raise MalformedBatch(
                f"zstd: a frame of at most {max_output_bytes} bytes reports a size of {header.content_bytes}"
            )
        max_output_bytes = header.content_bytes
    return pos + (4 if header.has_checksum else 0), max_output_bytes, steps_left
