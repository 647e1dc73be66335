"""Sealed segments repaired from another node's frames, and cleaned: every read as the model's."""

from __future__ import annotations

import errno
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.storage.log import inspect
from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import FRAME_BYTES, SEGMENT_HEADER_BYTES, chain_of, segment_of
from lockstep.storage.log.frame_rewrite import BatchFilter
from lockstep.storage.log.marker import MARKER_BYTES
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import (
    Checkpoint,
    CorruptLog,
    DirectoryEntry,
    Frame,
    FramesUnavailable,
    OffsetOutOfRange,
    StorageFull,
    WriteFailed,
)
from tests.storage.log.crash_world import DIRECTORY, GROUP, OPTIONS
from tests.storage.log.frames import FrameMaker, by_turns, same, whole, whole_batches
from tests.storage.log.memory_log import MemoryLog
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem
from tests.storage.log.test_installation import SMALL, checkpoint_of, install, leader, shipment
from tests.storage.log.test_rot import on_disk
from tests.support.cases import each_case


def two_logs() -> tuple[DataLog, MemoryLog, SimulatedFileSystem]:
    """A log of many segments with two checkpoints, all of its index files written, and its model."""
    disk = SimulatedFileSystem()
    log, model, make = DataLog.open(DIRECTORY, GROUP, SMALL, disk), MemoryLog(GROUP, SMALL), FrameMaker()
    for number in range(90):
        frame = make.data((1 + number % 2, 2, bytes([number]) * 700), (3, 1, bytes([number]) * 200))
        for each in (log, model):
            each.append([frame])
            each.flush()
        if number in (60, 80):
            made = checkpoint_of(model)
            for each in (log, model):
                each.write_checkpoint(made)
    log.prepare_now()
    return log, model, disk


def agree(log: DataLog, model: MemoryLog) -> None:
    for partition in (1, 2, 3):
        for offset in range(0, 92, 3):
            for max_bytes in (0, 900, 5000):
                answers = []
                for each in (log, model):
                    try:
                        answers.append(whole(each.read_cold(partition, offset, max_bytes, 1 << 40).buffers))
                    except OffsetOutOfRange:
                        answers.append(b"out of range")
                assert answers[0] == answers[1], (partition, offset, max_bytes)
        for time_ms in (0, 1001, 1030, 1060, 1090, 1091):
            found = [each.timestamp_lookup(partition, time_ms, 0, 1 << 40) for each in (log, model)]
            assert (found[0] and found[0].base_offset) == (found[1] and found[1].base_offset)
            found = [each.timestamp_lookup(partition, time_ms, 20, 40) for each in (log, model)]
            assert (found[0] and found[0].base_offset) == (found[1] and found[1].base_offset)
        found = [each.max_timestamp_batch(partition, 0, 50) for each in (log, model)]
        assert (found[0] and found[0].base_offset) == (found[1] and found[1].base_offset)
        assert log.partition_bytes(partition, 0) == model.partition_bytes(partition, 0)
    frames, modelled = (each.snapshot_frames(1, 1 << 40, 1 << 40) for each in (log, model))
    assert len(frames) == len(modelled) == 90 and all(map(same, frames, modelled))
    assert log.first_kept_index == model.first_kept_index


def reopened(log: DataLog, disk: SimulatedFileSystem) -> tuple[DataLog, SimulatedFileSystem]:
    log.close()
    disk = SimulatedFileSystem(disk.now())
    return DataLog.open(DIRECTORY, GROUP, SMALL, disk), disk


PLACES = {
    "segment header": 30,
    "marker": SEGMENT_HEADER_BYTES + 9,
    "frame header": SEGMENT_HEADER_BYTES + MARKER_BYTES + 30,
    "directory": SEGMENT_HEADER_BYTES + MARKER_BYTES + FRAME_BYTES + 5,
    "payload": SEGMENT_HEADER_BYTES + MARKER_BYTES + FRAME_BYTES + 400,
}


@each_case("place", PLACES)
def test_corruption_is_found_and_repaired_from_another_node(place: str) -> None:
    log, model, disk = two_logs()
    for segment in log.segments()[:3]:
        assert log.scrub(segment.sequence) is None
        path = log._table.get(segment.sequence).path  # type: ignore[union-attr]
        fd = disk.open(path)
        (byte,) = disk.pread(fd, 1, PLACES[place])
        disk.pwritev(fd, [bytes([byte ^ 4])], PLACES[place])
        disk.close(fd)
        needed = log.scrub(segment.sequence)
        assert needed == (segment.first_index, segment.last_index)
        log.rewrite_segment(segment.sequence, model.snapshot_frames(needed[0], needed[1], 1 << 30))
        assert log.scrub(segment.sequence) is None
        agree(log, model)
    for _ in range(2):
        log, disk = reopened(log, disk)
        assert log.report.rebuilt_indexes == 0
        agree(log, model)
        assert [log.scrub(segment.sequence) for segment in log.segments()] == [None] * len(log.segments())


def test_a_corrupt_index_file_is_made_again_from_the_frames() -> None:
    log, model, disk = two_logs()
    names = [n for n in disk.list_dir(DIRECTORY) if n.endswith(".index")]
    image = disk.now()
    rotten = {n: image.files[n][:-9] + bytes([image.files[n][-9] ^ 1]) + image.files[n][-8:] for n in names}
    disk = SimulatedFileSystem(Image({**image.files, **rotten}))
    log = DataLog.open(DIRECTORY, GROUP, SMALL, disk)
    assert [log.scrub(segment.sequence) for segment in log.segments()] == [None] * len(log.segments())
    log.prepare_now()
    assert {n: disk.now().files[n] for n in names} == {n: image.files[n] for n in names}
    agree(log, model)
    assert log.scrub(log._active.sequence) is None and log.scrub(999) is None


@each_case("number", [errno.EIO, errno.EUCLEAN])
def test_an_index_file_that_the_disk_cannot_read_is_made_again(number: int) -> None:
    log, model, disk = two_logs()

    def bad_sector(what: str, name: str) -> OSError | None:
        return OSError(number, "bad sector") if what == "read" and name.endswith(".index") else None

    disk.fault = bad_sector
    agree(log, model)
    names = [n for n in disk.list_dir(DIRECTORY) if n.endswith(".index")]
    disk = SimulatedFileSystem(disk.now())
    disk.fault = bad_sector
    log = DataLog.open(DIRECTORY, GROUP, SMALL, disk)
    assert log.report.rebuilt_indexes >= len(names) - 1 > 3
    agree(log, model)


def test_an_index_file_that_cannot_be_opened_for_another_reason_is_no_lost_one() -> None:
    log, _, disk = two_logs()
    log, disk = reopened(log, disk)
    disk.fault = lambda what, name: OSError(errno.EMFILE, "too many") if what == "read" else None
    with pytest.raises(OSError, match="too many"):
        log.read_cold(1, 0, 900, 1 << 40)


def test_what_the_device_refused_on_the_way_takes_no_segment_s_place() -> None:
    log, model, disk = two_logs()
    before = disk.now().files
    # The kernel tells of a failed write-back once; the flush after it succeeds.
    disk.fault = lambda what, name: OSError(errno.EIO, "I/O error") if what == "write_back" else None
    with pytest.raises(WriteFailed, match="I/O error"):
        log.clean(log.segments()[1].sequence, by_turns(0))
    disk.fault = None
    assert disk.now().files == before
    agree(log, model)


def test_what_must_not_be_rewritten_is_refused() -> None:
    log, model, disk = two_logs()
    segments = log.segments()
    sequences = [segment_of(placed.position) for placed in log._maintenance.checkpoints]
    first = segments[0]
    frames = model.snapshot_frames(first.first_index, first.last_index, 1 << 30)
    before = sorted(disk.list_dir(DIRECTORY))
    for sequence in (*sequences, segments[-1].sequence, log._active.sequence, 999):
        with pytest.raises(ValueError, match="segment"):
            log.rewrite_segment(sequence, frames)
        with pytest.raises(ValueError, match="segment"):
            log.clean(sequence, whole_batches(lambda entry: False))
    other = FrameMaker()
    strange = MemoryLog(GROUP)
    strange.append([other.data((1, 1, b"other")) for _ in frames])
    for wrong in (frames[1:], frames[:-1], [], strange.snapshot_frames(1, 1 << 40, 1 << 30)):
        with pytest.raises(ValueError, match=r"has frames|does not continue|cannot follow|not the frames"):
            log.rewrite_segment(first.sequence, wrong)
    disk.fault = lambda what, name: OSError(28, "No space") if "rewrite" in name else None
    with pytest.raises(StorageFull):
        log.rewrite_segment(first.sequence, frames)
    disk.fault = None
    assert sorted(disk.list_dir(DIRECTORY)) == before
    agree(log, model)
    between = [s.sequence for s in segments if sequences[0] < s.sequence < sequences[1]]
    for sequence in between:  # above the older checkpoint: repaired, never cleaned
        with pytest.raises(ValueError, match="checkpoint"):
            log.clean(sequence, whole_batches(lambda entry: False))
        segment = next(s for s in segments if s.sequence == sequence)
        log.rewrite_segment(sequence, model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30))
    agree(log, model)


def without_the_first(
    log: DataLog, model: MemoryLog, count: int
) -> tuple[int, list[Frame], int, dict[int, int]]:
    """What a node has that freed the first frames of another's first segment: that one's sequence, the other
    frames, the chain value before them, and the log starts that made those frames dead."""
    segment = log.segments()[0]
    frames = model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30)
    chain, starts = frames[count - 1].head, {1: 0, 2: 0, 3: 0}
    for entry in (entry for frame in frames[:count] for entry in frame.directory):
        starts[entry.partition] = entry.base_offset + entry.record_count
    assert chain is not None
    return segment.sequence, frames[count:], chain_of(chain), starts


def test_the_first_segment_is_repaired_without_dead_frames_that_nobody_has() -> None:
    log, model, disk = two_logs()
    sequence, frames, chain, starts = without_the_first(log, model, 3)
    fd = disk.open(log._table.get(sequence).path)  # type: ignore[union-attr]
    disk.pwritev(fd, [b"rot"], SEGMENT_HEADER_BYTES + MARKER_BYTES + 9)
    disk.close(fd)
    assert log.scrub(sequence) == (1, frames[-1].index)
    log.rewrite_segment(sequence, frames, chain, starts.__getitem__)
    for _ in range(3):
        first = log.segments()[0]
        assert (first.sequence, first.first_index, log.oldest_index) == (sequence, 4, 4)
        assert [log.scrub(segment.sequence) for segment in log.segments()] == [None] * len(log.segments())
        for partition, start in starts.items():
            assert log.first_offset(partition) == start
            found, expected = (each.read_cold(partition, start, 1 << 30, 1 << 40) for each in (log, model))
            assert whole(found.buffers) == whole(expected.buffers)
            with pytest.raises(OffsetOutOfRange):
                log.read_cold(partition, start - 1, 1, 1 << 40)
        shipped = log.snapshot_frames(1, 90, 1 << 30)
        assert list(map(same, shipped, model.snapshot_frames(4, 90, 1 << 30))) == [True] * 87
        assert log.chain_at(3) == chain
        log, disk = reopened(log, disk)
    files = {name: data for name, data in disk.now().files.items() if not name.endswith(".index")}
    assert DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(Image(files))).oldest_index == 4
    ends = {share.local_id: share.last_offset + 1 for share in log.segments()[0].partitions()}
    assert log.free_deleted_segments(ends.__getitem__) == 1
    assert reopened(log, disk)[0].segments()[0].sequence == sequence + 1


def test_a_partition_may_end_with_the_dead_frames() -> None:
    disk = SimulatedFileSystem()
    log, model, make = DataLog.open(DIRECTORY, GROUP, SMALL, disk), MemoryLog(GROUP, SMALL), FrameMaker()
    for number in range(90):
        frame = make.data((1 if number < 2 else 2, 1, bytes([number]) * 700), (3, 1, b"x"))
        for each in (log, model):
            each.append([frame])
        if number in (60, 80):
            log.write_checkpoint(checkpoint_of(model))
    sequence, frames, chain, starts = without_the_first(log, model, 2)
    log.rewrite_segment(sequence, frames, chain, starts.__getitem__)
    assert [log.first_offset(partition) for partition in (1, 2, 3)] == [None, 0, 2]


def test_frames_are_left_out_only_where_they_are_dead_and_first() -> None:
    log, model, disk = two_logs()
    sequence, frames, chain, starts = without_the_first(log, model, 3)
    before = disk.now().files
    for partition in starts:
        with pytest.raises(ValueError, match="would be lost"):
            log.rewrite_segment(
                sequence, frames, chain, {**starts, partition: starts[partition] - 1}.__getitem__
            )
    with pytest.raises(ValueError, match="has frames"):
        log.rewrite_segment(sequence, frames)
    with pytest.raises(ValueError, match="does not continue the chain"):
        log.rewrite_segment(sequence, frames, chain ^ 1, starts.__getitem__)
    everything = dict.fromkeys(starts, 1 << 40).__getitem__
    second, below = log.segments()[1], log._maintenance.freeable_below()
    between = next(segment for segment in log.segments() if segment.sequence > below)
    for segment in (second, between):
        cut = model.snapshot_frames(segment.first_index + 1, segment.last_index, 1 << 30)
        start = model.chain_at(segment.first_index)
        with pytest.raises(ValueError, match="not the log's first, or not below both"):
            log.rewrite_segment(segment.sequence, cut, start, everything)
        assert log.rewritable(segment.sequence) and not log.rewritable(segment.sequence, later=True)
    assert log.rewritable(sequence, later=True)
    assert disk.now().files == before
    agree(log, model)
    # The first in memory is not yet the first on the disk: a crash would bring the former one back.
    run_once, log._maintenance.run_once = log._maintenance.run_once, lambda: None  # type: ignore[method-assign]
    ends = {share.local_id: share.last_offset + 1 for share in log.segments()[0].partitions()}
    assert log.free_deleted_segments(ends.__getitem__) == 1
    cut, start = (
        model.snapshot_frames(second.first_index + 1, second.last_index, 1 << 30),
        model.chain_at(second.first_index),
    )
    with pytest.raises(ValueError, match="not the log's first"):
        log.rewrite_segment(second.sequence, cut, start, everything)
    run_once()
    log.rewrite_segment(second.sequence, cut, start, everything)
    assert reopened(log, disk)[0].oldest_index == second.first_index + 1


def clean(log: DataLog, model: MemoryLog, keep: Callable[[DirectoryEntry], bool]) -> int:
    below = log._maintenance.freeable_below()
    segments = [s for s in log.segments() if s.sequence < below]
    saved = sum(log.clean(segment.sequence, whole_batches(keep)) for segment in segments)
    model.clean_upto(segments[-1].last_index, whole_batches(keep))
    return saved


def test_removed_batches_are_passed_over_and_reported() -> None:
    log, model, disk = two_logs()
    assert clean(log, model, lambda entry: True) == 0
    keeps: list[Callable[[DirectoryEntry], bool]] = [
        lambda entry: entry.base_offset % 3 > 0,
        lambda entry: entry.partition != 3,
        lambda entry: entry.base_offset > 20,
        lambda entry: False,
    ]
    for keep in keeps:
        assert clean(log, model, keep) > 0
        agree(log, model)
        assert clean(log, model, keep) == 0
        for _ in range(2):
            log, disk = reopened(log, disk)
            assert log.report.rebuilt_indexes == 0
            agree(log, model)
        assert [log.scrub(s.sequence) for s in log.segments()] == [None] * len(log.segments())
        shipped = log.snapshot_frames(1, 30, 1 << 30)
        removed = [e.flags & ENTRY_REMOVED > 0 for frame in shipped for e in frame.directory]
        kept = [keep(e) for frame in shipped for e in frame.directory]
        assert any(removed) and not any(
            r and k for r, k in zip(removed, kept, strict=True) if keep is keeps[0]
        )
        payloads = [bytes(p) for frame in shipped for p in frame.payloads]
        assert [not p for p in payloads] == removed
    image = disk.now()
    files = {n: d for n, d in image.files.items() if not n.endswith(".index")}
    log = DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(Image(files)))
    assert log.report.rebuilt_indexes > 3
    agree(log, model)


def shorten(log: DataLog, model: MemoryLog, judge: BatchFilter) -> int:
    segments = log.cleanable_segments()
    saved = sum(log.clean(segment.sequence, judge) for segment in segments)
    model.clean_upto(segments[-1].last_index, judge)
    return saved


def test_shortened_batches_are_read_in_place_of_what_they_were() -> None:
    log, model, disk = two_logs()
    for turn in range(3):
        assert shorten(log, model, by_turns(turn)) > 0
        agree(log, model)
        for _ in range(2):
            log, disk = reopened(log, disk)
            assert log.report.rebuilt_indexes == 0
            agree(log, model)
        assert [log.scrub(s.sequence) for s in log.segments()] == [None] * len(log.segments())
    image = disk.now()
    files = {n: d for n, d in image.files.items() if not n.endswith(".index")}
    log = DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(Image(files)))
    assert log.report.rebuilt_indexes > 3
    agree(log, model)


def test_a_judge_that_gives_up_changes_nothing() -> None:
    log, model, disk = two_logs()
    before = disk.now().files

    for limit in (1, 3, 8):
        left = iter(range(limit))

        def tired(count: int, left: Iterator[int] = left) -> None:
            assert count > 0
            if next(left, None) is None:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            log.clean(log.segments()[1].sequence, by_turns(0), tired)
        assert disk.now().files == before
    agree(log, model)


def test_segments_in_which_nothing_is_left_are_freed_and_reads_pass_over_them() -> None:
    log, model, disk = two_logs()
    gone = [s.sequence for s in log.cleanable_segments()]
    gone = [gone[0], gone[1], gone[3]]
    offsets = {
        (share.local_id, at)
        for s in log.cleanable_segments()
        if s.sequence in gone
        for share in s.partitions()
        for at in range(share.first_offset, share.last_offset + 1)
    }
    shorten(log, model, lambda e, payload: (e.partition, e.base_offset) not in offsets)
    assert log.free_deleted_segments(lambda partition: 0) == 3
    for _ in range(3):
        assert not set(gone) & {s.sequence for s in log.segments()}
        for partition in (1, 2, 3):
            start = log.first_offset(partition)
            assert start is not None and start > 0
            for offset in range(start, 92):
                found, expected = (each.read_cold(partition, offset, 3000, 1 << 40) for each in (log, model))
                assert whole(found.buffers) == whole(expected.buffers), (partition, offset)
        assert [log.scrub(s.sequence) for s in log.segments()] == [None] * len(log.segments())
        log, disk = reopened(log, disk)


def test_what_is_freed_behind_a_segment_that_stays_has_one_freed_file() -> None:
    log, model, disk = two_logs()
    first, *others = log.cleanable_segments()
    shares = [share for segment in others for share in segment.partitions()]
    dead = {
        (share.local_id, at) for share in shares for at in range(share.first_offset, share.last_offset + 1)
    }
    shorten(log, model, lambda e, payload: (e.partition, e.base_offset) not in dead)
    assert log.free_deleted_segments(lambda partition: 0) == len(others) > 4
    log.prepare_now()
    for _ in range(3):
        assert [n for n in disk.list_dir(DIRECTORY) if n.endswith(".freed")] == [
            f"{others[0].sequence:016d}-{others[-1].sequence:016d}.freed"
        ]
        assert log.segments()[0].sequence == first.sequence
        assert not {s.sequence for s in others} & {s.sequence for s in log.segments()}
        log, disk = reopened(log, disk)
    starts = {share.local_id: share.last_offset + 1 for share in log.segments()[0].partitions()}
    assert log.free_deleted_segments(starts.__getitem__) == 1
    assert not [n for n in disk.list_dir(DIRECTORY) if n.endswith(".freed")]
    reopened(log, disk)


def test_a_crash_before_the_freeing_is_on_the_disk_finds_that_a_rewritten_segment_follows() -> None:
    log, _, disk = two_logs()
    first, second = log.segments()[:2]
    starts = {share.local_id: share.last_offset + 1 for share in first.partitions()}
    log._maintenance.run_once = lambda: None  # type: ignore[method-assign]
    assert log.free_deleted_segments(starts.__getitem__) == 1
    assert log.clean(second.sequence, by_turns(0)) > 0
    again = DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(disk.now()))
    assert [each.sequence for each in again.segments()[:2]] == [first.sequence, second.sequence]


def test_a_cleaned_log_is_shipped_and_installed_as_it_is() -> None:
    log, model, _ = two_logs()
    clean(log, model, lambda entry: entry.partition != 3 and entry.base_offset % 4 > 0)
    shorten(log, model, by_turns(0))
    made = checkpoint_of(model)
    disk = SimulatedFileSystem()
    copy, other = DataLog.open(DIRECTORY, GROUP, SMALL, disk), MemoryLog(GROUP, SMALL)
    parts = shipment(log, made.index)
    install(copy, parts, made)
    install(other, parts, made)
    agree(copy, other)
    copy, disk = reopened(copy, disk)
    agree(copy, other)
    repaired = log.segments()[1]
    frames = copy.snapshot_frames(repaired.first_index, repaired.last_index, 1 << 30)
    log.rewrite_segment(repaired.sequence, frames)
    agree(log, model)


def test_corruption_is_not_cleaned_over() -> None:
    log, _, disk = two_logs()
    path = log._table.get(log.segments()[1].sequence).path  # type: ignore[union-attr]
    fd = disk.open(path)
    disk.pwritev(fd, [b"rot"], SEGMENT_HEADER_BYTES + 5000)
    with pytest.raises(CorruptLog):
        log.clean(log.segments()[1].sequence, whole_batches(lambda entry: entry.partition != 3))


def test_a_segment_freed_meanwhile_is_left_alone() -> None:
    log, model, disk = two_logs()
    first = log.segments()[0]
    frames = model.snapshot_frames(first.first_index, first.last_index, 1 << 30)
    real = log._segment_rewriter._swap

    def freed_first(*arguments: object) -> None:
        starts = {share.local_id: share.last_offset + 1 for share in first.partitions()}
        assert log.free_deleted_segments(starts.__getitem__) == 1
        real(*arguments)  # type: ignore[arg-type]

    log._segment_rewriter._swap = freed_first  # type: ignore[method-assign, assignment]
    with pytest.raises(FramesUnavailable):
        log.rewrite_segment(first.sequence, frames)
    assert not [n for n in disk.list_dir(DIRECTORY) if n.endswith(".tmp")]
    reopened(log, disk)


def test_a_segment_rewritten_meanwhile_is_not_freed() -> None:
    log, model, disk = two_logs()
    first = log.segments()[0]
    frames = model.snapshot_frames(first.first_index, first.last_index, 1 << 30)
    starts = {share.local_id: share.last_offset + 1 for share in first.partitions()}
    asked: list[int] = []

    def start(partition: int) -> int:
        if not asked:
            log.rewrite_segment(first.sequence, frames)
        asked.append(partition)
        return starts[partition]

    assert log.free_deleted_segments(start) == 0
    log.prepare_now()
    agree(log, model)
    assert log.free_deleted_segments(start) == 1
    reopened(log, disk)


def test_a_pause_gives_up_a_spare_being_filled(tmp_path: Path) -> None:
    log = DataLog.open(tmp_path / "g", 1, LogOptions(segment_bytes=16 << 20, spare_segments=3))
    log.start_preparing()
    while log._pool.ready_count == 0:
        time.sleep(0.001)
    entered: list[int] = []
    for _ in range(2):  # one after the other, and both at once
        threads = [threading.Thread(target=lambda: enter(log, entered)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(entered) == 4 and log._pool.waited_for == 0 and not log._pool.closing
    while log._pool.ready_count < 2:
        time.sleep(0.001)
    log.close()


def enter(log: DataLog, entered: list[int]) -> None:
    with log._maintenance.pause():
        entered.append(log._pool.ready_count)


def test_readers_go_on_while_segments_are_rewritten() -> None:
    log, model, _ = two_logs()
    expected = {p: whole(model.read(p, 0, 1 << 30, 1 << 40).buffers) for p in (1, 2)}
    problems: list[object] = []
    done = threading.Event()

    def look(partition: int) -> None:
        while not done.is_set():
            try:
                if whole(log.read_cold(partition, 0, 1 << 30, 1 << 40).buffers) != expected[partition]:
                    problems.append("other bytes")
                if len(log.snapshot_frames(1, 90, 1 << 30)) < 10:
                    problems.append("few frames")
            except Exception as error:
                problems.append(repr(error))

    threads = [threading.Thread(target=look, args=(p,)) for p in (1, 2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        for segment in log.segments()[:3]:
            frames = model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30)
            log.rewrite_segment(segment.sequence, frames)
    assert clean(log, model, lambda entry: entry.partition != 3) > 0
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert OPTIONS.segment_bytes > sum(s.total_bytes for s in log.segments()[:1])


def test_inspection_reads_cleaned_and_installed_segments_and_over_freed_ones(tmp_path: Path) -> None:
    log, model, disk = two_logs()
    clean(log, model, lambda entry: entry.partition != 3)
    source, made, _ = leader(free=True)
    copy_disk = SimulatedFileSystem()
    copy = DataLog.open(DIRECTORY, GROUP, SMALL, copy_disk)
    install(copy, shipment(source, made.index), made)
    for name, each, frames in (("cleaned", disk, 90), ("installed", copy_disk, len(shipped_frames(copy)))):
        (tmp_path / name).mkdir()
        verdict = inspect.verify(on_disk(each.now(), tmp_path / name), GROUP)
        assert (verdict.is_corrupt, verdict.frames) == (False, frames)


def shipped_frames(log: DataLog) -> list[Frame]:
    return [frame for part, _ in shipment(log, log.last_index) for frame in part]


@pytest.mark.parametrize("removed", [0, 1, 7])
def test_memory_holds_what_changes_and_not_the_segment(tmp_path: Path, removed: int) -> None:
    options = LogOptions(segment_bytes=24 << 20, tail_cache_bytes=0, recent_frames_bytes=0)
    log, make = DataLog.open(tmp_path / "g", GROUP, options), FrameMaker()
    for number in range(200):
        log.append([make.data((1 + number % 7, 1, bytes([number]) * 250_000))])
        log.flush()
        if number in (150, 190):
            log.write_checkpoint(Checkpoint(log.last_index, 1, log.next_lsn, log.chain, log.last_time_ms, {}))
    log.prepare_now()
    tracemalloc.start()
    try:
        saved = log.clean(log.segments()[0].sequence, whole_batches(lambda entry: entry.partition > removed))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (saved > 2 << 20) is (removed > 0)
    assert peak < 13 << 20
    log.close()
