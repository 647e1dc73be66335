"""Room that deletes make on a full disk is used again without a restart, whatever the disk's size."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.disk_full_release import free_on_full_disk
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.types import StorageFull
from tests.storage.log.simulated_disk import SimulatedFileSystem

SEGMENT = 64 << 10
OPTIONS = LogOptions(segment_bytes=SEGMENT, tail_cache_bytes=8 << 10, reserve_bytes=4 << 10)
BESIDE = 16 << 10
"""State file, origin and checkpoints; index files."""
NEEDED = (OPTIONS.spare_segments + 1) * SEGMENT + BESIDE
TOPICS = [bytes([number]) * 16 for number in range(1, 200)]


async def opened(fs: SimulatedFileSystem) -> LogGroup:
    options = GroupOptions(1, 1, OPTIONS, background=False)
    return await LogGroup.open(Path("d"), options, clock_ms=lambda: 7_000, on_fatal=print, fs=fs)


def batch(size: int) -> bytearray:
    builder = BatchBuilder()
    builder.append(b"v" * size, b"key", timestamp_ms=5)
    return bytearray(builder.build())


async def fill(group: LogGroup, number: int, size: int) -> int:
    """How many batches there was room for."""
    count = 0
    while True:
        data = batch(size)
        try:
            group.append(group.partitions[number], data, read_header(data))
        except StorageFull:
            return count
        await group.committed()
        count += 1


@pytest.mark.parametrize("size", [700, 9_000])
@pytest.mark.parametrize("capacity", range(2 * SEGMENT + BESIDE, 8 * SEGMENT, 7_001))
async def test_a_full_disk_takes_records_after_a_topic_was_deleted(capacity: int, size: int) -> None:
    group = await opened(SimulatedFileSystem(capacity_bytes=capacity, reserves=True))
    group.log.prepare_now()
    is_too_small = group.log.disk_full
    assert not is_too_small or capacity < NEEDED, "docs/operating.md says how much a node needs"
    for round_ in range(3):
        (partition,) = await group.open_partitions([(TOPICS[round_], 0)])
        written = await fill(group, partition.local_id, size)
        assert written, f"round {round_}"
        assert group.log.disk_full
        await group.close_partitions([partition.local_id])
        for _ in range(4):
            await free_on_full_disk(group)
            group.log.retry_space()
        assert group.log.disk_full == is_too_small, group.log.disk_error
    await group.close()


async def test_indexes_make_room_for_the_checkpoints() -> None:
    """Not a byte is left when the topic is deleted: what can be made anew goes first."""
    fs = SimulatedFileSystem(capacity_bytes=5 * SEGMENT, reserves=True)
    group = await opened(fs)
    (partition,) = await group.open_partitions([(TOPICS[0], 0)])
    assert await fill(group, partition.local_id, 700)
    group.log.prepare_now()
    indexes = [name for name in fs.list_dir(Path("d")) if name.endswith(".index")]
    await group.close_partitions([partition.local_id])
    fs.capacity_bytes = fs.used_bytes()
    for _ in range(4):
        await free_on_full_disk(group)
        group.log.retry_space()
    assert indexes and not group.log.disk_full, group.log.disk_error
    await group.close()


async def test_records_that_are_not_deleted_stay() -> None:
    fs = SimulatedFileSystem(capacity_bytes=5 * SEGMENT, reserves=True)
    group = await opened(fs)
    kept, gone = await group.open_partitions([(TOPICS[0], 0), (TOPICS[0], 1)])
    first = batch(700)
    group.append(kept, first, read_header(first))
    assert await fill(group, gone.local_id, 700)
    await group.close_partitions([gone.local_id])
    for _ in range(4):
        await free_on_full_disk(group)
        group.log.retry_space()
    found = await group.read_cold(kept, 0, 1 << 20)
    assert [bytes(each) for each in found.buffers] == [bytes(first)]
    assert await fill(group, kept.local_id, 700), "and other files are free"
    await group.close()
