"""A log whose state file is lost, and whose oldest segments are gone with their index files: what is missing
is known, also after a restart, and no read passes over it until an operator gives it up."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage import missing_records
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.salvage import SALVAGED_NAME
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.missing_records import (
    MissingRecords,
    has_missing_records,
    is_still_missing,
    may_miss_records,
    require_none_missing,
)
from lockstep.storage.types import NO_SEGMENT, CorruptLog, DamagedBatch, OffsetOutOfRange
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem

OPTIONS = LogOptions(segment_bytes=64 << 10, tail_cache_bytes=8 << 10, reserve_bytes=4 << 10)
KEPT, OTHER, CLOSED = (bytes([number]) * 16 for number in (1, 2, 3))
SEGMENTS = 6


async def opened(
    disk: SimulatedFileSystem, salvage: bool = False, log_options: LogOptions = OPTIONS
) -> LogGroup:
    options = GroupOptions(1, 1, log_options, background=False, salvage=salvage)
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
        self.removed: set[str] = set()

    async def files(self) -> dict[str, bytes]:
        """What is on the disk after a stop, with a state file that is damaged in both slots."""
        await self.group.close()
        return {**self.disk.now().files, "state": bytes(8192)}

    def gone(self) -> set[str]:
        """The two oldest segments, with their index files."""
        oldest = self.group.log.segments()[:2]
        self.removed = {f"{segment.sequence:016d}{end}" for segment in oldest for end in ENDS}
        return self.removed


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


def without(files: dict[str, bytes], gone: set[str]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name not in gone}


async def cut(filled: Filled) -> SimulatedFileSystem:
    """The disk of a stopped group without its state and its two oldest segments."""
    gone = filled.gone()
    return SimulatedFileSystem(Image(without(await filled.files(), gone)))


Ranges = list[tuple[int, int, int]]


async def missing_on(disk: SimulatedFileSystem) -> Ranges:
    """(local id, first offset, end offset) of what a start finds that salvages the log."""
    group = await opened(disk, salvage=True)
    assert group.log.report.salvaged_state and group.possible_losses == []
    found = unconfirmed(group)
    await group.close()
    return found


def unconfirmed(group: LogGroup) -> Ranges:
    return [(e.local_id, e.first_offset, e.end_offset) for e in group.log.damage.list_unconfirmed()]


async def read_at(group: LogGroup, local_id: int, offset: int) -> tuple[list[int], int]:
    """The base offsets that a read returns, and where the next one begins."""
    partition = group.partitions[local_id]
    result = group.read(partition, offset, 1)
    if result.cold:
        result = await group.read_cold(partition, offset, 1)
    return [read_header(each).base_offset for each in result.buffers], result.next_offset


async def is_refused(group: LogGroup, local_id: int, offset: int) -> bool:
    """Whether both kinds of read fail."""
    partition = group.partitions[local_id]
    with contextlib.suppress(DamagedBatch):
        group.read(partition, offset, 1)
        return False
    with contextlib.suppress(DamagedBatch):
        await group.read_cold(partition, offset, 1)
        return False
    return True


async def test_nothing_is_missing_where_all_segments_are_there(filled: Filled) -> None:
    assert await missing_on(SimulatedFileSystem(Image(await filled.files()))) == []


async def test_the_offsets_of_each_partition_are_known(filled: Filled) -> None:
    disk = await cut(filled)
    found = await missing_on(disk)
    assert [each[0] for each in found] == filled.local_ids
    group = await opened(disk)
    assert not group.log.report.salvaged_state and unconfirmed(group) == found, "also at the next start"
    assert [(first, end) for _, first, end in found] == [
        (0, group.log.first_offset(each)) for each in filled.local_ids
    ]
    assert all(end > 2 for _, _, end in found)
    await group.close()


async def test_what_was_deleted_is_not_missing(filled: Filled) -> None:
    """By log starts and a deleted topic, whose records are in the log and not in a checkpoint."""
    kept, other, closed = filled.local_ids
    gone, group = filled.gone(), filled.group
    await group.advance_log_starts({kept: 3, other: group.partitions[other].high_watermark})
    await group.close_partitions([closed])
    files = without(await filled.files(), gone)
    newest = max(name for name in files if name.startswith("checkpoint"))
    del files[newest]
    ((local_id, first, end),) = await missing_on(SimulatedFileSystem(Image(files)))
    assert (local_id, first) == (kept, 3) and end > 3


async def test_a_read_in_a_gap_fails_until_an_operator_gives_it_up(filled: Filled) -> None:
    disk = await cut(filled)
    local_id = filled.local_ids[0]
    for salvage in (True, False):
        group = await opened(disk, salvage)
        first = group.log.first_offset(local_id)
        assert first is not None
        assert await is_refused(group, local_id, 0) and await is_refused(group, local_id, first - 1)
        assert (await read_at(group, local_id, first))[0] == [first]
        await group.close()
    group = await opened(disk)
    damage = group.log.damage
    damage.resolve_missing(damage.list_unconfirmed(), [])
    assert [(e.sequence, e.local_id) for e in damage.known()] == [
        (NO_SEGMENT, each) for each in filled.local_ids
    ]
    assert await is_refused(group, local_id, 0), "confirmed"
    assert not await group.read_repair.repair(NO_SEGMENT, 1.0)
    assert [e.local_id for e in damage.skip_damage(local_id)] == [local_id]
    for again in (False, True):
        if again:
            await group.close()
            group = await opened(disk)
        assert (await read_at(group, local_id, 0))[0] == [first]
        assert await is_refused(group, filled.local_ids[1], 0), "another partition's"
    await group.close()


async def test_a_partition_of_which_nothing_is_left_is_no_empty_one(filled: Filled) -> None:
    group = filled.group
    (alone,) = await group.open_partitions([(KEPT, 7)])
    before = group.log.oldest_segment
    await write(group, alone.local_id)
    while len(group.log.segments()) < 2 * SEGMENTS:
        await write(group, *filled.local_ids)
        group.log.prepare_now()
    spans = group.log._table.spans[alone.local_id].sequences()
    sequences = range(before, max(spans) + 1)
    gone = {f"{sequence:016d}{end}" for sequence in sequences for end in ENDS}
    disk = SimulatedFileSystem(Image(without(await filled.files(), gone)))
    group = await opened(disk, salvage=True)
    assert group.log.first_offset(alone.local_id) is None
    assert (alone.local_id, 0, 1) in unconfirmed(group)
    assert await is_refused(group, alone.local_id, 0)
    group.log.damage.skip_damage(alone.local_id)
    assert await read_at(group, alone.local_id, 0) == ([], 1), "it is read to its end"
    await group.close()


async def test_what_compaction_may_have_removed_is_passed_over(filled: Filled) -> None:
    disk = await cut(filled)
    group = await opened(disk, salvage=True)
    damage, local_id = group.log.damage, filled.local_ids[0]
    damage.resolve_missing([], damage.missing[filled.local_ids[2]], damage.missing[local_id])
    await group.close()
    group = await opened(disk)
    partition, damage = group.partitions[local_id], group.log.damage
    assert (await read_at(group, local_id, 0))[0] == [group.log.first_offset(local_id)]
    assert [each for each, _, _ in unconfirmed(group)] == filled.local_ids[1:2]
    assert [(e.local_id, e.is_possible) for e in damage.known()] == [(local_id, True)]
    require_none_missing(group.log, [partition], 1)
    assert not has_missing_records(group.log, partition)
    damage.resolve_missing([], damage.list_unconfirmed())
    assert may_miss_records(group.log, group.control), "they may be missing all the same"
    assert [e.local_id for e in damage.skip_damage(local_id)] == [local_id]
    assert not may_miss_records(group.log, group.control)
    assert (await read_at(group, local_id, 0))[0] == [group.log.first_offset(local_id)]
    await group.close()


async def test_a_missing_range_ends_below_the_log_start_and_with_records_that_came(filled: Filled) -> None:
    group = await opened(await cut(filled), salvage=True)
    local_id = filled.local_ids[0]
    partition, log = group.partitions[local_id], group.log
    (each,) = log.damage.missing[local_id]
    assert is_still_missing(log, partition, each) and may_miss_records(log, group.control)
    with pytest.raises(DamagedBatch, match="offsets 0 to"):
        require_none_missing(log, [partition], 1)
    require_none_missing(log, [partition], log.oldest_lsn)
    partition.log_start_offset = each.end_offset - 1
    assert is_still_missing(log, partition, each) and await is_refused(group, local_id, each.end_offset - 1)
    partition.log_start_offset = each.end_offset
    assert not is_still_missing(log, partition, each) and not is_still_missing(log, None, each)
    with pytest.raises(OffsetOutOfRange):
        await group.read_cold(partition, 0, 1)
    await group.close()
    group = await opened(SimulatedFileSystem(Image(await filled_again(filled))))
    assert not group.log.damage.missing, "a start drops what is not missing any more"
    group.log.damage.note_missing([(local_id, 0, 5)], "before a snapshot came")
    ((row,),) = group.log.damage.missing.values()
    assert not is_still_missing(group.log, group.partitions[local_id], row), "the log has the records"
    assert (await read_at(group, local_id, 0))[0] == [0]
    assert not may_miss_records(group.log, group.control)
    require_none_missing(group.log, [group.partitions[local_id]], 1)
    await group.close()


async def filled_again(filled: Filled) -> dict[str, bytes]:
    """The whole log, with the damage table of the one without its oldest segments: as after a snapshot."""
    whole = filled.disk.now().files
    disk = SimulatedFileSystem(Image(without({**whole, "state": bytes(8192)}, filled.removed)))
    group = await opened(disk, salvage=True)
    await group.close()
    return {**whole, "damage": disk.now().files["damage"]}


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), CorruptLog("changed since open")]
)
async def test_a_failed_search_is_a_warning_and_is_repeated_at_the_next_start(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    disk = await cut(filled)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as failing:
        failing.setattr(missing_records, "find_missing_records", fail)
        group = await opened(disk, salvage=True)
        await group.close()
    (line,) = [each for each in caplog.messages if "the next start searches again" in each]
    assert line.endswith(str(error))
    group = await opened(disk)
    assert [each for each, _, _ in unconfirmed(group)] == filled.local_ids
    await group.close()
    assert SALVAGED_NAME not in disk.now().files


async def test_a_crash_before_the_search_leaves_it_to_the_next_start(filled: Filled) -> None:
    """The new state is on the disk: the log is not salvaged again."""
    disk = await cut(filled)
    log = DataLog.open(Path("d"), 1, OPTIONS, disk, salvage=True, salvage_incarnation=9)
    assert log.report.salvaged_state
    files = disk.now().files  # as a kill leaves it
    log.close()
    group = await opened(SimulatedFileSystem(Image(files)))
    assert not group.log.report.salvaged_state
    assert [each for each, _, _ in unconfirmed(group)] == filled.local_ids
    await group.close()


async def test_without_flushes_a_loss_is_only_possible(filled: Filled) -> None:
    """A power loss may take a log start and leave the freeing: the log starts follow what is there."""
    group = await opened(await cut(filled), salvage=True, log_options=replace(OPTIONS, flush=False))
    assert unconfirmed(group) == []
    firsts = [group.partitions[each].log_start_offset for each in filled.local_ids]
    assert group.possible_losses == [
        MissingRecords(topic_id, index, local_id, 0, first)
        for (topic_id, index), local_id, first in zip(
            ((KEPT, 0), (OTHER, 3), (CLOSED, 0)), filled.local_ids, firsts, strict=True
        )
    ]
    assert min(firsts) > 2
    await group.close()


async def test_what_an_operator_gave_up_stays_so_when_more_is_missing(filled: Filled) -> None:
    group = await opened(await cut(filled), salvage=True)
    local_id, damage = filled.local_ids[0], group.log.damage
    (before,) = damage.missing[local_id]
    damage.skip_damage(local_id)
    damage.note_missing([(local_id, 0, before.end_offset + 2), (local_id, 0, before.end_offset)], "more")
    end = before.end_offset
    assert [(e.first_offset, e.end_offset, e.is_skipped) for e in damage.missing[local_id]] == [
        (0, end, True),
        (end, end + 2, False),
    ]
    await group.close()


async def test_a_damage_table_that_cannot_be_read_is_made_again(filled: Filled) -> None:
    disk = await cut(filled)
    found = await missing_on(disk)
    assert len(found) == 3
    files = {**disk.now().files, "damage": b"\0" * 40}
    for flush in (False, True):
        disk = SimulatedFileSystem(Image(files))
        group = await opened(disk, log_options=replace(OPTIONS, flush=flush))
        again = [(e.local_id, e.first_offset, e.end_offset) for e in group.possible_losses]
        assert (unconfirmed(group) if flush else again) == found
        await group.close()
    assert await is_known_at_a_start(disk, found)


async def is_known_at_a_start(disk: SimulatedFileSystem, ranges: Ranges) -> bool:
    group = await opened(disk)
    known = unconfirmed(group) == ranges and not group.log.damage.is_unreadable
    await group.close()
    return known


async def test_no_salvage_begins_that_a_start_could_forget(filled: Filled) -> None:
    disk = await cut(filled)
    state = disk.now().files["state"]

    def fault(what: str, name: str) -> OSError | None:
        return OSError(errno.ENOSPC, "No space left on device") if name == SALVAGED_NAME else None

    disk.fault = fault
    with pytest.raises(OSError, match="No space left"):
        await opened(disk, salvage=True)
    disk.fault = None
    assert disk.now().files["state"] == state, "the next start salvages"
    assert [each for each, _, _ in await missing_on(disk)] == filled.local_ids


async def test_a_start_without_flushes_passes_over_no_known_gap(filled: Filled) -> None:
    """The log starts of other partitions follow what is there."""
    disk = await cut(filled)
    group = await opened(disk, salvage=True)
    (lost, *others), damage = filled.local_ids, group.log.damage
    damage.resolve_missing([], [each for each in damage.list_unconfirmed() if each.local_id != lost])
    await group.close()
    group = await opened(disk, log_options=replace(OPTIONS, flush=False))
    assert group.partitions[lost].log_start_offset == 0 and await is_refused(group, lost, 0)
    assert all(group.partitions[each].log_start_offset > 2 for each in others)
    await group.close()
