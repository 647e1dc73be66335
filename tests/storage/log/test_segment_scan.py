"""Where reading a segment stops and why: the end of what was written, a torn write, rot, a former life."""

from __future__ import annotations

import tracemalloc

import pytest
from crc32c import crc32c

from lockstep.storage.log import segment_scan as scan_module
from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.format import (
    CRC,
    FRAME,
    FRAME_BYTES,
    SEGMENT_HEADER_BYTES,
    encode_frame_head,
    frame_buffers,
    group_seed,
    position_of,
)
from lockstep.storage.log.frame_rewrite import RewrittenBatch
from lockstep.storage.log.frame_rewrite import rewrite_frame as judged
from lockstep.storage.log.marker import MARKER_BYTES, MARKER_MAGIC, encode_marker
from lockstep.storage.log.segment_scan import LogTail, SegmentScan, Window, highest_promise
from lockstep.storage.types import Frame, NewerFormat
from tests.storage.log.frames import FrameMaker, batch, half, same
from tests.support.cases import each_case

SEED = group_seed(3)
SEQUENCE = 7
START = SEGMENT_HEADER_BYTES
BEFORE = LogTail(0, 1, 1, SEED, 0)
"""What the first frame of the segment follows."""


class SegmentFile:
    """A segment's bytes, written as the log writes them: marker, frames, marker, frames."""

    def __init__(self, size: int = 64 << 10) -> None:
        self.data = bytearray(size)
        self.end = START
        self.make = FrameMaker()
        self.chain = SEED
        self.frames: list[Frame] = []

    def frame(self, *bodies: bytes) -> Frame:
        """The next frame, a batch of one record for each body; none: a no-op."""
        bodies = bodies or (b"",)
        frame = self.make.data(*((1, 1, body) for body in bodies)) if bodies[0] else self.make.no_op()
        frame.head, self.chain = encode_frame_head(frame, self.chain)
        self.frames.append(frame)
        return frame

    def write(
        self,
        frames: list[Frame],
        generation: int = 1,
        flushed: int = 0,
        own: int | None = None,
        marked: bool = False,
    ) -> int:
        """One physical write at the end; where it begins."""
        start = self.end
        body = b"".join(b"".join(frame_buffers(frame, marked)) for frame in frames)
        place = position_of(SEQUENCE, start if own is None else own)
        self.put(start, encode_marker(SEED, generation, place, flushed, len(body)) + body)
        self.end = start + MARKER_BYTES + len(body)
        return start

    def put(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data

    def read(self, length: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def scan(
        self,
        generation: int = 1,
        generation_start: int = 0,
        tail: LogTail | None = None,
        rewritten: bool = False,
        size: int | None = None,
    ) -> SegmentScan:
        size = len(self.data) if size is None else size
        tail = tail or BEFORE.copy()
        made = SegmentScan(
            self.read, size, SEQUENCE, SEED, tail, START, generation, generation_start, rewritten
        )
        made.last_generation = generation if rewritten else 0
        return made


@pytest.fixture(params=[4 << 20, 256])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole segment in one read, or many small ones."""
    monkeypatch.setattr(scan_module, "WINDOW_BYTES", request.param)
    monkeypatch.setattr(scan_module, "PROMISE_WINDOW_BYTES", request.param)


def taken(scan: SegmentScan, expected: list[Frame], reason: str) -> None:
    """The scan yields these frames and stops because of that."""
    found = [each.frame() for each in scan.frames()]
    assert [frame.index for frame in found] == [frame.index for frame in expected]
    assert all(map(same, found, expected))
    assert [frame.head for frame in found] == [frame.head for frame in expected]
    assert scan.reason == reason


def two_writes() -> SegmentFile:
    """Two frames in one write, one in the next, which promises the first."""
    file = SegmentFile()
    file.write([file.frame(b"one", b"two" * 30), file.frame()])
    file.write([file.frame(b"three" * 100)], flushed=position_of(SEQUENCE, file.end))
    return file


def test_a_scan_of_many_megabytes_holds_a_fraction_of_one() -> None:
    file = SegmentFile(12 << 20)
    while file.end < 10 << 20:
        file.write([file.frame(b"x" * 50_000)])
    tracemalloc.start()
    try:
        frames = sum(1 for _ in file.scan().frames())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frames == len(file.frames) and peak < 1 << 20


@pytest.mark.usefixtures("window")
def test_every_frame_in_order_and_what_they_amount_to() -> None:
    file = two_writes()
    scan = file.scan()
    taken(scan, file.frames, "no marker")
    assert scan.offset == file.end
    assert scan.promise == position_of(
        SEQUENCE, file.end - MARKER_BYTES - len(b"".join(_parts(file.frames[2])))
    )
    tail = scan.tail
    assert (tail.index, tail.term, tail.next_lsn, tail.chain) == (3, 1, 4, file.chain)
    assert tail.time_ms == file.frames[2].time_ms


def _parts(frame: Frame) -> list[bytes]:
    return [bytes(part) for part in frame_buffers(frame)]


def test_a_frame_has_its_position() -> None:
    file = two_writes()
    at = START + MARKER_BYTES
    for each, frame in zip(list(file.scan().frames())[:2], file.frames, strict=False):
        size = len(b"".join(_parts(frame)))
        head = len(frame.head or b"")
        assert (each.offset, each.payload_offset, each.end) == (at, at + head, at + size)
        assert (each.batch_count, each.record_count) == (len(frame.directory), frame.record_count)
        assert each.payloads == b"".join(frame.payloads)
        at = each.end


def test_a_promise_never_falls() -> None:
    file = SegmentFile()
    for flushed in (50, 90, 70):
        file.write([file.frame(b"x")], flushed=flushed)
    scan = file.scan()
    assert len(list(scan.frames())) == 3
    assert scan.promise == 90


def test_a_full_segment_ends_where_no_marker_fits() -> None:
    file = two_writes()
    taken(file.scan(size=file.end + MARKER_BYTES - 1), file.frames, "the segment is full")
    taken(file.scan(size=file.end), file.frames, "the segment is full")


@pytest.mark.usefixtures("window")
def test_no_changed_byte_lets_a_frame_through() -> None:
    """Each byte of the last write flipped: the frames before it are taken, it is not."""
    file = two_writes()
    good = bytes(file.data)
    begin = file.end - MARKER_BYTES - len(b"".join(_parts(file.frames[2])))
    for at in range(begin, file.end, 3):
        file.data[:] = good
        file.data[at] ^= 1 << at % 8
        scan = file.scan()
        assert [each.index for each in scan.frames()] == [1, 2]
        assert scan.reason and scan.offset in (begin, begin + MARKER_BYTES)
        assert scan.tail.index == 2


def reheaded(frame: Frame, chain: int, **changed: int) -> bytes:
    """The frame with other header fields and a checksum that fits them."""
    assert frame.head is not None
    names = ("crc", "format", "kind", "head", "flags", "term", "index", "lsn", "time", "records", "count")
    fields = dict(zip((*names, "directory", "payload"), FRAME.unpack_from(frame.head), strict=True))
    body = FRAME.pack(*(fields | changed).values())[4:] + frame.head[FRAME_BYTES:]
    return CRC.pack(crc32c(body, chain)) + body


@each_case(
    ("changed", "reason"),
    [
        ({"index": 5}, "index 5, term 1, LSN 1 after 0, 1"),
        ({"lsn": 9}, "index 1, term 1, LSN 9 after 0, 1"),
        ({"term": 0}, "index 1, term 0, LSN 1 after 0, 1"),
        ({"head": 10}, "a frame header with impossible lengths"),
        ({"count": 2}, "a frame header with impossible lengths"),
        ({"payload": 1 << 30}, "a frame header with impossible lengths"),
        ({"directory": 1 << 30, "count": (1 << 30) // 40}, "a frame header with impossible lengths"),
        ({"payload": 1}, "payloads and directory of different lengths"),
    ],
)
def test_a_header_that_cannot_come_next_ends_the_scan(changed: dict[str, int], reason: str) -> None:
    file = SegmentFile()
    file.write([file.frame(b"body")])
    file.put(START + MARKER_BYTES, reheaded(file.frames[0], SEED, **changed))
    taken(file.scan(), [], reason)


@each_case("changed", [{"format": 9}, {"kind": 7}, {"flags": 1}])
def test_a_newer_version_s_frame_is_never_taken_for_the_end(changed: dict[str, int]) -> None:
    file = SegmentFile()
    file.write([file.frame(b"body")])
    file.put(START + MARKER_BYTES, reheaded(file.frames[0], SEED, **changed))
    with pytest.raises(NewerFormat, match=f"segment 7 byte {START + MARKER_BYTES}: frame format"):
        list(file.scan().frames())


def test_a_write_that_ends_within_a_header_is_cut_short() -> None:
    file = SegmentFile()
    file.write([file.frame(b"body")])
    size = file.end - START - MARKER_BYTES
    file.put(START, encode_marker(SEED, 1, position_of(SEQUENCE, START), 0, size + 5))
    taken(file.scan(), file.frames, "a frame cut short")


@pytest.mark.usefixtures("window")
def test_a_file_shorter_than_it_was_is_no_frame() -> None:
    """Its size is read first, its bytes later: another process may cut it in between."""
    file = two_writes()
    size = len(file.data)
    del file.data[file.end - 20 :]
    assert [each.index for each in file.scan(size=size).frames()] == [1, 2]
    del file.data[START + MARKER_BYTES + 10 :]
    scan = file.scan(size=size)
    taken(scan, [], "a frame beyond the end of the file")
    del file.data[START + 10 :]
    taken(file.scan(size=size), [], "the segment is full")


def test_frames_of_another_group_or_place_do_not_count() -> None:
    file = SegmentFile()
    file.write([file.frame(b"x")], own=START + 1)
    taken(file.scan(), [], "a marker of another position")
    file = two_writes()
    taken(
        file.scan(tail=LogTail(0, 1, 1, group_seed(4), 0)),
        [],
        "a frame header that does not continue the chain",
    )


def test_a_stale_write_of_a_former_generation_does_not_count() -> None:
    """Generation 2 began at the segment's start; what follows its only write is from before the cut."""
    file = SegmentFile()
    file.write([file.frame(b"new")], generation=2)
    file.write([file.frame(b"stale, and it even continues the chain")], generation=1)
    start = position_of(SEQUENCE, START)
    taken(file.scan(generation=2, generation_start=start), file.frames[:1], "a marker of generation 1")


def test_below_a_cut_former_generations_count_and_never_go_back() -> None:
    file = SegmentFile()
    file.write([file.frame(b"1")], generation=1)
    file.write([file.frame(b"3")], generation=3)
    file.write([file.frame(b"2")], generation=2)
    later = position_of(SEQUENCE + 1, START)
    taken(file.scan(generation=4, generation_start=later), file.frames[:2], "a marker of generation 2")
    taken(file.scan(generation=2, generation_start=later), file.frames[:1], "a marker of generation 3")


def test_a_cut_within_a_write_ends_it_there() -> None:
    """Two frames were one write; the second was cut, and generation 2 wrote another in its place."""
    file = SegmentFile()
    kept = file.frame(b"kept")
    chain, make = file.chain, file.make.copy()
    file.write([kept, file.frame(b"cut" * 100)], generation=1)
    file.end = START + MARKER_BYTES + len(b"".join(_parts(kept)))
    file.chain, file.make, file.frames = chain, make, [kept]
    start = position_of(SEQUENCE, file.end)
    file.write([file.frame(b"new")], generation=2, flushed=start)
    scan = file.scan(generation=2, generation_start=start)
    taken(scan, file.frames, "no marker")
    assert (scan.promise, scan.last_generation) == (start, 2)


def test_a_newer_generation_s_marker_ends_a_write_whose_end_it_overwrote() -> None:
    """Two cuts: generation 2 ended a write of generation 1, and began a life of its own, that ended later."""
    file = SegmentFile()
    kept = file.frame(b"kept")
    chain, make = file.chain, file.make.copy()
    file.write([kept, file.frame(b"cut" * 100)], generation=1)
    file.end = START + MARKER_BYTES + len(b"".join(_parts(kept)))
    file.chain, file.make, file.frames = chain, make, [kept]
    file.write([file.frame(b"new")], generation=2)
    start = position_of(SEQUENCE, file.end)
    file.write([file.frame(b"newest")], generation=3)
    taken(file.scan(generation=3, generation_start=start), file.frames, "no marker")


def test_a_damaged_frame_before_a_marker_of_its_own_generation_is_damage() -> None:
    """Nothing superseded it: its reason stays what it was."""
    file = SegmentFile()
    file.write([file.frame(b"one")])
    second = START + MARKER_BYTES + len(b"".join(_parts(file.frames[0])))
    file.put(START, encode_marker(SEED, 1, position_of(SEQUENCE, START), 0, 4000))
    file.end = second
    file.write([file.frame(b"two")])
    taken(file.scan(), file.frames[:1], "a frame header with impossible lengths")


def test_a_scan_of_heads_takes_frames_whose_payloads_are_damaged() -> None:
    file = two_writes()
    file.data[file.end - 1] ^= 1
    assert len([*file.scan().frames()]) == 2
    scan = file.scan()
    scan.heads_only = True
    assert len([*scan.frames()]) == 3


@each_case("rewritten", [False, True])
def test_a_scan_of_heads_goes_on_after_payloads_that_the_disk_has_lost(rewritten: bool) -> None:
    file = SegmentFile()
    file.write([file.frame(bytes([n]) * 600) for n in range(1, 5)], generation=4, marked=rewritten)
    lost = file.data.index(b"\2" * 600)
    reads: list[int] = []

    def scan(lost_bytes: int, heads_only: bool) -> SegmentScan:
        made = file.scan(generation=4, rewritten=rewritten)
        made.heads_only, made.needs_payloads = heads_only, not heads_only
        read = made._window._read

        def failing(length: int, offset: int) -> bytes:
            reads.append(length)
            if offset < lost + lost_bytes and lost < offset + length:
                raise OSError("a bad sector")
            return read(length, offset)

        made._window._read = failing
        return made

    found = [frame.end for frame in scan(512, True).frames()]
    assert len(found) == 4 and found[-1] == file.end
    assert len([length for length in reads if length > 1000]) == 1, "the bad sector is read once"
    for made, upto in ((scan(700, True), 2), (scan(512, False), 1)):  # the next head, too; the payload
        ends: list[int] = []
        with pytest.raises(OSError, match="bad sector"):
            ends.extend(frame.end for frame in made.frames())
        assert made.tail.index == upto


def cleaned() -> SegmentFile:
    """A rewritten segment: of three frames the second lost two of three batches, the third all of them."""
    file = SegmentFile()
    frames = [file.frame(b"a"), file.frame(b"b", b"c" * 50, b"d"), file.frame(b"e" * 100)]
    for frame, rows in ((frames[1], (0, 2)), (frames[2], (0,))):
        for row in rows:
            frame.directory[row].flags |= ENTRY_REMOVED
            frame.payloads[row] = b""
    file.write(frames, generation=4, marked=True)
    return file


@pytest.mark.usefixtures("window")
def test_a_rewritten_segment_has_marks_after_each_head() -> None:
    file = cleaned()
    scan = file.scan(generation=4, rewritten=True)
    taken(scan, file.frames, "no marker")
    assert (scan.offset, scan.tail.index, scan.tail.next_lsn) == (file.end, 3, 6)


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("longer", [False, True])
def test_a_shortened_batch_is_read_as_what_it_is(longer: bool) -> None:
    """Compressing again may also make it longer, beyond what the head says."""
    file = SegmentFile()
    frames = [file.frame(b"a"), file.frame(b"b", b"c" * 50, b"d"), file.frame(b"e" * 100)]
    frames = [
        judged(f, lambda e, p: RewrittenBatch(batch(e.base_offset, bytes(900)), 5) if longer else half(e, p))
        for f in frames
    ]
    file.frames = frames
    file.write(frames, generation=4, marked=True)
    scan = file.scan(generation=4, rewritten=True)
    taken(scan, frames, "no marker")
    assert (scan.offset, scan.tail.index, scan.tail.next_lsn) == (file.end, 3, 6)


def test_a_frame_that_is_longer_than_its_file_ends_the_scan() -> None:
    file = SegmentFile()
    frames = [judged(file.frame(b"a"), lambda e, p: RewrittenBatch(batch(e.base_offset, bytes(900)), 5))]
    file.write(frames, generation=4, marked=True)
    file.data = file.data[: file.end - 400]
    taken(file.scan(generation=4, rewritten=True), [], "payloads cut short")


def test_marks_count_in_a_rewritten_segment_only() -> None:
    file = cleaned()
    assert list(file.scan(generation=4).frames()) == []
    plain = two_writes()
    assert list(plain.scan(rewritten=True).frames()) == []


def test_a_rewritten_segment_is_of_one_generation() -> None:
    file = cleaned()
    taken(file.scan(generation=5, rewritten=True), [], "a marker of generation 4")


def test_damage_in_a_rewritten_segment_ends_the_scan() -> None:
    file = cleaned()
    good = bytes(file.data)
    reasons = set()
    for at in range(START + MARKER_BYTES, file.end):
        file.data[:] = good
        file.data[at] ^= 1 << at % 8
        scan = file.scan(generation=4, rewritten=True)
        assert len(list(scan.frames())) < 3
        reasons.add(scan.reason.partition(" offset")[0])
    assert reasons == {
        "a frame header that does not continue the chain",
        "a frame header with impossible lengths",
        "marks that do not verify",
        "partition 1",
    }


def test_a_rewritten_segment_that_was_cut_has_no_whole_last_frame() -> None:
    file = cleaned()
    size = file.end
    assert [each.index for each in file.scan(generation=4, rewritten=True, size=size - 1).frames()] == [1, 2]
    file = SegmentFile()
    file.write([file.frame(b"x" * 100)], generation=4, marked=True)
    scan = file.scan(generation=4, rewritten=True, size=file.end - 1)
    taken(scan, [], "payloads cut short")


def test_a_window_serves_neighbours_with_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "WINDOW_BYTES", 100)
    data = bytes(range(250))
    asked: list[tuple[int, int]] = []

    def read(length: int, offset: int) -> bytes:
        asked.append((length, offset))
        return data[offset : offset + length]

    window = Window(read, len(data))
    for offset, length in ((0, 10), (90, 10), (95, 10), (190, 5), (20, 120), (240, 10)):
        at = window.at(offset, length)
        assert bytes(window.view[at : at + length]) == data[offset : offset + length]
    assert asked == [(100, 0), (100, 95), (120, 20), (10, 240)]
    assert (window.at(241, 10), window.at(250, 1)) == (-1, -1)
    assert Window(read, 400).at(245, 10) == -1  # the file is shorter than it was


def test_a_scanned_frame_outlives_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "WINDOW_BYTES", 256)
    file = two_writes()
    found = list(file.scan().frames())
    assert found[0].view is not found[2].view
    assert all(map(same, [each.frame() for each in found], file.frames))


# What a log was promised to hold.


def promise(file: SegmentFile, generation: int = 2, offset: int = START) -> tuple[int, int]:
    return highest_promise(file.read, len(file.data), SEQUENCE, SEED, generation, offset)


def marker(own: int, flushed: int, generation: int = 2, seed: int = SEED) -> bytes:
    return encode_marker(seed, generation, position_of(SEQUENCE, own), flushed, 0)


@pytest.mark.usefixtures("window")
def test_a_promise_is_found_wherever_it_stands() -> None:
    """Frames before it may be torn, so nothing leads there."""
    assert promise(SegmentFile()) == (0, 0)
    size = 64 << 10
    across = range(START + 256 - MARKER_BYTES - 1, START + 257)  # the end of the first small piece
    for at in (START, START + 1, *across, START + 4001, size - MARKER_BYTES):
        file = SegmentFile(size)
        file.put(at, marker(at, 77))
        assert promise(file) == (77, at)


@pytest.mark.usefixtures("window")
def test_the_highest_of_several_counts() -> None:
    file = SegmentFile()
    for at, flushed in ((5000, 70), (5100, 90), (9000, 80), (20_000, 90)):
        file.put(at, marker(at, flushed))
    assert promise(file) == (90, 5100)
    assert promise(file, offset=5101) == (90, 20_000)
    assert promise(file, offset=20_001) == (0, 0)


def test_stale_foreign_displaced_and_damaged_markers_promise_nothing() -> None:
    file = SegmentFile()
    file.put(5000, marker(5000, 70, generation=1))
    file.put(6000, marker(6001, 70))
    file.put(7000, marker(7000, 70, seed=group_seed(4)))
    file.put(8000, encode_marker(SEED, 2, position_of(SEQUENCE + 1, 8000), 70, 0))
    file.put(9000, MARKER_MAGIC + marker(9008, 5)[:-1] + b"\x01")
    assert promise(file) == (0, 0)
    file.put(9008, marker(9008, 5))
    assert promise(file) == (5, 9008)


def test_a_file_cut_while_it_is_searched_promises_nothing() -> None:
    file = SegmentFile()
    file.put(START, marker(START, 77))
    size = len(file.data)
    del file.data[START + 10 :]
    reads = []

    def read(length: int, offset: int) -> bytes:
        reads.append(offset)
        return file.read(length, offset)

    assert highest_promise(read, size, SEQUENCE, SEED, 2, START) == (0, 0) and len(reads) == 1
    assert highest_promise(file.read, START + MARKER_BYTES - 1, SEQUENCE, SEED, 2, START) == (0, 0)
