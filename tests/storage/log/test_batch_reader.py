"""Reads of a log whose index has runs, beside the same log whose index has a row for each batch."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.storage.log import batch_verification
from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.log.batch_reader import BatchLocation
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.segments import Segment
from lockstep.storage.types import (
    Buffer,
    Checkpoint,
    DamagedBatch,
    DirectoryEntry,
    Frame,
    FrameKind,
    OffsetOutOfRange,
    ReadResult,
)
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.frames import FrameMaker, batch, by_turns, entry
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem
from tests.storage.log.test_index_file import in_former_format

OPTIONS = LogOptions(
    segment_bytes=48 << 10, tail_cache_bytes=1 << 10, reserve_bytes=1 << 10, spare_segments=1, pool_segments=1
)
PARTITIONS = (1, 2)
END = 1 << 40
Batches = list[tuple[int, int, int, int, int]]
FRAME = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 1, 2]),  # partition
        st.integers(1, 3),  # records
        st.sampled_from([0, 20, 300, 300, 300, 4000]),  # bytes
        st.sampled_from([-1, 100, 101, 102, 103, 103, 300_000]),  # timestamp
        st.sampled_from([0, 0, 0, 0, 0, 0, 1]),  # how much higher the leader epoch is
    ),
    min_size=1,
    max_size=10,
)
FRAMES = st.lists(FRAME, min_size=6, max_size=14)


class Maker(FrameMaker):
    """Frames of drawn batches."""

    epoch = 3

    def drawn(self, batches: Batches) -> Frame:
        directory: list[DirectoryEntry] = []
        payloads: list[Buffer] = []
        self.time_ms += 20
        for number, (partition, records, size, timestamp, more) in enumerate(batches):
            self.epoch += more
            base = self.next_offsets.get(partition, 0)
            payload = batch(base, bytes([number + 1]) * size, self.epoch)
            directory.append(entry(partition, payload, records, timestamp))
            payloads.append(payload)
            self.next_offsets[partition] = base + records
        return self._frame(FrameKind.DATA, directory, payloads)


def checkpoint_of(log: DataLog) -> Checkpoint:
    return Checkpoint(log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, {"a": b"b"})


def appended(frames: list[Batches], disk: SimulatedFileSystem) -> tuple[DataLog, Maker]:
    """A log of these frames; the first half of them is below two checkpoints."""
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), Maker()
    for number, batches in enumerate(frames):
        log.append([make.drawn(batches)])
        log.flush()
        if number in (len(frames) // 2, len(frames) // 2 + 1):
            log.write_checkpoint(checkpoint_of(log))
    log.prepare_now()
    return log, make


def opened(image: Image) -> tuple[DataLog, SimulatedFileSystem]:
    disk = SimulatedFileSystem(image)
    return DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), disk


def without_runs(log: DataLog) -> DataLog:
    """The log, whose index has a row for each batch from now on."""
    table = log._table
    index_of = table.index_of

    def by_batch(segment: Segment, local_id: int, load: bool) -> BatchIndex | None:
        index = index_of(segment, local_id, load)
        return index.by_batch() if index is not None else None

    table.index_of = by_batch  # type: ignore[method-assign]
    for segment in table:
        if segment.indexes is not None:
            segment.indexes = {local_id: each.by_batch() for local_id, each in segment.indexes.items()}
    return log


class Stored(NamedTuple):
    """A batch of the log."""

    base: int
    next_offset: int
    timestamp: int
    payload: bytes


def stored(log: DataLog, partition: int) -> list[Stored]:
    """A partition's batches, by the frames."""
    found = []
    for frame in log.snapshot_frames(1, END, END):
        for each, payload in zip(frame.directory, frame.payloads, strict=True):
            if each.partition == partition and not each.flags & ENTRY_REMOVED:
                end = each.base_offset + each.record_count
                found.append(Stored(each.base_offset, end, each.max_timestamp, bytes(payload)))
    return found


def outcome(read: Callable[[], ReadResult]) -> tuple[object, ...]:
    """What a read gave: its bytes and where it ended, or its error."""
    try:
        result = read()
    except OffsetOutOfRange:
        return ("out of range",)
    except DamagedBatch as error:
        return error.sequence, error.partition, error.base_offset, error.next_offset, str(error)
    return b"".join(result.buffers), result.total_bytes, result.next_offset, result.cold


def place_of(place: BatchLocation | None) -> tuple[int, ...] | None:
    if place is None:
        return None
    return place.base_offset, place.next_offset, place.length, place.max_timestamp


def both_read(log: DataLog, plain: DataLog, data: st.DataObject) -> tuple[object, ...]:
    """The outcome of some read, which is the same of both."""
    partition = data.draw(st.sampled_from(PARTITIONS))
    if data.draw(st.booleans()):
        load_indexes(log, partition)
        load_indexes(plain, partition)
    offset = data.draw(st.integers(0, 70))
    max_bytes = data.draw(st.sampled_from([0, 1, 400, 1200, 5000, 20_000, END]))
    end = offset + data.draw(st.sampled_from([1, 2, 5, 9, 30, END]))
    min_one, wait = data.draw(st.booleans()), data.draw(st.booleans())
    found = [
        outcome(lambda log=each: log._reader.read(partition, offset, max_bytes, end, min_one, wait))  # type: ignore[misc]
        for each in (log, plain)
    ]
    assert found[0] == found[1], (partition, offset, max_bytes, end, min_one, wait)
    return found[0]


def load_indexes(log: DataLog, partition: int) -> None:
    """As a reader thread does."""
    for segment in log._table:
        log._table.index_of(segment, partition, load=True)


def assert_reads_are_those_of_the_frames(log: DataLog, data: st.DataObject) -> None:
    for partition in PARTITIONS:
        batches = stored(log, partition)
        ends = [0, *[each.next_offset for each in batches]]
        for _ in range(3):
            start = data.draw(st.sampled_from(ends)) - data.draw(st.sampled_from([0, 0, 1]))
            max_bytes = data.draw(st.sampled_from([0, 1, 400, 1200, 5000, 20_000, END]))
            end = start + data.draw(st.sampled_from([1, 2, 5, 9, 30, END]))
            min_one = data.draw(st.booleans())
            wanted = [each for each in batches if each.next_offset > start and each.base < end]
            if start < 0 or not batches:
                continue
            expected, total = [], 0
            for each in wanted:
                if total + len(each.payload) > max_bytes and (total or not min_one):
                    break
                total += len(each.payload)
                expected.append(each.payload)
            result = log._reader.read(partition, start, max_bytes, end, min_one, wait=True)
            assert b"".join(result.buffers) == b"".join(expected)
            assert result.total_bytes == total
            for time_ms in (-1, 0, 100, 102, 103, 104, 70_000, 300_000, 300_001):
                first = next((each for each in wanted if each.timestamp >= time_ms), None)
                place = log.timestamp_lookup(partition, time_ms, start, end)
                assert (place and place.base_offset) == (first and first.base)
            newest = max(wanted, key=lambda each: (each.timestamp, -each.base), default=None)
            place = log.max_timestamp_batch(partition, start, end)
            assert place_of(place) == (
                newest and (newest.base, newest.next_offset, len(newest.payload), newest.timestamp)
            )


def assert_same_answers(log: DataLog, plain: DataLog) -> None:
    for partition in PARTITIONS:
        for start, end in ((0, END), (3, 12), (7, 8)):
            for time_ms in (0, 101, 103, 104, 1_050, 1_150, 300_000):
                found = [
                    place_of(each.first_younger(partition, time_ms, start, end)) for each in (log, plain)
                ]
                assert found[0] == found[1]
        for offset in range(0, 60, 2):
            assert log.partition_bytes(partition, offset) == plain.partition_bytes(partition, offset)
            assert log.lsns.of_offset(partition, offset) == plain.lsns.of_offset(partition, offset)


@settings(max_examples=40)
@given(FRAMES, st.data())
def test_a_log_reads_as_its_frames_after_any_change(frames: list[Batches], data: st.DataObject) -> None:
    """As it was written, opened again, cleaned, truncated within a segment, and written on."""
    disk = SimulatedFileSystem()
    log, make = appended(frames, disk)
    assert_reads_are_those_of_the_frames(log, data)
    for segment in log.cleanable_segments()[: data.draw(st.integers(0, 2))]:
        log.clean(segment.sequence, by_turns(data.draw(st.integers(0, 2))))
    log.prepare_now()
    assert_reads_are_those_of_the_frames(log, data)
    last = log.last_index - data.draw(st.integers(0, len(frames) // 2 - 2))
    log.truncate(last)
    (newest,) = log.snapshot_frames(last, last, END)
    make.next_offsets = {1: 0, 2: 0}
    for frame in log.snapshot_frames(1, END, END):
        for each in frame.directory:
            make.next_offsets[each.partition] = each.base_offset + each.record_count
    make.index, make.next_lsn = last, newest.first_lsn + newest.record_count
    assert_reads_are_those_of_the_frames(log, data)
    log.append([make.drawn(data.draw(FRAME))])
    log.flush()
    assert_reads_are_those_of_the_frames(log, data)
    log.close()
    log, _ = opened(disk.now())
    plain, _ = opened(disk.now())
    without_runs(plain)
    assert_reads_are_those_of_the_frames(log, data)
    assert_same_answers(log, plain)
    for _ in range(4):
        both_read(log, plain, data)
    for segment in log.segments():
        assert log.scrub(segment.sequence) is None
    unwritten = [one.sequence for one in log._table if one.summary is not None and not one.indexed]
    assert not unwritten, "a scrub found an index file that is not what was written"


@settings(max_examples=40)
@given(FRAMES, st.data())
def test_damage_is_of_the_same_batches(frames: list[Batches], data: st.DataObject) -> None:
    """Changed bytes, sectors that the disk has lost, and pages that are not in memory."""
    disk = SimulatedFileSystem()
    appended(frames, disk)[0].close()
    (log, disk), (plain, other) = opened(disk.now()), opened(disk.now())
    without_runs(plain)
    names = [each.path.name for each in log._table]
    for _ in range(data.draw(st.integers(0, 4))):
        name = data.draw(st.sampled_from(names))
        place = data.draw(st.integers(4096, max(4097, log._table.get(int(name[:16])).end - 1)))  # type: ignore[union-attr]
        for each in (disk, other):
            each._inodes[each._names[name]].data[place] ^= 0x11
    lost = data.draw(st.sampled_from([-1, *range(4096, 24 << 10, 512)]))
    there = data.draw(st.sampled_from([END, 4096, 5000, 9000, 20_000]))
    patch_reads(disk, lost, there)
    patch_reads(other, lost, there)
    for _ in range(6):
        both_read(log, plain, data)
    for segment in log.segments():
        assert log.scrub(segment.sequence) == plain.scrub(segment.sequence)
    for partition in data.draw(st.sampled_from([(), PARTITIONS])):
        log.damage.skip_damage(partition)
        plain.damage.skip_damage(partition)
    for _ in range(6):
        both_read(log, plain, data)
    known = [
        [(e.sequence, e.local_id, e.first_offset, e.end_offset, e.is_skipped) for e in each.damage.known()]
        for each in (log, plain)
    ]
    assert known[0] == known[1]


def patch_reads(disk: SimulatedFileSystem, lost: int, there: int) -> None:
    """A sector is lost, and only what lies before byte `there` of a file is in the page cache."""
    preadv = disk.preadv

    def read(fd: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        size = sum(map(len, buffers))
        if position <= lost < position + size:
            raise OSError(errno.EIO, "Input/output error")
        if flags and position >= there:
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        if flags and position + size > there:
            return preadv(fd, [memoryview(buffers[0])[: there - position]], position, flags)
        return preadv(fd, buffers, position, flags)

    disk.preadv = read  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("index_format", [1, 2])
def test_a_data_directory_with_former_index_files_opens_without_loss(index_format: int) -> None:
    """Its index files serve as they are; what follows on a segment of theirs is runs."""
    frames = [[(1, 2, 300, 100 + number, 0)] * 8 + [(2, 1, 20, 100, 0)] for number in range(110)]
    disk = SimulatedFileSystem()
    log, make = appended(frames, disk)
    expected = {partition: stored(log, partition) for partition in PARTITIONS}
    log.close()
    files = disk.now().files
    former = {
        name: in_former_format(data, index_format) for name, data in files.items() if name.endswith(".index")
    }
    assert len(former) > 3
    log, disk = opened(Image({**files, **former}))
    assert log.report.rebuilt_indexes == 0 and not log.corruption_found
    for partition in PARTITIONS:
        whole = log.read_cold(partition, 0, END, END)
        assert b"".join(whole.buffers) == b"".join([each.payload for each in expected[partition]])
    unchanged = {name: data for name, data in disk.now().files.items() if former.get(name) == data}
    assert unchanged, "no index file was read as it was"
    log.truncate(log.last_index - 3)
    make.next_offsets = {number: log._table.spans[number].first_offset or 0 for number in PARTITIONS}
    for frame in log.snapshot_frames(1, END, END):
        for each in frame.directory:
            make.next_offsets[each.partition] = each.base_offset + each.record_count
        make.index, make.next_lsn = frame.index, frame.first_lsn + frame.record_count
    for _ in range(20):
        log.append([make.drawn(frames[0])])
        log.flush()
    log.prepare_now()
    log.close()
    log, _ = opened(disk.now())
    assert log.report.rebuilt_indexes == 0
    for partition in PARTITIONS:
        whole = log.read_cold(partition, 0, END, END)
        assert b"".join(whole.buffers) == b"".join([each.payload for each in stored(log, partition)])


def test_a_run_is_checked_at_once_and_its_batches_only_where_it_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedFileSystem()
    log, _ = appended([[(1, 1, 300, 100, 0)] * 10] * 8, disk)
    checked: list[int] = []

    def counted(data: memoryview) -> int:
        checked.append(len(data))
        return int(crc32c(data))

    monkeypatch.setattr(batch_verification, "crc32c", counted)
    assert len(b"".join(log._reader.read(1, 0, END, 20, True, True).buffers)) == 20 * 321
    assert checked == [3210, 3210]
    segment = next(iter(log._table))
    index = log._table.index_of(segment, 1, load=True)
    assert index is not None
    disk._inodes[disk._names[segment.path.name]].data[index.positions[1] + 4 * 321 + 100] ^= 1
    checked.clear()
    assert len(b"".join(log._reader.read(1, 0, END, 20, True, True).buffers)) == 14 * 321
    assert checked == [3210, 3210, *[300] * 5]


def test_a_batch_without_a_timestamp_is_found_in_a_run_with_others() -> None:
    """It is as old as its segment, which is still written to."""
    log, _ = appended([[(1, 1, 300, 100, 0), (1, 1, 300, -1, 0), (1, 1, 300, 101, 0)]], SimulatedFileSystem())
    assert place_of(log.first_younger(1, 50_000, 0, END)) == (1, 2, 321, -1)
    assert log.first_younger(1, 50_000, 2, END) is None


def test_a_read_passes_over_what_was_given_up_within_a_run() -> None:
    disk = SimulatedFileSystem()
    log, _ = appended([[(1, 1, 300, 100, 0)] * 10] * 3, disk)
    payloads = [each.payload for each in stored(log, 1)]
    segment = next(iter(log._table))
    index = log._table.index_of(segment, 1, load=True)
    assert index is not None
    disk._inodes[disk._names[segment.path.name]].data[index.positions[1] + 4 * 321 + 100] ^= 1
    with pytest.raises(DamagedBatch):
        log.read_cold(1, 14, END, END)
    (given,) = log.damage.skip_damage(1)
    assert (given.first_offset, given.end_offset) == (14, 15)
    for wait in (True, False):
        result = log._reader.read(1, 0, END, END, True, wait)
        assert b"".join(result.buffers) == b"".join(payloads[:14] + payloads[15:])
        assert log._reader.read(1, 0, 20 * 321, END, True, wait).next_offset == 20
        result = log._reader.read(1, 14, END, 16, True, wait)
        assert b"".join(result.buffers) == payloads[15]
        assert log._reader.read(1, 14, END, 15, True, wait).next_offset == 15
