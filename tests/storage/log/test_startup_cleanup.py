"""Joined files that do not count are made void, for good; what only looks like it is damage."""

from __future__ import annotations

import errno

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, VOID_MAGIC, encode_void_header
from lockstep.storage.log.startup_cleanup import is_invalidated
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.joined_logs import OPTIONS, agree, on_a_simulated_disk
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem
from tests.storage.log.test_join_faults import joined_names, opened, unfinished
from tests.support.cases import each_case


def test_a_void_header_is_of_one_name() -> None:
    name = "0000000000000001-0000000000000004-00000001.segment"
    other = name.replace("4", "5")
    header = encode_void_header(name)
    assert header.startswith(VOID_MAGIC) and header != encode_void_header(other)
    disk = SimulatedFileSystem(Image({name: header.ljust(SEGMENT_HEADER_BYTES, b"\0"), other: header}))
    assert is_invalidated(disk, DIRECTORY, name) and not is_invalidated(disk, DIRECTORY, other)


@each_case("former", [False, True])
def test_a_page_of_zeros_does_not_make_a_joined_file_void(former: bool) -> None:
    """It counts, so its loss is damage, also where the names of the former segments have come back."""
    log, _, _, disk = on_a_simulated_disk(4)
    before = disk.now().files if former else {}
    assert log.join() == 3
    (name,) = joined_names(disk)
    data = disk.now().files[name]
    zeroed = bytes(SEGMENT_HEADER_BYTES) + data[SEGMENT_HEADER_BYTES:]
    damaged, _ = opened(Image({**before, **disk.now().files, name: zeroed}))
    assert damaged.is_joined(4) and damaged.damage.is_damaged(4)
    problem = f"{name} byte 0: the segment header does not verify"
    assert damaged.report.lost_files[0].endswith(problem)


def test_a_joined_file_that_cannot_be_read_is_not_void() -> None:
    log, _, _, disk = on_a_simulated_disk(4)
    log.join()
    (name,) = joined_names(disk)
    for number in (errno.EIO, errno.EMFILE):
        disk.fault = lambda what, where, number=number: OSError(number, "!") if what == "read" else None
        if number == errno.EIO:
            assert not is_invalidated(disk, DIRECTORY, name)
        else:
            with pytest.raises(OSError, match="!"):
                is_invalidated(disk, DIRECTORY, name)


@each_case("what", ["unlink", "flush_dir"])
def test_no_room_to_remove_a_void_file_keeps_no_log_from_opening(what: str) -> None:
    """A file system that writes names elsewhere first, and is full."""
    half_done, model, _ = unfinished()
    disk = SimulatedFileSystem(half_done.now())
    (name,) = joined_names(disk)
    begun = False

    def fault(operation: str, where: str) -> OSError | None:
        nonlocal begun
        begun = begun or (operation == "flush" and where == name)
        is_next = begun and operation == what and (what == "flush_dir" or where == name)
        return OSError(errno.ENOSPC, "No space left") if is_next else None

    disk.fault = fault
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    agree(log, model)
    assert log.join() == 0
    disk.fault = None
    log, _ = opened(disk.now())
    assert log.join() == 3
    agree(log, model)
