"""Joins on disks that fail: an error of each operation, a directory's flush whose error another caller gets,
names that come back after a power loss, no room, damage that only other members can mend."""

from __future__ import annotations

import errno
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lockstep.storage.log import inspect
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, VOID_MAGIC
from lockstep.storage.log.frame_rewrite import rewrite_frame
from lockstep.storage.log.startup_cleanup import is_invalidated
from lockstep.storage.types import (
    CorruptLog,
    FlushFailed,
    Frame,
    StorageError,
    StorageFull,
    WriteFailed,
)
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.frames import FrameMaker, by_turns, same, whole
from tests.storage.log.joined_logs import (
    OPTIONS,
    BadSector,
    agree,
    fill,
    on_a_simulated_disk,
    small_segments,
    two_checkpoints,
)
from tests.storage.log.memory_log import MemoryLog
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem, Write
from tests.support.cases import each_case


def opened(image: Image, capacity_bytes: int = 1 << 40) -> tuple[DataLog, SimulatedFileSystem]:
    disk = SimulatedFileSystem(image, capacity_bytes)
    return DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), disk


def joined_names(disk: SimulatedFileSystem) -> list[str]:
    return [name for name in disk.list_dir(DIRECTORY) if name.count("-") == 2 and name.endswith(".segment")]


def gone_from(log: DataLog, model: MemoryLog) -> None:
    """Nothing that was cleaned away is back, nothing else is missing."""
    for number in (1, 2, 3):
        expected = whole(model.read_cold(number, 0, 1 << 30, 1 << 40).buffers)
        assert whole(log.read_cold(number, 0, 1 << 30, 1 << 40).buffers) == expected


# -- names that come back --------------------------------------------------------------------------------


@each_case("back", ["all", "the first", "the last"])
@each_case("then", ["cleaned", "freed", "freed in the middle", "joined again"])
def test_former_segments_that_come_back_never_count_again(back: str, then: str) -> None:
    """A power loss may undo their removal long after, where a flush of the directory failed."""
    log, model, make, disk = on_a_simulated_disk(1)
    fill(log, model, make, 1, frames=60)
    fill(log, model, make, 8)
    before = disk.now()
    assert log.join() == 7
    sequence = log.segments()[-1].sequence
    if then == "cleaned":
        log.clean(sequence, by_turns(0))
        model.clean_upto(log.segments()[-1].last_index, by_turns(0))
        for frame in range(1, log.segments()[-1].first_index):
            model._frames[frame - 1] = log.snapshot_frames(frame, frame, 1)[0]
    elif then == "freed":
        assert log.free_deleted_segments(lambda number: 1 << 40) == 3
        log.prepare_now()
    elif then == "freed in the middle":
        segments = [segment for segment in log._table.sealed() if segment.is_joined]
        log._free(segments)
        log.prepare_now()
    else:
        fill(log, model, make, 8)
        assert log.join() == 8
    former = sorted(set(before.files) - set(disk.now().files) | {"0000000000000005.segment"})
    former = [name for name in former if name.endswith((".segment", ".index"))]
    wanted = {"all": former, "the first": former[:2], "the last": former[-2:]}[back]
    image = disk.now()
    last = log.last_index
    files = {**{name: before.files[name] for name in wanted}, **image.files}
    log, disk = opened(Image(files))
    assert log.last_index == last
    if then == "cleaned":
        gone_from(log, model)
    elif then == "joined again":
        agree(log, model)
    else:
        assert not [s for s in log.segments() if s.sequence > 2]
    log.prepare_now()
    again, _ = opened(disk.now())
    assert [s.sequence for s in again.segments()] == [s.sequence for s in log.segments()]


# -- errors ----------------------------------------------------------------------------------------------


class Failing:
    """Fails one operation of a join, by its number."""

    def __init__(self, disk: SimulatedFileSystem, at: int, number: int) -> None:
        self.left = at
        self.number = number
        self.what = ""
        disk.fault = self

    def __call__(self, what: str, name: str) -> OSError | None:
        self.left -= 1
        if self.left:
            return None
        self.what = what
        return OSError(self.number, "failed")


@each_case("number", [errno.EIO, errno.ENOSPC])
def test_an_error_of_any_operation_loses_nothing(number: int) -> None:
    """Each operation of a join fails once; then the process dies, or power goes and any names with it."""
    rng = random.Random(number)
    at, failed = 0, set()
    while True:
        at += 1
        log, model, _, disk = on_a_simulated_disk(4)
        fault = Failing(disk, at, number)
        try:
            log.join()
            ended = False
        except (StorageFull, WriteFailed):
            ended = False
        except (FlushFailed, CorruptLog, OSError) as error:
            ended = isinstance(error, FlushFailed)
        disk.fault = None
        if not fault.what:
            break
        failed.add(fault.what)
        if ended:
            with pytest.raises(FlushFailed):
                log.append([])
        agree(log, model)
        upto = len(disk.record)
        for chance in (None, 0.0, 0.3, 0.7, 1.0):
            lost: dict[int, Any] = {
                each: None for each in disk.pending(upto) if chance is not None and rng.random() < chance
            }
            image = disk.now() if chance is None else disk.crash(upto, lost)
            again, other = opened(image)
            agree(again, model)
            assert again.join() in (0, 3)
            agree(again, model)
            assert len(joined_names(other)) == 1
            agree(opened(other.now())[0], model)
    assert {"create", "write", "write_back", "flush", "rename", "flush_dir", "read", "unlink"} <= failed


def test_a_name_whose_flush_failed_is_never_trusted() -> None:
    """The page cache shows the joined file's name; the disk may have it or not, then and later."""
    log, model, make, disk = on_a_simulated_disk(4)
    before = disk.now()
    disk.fault = lambda what, name: OSError(errno.EIO, "!") if what == "flush_dir" else None
    with pytest.raises(FlushFailed, match="join failed"):
        log.join()
    disk.fault = None
    with pytest.raises(FlushFailed):  # the process stops
        log.flush()
    (name,) = joined_names(disk)
    assert set(before.files) <= set(disk.now().files)
    agree(opened(before)[0], model)  # power is lost, and the name with it
    log, disk = opened(disk.now())  # a start on what the page cache shows
    assert not joined_names(disk)
    agree(log, model)
    assert log.join() == 3
    log.clean(4, by_turns(0))
    model.clean_upto(log.segments()[-1].last_index, by_turns(0))
    assert log._maintenance.state.joins == 1
    # The name comes back all the same: what it names was made void before it was removed.
    writes = [each for each in disk.record if isinstance(each, Write)]
    (inode,) = [each.inode for each in writes if each.data.startswith(VOID_MAGIC)]
    files = {**disk.now().files, name: bytes(disk._inodes[inode].data)}
    other = SimulatedFileSystem(Image({**files}))
    assert is_invalidated(other, DIRECTORY, name)
    fill(log, model, make, 4)
    assert log.join() == 4
    files = {**disk.now().files, name: files[name]}
    again, disk = opened(Image(files))
    gone_from(again, model)
    assert name not in disk.list_dir(DIRECTORY)


def test_another_flush_of_the_directory_may_have_got_the_error() -> None:
    """The system tells of a failed write-back once: to a checkpoint's flush, or a spare file's."""
    log, model, _, disk = on_a_simulated_disk(4)
    real = log._fs.rename

    def rename(old: Path, new: Path) -> None:
        real(old, new)
        disk.fault = lambda what, name: OSError(errno.EIO, "!") if what == "flush_dir" else None
        with pytest.raises(OSError, match="!"):
            log._fs.fsync_dir(DIRECTORY)  # somebody else's
        disk.fault = None

    log._joiner._fs.rename = rename  # type: ignore[method-assign]
    with pytest.raises(FlushFailed, match="another flush"):
        log.join()
    assert [each.sequence for each in log.segments()] == [1, 2, 3, 4]
    agree(log, model)
    again, _ = opened(disk.now())
    assert [each.sequence for each in again.segments()] == [1, 2, 3, 4]
    agree(again, model)


def test_another_flush_has_the_error_and_has_not_counted_it_yet() -> None:
    """Its thread is back from the system call, and waits for the interpreter."""
    log, model, _, disk = on_a_simulated_disk(4)
    rename, flush = log._fs.rename, disk.fsync_dir
    has_error, is_flushed = threading.Event(), threading.Event()
    failures: list[OSError] = []

    def flush_beside() -> None:
        try:
            log._fs.fsync_dir(DIRECTORY)
        except OSError as error:
            failures.append(error)

    other = threading.Thread(target=flush_beside)

    def fsync_dir(path: Path) -> None:
        if threading.current_thread() is other:
            has_error.set()
            is_flushed.wait(0.2)
            raise OSError(errno.EIO, "told to this one")
        flush(path)
        is_flushed.set()

    def rename_and_flush(old: Path, new: Path) -> None:
        rename(old, new)
        other.start()
        assert has_error.wait(5)

    disk.fsync_dir = fsync_dir  # type: ignore[method-assign]
    log._fs.rename = rename_and_flush  # type: ignore[method-assign]
    with pytest.raises(FlushFailed, match="another flush"):
        log.join()
    other.join()
    assert len(failures) == 1 and [each.sequence for each in log.segments()] == [1, 2, 3, 4]
    again, _ = opened(disk.now())
    agree(again, model)


def test_a_flush_that_failed_before_a_join_does_not_keep_it_off() -> None:
    log, model, _, disk = on_a_simulated_disk(4)
    disk.fault = lambda what, name: OSError(errno.EIO, "!") if what == "flush_dir" else None
    with pytest.raises(OSError, match="!"):
        log._fs.fsync_dir(DIRECTORY)
    disk.fault = None
    assert log.join() == 3
    agree(log, model)


def test_a_log_that_has_ended_is_not_joined() -> None:
    log, _, _, _ = on_a_simulated_disk(4)
    log._fail("for a test")
    with pytest.raises(FlushFailed, match="has ended"):
        log.join()
    assert len(log.segments()) == 4


# -- no room ---------------------------------------------------------------------------------------------


def unfinished(segments: int = 4) -> tuple[SimulatedFileSystem, MemoryLog, FrameMaker]:
    """A disk on which a join died right before its switch."""
    log, model, make, disk = on_a_simulated_disk(segments)
    disk.fault = lambda what, name: OSError(errno.EIO, "!") if what == "flush_dir" else None
    with pytest.raises(FlushFailed):
        log.join()
    disk.fault = None
    return disk, model, make


def test_a_half_done_join_on_a_full_disk_opens_and_is_given_up() -> None:
    disk, model, _ = unfinished()
    image = disk.now()
    full = sum(map(len, image.files.values()))
    log, disk = opened(image, capacity_bytes=full + OPTIONS.reserve_bytes + 1000)
    agree(log, model)
    assert not joined_names(disk)
    assert log.join() == 3  # in the room that the half done one gave back
    agree(log, model)


@each_case("number", [errno.ENOSPC, errno.EDQUOT])
def test_where_nothing_can_be_written_a_half_done_join_stays_and_none_is_begun(number: int) -> None:
    """A file system that writes nothing in place, and is full."""
    disk, model, make = unfinished()
    (name,) = joined_names(disk)
    other = SimulatedFileSystem(disk.now())
    other.fault = lambda what, where: (
        OSError(number, "No space left") if what == "write" and where == name else None
    )
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, other)
    agree(log, model)
    assert joined_names(other) == [name] and not log.has_small_neighbours() and log.join() == 0
    fill(log, model, make, 1)
    other.fault = None
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, other)
    assert not joined_names(other) and log.join() == 4
    agree(log, model)


def test_another_error_of_giving_up_a_half_done_join_ends_the_open() -> None:
    disk, model, _ = unfinished()
    other = SimulatedFileSystem(disk.now())
    other.fault = lambda what, where: OSError(errno.EIO, "!") if (what, where[-8:]) == (
        "flush", ".segment") and "-" in where else None  # fmt: skip
    with pytest.raises(OSError, match="!"):
        DataLog.open(DIRECTORY, GROUP, OPTIONS, other)
    other.fault = None
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, other)
    agree(log, model)


# -- rot -------------------------------------------------------------------------------------------------


def damage(log: DataLog, disk: SimulatedFileSystem, index: int, part: str) -> None:
    frame = log._frame_reader.read(index, 0, index)[0]
    assert frame.head is not None
    (name,) = joined_names(disk)
    data = disk._inodes[disk._names[name]].data
    at = data.index(frame.head)
    data[at + (12 if part == "head" else len(frame.head) + 100)] ^= 1
    log._frame_reader._scanned.clear()


def test_a_damaged_frame_of_a_joined_segment_needs_no_other_frame() -> None:
    """Other members may have freed what was joined with it, or not have cleaned it."""
    for part, last in (("batch", 7), ("head", 16)):
        log, model, _, disk = on_a_simulated_disk(8)
        log.join()
        damage(log, disk, 7, part)
        assert log.scrub(8) == (7, last)
        assert log.damage.is_damaged(8)
        assert log.join() == 0
        with pytest.raises(ValueError, match="has frames 1 to 16"):
            log.rewrite_segment(8, model.snapshot_frames(8, 9, 1 << 20)[::-1])
        log.rewrite_segment(8, model.snapshot_frames(7, last, 1 << 20))
        assert log.scrub(8) is None and not log.damage.is_damaged(8)
        agree(log, model)
        agree(opened(disk.now())[0], model)


@each_case("index", [1, 9, 16])
def test_a_sector_that_cannot_be_read_costs_its_own_frame(index: int) -> None:
    """Other members have perhaps no other frame of the joined segment any more."""
    disk = BadSector()
    options = replace(OPTIONS, segment_bytes=128 << 10)
    log, model, make = small_segments(0, disk, options=options)
    for _ in range(8):
        frames = [make.data((1, 2, bytes([number]) * 2000)) for number in range(2)]
        for each in (log, model):
            each.append(frames)
            each.flush()
        log.seal()
    two_checkpoints(log, model)
    assert log.join() == 7
    (name,) = joined_names(disk)
    head = log._frame_reader.read(index, 0, index)[0].head
    assert head is not None
    at = disk._inodes[disk._names[name]].data.index(head) + len(head) + 1000
    log._frame_reader._scanned.clear()
    disk.name, disk.at = name, at
    if index > 1:
        assert [frame.index for frame in log.snapshot_frames(1, 16, 1 << 30)] == list(range(1, index))
    assert log.scrub(8) == (index, index)
    log._frame_reader._scanned.clear()
    log.rewrite_segment(8, model.snapshot_frames(index, index, 1))
    disk.name = ""
    assert log.scrub(8) is None
    agree(log, model)


def test_all_frames_between_two_damaged_ones_are_requested() -> None:
    log, model, _, disk = on_a_simulated_disk(8)
    log.join()
    damage(log, disk, 5, "batch")
    damage(log, disk, 9, "batch")
    assert log.scrub(8) == (5, 9)
    log.rewrite_segment(8, model.snapshot_frames(5, 9, 1 << 20))
    agree(log, model)


def test_a_joined_segment_whose_file_or_header_is_lost_needs_all_of_its_frames() -> None:
    for what in ("header", "EIO", "marker"):
        log, model, _, disk = on_a_simulated_disk(8)
        log.join()
        (name,) = joined_names(disk)
        data = disk._inodes[disk._names[name]].data
        if what != "EIO":
            data[50 if what == "header" else SEGMENT_HEADER_BYTES + 5] ^= 1
        else:
            disk.fault = lambda w, where, name=name: (
                OSError(errno.EIO, "!") if w == "read" and where == name else None
            )
        assert log.scrub(8) == (1, 16)
        disk.fault = None
        log.rewrite_segment(8, model.snapshot_frames(1, 16, 1 << 20))
        assert log.scrub(8) is None
        agree(log, model)


def test_a_repaired_joined_segment_keeps_what_was_cleaned_away_away_and_its_size() -> None:
    log, model, make, disk = on_a_simulated_disk(0)
    fill(log, model, make, 6, frames=20)
    for segment in log.segments():
        log.clean(segment.sequence, lambda entry, _: entry.base_offset % 10 == 0)
    assert log.join() == 5
    before = [whole(log.read_cold(number, 0, 1 << 30, 1 << 40).buffers) for number in (1, 2, 3)]
    frames = model.snapshot_frames(1, 120, 1 << 30)
    own = log.as_cleaned(6, frames)
    assert sum(len(p) for f in own for p in f.payloads) < sum(len(p) for f in frames for p in f.payloads) / 3
    damage(log, disk, 61, "batch")
    assert log.scrub(6) == (61, 61)
    log.rewrite_segment(6, frames[60:61])
    assert [whole(log.read_cold(number, 0, 1 << 30, 1 << 40).buffers) for number in (1, 2, 3)] == before
    # With the index lost as well nobody knows what was cleaned away: that is too much for one segment.
    damage(log, disk, 61, "batch")
    log.drop_indexes(1 << 40)
    log._table._forget_indexes({log._table.sealed()[0].serial})
    log._table.sealed()[0].indexes = None
    with pytest.raises(ValueError, match="cleaned less"):
        log.rewrite_segment(6, frames)
    assert log.as_cleaned(99, frames[:1])[0].payloads == [bytes(p) for p in frames[0].payloads]
    log.rewrite_segment(6, [rewrite_frame(f, lambda entry, _: entry.base_offset % 10 == 0) for f in frames])
    assert [whole(log.read_cold(number, 0, 1 << 30, 1 << 40).buffers) for number in (1, 2, 3)] == before


def test_the_first_joined_segment_may_begin_later() -> None:
    """Its first frames, which nobody has any more, are dead."""
    log, model, _, disk = on_a_simulated_disk(8)
    log.join()
    damage(log, disk, 3, "head")
    assert log.scrub(8) == (3, 16) and log.rewritable(8, later=True)
    frames = model.snapshot_frames(6, 16, 1 << 20)
    starts = {1: 6, 2: 4, 3: 5}
    chain = model.chain_at(5)
    with pytest.raises(ValueError, match="would be lost"):
        log.rewrite_segment(8, frames, chain, lambda number: 0)
    log.rewrite_segment(8, frames, chain, lambda number: starts[number])
    assert log.oldest_index == 6 and log.scrub(8) is None
    log, _ = opened(disk.now())
    assert log.oldest_index == 6
    found: list[Frame] = log.snapshot_frames(1, 16, 1 << 20)
    assert [frame.index for frame in found] == list(range(6, 17)) and all(map(same, found, frames))


def test_a_segment_that_is_corrupt_is_not_joined_and_is_named() -> None:
    log, _, _, disk = on_a_simulated_disk(4)
    disk._inodes[disk._names["0000000000000002.segment"]].data[5000] ^= 1
    with pytest.raises(CorruptLog):
        log.join()
    assert not joined_names(disk) and len(log.segments()) == 4
    assert log.scrub(2) == (3, 4)
    assert log.join() == 1
    assert [each.sequence for each in log.segments()] == [1, 2, 4]


# -- a stopped log ---------------------------------------------------------------------------------------


def test_a_joined_segment_that_is_missing_or_not_below_the_checkpoint_is_damage() -> None:
    log, _, _, disk = on_a_simulated_disk(4)
    log.join()
    (name,) = joined_names(disk)
    image = disk.now()
    left = {n: data for n, data in image.files.items() if n != name}
    damaged, _ = opened(Image(left))
    assert damaged.is_joined(4) and damaged.report.lost_files[0].endswith(f"{name}: the segment is missing")
    left = {n: data for n, data in left.items() if not n.endswith(".index")}
    words = (
        "is missing, or a file into which it was joined with others; it held frames 1 to 8; its index file "
        "is missing or damaged, too; put it back"
    )
    with pytest.raises(CorruptLog, match=f"0000000000000001.segment: the segment {words}"):
        opened(Image(left))
    without = {n: data for n, data in image.files.items() if not n.startswith("checkpoint")}
    with pytest.raises(CorruptLog, match="no checkpoint is whole"):
        opened(Image(without))
    beyond = {**image.files, "0000000000000001-0000000000000009-00000001.segment": image.files[name]}
    with pytest.raises(StorageError):
        opened(Image(beyond))


def test_a_lost_hard_state_is_made_again_over_joined_segments(tmp_path: Path) -> None:
    for half_done in (False, True):
        if half_done:
            disk, model, _ = unfinished()
        else:
            log, model, _, disk = on_a_simulated_disk(4)
            log.join()
        files = {**disk.now().files, "state": bytes(8192)}
        log = DataLog.open(
            DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(Image(files)), salvage=True, salvage_incarnation=7
        )
        sequences = [1, 2, 3, 4] if half_done else [4]
        assert log.report.salvaged_state and [each.sequence for each in log.segments()] == sequences
        agree(log, model)


def test_a_stopped_log_is_verified_and_its_damage_named(tmp_path: Path) -> None:
    log, model, make, disk = on_a_simulated_disk(6)
    log.join()
    fill(log, model, make, 1, frames=60)
    two_checkpoints(log, model)
    (name,) = joined_names(disk)
    for damaged in (False, True):
        if damaged:
            damage(log, disk, 7, "batch")
        directory = tmp_path / str(damaged)
        directory.mkdir()
        for each, data in disk.now().files.items():
            (directory / each).write_bytes(data)
        (directory / "0000000000000003.segment").write_bytes(bytes(100))  # one that has come back
        found = inspect.verify(directory, GROUP)
        assert found.frames == model.last_index and found.is_corrupt is damaged and not found.corruption
        if damaged:
            assert [(each.segment, each.partition) for each in found.damage] == [(6, 1)]
            assert name in found.damage[0].problem
        else:
            indexes = [frame.index for _, frame in inspect.GroupLog(directory, GROUP).frames()]
            assert indexes == list(range(1, model.last_index + 1))


def test_damaged_batches_that_are_deleted_are_dropped_and_those_that_live_are_not() -> None:
    log, model, _, disk = on_a_simulated_disk(8)
    log.join()
    damage(log, disk, 3, "batch")  # partition 1, offset 2: partition 3 has its own in the same frame
    starts = {1: 4, 2: 0, 3: 0}
    for start in (0, 3):
        with pytest.raises(CorruptLog, match="offset 2"):
            log.drop_deleted_damage(8, lambda number, start=start: start)  # type: ignore[misc]
    log.drop_deleted_damage(8, lambda number: starts.get(number, 0))
    assert log.scrub(8) is None
    for partition in (1, 2, 3):
        expected = whole(model.read_cold(partition, starts[partition], 1 << 30, 1 << 40).buffers)
        assert whole(log.read_cold(partition, starts[partition], 1 << 30, 1 << 40).buffers) == expected
    assert log.lsns.of_offset(1, 2) == model.snapshot_frames(3, 3, 1)[0].first_lsn
    damage(log, disk, 9, "head")
    with pytest.raises(CorruptLog):
        log.drop_deleted_damage(8, lambda number: 1 << 40)
    plain, _, _, _ = on_a_simulated_disk(2)
    with pytest.raises(ValueError, match="was not joined"):
        plain.drop_deleted_damage(1, lambda number: 0)


def test_frames_before_an_unreadable_sector_are_not_requested() -> None:
    log, model, _, disk = on_a_simulated_disk(8)
    log.join()
    (name,) = joined_names(disk)
    inode, real = disk._names[name], disk.pread
    frame = log._frame_reader.read(11, 0, 11)[0]
    assert frame.head is not None
    bad = disk._inodes[inode].data.index(frame.head)

    def pread(fd: int, length: int, position: int, /) -> bytes:
        if disk._open[fd] == inode and position <= bad < position + length:
            raise OSError(errno.EIO, "!")
        return real(fd, length, position)

    log._frame_reader._scanned.clear()
    disk.pread = pread  # type: ignore[method-assign]
    with patch("lockstep.storage.log.segment_scan.WINDOW_BYTES", 512):
        found = log.scrub(8)
        assert found is not None and 8 <= found[0] <= 11 and found[1] == 16
        log.rewrite_segment(8, model.snapshot_frames(found[0], 16, 1 << 20))
    disk.pread = real  # type: ignore[method-assign]
    assert log.scrub(8) is None
    agree(log, model)
