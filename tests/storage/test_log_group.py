"""The drive loop on a real directory: what is committed is readable, survives, and is replayed in order."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import iter_records
from lockstep.storage import flusher as flusher_module
from lockstep.storage import idle_marker
from lockstep.storage.idle_marker import IdleMarker
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import frame_bytes
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.read_ahead import MIN_BYTES
from lockstep.storage.types import (
    Backlogged,
    BatchTooLarge,
    Buffer,
    Checkpoint,
    DirectoryEntry,
    FlushFailed,
    NotLeader,
    StateMachine,
    StorageError,
    StorageFull,
    WriteFailed,
)
from tests.broker.groups.fakes import FakeLoop
from tests.storage.cluster import append

TOPIC = bytes(range(16))
OTHER_TOPIC = bytes(range(1, 17))
SMALL = LogOptions(segment_bytes=1 << 20, tail_cache_bytes=64 << 10)


class Tally:
    """A machine that remembers what it was told, in order."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def snapshot(self, time_ms: int) -> bytes:
        return json.dumps(self.seen).encode()

    def restore(self, data: bytes) -> None:
        self.seen = json.loads(data or b"[]")

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        self.seen.append([entry.partition, entry.base_offset, entry.record_count])


class Ticking:
    """A clock that moves on by a millisecond at each look."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


fatal: list[BaseException] = []


async def open_group(
    directory: Path,
    log: LogOptions = SMALL,
    commit: Mapping[bytes, tuple[str, StateMachine]] | None = None,
    tail: Mapping[str, StateMachine] | None = None,
    max_uncommitted_bytes: int = 64 << 20,
) -> LogGroup:
    fatal.clear()
    return await LogGroup.open(
        directory,
        GroupOptions(1, 1, log, max_uncommitted_bytes),
        clock_ms=Ticking(),
        on_fatal=fatal.append,
        commit_machines=commit,
        tail_machines=tail,
    )


async def checkpointed(group: LogGroup, beyond: int = 0) -> None:
    """Wait until a first checkpoint, or the next one after `beyond`, is on the disk."""
    for _ in range(1000):
        if group.checkpoint_index > beyond:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no checkpoint within ten seconds")


def values_of(group: LogGroup, partition: PartitionLog, offset: int = 0) -> list[bytes]:
    found = []
    while offset < partition.high_watermark:
        result = group.read(partition, offset, 1 << 20)
        if result.cold:
            result = group.log.read_cold(partition.local_id, offset, 1 << 20, partition.high_watermark)
        assert result.buffers
        for buffer in result.buffers:
            position = 0
            while position < len(buffer):
                header = read_header(buffer, position)
                for record in iter_records(buffer, position):
                    if record.offset >= offset:
                        found.append(bytes(record.value or b""))
                position += header.total_bytes
                offset = header.next_offset
    return found


async def test_a_reader_that_catches_up_gets_the_same_records_with_or_without_pauses(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    written = [b"%d" % number * 1000 for number in range(1000)]
    for first in range(0, 1000, 20):
        append(group, partition, *written[first : first + 20])
        await group.committed()
    assert group.log.read(partition.local_id, 0, 1 << 20, 1000).total_bytes > MIN_BYTES
    ahead = group._read_ahead
    for pauses in (0, 3):
        found: list[bytes] = []
        before = ahead.hits
        while len(found) < 1000:
            result = group.read(partition, len(found), MIN_BYTES + (64 << 10))
            for buffer in result.buffers:
                position = 0
                while position < len(buffer):
                    found += [bytes(record.value or b"") for record in iter_records(buffer, position)]
                    position += read_header(buffer, position).total_bytes
            for _ in range(pauses):
                await asyncio.sleep(0)
        assert found == written
        assert (ahead.hits - before > 3) is (pauses > 0)
    await group.close()


async def test_appended_is_invisible_until_committed_and_then_survives(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    first, second = await group.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    assert [append(group, first, b"a", b"b"), append(group, second, b"x"), append(group, first, b"c")] == [
        0,
        0,
        2,
    ]
    assert (first.next_offset, first.high_watermark) == (3, 0)
    assert not group.read(first, 0, 1 << 20).buffers
    await group.committed()
    assert (first.high_watermark, second.high_watermark) == (3, 1)
    assert values_of(group, first) == [b"a", b"b", b"c"]
    assert values_of(group, first, 2) == [b"c"]
    term = group.term
    await group.close()

    again = await open_group(tmp_path)
    assert again.term == term + 1
    first, second = (again.partitions[number] for number in (first.local_id, second.local_id))
    assert (first.topic_id, first.index, second.index) == (TOPIC, 0, 1)
    assert values_of(again, first) == [b"a", b"b", b"c"]
    assert append(again, second, b"y") == 1
    await again.committed()
    assert second.leader_epochs == [(term, 0), (term + 1, 1)]
    assert second.end_offset_of_epoch(term) == (term, 1)
    assert second.end_offset_of_epoch(term + 7) == (term + 1, 2)
    assert second.end_offset_of_epoch(term - 1) == (-1, -1)
    await again.close()


async def test_one_turn_is_one_frame_and_waiters_fire_in_order(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    before = group.log.last_index
    fired: list[int] = []
    for place in range(5):
        append(group, partition, b"%d" % place)
        group.when_committed(lambda error, place=place: fired.append(place))  # type: ignore[misc]
    assert fired == []
    await group.committed()
    assert fired == [0, 1, 2, 3, 4]
    assert group.log.last_index == before + 1
    advanced: list[int] = []
    partition.on_advance.append(lambda: advanced.append(partition.high_watermark))
    append(group, partition, b"more")
    append(group, partition, b"more")
    await group.committed()
    assert advanced == [7]
    await group.committed()  # nothing pending
    await group.close()


async def test_lsns_are_dense_over_all_partitions(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    first, second = await group.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    append(group, first, b"a", b"b")
    append(group, second, b"c")
    await group.committed()
    assert group.log.next_lsn == 1 + 2 + 3  # two open commands in one batch, then three records
    await group.close()


async def test_machines_end_in_the_same_state_after_rolls_checkpoints_and_a_crash(tmp_path: Path) -> None:
    committed, tail = Tally(), Tally()
    group = await open_group(tmp_path, commit={TOPIC: ("committed", committed)}, tail={"tail": tail})
    watched, plain = await group.open_partitions([(TOPIC, 0), (OTHER_TOPIC, 0)])
    # Whoever appends keeps the tail machines up to date, as the broker's append path does.
    tail.seen.append([0, 0, 2])
    blob = b"z" * 50_000
    for place in range(100):
        for partition in (watched, plain):
            offset = append(group, partition, blob, b"%d" % place)
            tail.seen.append([partition.local_id, offset, 2])
        if place % 7 == 0:
            await group.committed()
    await group.committed()
    await checkpointed(group)
    assert committed.seen == [[watched.local_id, place * 2, 2] for place in range(100)]
    expected = list(tail.seen)
    # No close: as after kill -9, once its threads rest. A reader of a copy of the files must see everything.
    for _ in range(1000):
        if group._replica.checkpointer.under_way is None:
            break
        await asyncio.sleep(0.01)
    group.log._maintenance.stop()
    left = tmp_path.with_name("left")
    shutil.copytree(tmp_path, left)
    later_committed, later_tail = Tally(), Tally()
    again = await open_group(left, commit={TOPIC: ("committed", later_committed)}, tail={"tail": later_tail})
    assert again.checkpoint_index > 0
    assert later_committed.seen == committed.seen
    assert later_tail.seen == expected
    assert again.partitions[plain.local_id].next_offset == 200
    assert again.partitions[plain.local_id].high_watermark == 200
    assert values_of(again, again.partitions[plain.local_id], 198) == [blob, b"99"]
    await again.close()


async def test_deleted_records_free_segments(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    for _ in range(100):
        append(group, partition, b"z" * 50_000)
        await group.committed()
    await checkpointed(group)
    assert group.free_deleted_segments() == 0
    with pytest.raises(ValueError, match="not committed"):
        await group.advance_log_starts({partition.local_id: 101})
    await group.advance_log_starts({partition.local_id: 90})
    assert partition.log_start_offset == 90
    await group.advance_log_starts({partition.local_id: 40})
    assert partition.log_start_offset == 90
    assert group.free_deleted_segments() > 0
    assert len(values_of(group, partition, 90)) == 10
    await group.close()
    again = await open_group(tmp_path)
    assert again.partitions[partition.local_id].log_start_offset == 90
    assert len(values_of(again, again.partitions[partition.local_id], 90)) == 10
    await again.close_partitions([partition.local_id])
    assert partition.local_id not in again.partitions
    (other,) = await again.open_partitions([(OTHER_TOPIC, 0)])
    assert other.local_id > partition.local_id
    await again.close()


async def test_a_log_start_that_a_power_loss_took_back_follows_the_files(tmp_path: Path) -> None:
    """With `flush` off: the entry that moved it is lost, the files it freed are gone."""
    group = await open_group(tmp_path / "group", replace(SMALL, flush=False))
    kept, gone = await group.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    append(group, gone, b"all of it")
    older = 0
    for _ in range(2):  # files go below the older of two checkpoints
        for _ in range(50):
            append(group, kept, b"z" * 50_000)
            await group.committed()
            await asyncio.sleep(0)
        await checkpointed(group, older)
        older = group.checkpoint_index
    while group._replica.checkpointer.under_way is not None or group.log.sealed_since_checkpoint:
        append(group, kept, b"z")
        await group.committed()
        await asyncio.sleep(0.01)
    last = kept.next_offset
    active = group.log._active.path
    before = active.read_bytes()
    await group.advance_log_starts({kept.local_id: 90, gone.local_id: 1})
    assert group.free_deleted_segments() > 0
    for _ in range(1000):
        if group.log._maintenance.state.oldest_sequence > 1:
            break
        await asyncio.sleep(0.01)
    with group.log._maintenance.pause():  # the freed files get other names in the background
        shutil.copytree(tmp_path / "group", tmp_path / "lost")
    (tmp_path / "lost" / active.name).write_bytes(before)
    await group.close()
    again = await open_group(tmp_path / "lost", replace(SMALL, flush=False))
    kept, gone = again.partitions[kept.local_id], again.partitions[gone.local_id]
    assert 0 < kept.log_start_offset < 90
    assert (gone.log_start_offset, gone.high_watermark) == (1, 1)
    assert len(values_of(again, kept, kept.log_start_offset)) == last - kept.log_start_offset
    await again.close()


async def test_limits_refuse_and_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = await open_group(tmp_path, max_uncommitted_bytes=1000)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    append(group, partition, b"z" * 500)
    with pytest.raises(Backlogged):
        append(group, partition, b"z" * 500)
    assert partition.next_offset == 1
    await group.committed()
    assert append(group, partition, b"z" * 500) == 1
    await group.committed()

    def only_the_reserve(payload_bytes: int, batch_count: int = 1, *, reserved: bool = False) -> bool:
        return reserved

    monkeypatch.setattr(group.log, "has_space_for", only_the_reserve)
    with pytest.raises(StorageFull):
        append(group, partition, b"z")
    monkeypatch.setattr(DataLog, "write_error", property(lambda log: "7.segment: Input/output error"))
    with pytest.raises(WriteFailed, match=r"7\.segment: Input/output error"):
        append(group, partition, b"z")
    assert partition.next_offset == 2
    await group.advance_log_starts({partition.local_id: 1})  # the group's own entries have a reserve
    assert values_of(group, partition, 1) == [b"z" * 500]
    await group.close()
    with pytest.raises(NotLeader):
        append(group, partition, b"z")


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_failed_flush_ends_the_group_and_acknowledges_nothing(
    tmp_path: Path, threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threaded:
        monkeypatch.setattr(flusher_module, "SLOW_FLUSH_SECONDS", -1.0)
        monkeypatch.setattr(flusher_module, "FAST_FLUSH_SECONDS", -1.0)
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    append(group, partition, b"kept")
    await group.committed()

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(group.log._fs, "fdatasync", fail)
    append(group, partition, b"lost")
    with pytest.raises(NotLeader, match="Input/output"):
        await group.committed()
    assert [type(error) for error in fatal] == [FlushFailed]
    assert partition.high_watermark == 1
    assert not group.is_leader
    with pytest.raises(NotLeader):
        append(group, partition, b"never")
    with pytest.raises(FlushFailed, match="Input/output"):
        await group.committed()
    await group.close()


async def test_a_slow_disk_gets_a_thread_and_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher_module, "SLOW_FLUSH_SECONDS", -1.0)
    monkeypatch.setattr(flusher_module, "FAST_FLUSH_SECONDS", -1.0)
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    fired: list[int] = []
    for place in range(200):
        append(group, partition, b"%d" % place)
        group.when_committed(lambda error, place=place: fired.append(place))  # type: ignore[misc]
        if place % 3 == 0:
            await asyncio.sleep(0)
    await group.committed()
    assert fired == list(range(200))
    assert values_of(group, partition) == [b"%d" % place for place in range(200)]
    await group.close()


async def test_a_frame_of_tiny_batches_stays_within_its_limit(tmp_path: Path) -> None:
    """Directory entries count: thousands of batches in a turn once made a frame that no segment takes."""
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    for _ in range(3):
        for _ in range(5000):
            append(group, partition, b"z" * 30)
        await group.committed()
    assert fatal == []
    assert partition.high_watermark == 15_000
    assert len(group.log.segments()) >= 1
    await group.close()
    log = DataLog.open(tmp_path, 1, SMALL)
    assert all(frame_bytes(frame) <= SMALL.max_frame_bytes for frame in log.replay())
    log.close()


async def test_a_batch_that_no_frame_holds_is_refused(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    append(group, partition, b"before")
    with pytest.raises(BatchTooLarge):
        append(group, partition, b"z" * SMALL.max_frame_bytes)
    assert append(group, partition, b"after") == 1
    await group.committed()
    assert (fatal, values_of(group, partition)) == ([], [b"before", b"after"])
    await group.close()


async def test_commands_of_any_number_fit_the_smallest_frames(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    opened = await group.open_partitions([(TOPIC, index) for index in range(8000)])
    assert [partition.index for partition in opened] == list(range(8000))
    await group.close_partitions([partition.local_id for partition in opened])
    assert (fatal, list(group.partitions)) == ([], [0])
    await group.close()


async def test_cold_reads_do_not_hold_up_the_flush_of_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher_module, "SLOW_FLUSH_SECONDS", -1.0)
    monkeypatch.setattr(flusher_module, "FAST_FLUSH_SECONDS", -1.0)
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    append(group, partition, b"old")
    await group.committed()
    slow_disk = threading.Event()
    monkeypatch.setattr(group.log, "read_cold", lambda *_: slow_disk.wait(10))
    reads = [asyncio.ensure_future(group.read_cold(partition, 0, 1)) for _ in range(4)]
    await asyncio.sleep(0.01)
    append(group, partition, b"new")
    await asyncio.wait_for(group.committed(), 5)
    slow_disk.set()
    await asyncio.gather(*reads)
    await group.close()


@pytest.mark.parametrize("error", [StorageFull, WriteFailed])
async def test_a_stop_without_a_checkpoint_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[StorageError]
) -> None:
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    append(group, partition, b"kept")
    await group.committed()

    def refused(checkpoint: Checkpoint) -> None:
        raise error("no checkpoint")

    monkeypatch.setattr(group.log, "write_checkpoint", refused)
    await group.close()
    assert fatal == []
    assert group.log._active.fd < 0
    again = await open_group(tmp_path)
    assert values_of(again, again.partitions[partition.local_id]) == [b"kept"]
    await again.close()


async def test_a_waiter_of_the_last_commit_cannot_append(tmp_path: Path) -> None:
    """Between the last commit and the last checkpoint: an append there is in its offsets, not its frames."""
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])

    async def append_twice() -> None:
        await group.append_values(partition, [b"first"])
        await group.append_values(partition, [b"second"])

    appending = asyncio.ensure_future(append_twice())
    await asyncio.sleep(0)
    await group.close()
    with pytest.raises(NotLeader):
        await appending
    again = await open_group(tmp_path)
    assert values_of(again, again.partitions[partition.local_id]) == [b"first"]
    await again.close()


async def test_the_idle_marker_follows_the_last_flush_and_no_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_marker, "IDLE_MARKER_SECONDS", 0.2)
    group = await open_group(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    loop = FakeLoop()
    group._idle_marker.stop()
    group._idle_marker = IdleMarker(group._replica, loop)  # type: ignore[arg-type]
    began, marked = loop.time(), list[float]()
    monkeypatch.setattr(group.log, "idle", lambda: marked.append(loop.time() - began))
    for _ in range(2):
        append(group, partition, b"z")
        await group.committed()
        loop.advance(50)
    loop.advance(400)
    assert marked == [pytest.approx(0.25)], "0.2 s after the second flush"
    append(group, partition, b"z")
    await group.close()
    loop.advance(300)
    assert len(marked) == 1
