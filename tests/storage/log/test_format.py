"""Frames as they are shipped: decoded and verified to the last byte, or refused in words."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from lockstep.storage.log.batch_flags import ENTRY_REMOVED, ENTRY_SHORTENED
from lockstep.storage.log.format import (
    CRC,
    ENTRY_RAW,
    FORMAT,
    FRAME,
    FRAME_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_REWRITTEN_FORMAT,
    SegmentHeader,
    chain_of,
    decode_frames,
    decode_segment_header,
    encode_frame_head,
    encode_segment_header,
    encode_void_header,
    follows,
    frame_buffers,
    frame_bytes,
    group_seed,
    position_of,
    position_text,
)
from lockstep.storage.types import Frame
from tests.storage.log.frames import FrameMaker, same
from tests.support.cases import each_case

SEED = group_seed(3)


def some(count: int = 5) -> list[Frame]:
    make, frames, chain = FrameMaker(), [], SEED
    for number in range(count):
        frame = make.data((1, 2, b"one" * number), (2, 1, bytes(number * 7))) if number % 3 else make.no_op()
        if number == 4:
            frame.directory[0].flags = ENTRY_RAW
            frame.directory[0].crc = crc32c(frame.payloads[0])
        frame.head, chain = encode_frame_head(frame, chain)
        frames.append(frame)
    return frames


def sent(frames: list[Frame]) -> bytes:
    return b"".join(b"".join([frame.head or b"", *frame.payloads]) for frame in frames)


def test_what_is_sent_comes_back() -> None:
    frames = some()
    for data in (sent(frames), bytearray(sent(frames)), memoryview(sent(frames))):
        got = decode_frames(data, SEED)
        assert len(got) == 5 and all(map(same, got, frames))
        assert [f.head for f in got] == [f.head for f in frames]
    assert decode_frames(sent(frames[2:]), chain_of(frames[1].head or b""))[0].index == 3
    assert decode_frames(b"", SEED) == []


def test_no_changed_byte_and_no_cut_is_taken() -> None:
    """Every bit of a frame counts: chain, directory, payload; nothing but ValueError comes of it."""
    data = sent(some())
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        with pytest.raises(ValueError, match="byte"):
            decode_frames(bad, SEED)
    ends = {len(sent(some()[:n])) for n in range(6)}
    for size in set(range(len(data))) - ends:
        with pytest.raises(ValueError, match=r"cut short|impossible lengths"):
            decode_frames(data[:size], SEED)
    rng = random.Random(2)
    for _ in range(200):
        with pytest.raises(ValueError):
            decode_frames(rng.randbytes(rng.randrange(1, 300)), SEED)


def reheaded(frame: Frame, chain: int, **changed: int) -> bytes:
    """The frame with other header fields and a checksum that fits them."""
    assert frame.head is not None
    names = ("crc", "format", "kind", "head", "flags", "term", "index", "lsn", "time", "records", "count")
    fields = dict(zip((*names, "directory", "payload"), FRAME.unpack_from(frame.head), strict=True))
    body = FRAME.pack(*(fields | changed).values())[4:] + frame.head[FRAME_BYTES:]
    return CRC.pack(crc32c(body, chain)) + body + b"".join(frame.payloads)


@each_case(
    ("changed", "match"),
    [
        ({"format": 9}, "newer version"),
        ({"kind": 7}, "newer version"),
        ({"flags": 1}, "newer version"),
        ({"head": 10}, "impossible lengths"),
        ({"count": 1}, "impossible lengths"),
        ({"payload": 1}, "different lengths|impossible"),
    ],
)
def test_headers_with_other_content_are_rejected(changed: dict[str, int], match: str) -> None:
    frame = some()[1]
    chain = chain_of(some()[0].head or b"")
    with pytest.raises(ValueError, match=match):
        decode_frames(reheaded(frame, chain, **changed), chain)


def test_a_header_that_stops_before_its_last_batch_is_refused() -> None:
    """Also where it stops exactly between two batches."""
    first, second = some()[:2]
    kept = sum(map(len, second.payloads[:-1]))
    chain = chain_of(first.head or b"")
    whole = reheaded(second, chain, payload=kept)
    with pytest.raises(ValueError, match="different lengths"):
        decode_frames(whole[: len(whole) - len(second.payloads[-1])], chain)


@each_case("changed", [{"index": 9}, {"lsn": 7}, {"term": 0}])
def test_frames_that_do_not_follow_one_another_are_refused(changed: dict[str, int]) -> None:
    first, second = some()[:2]
    data = sent([first]) + reheaded(second, chain_of(first.head or b""), **changed)
    with pytest.raises(ValueError, match="cannot follow frame 1"):
        decode_frames(data, SEED)
    assert follows(second, first) and not follows(first, second)


def test_another_chain_is_refused() -> None:
    with pytest.raises(ValueError, match="does not continue the chain"):
        decode_frames(sent(some()), group_seed(4))


def test_marks_follow_the_heads_of_what_a_checkpoint_is_shipped_with() -> None:
    """More of it in test_marks.py."""
    frame = FrameMaker().data((1, 1, b"one"), (2, 1, b"two"))
    frame.head, _ = encode_frame_head(frame, SEED)
    frame.directory[0].flags, frame.payloads[0] = ENTRY_REMOVED, b""
    frame.directory[1].flags = ENTRY_SHORTENED
    data = b"".join(frame_buffers(frame, marked=True))
    (got,) = decode_frames(data, SEED, marked=True)
    assert same(got, frame) and got.payloads[0] == b""
    with pytest.raises(ValueError, match="payloads cut short"):
        decode_frames(data[:-1], SEED, marked=True)


@each_case("flag", [ENTRY_REMOVED, ENTRY_SHORTENED])
def test_nothing_is_cleaned_away_where_no_marks_are(flag: int) -> None:
    """A head that says so itself is none of ours: marks are local."""
    frame = FrameMaker().data((1, 1, b"body"))
    frame.directory[0].flags = flag
    frame.head, _ = encode_frame_head(frame, SEED)
    with pytest.raises(ValueError, match="partition 1 offset 0: an entry with an unknown flag"):
        decode_frames(b"".join(frame_buffers(frame)), SEED)


def test_a_payload_is_that_of_its_entry_or_the_frame_is_refused() -> None:
    for changed in ("base_offset", "crc", "leader_epoch", "length"):
        frame = FrameMaker().data((1, 1, b"body"))
        setattr(frame.directory[0], changed, 9)
        if changed == "length":
            frame.payloads[0] = frame.payloads[0][:9]  # shorter than a batch's own prefix
        frame.head, _ = encode_frame_head(frame, SEED)
        with pytest.raises(ValueError, match="batch does not match its directory entry"):
            decode_frames(b"".join(frame_buffers(frame)), SEED)


def test_the_size_of_a_frame_is_what_it_takes() -> None:
    for frame in some():
        for _ in range(2):  # added up, and remembered
            assert frame_bytes(frame) == len(b"".join(frame_buffers(frame)))


def test_a_position_orders_like_the_log_and_can_be_read() -> None:
    places = [position_of(1, 4096), position_of(1, 5000), position_of(2, 0), position_of(10, 7)]
    assert places == sorted(places)
    assert position_text(places[3]) == "segment 10 byte 7"


@each_case("written_end", [0, 9000])
def test_a_segment_header_comes_back(written_end: int) -> None:
    header = SegmentHeader(3, 2, 7, 41, 77, 0xDEADBEEF, 8000, 4, -5, 1 << 20, position_of(6, 99), written_end)
    data = encode_segment_header(header)
    assert len(data) == SEGMENT_HEADER_BYTES
    decoded = decode_segment_header(bytearray(data) + b"frames")
    assert decoded is not None
    version, got = decoded
    assert version == (SEGMENT_REWRITTEN_FORMAT if written_end else FORMAT)
    assert got.rewritten is header.rewritten is (written_end > 0)
    for name in SegmentHeader.__slots__:
        assert getattr(got, name) == getattr(header, name), name


def test_a_damaged_segment_header_is_none() -> None:
    header = SegmentHeader(3, 2, 7, 41, 77, 0xDEADBEEF, 8000, 4, 1_000, 1 << 20, 0)
    data = encode_segment_header(header)
    for at in range(SEGMENT_HEADER_BYTES):  # the unused bytes count, too
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        assert decode_segment_header(bad) is None, at
    assert decode_segment_header(data[:-1]) is None
    assert decode_segment_header(b"") is None


def test_a_void_header_is_of_one_name_and_no_segment_s() -> None:
    name = "0000000000000001-0000000000000004-00000001.segment"
    header = encode_void_header(name)
    assert header == b"LSTKVOID" + crc32c(name.encode()).to_bytes(4, "big") + name.encode()
    assert decode_segment_header(header.ljust(SEGMENT_HEADER_BYTES, b"\0")) is None
