"""A log whose state file is lost, and whose oldest segments are gone with their index files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.missing_records import MissingRecords
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem

OPTIONS = LogOptions(segment_bytes=64 << 10, tail_cache_bytes=8 << 10, reserve_bytes=4 << 10)
KEPT, OTHER, CLOSED = (bytes([number]) * 16 for number in (1, 2, 3))
SEGMENTS = 6


async def opened(disk: SimulatedFileSystem, salvage: bool = False) -> LogGroup:
    options = GroupOptions(1, 1, OPTIONS, background=False, salvage=salvage)
    return await LogGroup.open(Path("d"), options, clock_ms=lambda: 7_000, on_fatal=print, fs=disk)


async def write(group: LogGroup, *local_ids: int) -> None:
    builder = BatchBuilder()
    builder.append(b"v" * 9_000, b"key", timestamp_ms=5)
    for local_id in local_ids:
        data = bytearray(builder.build())
        group.append(group.partitions[local_id], data, read_header(data))
        await group.committed()


class Filled:
    """A group with three partitions in its six oldest segments, led until `files` is called."""

    def __init__(self, disk: SimulatedFileSystem, group: LogGroup, local_ids: list[int]) -> None:
        self.disk, self.group, self.local_ids = disk, group, local_ids

    async def files(self) -> dict[str, bytes]:
        """What is on the disk after a stop, with a state file that is damaged in both slots."""
        await self.group.close()
        return {**self.disk.now().files, "state": bytes(8192)}

    def gone(self) -> set[str]:
        """The two oldest segments, with their index files."""
        return {f"{segment.sequence:016d}{end}" for segment in self.group.log.segments()[:2] for end in ENDS}


ENDS = (".segment", ".index")


@pytest.fixture
async def filled() -> AsyncIterator[Filled]:
    disk = SimulatedFileSystem()
    group = await opened(disk)
    partitions = await group.open_partitions([(KEPT, 0), (OTHER, 3), (CLOSED, 0)])
    local_ids = [each.local_id for each in partitions]
    while len(group.log.segments()) < SEGMENTS:
        await write(group, *local_ids)
        group.log.prepare_now()
    yield Filled(disk, group, local_ids)


async def missing_in(files: dict[str, bytes]) -> list[MissingRecords]:
    group = await opened(SimulatedFileSystem(Image(files)), salvage=True)
    assert group.log.report.salvaged_state
    found = group.missing_records
    await group.close()
    return found


async def test_nothing_is_missing_where_all_segments_are_there(filled: Filled) -> None:
    assert await missing_in(await filled.files()) == []


async def test_the_offsets_of_each_partition_are_named(filled: Filled) -> None:
    gone = filled.gone()
    files = {name: data for name, data in (await filled.files()).items() if name not in gone}
    found = await missing_in(files)
    assert [(each.topic_id, each.partition) for each in found] == [(KEPT, 0), (OTHER, 3), (CLOSED, 0)]
    group = await opened(SimulatedFileSystem(Image(files)), salvage=True)
    assert [each.first_offset for each in found] == [0, 0, 0]
    assert [each.end_offset for each in found] == [group.log.first_offset(each) for each in filled.local_ids]
    assert all(each.end_offset > 2 for each in found)
    await group.close()


async def test_what_was_deleted_is_not_missing(filled: Filled) -> None:
    """By log starts and a deleted topic, whose records are in the log and not in a checkpoint."""
    kept, other, closed = filled.local_ids
    gone, group = filled.gone(), filled.group
    await group.advance_log_starts({kept: 3, other: group.partitions[other].high_watermark})
    await group.close_partitions([closed])
    files = {name: data for name, data in (await filled.files()).items() if name not in gone}
    newest = max(name for name in files if name.startswith("checkpoint"))
    del files[newest]
    (found,) = await missing_in(files)
    assert (found.topic_id, found.partition, found.first_offset) == (KEPT, 0, 3)
    assert found.end_offset > 3
