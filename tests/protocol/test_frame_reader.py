"""FrameReader: whole frames whatever the reads, bounded memory, refusals in words."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.protocol.frame_reader import (
    MAX_REGULAR_BUFFER_BYTES,
    MAX_UNRESERVED_BYTES,
    MIN_BUFFER_BYTES,
    FrameReader,
    FrameTooLarge,
    MalformedFrame,
)
from tests.support.cases import each_case


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(reader: FrameReader, data: bytes, step: int | None = None) -> list[bytes]:
    """Give `data` to the reader in reads of at most `step` bytes; copies of the frames it hands out."""
    found: list[bytes] = []
    pos = 0
    while pos < len(data):
        into = reader.get_buffer(-1)
        assert len(into) > 0
        count = min(len(into), len(data) - pos, step or len(data))
        into[:count] = data[pos : pos + count]
        pos += count
        found += [bytes(whole) for whole in reader.commit(count)]
    return found


@given(
    bodies=st.lists(
        st.binary(max_size=300) | st.integers(0, 300_000).map(lambda size: bytes(size)), max_size=12
    ),
    steps=st.lists(st.integers(1, 70_000), min_size=1, max_size=5),
)
@settings(deadline=None)
def test_frames_come_out_as_they_went_in(bodies: list[bytes], steps: list[int]) -> None:
    reader = FrameReader(1 << 20)
    data = b"".join(map(frame, bodies))
    found: list[bytes] = []
    pos = turn = 0
    while pos < len(data):
        step = steps[turn % len(steps)]
        found += feed(reader, data[pos : pos + step])
        pos += step
        turn += 1
    assert found == bodies
    assert reader.buffered_bytes == 0


def test_one_byte_at_a_time() -> None:
    bodies = [b"", b"a", b"bc" * 40, b""]
    assert feed(FrameReader(100), b"".join(map(frame, bodies)), step=1) == bodies


def test_many_small_frames_of_one_read_share_its_memory() -> None:
    reader = FrameReader(1000)
    data = frame(b"request one") * 50
    into = reader.get_buffer()
    into[: len(data)] = data
    frames = reader.commit(len(data))
    assert len(frames) == 50
    assert all(whole.obj is into.obj for whole in frames)


def test_a_frame_stays_until_the_next_get_buffer() -> None:
    reader = FrameReader(1000)
    data = frame(b"x" * 900) * 4 + frame(b"y" * 900)[:300]
    into = reader.get_buffer()
    into[: len(data)] = data
    frames = reader.commit(len(data))
    assert [bytes(whole) for whole in frames] == [b"x" * 900] * 4
    into = reader.get_buffer()
    rest = frame(b"y" * 900)[300:]
    into[: len(rest)] = rest
    assert [bytes(whole) for whole in reader.commit(len(rest))] == [b"y" * 900]


def test_a_large_frame_goes_with_its_memory() -> None:
    reader = FrameReader(64 << 20)
    body = bytes(range(256)) * 4096 * 8
    data = frame(body)
    pos = 0
    frames: list[memoryview] = []
    grown = set()
    while not frames:
        into = reader.get_buffer()
        count = min(len(into), len(data) - pos, 200_000)
        into[:count] = data[pos : pos + count]
        pos += count
        frames = reader.commit(count)
        grown.add(reader.capacity_bytes)
        assert reader.capacity_bytes <= max(MAX_UNRESERVED_BYTES, 2 * pos) + MAX_REGULAR_BUFFER_BYTES
    assert len(grown) <= 8
    assert reader.capacity_bytes == 2 * MIN_BUFFER_BYTES
    assert feed(reader, frame(b"next") * 2) == [b"next"] * 2
    assert bytes(frames[0]) == body, "a large frame outlives later reads"


def test_where_large_frames_are_usual_each_is_moved_once() -> None:
    reader = FrameReader(64 << 20)
    data = frame(b"x" * (1 << 20))
    for _ in range(8):
        feed(reader, data)
    capacities = []
    pos = 0
    while pos < len(data):
        into = reader.get_buffer()
        count = min(len(into), len(data) - pos)
        into[:count] = data[pos : pos + count]
        pos += count
        capacities.append(reader.capacity_bytes)
        reader.commit(count)
    assert capacities == [MAX_REGULAR_BUFFER_BYTES, MAX_REGULAR_BUFFER_BYTES + len(data)]
    assert reader.capacity_bytes == MAX_REGULAR_BUFFER_BYTES


def test_a_large_buffer_grows_when_it_is_read_into_and_not_before() -> None:
    reader = FrameReader(64 << 20)
    assert reader.next_buffer_bytes == 0
    feed(reader, frame(b"x" * (8 << 20))[: MAX_REGULAR_BUFFER_BYTES + 1])
    while not reader.is_full:
        held = reader.next_buffer_bytes
        feed(reader, bytes(min(1000, held - reader.buffered_bytes)))
    assert (reader.buffered_bytes, reader.next_buffer_bytes) == (held, 2 * held)
    assert reader.capacity_bytes == held + MIN_BUFFER_BYTES
    reader.get_buffer()
    assert reader.capacity_bytes == 2 * held + MIN_BUFFER_BYTES
    assert not reader.is_full


def test_an_announced_large_frame_costs_no_memory_until_bytes_arrive() -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = resident_bytes()
    readers = [FrameReader(100 << 20) for _ in range(20)]
    for reader in readers:
        feed(reader, struct.pack(">i", 100 << 20) + b"only this")
    assert resident_bytes() - before < 4 << 20, "20 announcements of 100 MiB each"


def test_the_buffer_follows_the_traffic() -> None:
    reader = FrameReader(1 << 20)
    small = frame(b"s" * 100)
    feed(reader, small * 10_000)
    assert reader.capacity_bytes == MAX_REGULAR_BUFFER_BYTES
    for _ in range(1000):
        feed(reader, small)
    assert reader.capacity_bytes == MIN_BUFFER_BYTES


def test_trim_keeps_an_unfinished_frame() -> None:
    reader = FrameReader(1 << 20)
    feed(reader, frame(b"s" * 100) * 10_000 + b"\0")
    reader.trim()
    assert reader.capacity_bytes == MAX_REGULAR_BUFFER_BYTES
    assert feed(reader, frame(b"abc")[1:]) == [b"abc"]
    reader.trim()
    assert reader.capacity_bytes == MIN_BUFFER_BYTES


@each_case(
    ("start", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "TLS alert"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"\xff\xff\xff\xff", "-1 is negative"),
        (b"\x80\x00\x00\x00", "negative"),
        (b"\x7f\xff\xff\xff", "2147483647 bytes is over the limit of 1000"),
    ],
)
def test_impossible_lengths_are_refused_in_words(start: bytes, words: str) -> None:
    reader = FrameReader(1000)
    with pytest.raises(MalformedFrame, match=words) as caught:
        feed(reader, frame(b"good") + start)
    assert [bytes(whole) for whole in caught.value.frames] == [b"good"]


def test_the_limit_is_exact_and_names_the_size() -> None:
    assert feed(FrameReader(1000), frame(b"a" * 1000)) == [b"a" * 1000]
    with pytest.raises(FrameTooLarge) as caught:
        feed(FrameReader(1000), frame(b"a" * 1001))
    assert caught.value.frame_bytes == 1001
