"""Readers of the same bytes share one read; a reader alone keeps nothing; nothing outdated is ever given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import RealFileSystem, WriteBuffer
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.shared_reads import MAX_SHARED, MIN_SHARED_BYTES, SharedReads
from tests.storage.log.frames import FrameMaker, whole

KIB = 1 << 10
RANGE_BYTES = MIN_SHARED_BYTES
BODY_BYTES = 32 * KIB - 21


def read_range(number: int, length: int = RANGE_BYTES) -> memoryview:
    return memoryview(bytes([number]) * length)


def shared(limit_bytes: int = 64 * RANGE_BYTES) -> SharedReads:
    """One in which somebody has just asked for what had been read."""
    reads = SharedReads(limit_bytes)
    reads.keep(99, 0, read_range(0))
    assert reads.find(99, 0) is None
    return reads


def test_a_reader_alone_keeps_nothing() -> None:
    reads = SharedReads(64 * RANGE_BYTES)
    for number in range(3 * MAX_SHARED):
        assert reads.find(1, number * RANGE_BYTES) is None
        reads.keep(1, number * RANGE_BYTES, read_range(number))
        assert (reads.used_bytes, reads.hits) == (0, 0)


def test_the_second_equal_read_is_shared() -> None:
    reads = SharedReads(64 * RANGE_BYTES)
    reads.keep(1, 0, read_range(1))
    assert reads.find(1, RANGE_BYTES - 1) is None  # too late for this one
    view = read_range(2)
    reads.keep(1, RANGE_BYTES, view)
    assert reads.find(1, RANGE_BYTES) is view
    assert (reads.used_bytes, reads.hits) == (RANGE_BYTES, 1)


def test_a_stretch_is_found_by_any_of_its_positions_and_by_no_other() -> None:
    reads = shared()
    reads.keep(1, 1000, memoryview(bytes(range(256)) * (RANGE_BYTES // 256)))
    found = reads.find(1, 1003)
    assert found is not None
    assert (len(found), bytes(found[:3])) == (RANGE_BYTES - 3, b"\x03\x04\x05")
    assert reads.find(1, 999) is None
    assert reads.find(1, 1000 + RANGE_BYTES) is None
    assert reads.find(2, 1000) is None
    last = reads.find(1, 1000 + RANGE_BYTES - 1)
    assert last is not None and len(last) == 1


def test_the_oldest_goes_first() -> None:
    reads = shared()
    for number in range(MAX_SHARED + 1):
        reads.keep(1, number * RANGE_BYTES, read_range(number))
        assert reads.find(1, number * RANGE_BYTES) is not None
    assert reads.find(1, 0) is None
    assert reads.find(1, RANGE_BYTES) is not None
    assert reads.used_bytes == MAX_SHARED * RANGE_BYTES


def test_bytes_are_bounded_too() -> None:
    reads = shared(limit_bytes=3 * RANGE_BYTES)
    reads.keep(1, 0, read_range(1))
    reads.keep(1, RANGE_BYTES, read_range(2))
    reads.keep(1, 2 * RANGE_BYTES, read_range(3, 2 * RANGE_BYTES))
    assert reads.used_bytes == 3 * RANGE_BYTES
    assert reads.find(1, 0) is None
    reads.keep(1, 9 * RANGE_BYTES, read_range(4, 4 * RANGE_BYTES))
    reads.keep(1, 20 * RANGE_BYTES, read_range(4, RANGE_BYTES - 1))
    assert reads.find(1, 9 * RANGE_BYTES) is None  # too much
    assert reads.find(1, 20 * RANGE_BYTES) is None  # too little
    assert reads.used_bytes == 3 * RANGE_BYTES


def test_the_longer_of_two_reads_from_one_position_stays() -> None:
    reads = shared()
    long = read_range(2, 2 * RANGE_BYTES)
    reads.keep(1, 0, read_range(1))
    reads.keep(1, 0, long)
    reads.keep(1, 0, read_range(3))
    assert reads.find(1, 0) is long
    assert reads.used_bytes == 2 * RANGE_BYTES


def test_when_nobody_shares_any_more_everything_is_given_back() -> None:
    reads = shared()
    for number in range(MAX_SHARED):
        reads.keep(1, number * RANGE_BYTES, read_range(number))
    assert reads.used_bytes == 0
    assert reads.find(1, RANGE_BYTES) is None


class CountingFileSystem(RealFileSystem):
    """The bytes that were read with `preadv`."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def preadv(  # type: ignore[override]
        self, fd: int, buffers: Sequence[WriteBuffer], position: int, flags: int = 0
    ) -> int:
        got = RealFileSystem.preadv(fd, buffers, position, flags)
        self.read_bytes += got
        return got


OPTIONS = LogOptions(segment_bytes=2 << 20, tail_cache_bytes=0, recent_frames_bytes=0)


def filled(directory: Path, fs: RealFileSystem, frames: int) -> tuple[DataLog, FrameMaker, list[bytes]]:
    """A log with one batch of 32 KiB in each frame, partition 1, and the batches."""
    log, make = DataLog.open(directory, 1, OPTIONS, fs), FrameMaker()
    batches = []
    for number in range(frames):
        frame = make.data((1, 1, bytes([number % 251]) * BODY_BYTES))
        log.append([frame])
        batches.append(bytes(whole(frame.payloads)))
    log.flush()
    return log, make, batches


@pytest.mark.parametrize("apart", [0, 1, 5])
def test_four_readers_side_by_side_read_less_than_twice_what_one_does(tmp_path: Path, apart: int) -> None:
    fs = CountingFileSystem()
    log, _, batches = filled(tmp_path / "g", fs, 100)
    size = len(batches[0])
    fs.read_bytes = 0
    offsets = [number * apart for number in range(4)]
    seen = [bytearray() for _ in offsets]
    while min(offsets) < 100:
        for reader, offset in enumerate(offsets):
            if offset < 100:
                found = log.read_cold(1, offset, 10 * size, 100)
                assert found.total_bytes == min(10, 100 - offset) * size
                seen[reader] += whole(found.buffers)
                offsets[reader] += found.total_bytes // size
    for number, each in enumerate(seen):
        assert each == b"".join(batches[number * apart :])
    assert 100 * size <= fs.read_bytes < 200 * size
    log.close()


def test_a_reader_alone_reads_everything_itself(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    log, _, batches = filled(tmp_path / "g", fs, 40)
    size = len(batches[0])
    fs.read_bytes = 0
    for offset in range(0, 40, 8):
        assert whole(log.read_cold(1, offset, 8 * size, 40).buffers) == b"".join(batches[offset : offset + 8])
    assert fs.read_bytes >= 40 * size
    log.close()


def test_what_was_cut_off_is_not_served_again(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    log, _, batches = filled(tmp_path / "g", fs, 20)
    size = len(batches[0])
    for _ in range(3):
        assert whole(log.read_cold(1, 0, 20 * size, 20).buffers) == b"".join(batches)
    log.truncate(10)
    again = FrameMaker()
    written = []
    for number in range(20):
        frame = again.data((1, 1, bytes([(number if number < 10 else number + 100) % 251]) * BODY_BYTES))
        written.append(bytes(whole(frame.payloads)))
        if number >= 10:
            log.append([frame])
    log.flush()
    assert written[:10] == batches[:10] and written[10:] != batches[10:]
    for _ in range(3):
        assert whole(log.read_cold(1, 0, 20 * size, 20).buffers) == b"".join(written)
    log.close()
