"""Sealing to order: what was just written is cleaned, on busy logs and on idle ones, on every member."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from lockstep.protocol.records.batch import iter_headers, read_header
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.storage.aborted_transactions import AbortedTransactions
from lockstep.storage.compaction_pass import Cleaned, CompactionTarget, is_half_dead
from lockstep.storage.log.checkpoint_file import PREFIX, REPEATED_PREFIX
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import StorageFull, WriteFailed
from tests.storage.cluster import Cluster
from tests.storage.test_compaction_pass import TINY, opened

TOPIC = bytes(range(16))
VALUE = b"v" * 900


def write(group: LogGroup, number: int, keys: Iterable[int], value: bytes | None = VALUE) -> None:
    builder = BatchBuilder()
    for key in keys:
        builder.append(value, b"key %d" % key, timestamp_ms=5)
    data = bytearray(builder.build())
    group.append(group.partitions[number], data, read_header(data))


async def read(group: LogGroup, partition: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    found: list[tuple[bytes | None, bytes | None]] = []
    offset = 0
    while offset < partition.high_watermark:
        before = offset
        for buffer in (await group.read_cold(partition, offset, 1 << 20)).buffers:
            for at, header in iter_headers(buffer):
                offset = header.next_offset
                found += [(record.key, record.value) for record in iter_records(buffer, at)]
        assert offset > before
    return found


async def clean(group: LogGroup, partition: PartitionLog, now_ms: int = 10_000) -> Cleaned:
    end = partition.high_watermark
    wanted = CompactionTarget(partition.local_id, 0, end, 0, AbortedTransactions(), end - 1)
    done = await group.clean([wanted], now_ms, 1 << 20, lambda count: None)
    assert done is not None
    group.free_deleted_segments()
    group.log.prepare_now()
    return done


def names_in(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def shorten(path: Path) -> bytes:
    """Take the end of a file away; what it was."""
    was = path.read_bytes()
    path.write_bytes(was[:-9])
    return was


def restore(path: Path, was: bytes) -> None:
    path.write_bytes(was)


async def test_the_last_write_of_an_idle_log_is_cleaned(tmp_path: Path) -> None:
    group = await opened(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    for _ in range(3):
        write(group, partition.local_id, range(10))
    write(group, partition.local_id, range(5), None)
    await group.committed()
    assert not group.log.cleanable_segments()
    assert await group.sealer.run(5)
    (segment,) = group.log.cleanable_segments()
    assert segment.is_mostly_unused and segment.file_bytes == TINY.segment_bytes
    done = await clean(group, partition)
    assert done.saved_bytes > TINY.segment_bytes // 2 and done.ends == {partition.local_id: 35}
    left = [(b"key %d" % key, VALUE) for key in range(5, 10)] + [(b"key %d" % key, None) for key in range(5)]
    assert await read(group, partition) == left
    files = names_in(tmp_path, "*.segment")
    assert await group.sealer.run(5) and names_in(tmp_path, "*.segment") == files
    # A tombstone whose time is over goes, but not with the batch that reads end with.
    assert (await clean(group, partition, 20_000)).segments == 0 and await read(group, partition) == left
    names = names_in(tmp_path, PREFIX + "*")
    assert len(names) == 2 and names[1].startswith(REPEATED_PREFIX) and names[0][-20:] == names[1][-20:]
    group.abandon()
    group.log.close()
    for name in names:
        kept = shorten(tmp_path / name)
        again = await opened(tmp_path)
        assert await read(again, again.partitions[partition.local_id]) == left
        again.abandon()
        again.log.close()
        restore(tmp_path / name, kept)
    again = await opened(tmp_path)
    write(again, partition.local_id, [99])
    await again.committed()
    assert await again.sealer.run(5)
    await clean(again, again.partitions[partition.local_id], 30_000)
    assert await read(again, again.partitions[partition.local_id]) == [*left[:5], (b"key 99", VALUE)]
    await again.close()


async def test_beside_appends(tmp_path: Path) -> None:
    group = await opened(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    going = True

    async def writes() -> int:
        count = 0
        while going:
            try:
                write(group, partition.local_id, [count % 7], b"%d" % count)
            except StorageFull:  # nothing held it back: a slow disk has no next file yet
                await asyncio.sleep(0.01)
                continue
            count += 1
            await asyncio.sleep(0)
        await group.committed()
        return count

    writing = asyncio.create_task(writes())
    while not partition.high_watermark:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for _ in range(5):
        await asyncio.sleep(0.02)
        before = partition.high_watermark
        assert await group.sealer.run(5)
        assert max(s.last_index for s in group.log.cleanable_segments()) > 0
        end = max(
            share.last_offset + 1
            for segment in group.log.cleanable_segments()
            for share in segment.partitions()
            if share.local_id == partition.local_id
        )
        assert end >= before > 0
        wanted = CompactionTarget(
            partition.local_id, 0, end, 0, AbortedTransactions(), partition.high_watermark - 1
        )
        await group.clean([wanted], 10_000, 1 << 20, lambda count: None)
        group.free_deleted_segments()
        group.log.prepare_now()
    going = False
    count = await writing
    expected = {b"key %d" % (at % 7): b"%d" % at for at in range(count)}
    assert dict(await read(group, partition)) == expected
    await group.close()
    again = await opened(tmp_path)
    assert dict(await read(again, again.partitions[partition.local_id])) == expected
    await again.close()


async def test_what_was_never_used_of_a_file_is_given_back_though_nothing_goes(tmp_path: Path) -> None:
    group = await opened(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    write(group, partition.local_id, range(10))
    await group.committed()
    assert await group.sealer.run(5) and is_half_dead(group.log, lambda number: 0)
    done = await group.clean([], 10_000, 1 << 20, lambda count: None)
    assert done is not None and done.saved_bytes > TINY.segment_bytes // 2
    assert not is_half_dead(group.log, lambda number: 0) and len(await read(group, partition)) == 10
    await group.close()


async def test_a_full_disk_keeps_its_last_file(tmp_path: Path) -> None:
    group = await opened(tmp_path)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    write(group, partition.local_id, range(10))
    await group.committed()
    pool = group.log._pool
    pool.failed = "no room"
    active = group.log._active
    assert not await group.sealer.run(0.1) and group.log._active is active
    pool.failed = ""
    real = group.log._maintenance.write_checkpoint
    group.log._maintenance.write_checkpoint = lambda *a: (_ for _ in ()).throw(StorageFull("none"))  # type: ignore[method-assign]
    with pytest.raises(StorageFull):
        await group.sealer.run(5)
    group.log._maintenance.write_checkpoint = lambda *a: (_ for _ in ()).throw(WriteFailed("none"))  # type: ignore[method-assign]
    group.log.retry_space()
    with pytest.raises(WriteFailed):
        await group.sealer.run(5)
    group.log._maintenance.write_checkpoint = real  # type: ignore[method-assign]
    group.log.retry_space()
    assert await group.sealer.run(5) and len(group.log.cleanable_segments()) == 1
    await group.close()


async def test_each_member_seals_for_itself_and_an_absent_one_is_waited_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, kept_entries=1000)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    number = partition.local_id
    for turn in range(5):
        write(leader, number, range(5), b"%d" % turn)
        await leader.committed()
    await cluster.agreed()
    expected = [(b"key %d" % key, b"4") for key in range(5)]
    for group in cluster.groups.values():
        assert await group.sealer.run(5)
        await clean(group, group.partitions[number])
        assert await read(group, group.partitions[number]) == expected
    away = next(node for node, group in cluster.groups.items() if group is not leader)
    await cluster.stop(away)
    write(leader, number, range(5), b"5")
    write(leader, number, range(5), b"6")
    await leader.committed()
    active = leader.log._active
    assert not await leader.sealer.run(0.2) and leader.log._active is active
    assert await leader.sealer.run(5, without_members=True)
    await clean(leader, partition)
    await cluster.start(away)
    await cluster.agreed()
    copy = cluster.groups[away]
    assert dict(await read(copy, copy.partitions[number])) == {b"key %d" % k: b"6" for k in range(5)}
    await cluster.stop()
    assert not cluster.fatal
