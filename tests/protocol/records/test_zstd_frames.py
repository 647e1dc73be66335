"""What the walk over zstd's headers says, against the library and against hand-made frames."""

from __future__ import annotations

import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.protocol.records.batch import MalformedBatch
from lockstep.protocol.records.zstd_frames import LARGEST_BLOCK, bounds_of
from tests.support.cases import each_case

MAGIC = b"\x28\xb5\x2f\xfd"


def block(kind: int, size: int, content: bytes, last: bool = False) -> bytes:
    return struct.pack("<I", size << 3 | kind << 1 | last)[:3] + content


@given(size=st.integers(0, 3_000_000), level=st.integers(-3, 9), text=st.binary(min_size=1, max_size=40))
@settings(max_examples=40, deadline=None)
def test_the_bound_holds(size: int, level: int, text: bytes) -> None:
    data = (text * (size // len(text) + 1))[:size]
    sized = bytes(cramjam.zstd.compress(data, level))
    assert bounds_of(sized, 1000).max_output_bytes == size
    compressor = cramjam.zstd.Compressor(level=level)
    compressor.compress(data)
    bounds = bounds_of(bytes(compressor.finish()), 1000)
    assert size <= bounds.max_output_bytes
    if level <= 1:  # others split blocks where it helps
        assert bounds.max_output_bytes < size + LARGEST_BLOCK
    assert bounds.window_bytes >= min(size, 1024)


def test_blocks_of_every_kind() -> None:
    frame = (
        MAGIC
        + b"\x04\x00"
        + block(0, 3, b"abc")
        + block(1, 5000, b"x")
        + block(2, 2, b"??", last=True)
        + b"sum!"
    )
    bounds = bounds_of(frame, 10)
    assert bounds == (3 + 5000 + LARGEST_BLOCK, 1024)
    assert bounds_of(frame * 3, 10).max_output_bytes == 3 * bounds.max_output_bytes


@each_case(("descriptor", "window"), [(0x00, 1024), (0x07, 1920), (0x58, 1 << 21), (0xFF, 15 << 38)])
def test_windows(descriptor: int, window: int) -> None:
    frame = MAGIC + bytes([0, descriptor]) + block(0, 0, b"", last=True)
    assert bounds_of(frame, 10) == (0, window)


@each_case(
    ("header", "size"),
    [(b"\x20\x05", 5), (b"\x60\x05\x00", 261), (b"\xa0\x05\x01\0\0", 261), (b"\xe0\x05" + bytes(7), 5)],
)
def test_content_sizes(header: bytes, size: int) -> None:
    frame = MAGIC + header + block(1, 1000, b"x", last=True)
    assert bounds_of(frame, 10) == (size, size)


@each_case(
    "data",
    [
        b"",
        b"\x28\xb5\x2f",
        MAGIC,
        MAGIC + b"\x00",
        MAGIC + b"\xe0" + bytes(7),
        MAGIC + b"\x08\x58" + block(0, 0, b"", last=True),
        MAGIC + b"\x01\x58\x01" + block(0, 0, b"", last=True),
        MAGIC + b"\x00\x58" + block(3, 0, b"", last=True),
        MAGIC + b"\x00\x58" + block(0, 5, b"abcd", last=True),
        MAGIC + b"\x00\x58" + block(0, 5, b"abcde"),
        MAGIC + b"\x00\x58" + block(0, 1, b"a", last=True) + b"\0",
        MAGIC + b"\xa0\xff\xff\xff\x7f" + block(1, 1000, b"x", last=True),
        struct.pack("<II", 0x184D2A50, 2**32 - 1),
        struct.pack("<I", 0x184D2A5F) + b"\0",
    ],
)
def test_what_cannot_be(data: bytes) -> None:
    with pytest.raises(MalformedBatch, match="zstd"):
        bounds_of(data, 10)


def test_blocks_are_counted_over_all_frames() -> None:
    frame = MAGIC + b"\x00\x58" + block(0, 1, b"a") + block(0, 1, b"a", last=True)
    assert bounds_of(frame * 5, 10).max_output_bytes == 10
    with pytest.raises(MalformedBatch, match="more than 9 blocks"):
        bounds_of(frame * 5, 9)
