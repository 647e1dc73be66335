"""The real file system's own functions: what an error of the system becomes."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from lockstep.storage.log import file_system
from lockstep.storage.log.file_system import RealFileSystem, is_lost
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.segment_pool import SegmentPool

needs_call = pytest.mark.skipif(file_system._SYNC_FILE_RANGE is None, reason="no sync_file_range here")


@needs_call
def test_a_write_back_that_fails_is_reported(tmp_path: Path) -> None:
    fs = RealFileSystem()
    fd = fs.open(tmp_path / "file", create=True)
    fs.pwritev(fd, [b"x" * 10_000], 0)
    fs.write_back(fd, 0, 10_000)
    fs.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        fs.write_back(-1, 0, 10_000)
    assert caught.value.errno == errno.EBADF


@needs_call
def test_a_file_that_has_no_such_call_needs_none() -> None:
    ends = os.pipe()
    try:
        RealFileSystem().write_back(ends[1], 0, 1)  # ESPIPE
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_what_the_device_could_not_take_is_an_error(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(fd: int, position: int, length: int, flags: int) -> int:
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(file_system, "_SYNC_FILE_RANGE", refused)
    with pytest.raises(OSError) as caught:
        RealFileSystem().write_back(3, 0, 1)
    assert caught.value.errno == number


def test_a_file_is_lost_where_it_is_gone_or_cannot_be_read() -> None:
    numbers = (errno.ENOENT, errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOSPC)
    assert [is_lost(OSError(number, "")) for number in numbers] == [True, True, False, False, False]


def test_room_that_cannot_be_reserved_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some C libraries and file systems: then zeros are what reserves it, also where a write waits."""

    def refused(fd: int, offset: int, length: int) -> None:
        raise OSError(number, "")

    size = 64 << 10
    monkeypatch.setattr(os, "posix_fallocate", refused)
    pool = SegmentPool(RealFileSystem(), tmp_path, LogOptions(segment_bytes=size))
    number = errno.EOPNOTSUPP
    assert pool.more_than(0) and pool.filled_bytes == size
    number = errno.ENOSPC
    assert not pool.more_than(1) and pool.failed and pool.is_full
