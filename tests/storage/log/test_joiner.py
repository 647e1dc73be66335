"""Small segments joined: every read as the model's, before, meanwhile and after; and when it is worth it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.storage.log import inspect, joiner
from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.log.index_file import SegmentSummary
from lockstep.storage.log.joiner import plan_groups
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.segment_rewrite import OVERHEAD_BYTES
from lockstep.storage.log.segments import Segment
from lockstep.storage.log.state_file import LogState, decode_slot, encode_slot
from lockstep.storage.types import CorruptLog, FlushFailed, HardState, StorageFull, WriteFailed
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.frames import by_turns, whole
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
from tests.storage.log.simulated_disk import SimulatedFileSystem

# -- what is worth it ----------------------------------------------------------------------------------


def sealed(*ends: int, payload: int = 0, frames: int = 10, rewritten: bool = True) -> list[Segment]:
    """Neighbours whose files end there."""
    found = []
    for at, end in enumerate(ends):
        segment = Segment(at + 1, DIRECTORY / str(at), end, 1, at * frames + 1, 1, at)
        segment.end = end
        segment.written_end = end if rewritten else 0
        segment.tail.index, segment.tail.chain = (at + 1) * frames, at + 1
        index = BatchIndex()
        index.add(at, 1, OVERHEAD_BYTES, payload or end - OVERHEAD_BYTES, 1, 0)
        segment.summary = SegmentSummary.of({1: index})
        found.append(segment)
    return found


def groups(segments: list[Segment], segment_bytes: int = 100_000, but: set[int] | None = None) -> list[Any]:
    return [[each.sequence for each in group] for group in plan_groups(segments, segment_bytes, but or set())]


def test_neighbours_are_joined_as_far_as_they_fit_into_one() -> None:
    assert groups([]) == groups(sealed(9000)) == []
    assert groups(sealed(9000, 9000)) == [[1, 2]]
    assert groups(sealed(*[24_000] * 7)) == [[1, 2, 3, 4], [5, 6, 7]]
    assert groups(sealed(9000, 50_001, 9000, 9000)) == [[3, 4]]
    assert groups(sealed(*[9000] * 5), but={3}) == [[1, 2], [4, 5]]


def test_none_is_written_again_for_little() -> None:
    assert groups(sealed(40_000, 9000)) == groups(sealed(9000, 40_000, 9000)) == []
    assert groups(sealed(50_000, 9000, 9000)) == [[2, 3]]
    assert groups(sealed(7000, 7000, 50_000, 7000)) == [[1, 2]]
    assert groups(sealed(9000, 50_000, 20_000)) == [[1, 2, 3]]
    assert groups(sealed(18_000, 9000)) == [[1, 2]]


def test_a_file_is_written_again_only_a_few_times_however_many_come_after_it() -> None:
    """A new small file after each pass: what has been written stays within a few times what there is."""
    sizes: list[int] = []
    written = added = 0
    for _ in range(600):
        sizes.append(10_000)
        added += 10_000
        while found := groups(sealed(*sizes), 1_000_000):
            for group in reversed(found):
                first, last = group[0] - 1, group[-1]
                size = sum(sizes[first:last]) - OVERHEAD_BYTES * (last - first - 1)
                sizes[first:last] = [size]
                written += size
        assert len(sizes) < 12 + 2 * added / 500_000
    assert written < 8 * added


def test_freed_segments_empty_ones_and_other_chains_are_not_joined_over() -> None:
    for change in ("sequence", "index", "chain", "empty"):
        segments = sealed(*[9000] * 4)
        second = segments[1]
        if change == "sequence":
            second.first_sequence = second.sequence = 7
        elif change == "index":
            second.first_index += 1
        elif change == "chain":
            second.chain = 77
        else:
            second.tail.index = second.first_index - 1
        assert groups(segments) == ([[2, 3, 4]] if change in ("index", "chain") else [[3, 4]])


def test_heads_and_marks_are_counted() -> None:
    """A repair holds the frames of a segment in memory, so a file of heads alone is not filled with them."""
    assert groups(sealed(*[20_000] * 5, payload=1)) == [[1, 2, 3], [4, 5]]
    appended = sealed(*[24_900] * 5, frames=50, rewritten=False)
    assert groups(appended) == [[1, 2, 3, 4], [5]] or len(groups(appended)[0]) == 4
    assert len(groups(sealed(*[27_000] * 5, frames=3000, rewritten=False))[0]) == 2


def test_at_most_so_many_files_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joiner, "MAX_FILES", 3)
    assert groups(sealed(*[5000] * 7)) == [[1, 2, 3], [4, 5, 6]]


# -- joining -------------------------------------------------------------------------------------------


def test_two_hundred_small_segments_become_few(tmp_path: Path) -> None:
    options = LogOptions(
        segment_bytes=256 << 10, tail_cache_bytes=1, spare_segments=1, recent_frames_bytes=1, pool_segments=1
    )
    log, model, make = small_segments(200, RealFileSystem(), tmp_path, options)
    reader = log._table.acquire(100)
    assert reader is not None
    assert log.has_small_neighbours()
    fewer = log.join()
    assert len(log.segments()) == 200 - fewer <= 3 and not log.has_small_neighbours()
    assert log.join() == 0
    files = [path for path in tmp_path.iterdir() if path.suffix == ".segment"]
    assert len(files) <= 3 + 1 + options.spare_segments + options.pool_segments
    agree(log, model)
    assert len(list(log._scan(reader).frames())) == 2  # in the file it has open, whose name is gone
    log._table.release(reader)
    assert reader.fd == -1
    for _ in range(2):
        log.close()
        log = DataLog.open(tmp_path, GROUP, options)
        assert len(log.segments()) == 200 - fewer and not log.report.rebuilt_indexes
        agree(log, model)
    fill(log, model, make, 40)
    assert log.join() > 30
    agree(log, model)
    verdict = inspect.verify(tmp_path, GROUP)
    assert not verdict.is_corrupt and verdict.frames == model.last_index
    log.close()
    for path in tmp_path.glob("*.index"):
        path.unlink()
    log = DataLog.open(tmp_path, GROUP, options)
    agree(log, model)
    assert [frame.index for _, frame in inspect.GroupLog(tmp_path, GROUP).frames()] == list(
        range(1, model.last_index + 1)
    )
    log.close()


def test_joined_segments_are_cleaned_joined_again_scrubbed_and_freed() -> None:
    log, model, make, disk = on_a_simulated_disk(12)
    assert log.join() == 11
    (one,) = log.segments()
    assert one.sequence == 12 and log.scrub(12) is None
    assert log.clean(12, by_turns(0)) > 0
    model.clean_upto(one.last_index, by_turns(0))
    agree(log, model)
    fill(log, model, make, 12)
    assert log.join() == 12
    agree(log, model)
    disk = SimulatedFileSystem(disk.now())
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    agree(log, model)
    assert log.scrub(24) is None
    starts = {1: 1 << 40, 2: 1 << 40, 3: 1 << 40}
    assert log.free_deleted_segments(lambda number: starts.get(number, 0)) == 1
    log.prepare_now()
    assert not [name for name in disk.list_dir(DIRECTORY) if "-" in name and name.endswith(".index")]
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    assert log.segments() == [] and log.last_index == model.last_index


def test_a_joined_segment_freed_behind_one_that_stays_leaves_one_freed_file() -> None:
    log, model, make, disk = on_a_simulated_disk(0)
    made = make.data((9, 1, b"stays"))
    for each in (log, model):
        each.append([made])
        each.flush()
    log.prepare_now()
    log.seal()
    fill(log, model, make, 1, frames=60)  # too large to be joined
    fill(log, model, make, 6)
    assert log.join() == 5
    assert log.free_deleted_segments(lambda number: 0 if number == 9 else 1 << 40) == 2
    log.prepare_now()
    assert [name for name in disk.list_dir(DIRECTORY) if name.endswith(".freed")] == [
        "0000000000000002-0000000000000008.freed"
    ]
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    assert [each.sequence for each in log.segments()] == [1]
    assert whole(log.read_cold(9, 0, 1 << 20, 1).buffers).endswith(b"stays")


def test_what_is_above_the_older_checkpoint_or_known_to_be_damaged_stays_as_it_is() -> None:
    log, model, make, _ = on_a_simulated_disk(6)
    for _ in range(3):
        made = make.data((1, 1, b"new"))
        for each in (log, model):
            each.append([made])
            each.flush()
        log.prepare_now()
        assert log.seal()
    log.damage.note_frames(log._table.sealed()[2], 5, 6, "for a test")
    assert log.join() == 3
    assert [each.sequence for each in log.segments()] == [2, 3, 6, 7, 8, 9]
    agree(log, model)
    log.damage.forget(3)
    two_checkpoints(log, model)
    assert log.join() == 5
    agree(log, model)


def test_a_partition_that_is_closed_has_no_rows_in_what_is_joined() -> None:
    log, _, _, _ = on_a_simulated_disk(4)
    for segment in log.segments():
        log.clean(segment.sequence, lambda entry, _: entry.partition != 3, is_closed=lambda n: n == 3)
    log.forget_partition(3)
    assert log.join(is_closed=lambda number: number == 3) == 3
    assert [share.local_id for share in log.segments()[0].partitions()] == [1, 2]
    assert log.first_offset(3) is None and log.first_offset(1) == 0


def test_a_pass_ends_after_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joiner, "MAX_FILES", 2)
    log, model, _, _ = on_a_simulated_disk(30)
    assert log.join() == joiner.MAX_GROUPS
    agree(log, model)


def test_what_is_freed_or_cleaned_while_it_is_being_joined_is_left_alone() -> None:
    for what in ("free", "free below", "clean", "give up"):
        log, _, _, disk = on_a_simulated_disk(5)
        names = set(disk.list_dir(DIRECTORY))
        calls = 0

        def meanwhile(_: int, log: DataLog = log, what: str = what) -> None:
            nonlocal calls
            calls += 1
            if calls == 4 and what == "free":
                assert log.free_deleted_segments(lambda number: 4) == 2
            elif calls == 4 and what == "free below":
                assert log.free_below(4, 0) == 1
            elif calls == 4 and what == "give up":
                raise InterruptedError
            elif calls == 4:
                log._segment_rewriter.lock.release()  # another thread would wait: a test needs no thread
                log.clean(2, by_turns(0))
                log._segment_rewriter.lock.acquire()

        if what == "give up":
            with pytest.raises(InterruptedError):
                log.join(meanwhile)
        else:
            assert log.join(meanwhile) == 0
        assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".tmp")]
        assert what != "give up" or set(disk.list_dir(DIRECTORY)) == names
        assert log.join() > 0
        DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))


def test_nothing_is_freed_while_the_switch_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    log, model, _, _ = on_a_simulated_disk(5)
    real = log._maintenance.save_join_count

    def save(number: int) -> None:
        assert log.free_deleted_segments(lambda number: 1 << 40) == 0
        real(number)

    monkeypatch.setattr(log._maintenance, "save_join_count", save)
    assert log.join() == 4
    agree(log, model)
    assert log.free_deleted_segments(lambda number: 1 << 40) == 1


def test_others_get_their_turn_while_former_names_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop truncates: it must not wait until thousands of names are gone."""
    log, model, make, disk = on_a_simulated_disk(12)
    more = make.data((1, 1, b"y"))
    log.append([more])
    log.flush()
    left = []

    def pause(_: float) -> None:
        loop = threading.Thread(target=log.truncate, args=(more.index - 1,), daemon=True)
        loop.start()
        loop.join(10)
        assert not loop.is_alive() and log.last_index == more.index - 1
        left.append(len([name for name in disk.list_dir(DIRECTORY) if name.endswith(".index")]))

    monkeypatch.setattr("lockstep.storage.log.background_maintenance.time.sleep", pause)
    assert log.join() == 11
    assert left == [8, 4]
    agree(log, model)
    agree(DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now())), model)


def test_a_log_that_is_closed_while_former_names_are_removed_removes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another log may be made in that directory, with segments of the same names."""
    log, model, _, disk = on_a_simulated_disk(12)
    monkeypatch.setattr("lockstep.storage.log.background_maintenance.time.sleep", lambda _: log.close())
    assert log.join() == 11
    assert "0000000000000005.segment" in disk.list_dir(DIRECTORY)
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    agree(log, model)
    log.prepare_now()
    assert "0000000000000005.segment" not in disk.list_dir(DIRECTORY) and len(log.segments()) == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_segment_that_cannot_be_read_keeps_no_other_from_being_joined(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with the file that is written: the disk is not full."""
    monkeypatch.setattr(joiner, "MAX_FILES", 4)
    disk = BadSector()
    log, model, _ = small_segments(12, disk)
    disk.name, disk.at = "0000000000000002.segment", 4608
    if not is_lost:
        data = disk._inodes[disk._names[disk.name]].data
        data[5000] ^= 1
        disk.name = ""
    with pytest.raises((OSError, CorruptLog), match="bad sector" if is_lost else "segment byte") as raised:
        log.join()
    log.reading_failed(raised.value)
    assert log.corruption_found and [each.sequence for each in log.segments()] == [1, 2, 3, 4, 8, 12]
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".tmp")]
    assert log.scrub(2) == (3, 4)
    assert log.join() > 0  # the neighbours behind it
    assert [each.sequence for each in log.segments()][:2] == [1, 2]
    disk.name = ""
    log.rewrite_segment(2, model.snapshot_frames(3, 4, 1 << 20))
    agree(log, model)


@pytest.mark.parametrize("operation", ["create", "write", "write_back", "flush"])
def test_a_joined_file_that_cannot_be_written_is_no_full_disk_and_no_corruption(operation: str) -> None:
    log, model, _, disk = on_a_simulated_disk(4)
    disk.fault = lambda what, name: (
        OSError(errno.EIO, "Input/output error") if what == operation and ".join.tmp" in name else None
    )
    with pytest.raises(WriteFailed, match=r"join\.tmp.*Input/output error") as raised:
        log.join()
    log.reading_failed(raised.value)
    assert not log.corruption_found and not log.disk_full
    disk.fault = None
    assert log.join() == 3
    agree(log, model)


def test_an_error_that_is_no_corruption_ends_the_pass_as_it_is() -> None:
    log, model, _, disk = on_a_simulated_disk(4)
    disk.fault = lambda what, name: OSError(errno.ENOMEM, "no memory") if what == "read" else None
    with pytest.raises(OSError, match="no memory") as raised:
        log.join()
    log.reading_failed(raised.value)
    assert not log.corruption_found
    disk.fault = None
    assert log.join() == 3
    agree(log, model)


# -- readers -------------------------------------------------------------------------------------------


def test_a_read_that_meets_a_join_gives_nothing_twice_and_leaves_nothing_out() -> None:
    for joined_at in range(1, 6):
        log, model, _, _ = on_a_simulated_disk(5)
        real, calls = log._table.acquire, 0

        def acquire(sequence: int, log: DataLog = log, at: int = joined_at, real: Any = real) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                log._table.acquire = real  # type: ignore[method-assign]
                assert log.join() == 4
            return real(sequence)

        log._table.acquire = acquire  # type: ignore[method-assign]
        offset, got = 0, b""
        while offset < 10:
            data = whole(log.read_cold(3, offset, 1 << 20, 10).buffers)
            got += data
            offset += data.count(b"\2\1\1\1") or len(data) // 121
        assert got == whole(model.read_cold(3, 0, 1 << 20, 10).buffers)
        assert calls >= joined_at


def read_all(log: DataLog, model: MemoryLog) -> Iterator[object]:
    """Differences from the model in one round of reads."""
    for partition in (1, 2, 3):
        total = log.partition_bytes(partition, 0)
        if total != model.partition_bytes(partition, 0):
            yield "bytes", partition, total
        for offset in (0, 7, 31, 60):
            expected = whole(model.read_cold(partition, offset, 1 << 30, 1 << 40).buffers)
            got = whole(log.read_cold(partition, offset, 1 << 30, 1 << 40).buffers)
            if not got or not expected.startswith(got):
                yield partition, offset, len(got)
        found = log.timestamp_lookup(partition, 1050, 0, 1 << 40)
        if found is None or found.max_timestamp < 1050:
            yield "time", partition
    if log.snapshot_frames(31, 40, 1 << 20)[0].index != 31:
        yield "frames"


def test_readers_in_other_threads_never_see_a_join(tmp_path: Path) -> None:
    log, model, make = small_segments(60, RealFileSystem(), tmp_path)
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            wrong.extend(read_all(log, model))

    for _ in range(6):
        stop.clear()
        threads = [threading.Thread(target=read) for _ in range(3)]
        for each in threads:
            each.start()
        stop.wait(0.02)
        assert log.join() > 0
        stop.wait(0.05)
        stop.set()
        for each in threads:
            each.join()
        assert wrong == []
        fill(log, model, make, 12)
    agree(log, model)
    log.close()


# -- errors of the switch ------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "ends"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_rename_that_failed_may_have_been_made(
    number: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network's file system does, and tells of an error: its number must not be another file's, too. Where
    there was no room nothing was made."""
    log, model, make, disk = on_a_simulated_disk(4)
    real = log._fs.rename

    def rename(old: Path, new: Path) -> None:
        if ends:
            real(old, new)
        raise OSError(number, "failed")

    monkeypatch.setattr(log._fs, "rename", rename)
    with pytest.raises(FlushFailed if ends else StorageFull, match="failed"):
        log.join()
    monkeypatch.undo()
    if not ends:
        fill(log, model, make, 1)
        assert log.join() == 4
        agree(log, model)
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    agree(again, model)


def test_the_removal_of_joined_segments_is_flushed_and_its_failure_ends_the_log() -> None:
    """The error may be about a checkpoint's name, and nobody else is told of it."""
    log, model, _, disk = on_a_simulated_disk(4)
    removed: list[str] = []

    def fault(what: str, name: str) -> OSError | None:
        if what == "unlink":
            removed.append(name)
        return OSError(errno.EIO, "lost") if what == "flush_dir" and removed else None

    disk.fault = fault
    with pytest.raises(FlushFailed, match="lost"):
        log.join()
    assert "0000000000000004.segment" in removed
    disk.fault = None
    for image in (disk.now(), disk.crash(len(disk.record), {})):
        agree(DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(image)), model)


# -- versions ------------------------------------------------------------------------------------------


def test_a_version_without_joins_refuses_a_directory_that_has_some() -> None:
    log, _, _, disk = on_a_simulated_disk(3)
    formats = []
    for _ in range(2):
        fd = disk.open(DIRECTORY / "state")
        slot = decode_slot(disk.pread(fd, 4096, 0))
        assert slot is not None
        formats.append(slot[0])
        log.join()
    assert formats == [1, 2]
    decoded = decode_slot(encode_slot(3, 1, LogState(HardState(), joins=5)))
    assert decoded is not None and decoded[0] == 2 and decoded[3].joins == 5
