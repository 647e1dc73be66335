"""Passes over a real group's log beside appends, restarts, other partitions: what readers find at the end."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from lockstep.protocol.records.batch import iter_headers, read_header
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder, Record, iter_records
from lockstep.storage.compaction_pass import Cleaned, CompactionTarget, is_half_dead
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import CorruptLog, OffsetOutOfRange
from tests.storage.cluster import Cluster, append

TOPIC = bytes(range(16))
TINY = LogOptions(segment_bytes=64 << 10, tail_cache_bytes=8 << 10, reserve_bytes=4 << 10)
KEYS = 40
MEMORY = 1 << 20


async def opened(directory: Path, options: LogOptions = TINY) -> LogGroup:
    return await LogGroup.open(
        directory, GroupOptions(1, 1, options, background=False), clock_ms=lambda: 7_000, on_fatal=print
    )


class Writer:
    """Keyed records to one partition, in batches of any kind, and what must be read of them at last."""

    def __init__(self, group: LogGroup, number: int, seed: int) -> None:
        self.group = group
        self.number = number
        self.rng = random.Random(seed)
        self.written: list[tuple[bytes, bytes | None, int]] = []
        """Key, value, transaction (0: none), in order of offsets."""
        self.open: dict[int, int] = {}
        """Producer to its transaction."""
        self.transactions = 0
        self.aborted: set[int] = set()

    @property
    def partition(self) -> PartitionLog:
        return self.group.partitions[self.number]

    def write(self) -> None:
        rng = self.rng
        producer = rng.choice([-1, -1, -1, 1, 2])
        builder = BatchBuilder(rng.choice(list(Codec)), producer_id=producer, transactional=producer >= 0)
        transaction = 0
        if producer >= 0:
            self.transactions += 1
            transaction = self.open.setdefault(producer, self.transactions)
        for _ in range(rng.randrange(1, 6)):
            key = b"key %d" % int(KEYS * rng.random() ** 2)
            value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(400))
            builder.append(value, key, timestamp_ms=5)
            self.written.append((key, value, transaction))
        data = bytearray(builder.build())
        self.group.append(self.partition, data, read_header(data))

    def write_one(self, key: bytes, value: bytes, producer: int = -1) -> None:
        builder = BatchBuilder(producer_id=producer, transactional=producer >= 0)
        builder.append(value, key, timestamp_ms=5)
        self.transactions += producer >= 0
        transaction = self.open.setdefault(producer, self.transactions) if producer >= 0 else 0
        self.written.append((key, value, transaction))
        data = bytearray(builder.build())
        self.group.append(self.partition, data, read_header(data))

    def end(self, producer: int, commit: bool) -> None:
        transaction = self.open.pop(producer, 0)
        if not transaction:
            return
        kind = ControlKind.COMMIT if commit else ControlKind.ABORT
        marker = bytearray(
            build(kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5)
        )
        self.group.append(self.partition, marker, read_header(marker))
        if not commit:
            self.aborted.add(transaction)

    async def read(self) -> list[Record]:
        """What a reader of committed records finds, without control batches."""
        partition, group = self.partition, self.group
        offset = partition.log_start_offset
        found: list[Record] = []
        aborted = partition.aborted_between(0, partition.high_watermark)
        while offset < partition.high_watermark:
            result = await group.read_cold(partition, offset, 1 << 20)
            for buffer in result.buffers:
                for at, header in iter_headers(buffer):
                    if header.next_offset <= offset:
                        continue
                    offset = header.next_offset
                    gone = header.is_transactional and any(
                        t.producer_id == header.producer_id
                        and t.first_offset <= header.base_offset <= t.last_offset
                        for t in aborted
                    )
                    if not header.is_control and not gone:
                        found += iter_records(buffer, at)
        return found

    async def check(self, clean_below: int) -> None:
        records = await self.read()
        there: dict[bytes, bytes | None] = {}
        for record in records:
            assert record.key is not None
            there[record.key] = record.value
        last = {key: value for key, value, transaction in self.written if transaction not in self.aborted}
        assert {k: v for k, v in there.items() if v is not None} == {
            k: v for k, v in last.items() if v is not None
        }
        below = [record.key for record in records if record.offset < clean_below]
        assert len(below) == len(set(below)), "a key twice in what is clean"

    def wanted(self, dirty: int, retention_ms: int = 0) -> CompactionTarget:
        partition = self.partition
        shares = [
            share.last_offset + 1
            for segment in self.group.log.cleanable_segments()
            for share in segment.partitions()
            if share.local_id == self.number
        ]
        end = min([max(shares, default=0), partition.last_stable_offset, partition.high_watermark])
        newest = partition.high_watermark - 1
        return CompactionTarget(self.number, dirty, end, retention_ms, partition.aborted_so_far(), newest)


async def clean(
    group: LogGroup, wanted: list[CompactionTarget], now_ms: int, memory: int = MEMORY
) -> Cleaned:
    found = await group.clean(wanted, now_ms, memory, lambda count: None)
    assert found is not None
    return found


async def settled(group: LogGroup) -> None:
    """All is committed, and no checkpoint is being written, whose end moves on what may be cleaned."""
    await group.committed()
    under_way = group._replica.checkpointer.under_way
    if under_way is not None:
        await asyncio.wait([under_way])


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.segment"))


@pytest.mark.parametrize("seed", range(4))
async def test_exactly_the_last_value_of_each_key_is_left_beside_appends(tmp_path: Path, seed: int) -> None:
    group = await opened(tmp_path / "g")
    compacted = (await group.open_partitions([(TOPIC, 0), (TOPIC, 1)]))[:2]
    plain = (await group.open_partitions([(TOPIC, 2)]))[0]
    writers = [Writer(group, each.local_id, seed * 10 + each.local_id) for each in compacted]
    others: list[bytes] = []
    clean_to = dict.fromkeys((each.local_id for each in compacted), 0)
    rng = random.Random(seed)
    for turn in range(6):
        for step in range(160):
            for writer in writers:
                writer.write()
                if rng.random() < 0.2:
                    writer.end(rng.choice([1, 2]), rng.random() < 0.6)
            if step % 20 == 0:
                others.append(b"%d " % step * 50)
                append(group, group.partitions[plain.local_id], others[-1])
            if step % 8 == 0:
                await group.committed()
        await group.committed()
        wanted = [writer.wanted(clean_to[writer.number]) for writer in writers]
        cleaning = asyncio.create_task(clean(group, wanted, 10_000 + turn, MEMORY if turn % 2 else 4000))
        while not cleaning.done():
            writers[0].write()
            await group.committed()
        for number, end in cleaning.result().ends.items():
            assert end >= clean_to[number]
            clean_to[number] = end
        group.free_deleted_segments()
        group.log.prepare_now()
        for writer in writers:
            await writer.check(clean_to[writer.number])
        if turn % 2:
            await group.close()
            group = await opened(tmp_path / "g")
            for writer in writers:
                writer.group = group
                await writer.check(clean_to[writer.number])
            assert min(clean_to.values()) > 1000 or turn < 5
            clean_to = dict.fromkeys(clean_to, 0)
    found = await group.read_cold(group.partitions[plain.local_id], 0, 1 << 30)
    assert [
        r.value for b in found.buffers for at, _ in iter_headers(b) for r in iter_records(b, at)
    ] == others
    assert [group.log.scrub(segment.sequence) for segment in group.log.segments()] == [None] * len(
        group.log.segments()
    )
    await group.close()


async def filled(group: LogGroup, writer: Writer, batches: int = 1500) -> None:
    """Uncompressed records of a few keys, and one key that is never written again."""
    for at in range(batches):
        builder = BatchBuilder()
        for _ in range(10):
            builder.append(b"v" * 90, b"key %d" % (at % 20), timestamp_ms=5)
            writer.written.append((b"key %d" % (at % 20), b"v" * 90, 0))
        data = bytearray(builder.build())
        group.append(writer.partition, data, read_header(data))
        if at % 10 == 0:
            await settled(group)
    await settled(group)


async def test_the_space_of_what_is_gone_comes_back(tmp_path: Path) -> None:
    group = await opened(
        tmp_path / "g", LogOptions(segment_bytes=256 << 10, pool_segments=1, tail_cache_bytes=8 << 10)
    )
    writer = Writer(group, (await group.open_partitions([(TOPIC, 0)]))[0].local_id, 0)
    await filled(group, writer)
    before = disk_bytes(tmp_path / "g")
    wanted = writer.wanted(0)
    segments = group.log.cleanable_segments()
    dead = sum(segment.total_bytes for segment in segments)
    done = await clean(group, [wanted], 9_000)
    assert done.ends == {writer.number: wanted.end_offset} and done.segments == len(segments) > 4
    assert group.free_deleted_segments() >= len(segments) - 2
    group.log.prepare_now()
    assert before - disk_bytes(tmp_path / "g") >= 0.9 * dead
    await writer.check(wanted.end_offset)
    first = group.log.first_offset(writer.number)
    partition = writer.partition
    assert first is not None and first > 1000 and partition.log_start_offset == 0
    found = group.read(partition, 0, 1)
    while found.cold:
        found = await group.read_cold(partition, 0, 1)
    assert read_header(found.buffers[0]).base_offset >= first
    await group.close()
    group = await opened(tmp_path / "g")
    assert group.partitions[writer.number].log_start_offset == 0
    await group.advance_log_starts({writer.number: 500})
    with pytest.raises(OffsetOutOfRange):
        await group.read_cold(group.partitions[writer.number], 499, 1)
    await group.close()


async def test_what_was_aborted_since_the_last_pass_never_counts(tmp_path: Path) -> None:
    """A pass looks at no transaction that ended before it: nothing of those is left."""
    group = await opened(tmp_path / "g")
    writer = Writer(group, (await group.open_partitions([(TOPIC, 0)]))[0].local_id, 0)
    for at in range(40):
        writer.write_one(b"only %d" % at, b"the last one that counts")
    ends = [0]
    for at in range(40):
        await filled(group, writer, 20)
        writer.write_one(b"only %d" % at, b"aborted", producer=1)
        writer.end(1, commit=False)
        if at % 20 == 19:
            await group.committed()
            wanted = writer.wanted(ends[-1])
            assert (await clean(group, [wanted], 9_000)).ends == {writer.number: wanted.end_offset}
            ends.append(wanted.end_offset)
            await writer.check(ends[-1])
    markers = [each.last_offset for each in writer.partition.aborted_between(0, ends[-1])]
    assert 5 < [marker < ends[1] for marker in markers].count(True) < len(markers) - 5
    await group.close()


async def test_deleted_batches_beside_live_ones_go_once_they_are_half_of_a_file(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    live, dead = await group.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    for at in range(600):
        append(group, dead, b"d" * 900)
        append(group, live, b"l" * (100 + at % 3))
        if at % 10 == 0:
            await settled(group)
    await settled(group)
    log_start = group.control.log_start
    assert not is_half_dead(group.log, log_start)
    assert await clean(group, [], 0) == Cleaned({}, 0, 0, [])
    await group.advance_log_starts({dead.local_id: dead.high_watermark})
    await settled(group)
    before = disk_bytes(tmp_path / "g")
    assert is_half_dead(group.log, log_start)
    done = await clean(group, [], 0)
    assert done.segments > 3 and not is_half_dead(group.log, log_start)
    assert before - disk_bytes(tmp_path / "g") == done.saved_bytes > 200_000
    found = await group.read_cold(live, 0, 1 << 30)
    assert [h.base_offset for b in found.buffers for _, h in iter_headers(b)] == list(range(600))
    await group.close()


async def test_a_pass_ends_with_its_group_and_changes_nothing_more(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    writer = Writer(group, (await group.open_partitions([(TOPIC, 0)]))[0].local_id, 0)
    await filled(group, writer, 600)
    wanted, before = writer.wanted(0), disk_bytes(tmp_path / "g")
    loop, calls = asyncio.get_running_loop(), 0

    def throttle(count: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 500:
            asyncio.run_coroutine_threadsafe(group.close(), loop)
        if calls > 500:
            while not group._replica.stopped:
                pass

    assert await group.clean([wanted], 9_000, MEMORY, throttle) is None
    assert before - disk_bytes(tmp_path / "g") <= 64 << 10 and 500 <= calls <= 501
    assert await group.clean([wanted], 9_000, MEMORY, throttle) is None
    await asyncio.sleep(0.05)
    group = writer.group = await opened(tmp_path / "g")
    await writer.check(0)
    await group.close()


async def test_a_segment_that_is_freed_meanwhile_does_not_end_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await opened(tmp_path / "g")
    writer = Writer(group, (await group.open_partitions([(TOPIC, 0)]))[0].local_id, 0)
    await filled(group, writer, 600)
    wanted, segments = writer.wanted(0), group.log.cleanable_segments()
    real, asked = DataLog.clean, 0

    def clean_and_free(log: DataLog, *arguments: Any) -> int:
        nonlocal asked
        asked += 1
        if asked == 2:
            assert (
                log._free([found for found in log._table.sealed() if found.sequence == segments[3].sequence])
                == 1
            )
        return real(log, *arguments)

    monkeypatch.setattr(DataLog, "clean", clean_and_free)
    done = await clean(group, [wanted], 9_000)
    assert done.ends == {writer.number: wanted.end_offset}
    assert done.segments == len(segments) - 1 > 4
    await group.close()


async def test_corruption_ends_a_pass_before_newer_segments(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    writer = Writer(group, (await group.open_partitions([(TOPIC, 0)]))[0].local_id, 0)
    await filled(group, writer, 600)
    third = group.log.cleanable_segments()[2]
    path = tmp_path / "g" / f"{third.sequence:016d}.segment"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    sizes = [s.total_bytes for s in group.log.segments()]
    with pytest.raises(CorruptLog):
        await clean(group, [writer.wanted(0)], 9_000)
    assert [s.total_bytes for s in group.log.segments()] == sizes, "a map of rot is none"
    group.compaction_progress.note({writer.number: 4000}, group.partitions)
    with pytest.raises(CorruptLog):
        await clean(group, [writer.wanted(writer.wanted(0).end_offset)._replace(dirty_offset=4000)], 9_000)
    after = [s.total_bytes for s in group.log.segments()]
    assert after[2:] == sizes[2:]
    await group.close()


async def test_members_clean_on_their_own_and_one_that_is_behind_gets_what_is_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, log=TINY)
    await cluster.start(1, 2)
    leader = await cluster.leader(1, 2)
    writer = Writer(leader, (await leader.open_partitions([(TOPIC, 0)]))[0].local_id, 3)
    for at in range(500):
        writer.write()
        writer.end(1 + at % 2, at % 3 > 0)
        if at % 5 == 0:
            await leader.committed()
    for producer in (1, 2):
        writer.end(producer, True)
    await leader.committed()
    await cluster.until(lambda: len(leader.log.cleanable_segments()) > 2)
    wanted = writer.wanted(0)
    for now_ms in (9_000, 9_001):
        await clean(
            leader, [wanted._replace(dirty_offset=0 if now_ms == 9_000 else wanted.end_offset)], now_ms
        )
    leader.free_deleted_segments()
    leader.log.prepare_now()
    await writer.check(wanted.end_offset)
    await cluster.start(3)
    await cluster.until(lambda: len(cluster.groups) == 3 and 3 in cluster.groups)
    await cluster.agreed()
    writer.group = cluster.groups[3]
    await writer.check(wanted.end_offset)
    assert writer.partition.high_watermark == leader.partitions[writer.number].high_watermark
    await cluster.stop()
