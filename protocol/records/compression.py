"""The four codecs of record batches, with a cap on what comes out.

Owns: compressing as Kafka's own clients do, and decompressing whatever Kafka's clients write. Which codec
a batch uses is in its attributes (`BatchHeader.codec`).

Invariants: decompression never produces more than `max_bytes`, and stops as soon as it would; what it
raises is `MalformedBatch` or its subclass `DecompressedTooLarge` and nothing else. Sizes that the data
announce count only as far as the compressed bytes could hold them, so memory is bounded by
the input's length too. Blocks are counted as well, because each costs an iteration of a Python loop.

Besides its output, zstd's decoder keeps a window of what it wrote last. A stream whose blocks could go far
over the cap is rejected before anything is decompressed, unless its window is small; one that could go a
little over it is tried (encoders do not fill all blocks) and may cost its window besides.

Formats: gzip members; snappy, raw and in xerial's blocks (Java, sarama and kafka-go write the latter,
librdkafka and franz-go the former); one lz4 frame; zstd frames, with or without a content size. Checksums
inside lz4 frames of independent blocks are not checked: the batch's CRC-32C covers the compressed bytes.

Does not: choose levels beyond Kafka's defaults, use dictionaries.

Source: RFC 1952, RFC 8878, the LZ4 frame format 1.6, snappy's format description, snappy-java's streams.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from lockstep.protocol.records.batch import Buffer, MalformedBatch
from lockstep.protocol.records.zstd_frames import LARGEST_BLOCK, bounds_of

MAX_BLOCKS: Final = 65_536
"""Blocks or chunks in one compressed batch: 2 GiB in snappy-java's 32 KiB, or some 20 ms until it is
rejected."""

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""Sixty times what a producer may put into a batch by default."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_LZ4_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_RESERVED_OR_DICTIONARY: Final = 0x03
_LZ4_UNCOMPRESSED: Final = 0x8000_0000
_LZ4_MAX_RATIO: Final = 255
_ZSTD_FREE_WINDOW_BYTES: Final = 1 << 20
_ZSTD_BLOCKS_UNFILLED: Final = 4
"""Encoders since zstd 1.5.7 split blocks where it helps: the bound may be this much too high."""
_DEFLATE_MAX_RATIO: Final = 1032
_OUTPUT_FULL_TEXT: Final = "failed to write whole buffer"
"""The only sign the library gives of an output that is too small."""
_INT32: Final = Struct(">i")
_UINT32_LITTLE: Final = Struct("<I")


class Codec(IntEnum):
    """The numbers are those of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressedTooLarge(MalformedBatch):
    """The output is larger than the caller allows."""


class _OutputFull(MalformedBatch):
    """The data hold more than their headers announce."""


def compress(codec: Codec, data: Buffer) -> Buffer:
    """`data` as Kafka's Java producer would compress them: snappy in xerial's blocks, lz4 in independent
    blocks of 64 KiB (the only ones Java reads), gzip and zstd at their usual levels."""
    return _COMPRESS[codec](data)


def decompress(codec: int, data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Decompresses `data` to at most `max_bytes`.

    `codec` is the number from a batch's attributes. Raises DecompressedTooLarge beyond the cap and
    MalformedBatch for data that the codec cannot read, that are cut, or that continue after their end.
    """
    chosen = _DECOMPRESS.get(codec)
    if chosen is None:
        raise MalformedBatch(f"compression codec {codec} does not exist")
    view = memoryview(data)
    try:
        return chosen(view, max_bytes)
    except cramjam.DecompressionError as error:
        raise MalformedBatch(f"{Codec(codec).name.lower()}: {error}") from None


def _too_large(codec: Codec, max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec.name.lower()} data decompress to more than {max_bytes} bytes")


def _same(data: Buffer) -> Buffer:
    return data


def _same_within(data: memoryview, max_bytes: int) -> Buffer:
    if len(data) > max_bytes:
        raise DecompressedTooLarge(f"{len(data)} bytes of records, {max_bytes} allowed")
    return data


def _gzip(data: Buffer) -> Buffer:
    return memoryview(cramjam.gzip.compress(data))


def _ungzip(data: memoryview, max_bytes: int) -> Buffer:
    # The last four bytes are the size of the last member: exact where there is one member, as always.
    size = int.from_bytes(data[-4:], "little")
    if size > max_bytes:
        raise _too_large(Codec.GZIP, max_bytes)
    largest = len(data) * _DEFLATE_MAX_RATIO
    try:
        return _all_into(cramjam.gzip.decompress_into, Codec.GZIP, data, min(size, largest), max_bytes)
    except _OutputFull:
        return _all_into(cramjam.gzip.decompress_into, Codec.GZIP, data, largest, max_bytes)


def _snappy(data: Buffer) -> Buffer:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += _INT32.pack(len(block))
        out += memoryview(block)
    return out


def _unsnappy(data: memoryview, max_bytes: int) -> Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        blocks = _xerial_blocks(data)
    else:
        blocks = [data]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise _too_large(Codec.SNAPPY, max_bytes)
    out = bytearray(total)
    filled = 0
    with memoryview(out) as view:
        for block, size in zip(blocks, sizes, strict=True):
            if cramjam.snappy.decompress_raw_into(block, view[filled : filled + size]) != size:
                raise MalformedBatch("snappy: a block holds less than its header reports")
            filled += size
    return out


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    pos, end = len(_XERIAL_HEADER), len(data)
    blocks: list[memoryview] = []
    while pos < end:
        if end - pos < 4:
            raise MalformedBatch("snappy: a chunk's length is cut")
        (size,) = _INT32.unpack_from(data, pos)
        pos += 4
        if not 0 < size <= end - pos:
            raise MalformedBatch(f"snappy: chunk of {size} bytes, {end - pos} are left")
        if len(blocks) == MAX_BLOCKS:
            raise MalformedBatch(f"snappy: more than {MAX_BLOCKS} chunks")
        blocks.append(data[pos : pos + size])
        pos += size
    if pos > end:
        raise MalformedBatch("snappy: the stream header is cut")
    return blocks


def _snappy_size(block: memoryview) -> int:
    size = cramjam.snappy.decompress_raw_len(block)
    # A copy element of three bytes yields at most 64: no block expands further than that.
    if size * 3 > len(block) * 64:
        raise MalformedBatch(f"snappy: a block of {len(block)} bytes reports a size of {size}")
    return size


def _lz4(data: Buffer) -> Buffer:
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it takes nothing else
    return memoryview(compressor.finish())


def _unlz4(data: memoryview, max_bytes: int) -> Buffer:
    frame = _Lz4Frame(data)
    if not frame.independent:
        return _all_into(cramjam.lz4.decompress_into, Codec.LZ4, data, frame.max_output_bytes, max_bytes)
    out = bytearray(min(frame.max_output_bytes, max_bytes))
    view = memoryview(out)
    filled = 0
    for start, size, compressed in frame.blocks:
        room = min(frame.block_bytes, len(view) - filled)
        block = data[start : start + size]
        if not compressed:
            if size > room:
                raise _too_large(Codec.LZ4, max_bytes)
            view[filled : filled + size] = block
            filled += size
            continue
        try:
            filled += cramjam.lz4.decompress_block_into(block, view[filled : filled + room], room)
        except cramjam.DecompressionError:
            if room < min(frame.block_bytes, size * _LZ4_MAX_RATIO):
                raise _too_large(Codec.LZ4, max_bytes) from None
            raise
    view.release()
    del out[filled:]
    return out


class _Lz4Frame:
    """The outline of one lz4 frame that fills `data`, from its header and its blocks' lengths."""

    __slots__ = ("block_bytes", "blocks", "independent", "max_output_bytes")

    def __init__(self, data: memoryview) -> None:
        if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
            raise MalformedBatch("lz4: no frame header")
        flags, descriptor = data[4], data[5]
        if flags >> 6 != 1 or flags & _LZ4_RESERVED_OR_DICTIONARY or descriptor & 0x8F or descriptor < 0x40:
            raise MalformedBatch(f"lz4: frame flags {flags:#04x} {descriptor:#04x} are not supported")
        self.independent = bool(flags & _LZ4_INDEPENDENT_BLOCKS)
        self.block_bytes = 1 << (8 + 2 * (descriptor >> 4))
        self.blocks: list[tuple[int, int, bool]] = []
        """(position, length, compressed) of each."""
        self.max_output_bytes = 0
        pos = 15 if flags & _LZ4_CONTENT_SIZE else 7
        checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUMS else 0
        end = len(data)
        while True:
            if end - pos < 4:
                raise MalformedBatch("lz4: the frame is cut")
            (word,) = _UINT32_LITTLE.unpack_from(data, pos)
            pos += 4
            if word == 0:
                break
            size = word & ~_LZ4_UNCOMPRESSED
            compressed = not word & _LZ4_UNCOMPRESSED
            if size > end - pos or size > self.block_bytes or len(self.blocks) == MAX_BLOCKS:
                raise MalformedBatch(f"lz4: block of {size} bytes at {pos}, {end - pos} are left")
            self.blocks.append((pos, size, compressed))
            self.max_output_bytes += min(size * _LZ4_MAX_RATIO, self.block_bytes) if compressed else size
            pos += size + checksum_bytes
        if pos + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0) != end:
            raise MalformedBatch(f"lz4: the frame ends at {pos}, the data at {end}")


def _zstd(data: Buffer) -> Buffer:
    return memoryview(cramjam.zstd.compress(memoryview(data), 3))


def _unzstd(data: memoryview, max_bytes: int) -> Buffer:
    bounds = bounds_of(data, MAX_BLOCKS)
    far_over = bounds.max_output_bytes > max_bytes * _ZSTD_BLOCKS_UNFILLED + LARGEST_BLOCK
    if far_over and bounds.window_bytes > _ZSTD_FREE_WINDOW_BYTES:
        raise _too_large(Codec.ZSTD, max_bytes)
    return _all_into(cramjam.zstd.decompress_into, Codec.ZSTD, data, bounds.max_output_bytes, max_bytes)


def _all_into(
    decompress_into: Callable[[Buffer, bytearray], int],
    codec: Codec,
    data: memoryview,
    max_output_bytes: int,
    max_bytes: int,
) -> Buffer:
    """Everything in one call of the library, into `max_output_bytes`, or `max_bytes` if that is less.

    Raises _OutputFull where `max_output_bytes` were too few, and DecompressedTooLarge where `max_bytes` were.
    """
    out = bytearray(min(max_output_bytes, max_bytes))
    try:
        filled = decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if _OUTPUT_FULL_TEXT not in str(error):
            raise
        if max_output_bytes < max_bytes:
            raise _OutputFull(f"{codec.name.lower()}: more than {max_output_bytes} bytes") from None
        raise _too_large(codec, max_bytes) from None
    del out[filled:]
    return out


_COMPRESS: Final[dict[Codec, Callable[[Buffer], Buffer]]] = {
    Codec.NONE: _same,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: Final[dict[int, Callable[[memoryview, int], Buffer]]] = {
    Codec.NONE: _same_within,
    Codec.GZIP: _ungzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
