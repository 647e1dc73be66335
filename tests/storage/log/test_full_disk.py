"""No space: refused before anything is half done, reads go on, and room is found again without a restart."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Checkpoint, FlushFailed, Frame, HardState, StorageFull, WriteFailed
from tests.storage.log.crash_world import DIRECTORY, GROUP, OPTIONS
from tests.storage.log.frames import FrameMaker, same, whole
from tests.storage.log.simulated_disk import SimulatedFileSystem
from tests.support.cases import each_case


def fill_up(log: DataLog, make: FrameMaker) -> list[bytes]:
    """Append until there is no room; the payloads."""
    payloads = []
    while log.has_space_for(1000):
        frame = make.data((1, 1, b"x" * 800))
        log.append([frame])
        log.flush()
        payloads.append(bytes(frame.payloads[0]))
    return payloads


def test_a_full_disk_refuses_appends_serves_reads_and_recovers() -> None:
    disk = SimulatedFileSystem(capacity_bytes=70_000)
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    log.prepare_now()
    payloads = fill_up(log, make)
    assert log.disk_full and "No space" in log.disk_error and len(payloads) > 20
    assert whole(log.read_cold(1, 0, 1 << 30, 1 << 40).buffers) == b"".join(payloads)
    assert log.has_space_for(200, 1, reserved=True)
    log.append([make.no_op()])
    log.flush()
    index = log.last_index
    ahead = make.copy()
    with pytest.raises(StorageFull):
        for _ in range(40):
            log.append([ahead.data((1, 1, b"y" * 800))])
            make = ahead.copy()
    assert log.last_index == make.index >= index
    log.retry_space()
    assert log.disk_full and not log.has_space_for(1000)
    disk.capacity_bytes = 1 << 20
    log.retry_space()
    assert not log.disk_full and log.has_space_for(1000)
    more = [make.data((1, 1, b"z" * 800)) for _ in range(30)]
    log.append(more)
    log.flush()
    log.close()
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    assert again.last_index == make.index
    assert all(map(same, list(again.replay())[-30:], more))


def test_no_room_for_the_larger_file_of_another_members_frame() -> None:
    disk = SimulatedFileSystem(capacity_bytes=70_000)
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    log.prepare_now()
    small = make.data((1, 1, b"small"))
    log.append([small])
    large = make.data((1, 1, bytes(100_000)))
    for _ in range(2):
        with pytest.raises(StorageFull, match="No space"):
            log.append([large])
        assert log.disk_full and log.last_index == 1
        log.retry_space()
    disk.capacity_bytes = 1 << 20
    log.append([large])
    log.flush()
    assert log.last_index == 2
    log.close()
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    assert all(map(same, again.replay(), [small, large]))


def test_no_room_for_a_checkpoint_leaves_the_old_one() -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    for index in (1, 2):
        log.append([make.data((1, 1, b"x"))])
        log.flush()
        if index == 2:
            disk.fault = lambda what, name: (
                OSError(errno.ENOSPC, "No space left on device")
                if (what, name) == ("write", "checkpoint.tmp")
                else None
            )
        made = Checkpoint(index, 1, log.next_lsn, log.chain, 0, {"a": b"%d" % index})
        if index == 1:
            log.write_checkpoint(made)
        else:
            with pytest.raises(StorageFull, match="checkpoint at index 2"):
                log.write_checkpoint(made)
    assert log.disk_full
    while not log.segments():
        log.append([make.data((1, 1, b"x" * 3000))])
    log.flush()
    assert log.sealed_since_checkpoint
    refused = Checkpoint(log.last_index, 1, log.next_lsn, log.chain, 0, {})
    with pytest.raises(StorageFull):
        log.write_checkpoint(refused)
    assert not log.sealed_since_checkpoint, "not again with every commit"
    disk.fault = None
    log.retry_space()
    assert not log.disk_full and log.sealed_since_checkpoint
    assert "checkpoint.tmp" not in disk.list_dir(DIRECTORY)
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    assert again.checkpoint is not None and again.checkpoint.index == 1


@each_case("what", ["write", "flush", "rename"])
def test_a_checkpoint_that_cannot_be_written_beside_free_room_is_no_full_disk(what: str) -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    while not log.segments():
        log.append([make.data((1, 1, b"x" * 3000))])
    log.flush()
    made = Checkpoint(log.last_index, 1, log.next_lsn, log.chain, 0, {})
    disk.fault = lambda done, name: (
        OSError(errno.EIO, "Input/output error") if done == what and "checkpoint" in name else None
    )
    with pytest.raises(WriteFailed, match=r"checkpoint at index \d+: .*Input/output error"):
        log.write_checkpoint(made)
    assert not log.disk_full and not log.disk_failures
    assert not log.sealed_since_checkpoint, "not again with every commit"
    disk.fault = None
    log.retry_space()
    assert log.sealed_since_checkpoint
    log.write_checkpoint(made)
    disk.fault = lambda done, name: OSError(errno.EDQUOT, "Disk quota exceeded") if done == what else None
    with pytest.raises(StorageFull, match="quota"):
        log.write_checkpoint(made)
    assert log.disk_full


def test_no_room_for_an_index_file_keeps_the_index_in_memory() -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    disk.fault = lambda what, name: (
        OSError(errno.ENOSPC, "No space left on device") if name.endswith(".index") else None
    )
    payloads = []
    for _ in range(60):
        frame = make.data((1, 1, b"x" * 800))
        log.append([frame])
        payloads.append(bytes(frame.payloads[0]))
    log.flush()
    assert log.disk_full and log.has_space_for(1000)
    assert whole(log.read_cold(1, 0, 1 << 30, 1 << 40).buffers) == b"".join(payloads)
    disk.fault = None
    log.retry_space()
    assert not log.disk_full and any(n.endswith(".index") for n in disk.list_dir(DIRECTORY))
    assert whole(log.read_cold(1, 0, 1 << 30, 1 << 40).buffers) == b"".join(payloads)


def test_files_that_save_work_later_go_as_long_as_an_installation_finds_no_room() -> None:
    disk = SimulatedFileSystem()
    options = replace(OPTIONS, spare_segments=3, pool_segments=5)
    log, make = DataLog.open(DIRECTORY, GROUP, options, disk), FrameMaker()
    log.prepare_now()
    while len(log.segments()) < 4:
        log.append([make.data((1, 1, b"x" * 800))])
    log.flush()
    for _ in range(2):
        log.write_checkpoint(Checkpoint(log.last_index, 1, log.next_lsn, log.chain, 0, {}))
        log.append([make.data((1, 1, b"x" * 800))])
        log.flush()

    def files() -> int:
        return sum(name.endswith(".segment") for name in disk.list_dir(DIRECTORY))

    log.yield_room(True)
    assert (files(), len(log.segments())) == (8, 4), "what is ready stays: appends may count on it"
    assert log.free_deleted_segments(lambda _: 1 << 62) == 4
    assert files() == 1 + 3
    while len(log.segments()) < 4:
        log.append([make.data((1, 1, b"x" * 800))])
    assert files() == 4 + 1 + 1, "one is ready"
    log.yield_room(False)
    assert files() == 4 + 1 + 3
    again = DataLog.open(DIRECTORY, GROUP, options, SimulatedFileSystem(disk.now()))
    assert again.last_index == log.last_index


def test_what_is_ready_is_not_used_up_by_sealing_meanwhile() -> None:
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem()), FrameMaker()
    log.prepare_now()
    log.append([make.data((1, 1, b"x" * 800))])
    log.flush()
    log.yield_room(True)
    assert not log.seal()
    log.yield_room(False)
    assert log.seal()


def test_a_log_that_is_closed_touches_no_file_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem())
    log.prepare_now()
    log.close()
    monkeypatch.setattr(log._maintenance, "run_once", lambda: pytest.fail("its files may be others' by now"))
    log.yield_room(True)
    log.retry_space()


def test_a_write_over_more_segments_than_are_kept_ready_is_tried_again_when_there_is_room() -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    log.prepare_now()
    disk.fault = lambda what, name: OSError(errno.ENOSPC, "full") if what == "allocate" else None
    frames = [make.data((1, 1, b"x" * 5000)) for _ in range(9)]  # in four files; one is ready
    with pytest.raises(StorageFull):
        log.append(frames)
    disk.fault = None
    log.retry_space()
    log.append(frames)
    log.flush()
    assert log.last_index == make.index and len(log.segments()) >= 3


def test_a_segment_that_cannot_be_written_beside_free_room_is_no_full_disk() -> None:
    """Rejected as on a full disk, and tried again; but named after its error."""
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    log.prepare_now()
    disk.fault = lambda what, name: (
        OSError(errno.EIO, "Input/output error") if (what, name) == ("allocate", "segment.tmp") else None
    )
    while log.has_space_for(1000):
        log.append([make.data((1, 1, b"x" * 800))])
    log.flush()
    error = log.write_error
    assert "0000000000000003.segment: [Errno 5] Input/output error" in error
    assert not log.disk_full and not log.disk_error and not log.disk_failures
    ahead = make.copy()
    with pytest.raises(WriteFailed, match=r"the next segment cannot be written: .*Input/output error"):
        for _ in range(40):
            log.append([ahead.data((1, 1, b"y" * 800))])
            make = ahead.copy()
    log.retry_space()
    assert log.write_error == error and not log.has_space_for(1000)
    disk.fault = None
    log.retry_space()
    assert not log.write_error and log.has_space_for(1000)
    log.append([make.data((1, 1, b"z" * 800))])
    log.flush()
    disk.fault = lambda what, name: (
        OSError(errno.EDQUOT, "Disk quota exceeded") if what == "allocate" else None
    )
    while log.has_space_for(1000):
        log.append([make.data((1, 1, b"x" * 800))])
    assert log.disk_full and "quota" in log.disk_error and log.disk_failures and not log.write_error


@each_case("what", ["allocate", "flush"])
def test_a_larger_segment_that_cannot_be_made_beside_free_room_is_no_full_disk(what: str) -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    log.prepare_now()
    large = make.data((1, 1, bytes(100_000)))
    disk.fault = lambda done, name: OSError(errno.EROFS, "Read-only file system") if done == what else None
    with pytest.raises(WriteFailed, match="Read-only"):
        log.append([large])
    assert not log.disk_full and "Read-only" in log.write_error
    disk.fault = None
    log.retry_space()
    log.append([large])
    assert log.last_index == 1 and not log.write_error


@each_case("what", ["flush", "write", "unlink"])
def test_freeing_that_fails_beside_free_room_is_no_full_disk(what: str) -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    log.prepare_now()
    while len(log.segments()) < 4:
        log.append([make.data((1, 1, b"x" * 800))])
        log.flush()
        if log.sealed_since_checkpoint:
            log.write_checkpoint(Checkpoint(log.last_index, 1, log.next_lsn, log.chain, 0, {}))
    disk.fault = lambda done, name: OSError(errno.EIO, "Input/output error") if done == what else None
    assert log.free_deleted_segments(lambda _: 1 << 62) > 0
    assert "Input/output error" in log.write_error and not log.disk_full and not log.disk_failures
    disk.fault = None
    log.retry_space()
    assert not log.write_error


def test_half_an_index_file_takes_no_room() -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    disk.fault = lambda what, name: (
        OSError(errno.ENOSPC, "No space left on device")
        if (what, name.endswith(".index")) == ("write", True)
        else None
    )
    while len(log.segments()) < 2:
        log.append([make.data((1, 1, b"x" * 800))])
    log.flush()
    assert log.disk_full and not any(n.endswith(".index") for n in disk.list_dir(DIRECTORY))


def test_one_index_file_that_cannot_be_written_holds_up_no_other() -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    bad: set[str] = set()

    def fault(what: str, name: str) -> OSError | None:
        if name.endswith(".index") and not bad:
            bad.add(name)
        return OSError(errno.EUCLEAN, "Structure needs cleaning") if name in bad else None

    disk.fault = fault
    while len(log.segments()) < 4:
        log.append([make.data((1, 1, b"x" * 800))])
    log.flush()
    assert len(bad) == 1 and "Structure needs cleaning" in log.write_error
    assert not log.disk_full and not log.disk_failures, "no full disk"
    assert len([n for n in disk.list_dir(DIRECTORY) if n.endswith(".index")]) >= 2
    assert not bad & set(disk.list_dir(DIRECTORY))


def test_deleted_segments_give_their_room_back_though_no_index_file_finds_any() -> None:
    disk = SimulatedFileSystem(capacity_bytes=120_000)
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    disk.fault = lambda what, name: (
        OSError(errno.ENOSPC, "No space left on device") if name.endswith(".index") else None
    )
    log.prepare_now()
    while log.has_space_for(1000):
        log.append([make.data((1, 1, b"x" * 800))])
        log.flush()
        if log.sealed_since_checkpoint:
            log.write_checkpoint(Checkpoint(log.last_index, 1, log.next_lsn, log.chain, 0, {}))
    log.retry_space()
    assert log.disk_full and not log.has_space_for(1000)
    assert log.free_deleted_segments(lambda number: 1 << 40) > 2
    log.retry_space()
    assert log.has_space_for(1000)
    log.append([make.data((1, 1, b"y" * 800))])
    log.flush()


@each_case("what", ["flush", "write"])
def test_a_failed_flush_or_write_is_final(what: str) -> None:
    disk = SimulatedFileSystem()
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    log.append([make.data((1, 1, b"x"))])
    log.flush()
    disk.fault = lambda asked, name: OSError(errno.EIO, "I/O error") if asked == what else None

    def commit() -> None:
        log.append([make.data((1, 1, b"y"))])
        log.flush()

    with pytest.raises(FlushFailed, match="I/O error"):
        commit()
    disk.fault = None
    with pytest.raises(FlushFailed):
        log.flush()
    with pytest.raises(FlushFailed):
        log.append([make.data((1, 1, b"z"))])
    assert log.flushed_index == 1


def test_hard_state_that_cannot_be_flushed_is_final() -> None:
    disk = SimulatedFileSystem()
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    disk.fault = lambda what, name: OSError(errno.EIO, "I/O error") if what == "flush" else None
    with pytest.raises(FlushFailed, match="hard state"):
        log.save_hard_state(HardState(3, 1, 1))


def test_a_new_directory_without_space_is_reported() -> None:
    disk = SimulatedFileSystem(capacity_bytes=1 << 20)
    with pytest.raises(StorageFull):
        DataLog.open(DIRECTORY, GROUP, LogOptions(), disk)
    assert not disk._open, "who tries every second must not run out of descriptors"


def test_room_is_promised_only_for_what_fits() -> None:
    disk = SimulatedFileSystem(capacity_bytes=50_000)
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk), FrameMaker()
    pending = 0
    frames: list[Frame] = []
    while log.has_space_for(pending + 500, len(frames) + 1):
        frames.append(make.data((1, 1, b"x" * 479)))
        pending += 500
    log.append(frames)
    log.flush()
    assert log.last_index == len(frames) > 20


def test_spare_files_of_which_a_copy_made_holes_get_their_room(tmp_path: Path) -> None:
    """Else the disk could be full when a write is about to use one, and the node would end."""
    options = LogOptions(segment_bytes=64 << 10)
    log, make = DataLog.open(tmp_path, GROUP, options), FrameMaker()
    log.prepare_now()
    log.append([make.data((1, 1, b"x"))])
    log.flush()
    log.close()
    *_, spare = sorted(tmp_path.glob("*.segment"))
    os.truncate(spare, 0)
    os.truncate(spare, options.segment_bytes)
    assert spare.stat().st_blocks == 0
    again = DataLog.open(tmp_path, GROUP, options)
    assert again.last_index == make.index and again._pool.ready_count == 2
    assert spare.stat().st_blocks * 512 >= options.segment_bytes
    again.close()


def test_spare_files_for_which_there_is_no_room_go() -> None:
    disk = SimulatedFileSystem()
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    log.prepare_now()
    log.close()
    disk.fault = lambda what, name: OSError(errno.ENOSPC, "full") if what == "allocate" else None
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert again._pool.ready_count == 0 and len(disk.list_dir(DIRECTORY)) < 4
