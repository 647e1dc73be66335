"""Joins, cleanings and repairs that find no room, or whose disk cannot read or write: each says which."""

from __future__ import annotations

import errno

import pytest

from lockstep.storage.types import StorageFull
from tests.storage.log.crash_world import DIRECTORY
from tests.storage.log.frames import by_turns
from tests.storage.log.joined_logs import OPTIONS, on_a_simulated_disk
from tests.storage.log.joined_logs import agree as agree_joined
from tests.storage.log.test_segment_compaction import agree, two_logs


def test_nothing_is_joined_while_the_disk_is_full() -> None:
    log, _, _, disk = on_a_simulated_disk(4)
    disk.capacity_bytes = disk.used_bytes()
    log._pool.take()
    log.prepare_now()
    assert log.disk_full and not log.has_small_neighbours() and log.join() == 0


def test_a_join_that_finds_no_room_writes_nothing_and_is_made_later() -> None:
    twin, _, _, _ = on_a_simulated_disk(8)
    assert twin.join() == 7
    file = twin.segments()[0].total_bytes
    log, model, _, disk = on_a_simulated_disk(8)
    before = len(disk.record)
    for room in (0, file - 1, file + OPTIONS.reserve_bytes - 1):
        disk.capacity_bytes = disk.used_bytes() + room
        assert not log.has_small_neighbours() and log.join() == 0
    assert len(disk.record) == before and not log.disk_full
    agree_joined(log, model)
    disk.capacity_bytes = disk.used_bytes() + file + OPTIONS.reserve_bytes + 1000
    assert log.join() == 7
    agree_joined(log, model)


def test_a_join_leaves_the_room_that_the_next_segment_needs() -> None:
    """There is room for the joined file, or for the segment that appends wait for, not for both."""
    log, model, _, disk = on_a_simulated_disk(8)
    assert log._pool.take() is not None and log._pool.missing_bytes == OPTIONS.segment_bytes
    disk.capacity_bytes = disk.used_bytes() + OPTIONS.segment_bytes + OPTIONS.reserve_bytes
    assert log.join() == 0
    log.prepare_now()
    assert not log._pool.missing_bytes and not log.disk_full
    disk.capacity_bytes += OPTIONS.segment_bytes
    assert log.join() == 7
    agree_joined(log, model)


def test_room_that_goes_while_segments_are_joined_leaves_all_as_it_was() -> None:
    log, model, _, disk = on_a_simulated_disk(8)

    def throttle(_: int) -> None:
        disk.capacity_bytes = disk.used_bytes()

    with pytest.raises(StorageFull):
        log.join(throttle)
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".tmp")]
    agree_joined(log, model)
    disk.capacity_bytes = 1 << 40
    assert log.join() == 7


@pytest.mark.parametrize("reading", [1, 2])
def test_a_sector_that_is_lost_before_the_second_reading_is_no_full_disk(reading: int) -> None:
    """A cleaning reads what it judges, and again what it keeps. Either error is the segment's."""
    log, model, disk = two_logs()
    sequence = log.segments()[1].sequence
    headers_read = 0

    def bad_sector(what: str, name: str) -> OSError | None:
        nonlocal headers_read
        if what != "read" or name != f"{sequence:016d}.segment":
            return None
        headers_read += 1
        return OSError(errno.EIO, "bad sector") if headers_read > 2 * (reading - 1) else None

    disk.fault = bad_sector
    with pytest.raises(OSError, match="bad sector") as raised:
        log.clean(sequence, by_turns(0))
    assert headers_read == 2 * (reading - 1) + 1, "the header, and the frames in one window"
    disk.fault = None
    log.reading_failed(raised.value)
    assert log.corruption_found and not log.disk_full
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".tmp")]
    agree(log, model)


def test_a_segment_whose_new_file_finds_no_room_takes_none() -> None:
    """Cleaning gives room back at its end, so it needs what is left of the segment and no more."""
    log, model, disk = two_logs()
    segment = log.segments()[1]
    frames = model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30)
    before = len(disk.record)
    for room in (0, segment.total_bytes // 4):
        disk.capacity_bytes = disk.used_bytes() + room
        with pytest.raises(StorageFull, match="rewritten it takes"):
            log.clean(segment.sequence, by_turns(0))
        with pytest.raises(StorageFull, match="rewritten it takes"):
            log.rewrite_segment(segment.sequence, frames)
    assert len(disk.record) == before and not log.disk_full
    agree(log, model)
    disk.capacity_bytes = disk.used_bytes() + segment.total_bytes * 3 // 4
    with pytest.raises(StorageFull, match="rewritten it takes"):
        log.rewrite_segment(segment.sequence, frames)
    assert log.clean(segment.sequence, by_turns(0)) > 0
