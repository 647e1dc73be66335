"""Small files joined under a running group: beside its members, which freed and cleaned other things."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.storage.log.frame_reader import FrameReader
from lockstep.storage.log.segments import Segment
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.segment_repair import SegmentRepair
from lockstep.storage.types import FlushFailed, Frame
from tests.storage.cluster import Cluster, append
from tests.storage.log.frames import whole
from tests.storage.test_compaction_pass import TOPIC, Writer, clean, opened
from tests.storage.test_replication import flip

OTHER = bytes(range(1, 17))


def at_once(_: int) -> None:
    """No pause."""


async def seal(group: LogGroup, without_members: bool = False) -> None:
    for _ in range(200):
        group.log.prepare_now()
        if await group.sealer.run(1.0, without_members=without_members):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not sealed")


async def test_small_files_are_joined_and_what_compaction_left_stays(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    writer = Writer(group, (await group.open_partitions([(TOPIC, 0)]))[0].local_id, 0)
    for turn in range(12):
        for _ in range(30):
            writer.write()
        await group.committed()
        await seal(group)
        await clean(group, [writer.wanted(0)], 9_000 + turn)
        group.free_deleted_segments()
    before = len(group.log.segments())
    fewer = await group.join_small(at_once)
    assert fewer > 0 and len(group.log.segments()) == before - fewer
    await writer.check(0)
    for _ in range(2):
        await group.close()
        group = writer.group = await opened(tmp_path / "g")
        assert len(group.log.segments()) <= before - fewer + 1
        await writer.check(0)
    await clean(group, [writer.wanted(0)], 99_000)
    await writer.check(0)
    await group.close()


async def test_a_join_and_a_pass_of_compaction_wait_for_one_another(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    writer = Writer(group, (await group.open_partitions([(TOPIC, 0)]))[0].local_id, 0)
    for _ in range(4):
        for _ in range(30):
            writer.write()
        await group.committed()
        await seal(group)
    ended: list[str] = []

    async def first() -> None:
        await clean(group, [writer.wanted(0)], 9_000)
        ended.append("clean")

    cleaning = asyncio.create_task(first())
    await asyncio.sleep(0)
    assert await group.join_small(at_once) > 0
    assert ended == ["clean"]
    await cleaning
    await writer.check(0)
    await group.close()
    assert await group.join_small(at_once) == 0


async def test_a_join_ends_with_its_group(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    for _ in range(6):
        append(group, partition, b"x" * 3000)
        await group.committed()
        await seal(group)
    loop, calls = asyncio.get_running_loop(), 0

    def throttle(count: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            asyncio.run_coroutine_threadsafe(group.close(), loop)
            while not group._replica.stopped:
                pass

    assert await group.join_small(throttle) == 0 and calls == 3
    await asyncio.sleep(0.05)
    group = await opened(tmp_path / "g")
    assert await group.join_small(at_once) > 0
    await group.close()


async def test_a_failed_flush_of_the_directory_ends_the_group(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    for _ in range(4):
        append(group, partition, b"x" * 3000)
        await group.committed()
        await seal(group)

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "!")

    group.log._joiner._fs.fsync_dir = fail  # type: ignore[method-assign]
    with pytest.raises(FlushFailed):
        await group.join_small(at_once)
    assert isinstance(group.failed, FlushFailed)
    await group.close()
    group = await opened(tmp_path / "g")
    assert group.partitions[partition.local_id].high_watermark == 4
    assert await group.join_small(at_once) > 0
    await group.close()


async def sealed_often(cluster: Cluster) -> tuple[LogGroup, LogGroup, PartitionLog, PartitionLog]:
    """Node 3 has twelve small files of what is in two or three of the others: the leader, node 3, and two
    partitions of 48 batches of one record each, the first with large ones."""
    await cluster.start(1, 2)
    leader = await cluster.leader(1, 2)
    await cluster.start(3)
    large, small = await leader.open_partitions([(TOPIC, 0), (OTHER, 0)])
    follower = cluster.groups[3]
    for turn in range(12):
        for _ in range(4):
            append(leader, large, bytes([65 + turn]) * 15_000)
            append(leader, small, bytes([65 + turn]) * 2_000)
            await leader.committed()
        await cluster.agreed()
        await seal(follower, without_members=True)
        if turn == 5:
            await seal(cluster.groups[1], without_members=True)
            await seal(cluster.groups[2], without_members=True)
    return leader, follower, large, small


def joined_file(directory: Path) -> Path:
    return next(path for path in directory.glob("*.segment") if path.name.count("-") == 2)


def damage(log: Any, path: Path, partition: int, offset: int) -> None:
    """Change a byte of the batch at an offset."""
    segment = next(s for s in log._table.sealed() if s.path == path)
    index = log._table.index_of(segment, partition, load=True)
    flip(path, index.positions[list(index.bases).index(offset)] + 80)


async def mended(cluster: Cluster, sequence: int) -> tuple[int, int] | None:
    """Scrub a file of node 3, and wait for its repair; which frames were asked for."""
    follower = cluster.groups[3]
    repaired = follower._replica.repairing.repaired
    found = await follower.scrub(sequence, at_once)
    await cluster.until(lambda: follower._replica.repairing.repaired == repaired + 1)
    assert await follower.scrub(sequence, at_once) is None
    return found


async def test_a_damaged_record_of_a_joined_file_comes_from_members_that_joined_nothing(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    _, follower, _, small = await sealed_often(cluster)
    assert await follower.join_small(at_once) == 11
    path = joined_file(tmp_path / "3")
    before = whole(follower.log.read_cold(small.local_id, 0, 1 << 30, 48).buffers)
    damage(follower.log, path, small.local_id, 6)
    found = await mended(cluster, follower.log.segments()[0].sequence)
    assert found is not None and found[0] == found[1]
    assert whole(follower.log.read_cold(small.local_id, 0, 1 << 30, 48).buffers) == before
    await cluster.stop()
    assert not cluster.fatal


async def test_a_damaged_record_is_mended_though_the_others_freed_what_was_joined_with_it(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    leader, follower, large, small = await sealed_often(cluster)
    assert await follower.join_small(at_once) == 11
    await leader.advance_log_starts({large.local_id: 30, small.local_id: 30})
    await cluster.agreed()
    for group in cluster.groups.values():
        group.free_deleted_segments()
    freed = [cluster.groups[node].log.oldest_index for node in (1, 2)]
    assert min(freed) > follower.log.oldest_index == 1
    before = whole(follower.log.read_cold(small.local_id, 30, 1 << 30, 48).buffers)
    damage(follower.log, joined_file(tmp_path / "3"), small.local_id, 33)
    found = await mended(cluster, follower.log.segments()[0].sequence)
    assert found is not None and found[0] > max(freed)
    assert whole(follower.log.read_cold(small.local_id, 30, 1 << 30, 48).buffers) == before
    await cluster.stop()
    assert not cluster.fatal


async def test_a_lost_joined_file_is_fetched_without_what_is_cleaned_away_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others have not cleaned it: all that they send of it might not fit into one segment."""
    cluster = Cluster(tmp_path)
    leader, follower, large, small = await sealed_often(cluster)
    await leader.advance_log_starts({large.local_id: 47})
    await cluster.agreed()
    await follower.clean([], 9_000, 1 << 20, at_once)
    assert await follower.join_small(at_once) == 11
    path, sequence = joined_file(tmp_path / "3"), follower.log.segments()[0].sequence
    size = path.stat().st_size
    assert size < 200_000
    before = whole(follower.log.read_cold(small.local_id, 0, 1 << 30, 48).buffers)
    lost = path.read_bytes()[:4096] + bytes(size - 4096)
    path.write_bytes(lost)
    taken: list[int] = []
    real = SegmentRepair._take

    def take(self: SegmentRepair, repair: Any, frames: list[Frame], sender: int) -> None:
        taken.extend(len(payload) for frame in frames for payload in frame.payloads)
        real(self, repair, frames, sender)

    monkeypatch.setattr(SegmentRepair, "_take", take)
    assert await mended(cluster, sequence) is not None
    assert sum(taken) < 200_000 and path.stat().st_size == size
    assert whole(follower.log.read_cold(small.local_id, 0, 1 << 30, 48).buffers) == before
    # With the index lost as well nobody knows what was cleaned away: the repair is given up, for now.
    path.write_bytes(lost)
    follower.log.drop_indexes(1 << 40)
    follower.log._table._forget_indexes({each.serial for each in follower.log._table.sealed()})
    monkeypatch.setattr(
        follower.log, "options", dataclasses.replace(follower.log.options, segment_bytes=300_000)
    )
    assert await follower.scrub(sequence, at_once) is not None
    await asyncio.wait_for(follower._replica.repairing.wait_until_ended(), 5)
    assert follower._replica.repairing.repaired == 1 and "too much of it" in caplog.text
    await cluster.stop()
    assert not cluster.fatal


async def test_the_event_loop_reads_nothing_for_a_repair_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain value before a damaged frame of a joined file is found by a scan of all of it."""
    cluster = Cluster(tmp_path)
    _, follower, _, small = await sealed_often(cluster)
    assert await follower.join_small(at_once) == 11
    path, sequence = joined_file(tmp_path / "3"), follower.log.segments()[0].sequence
    damage(follower.log, path, small.local_id, 20)
    real, readers = FrameReader._cached_ends, []

    def known_ends(self: FrameReader, held: Segment) -> Any:
        readers.append(threading.current_thread())
        return real(self, held)

    monkeypatch.setattr(FrameReader, "_cached_ends", known_ends)
    monkeypatch.setattr(follower.log, "recent_chain_at", lambda index: None)
    assert await mended(cluster, sequence) is not None
    assert readers and threading.main_thread() not in readers
    await cluster.stop()
    assert not cluster.fatal


async def test_damaged_records_that_all_others_freed_and_that_are_deleted_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What lives in the same file does not wait for members that have nothing of it any more."""
    cluster = Cluster(tmp_path)
    leader, follower, large, small = await sealed_often(cluster)
    assert await follower.join_small(at_once) == 11
    path, sequence = joined_file(tmp_path / "3"), follower.log.segments()[0].sequence
    await leader.advance_log_starts({large.local_id: 30, small.local_id: 30})
    await cluster.agreed()
    for group in cluster.groups.values():
        group.free_deleted_segments()
    before = whole(follower.log.read_cold(small.local_id, 30, 1 << 30, 48).buffers)
    damage(follower.log, path, small.local_id, 20)
    assert await mended(cluster, sequence) is not None
    assert whole(follower.log.read_cold(small.local_id, 30, 1 << 30, 48).buffers) == before
    # In the head of an entry that nobody has any more nothing can be done.
    data = bytearray(path.read_bytes())
    frame = follower.log.snapshot_frames(3, 3, 1 << 20)[0]
    assert frame.head is not None
    data[data.index(frame.head) + 8] ^= 1
    path.write_bytes(bytes(data))
    assert await follower.scrub(sequence, at_once) is not None
    await asyncio.wait_for(follower._replica.repairing.wait_until_ended(), 10)
    assert "no member has the entries" in caplog.text
    await cluster.stop()
    assert not cluster.fatal
