"""Batches that belong together in a group on a real directory, and what its readers know of transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.protocol.records.batch import BatchHeader, read_header
from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.aborted_transactions import ENTRY_CONTROL, ENTRY_TRANSACTIONAL, AbortedTransaction
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Backlogged, BatchTooLarge, NotLeader, StorageFull
from tests.storage.cluster import Cluster, append, batch
from tests.storage.test_log_group import SMALL, TOPIC, checkpointed, open_group, values_of

Together = list[tuple[PartitionLog, bytearray, BatchHeader]]


def together(*batches: tuple[PartitionLog, bytearray | bytes]) -> Together:
    return [(partition, bytearray(data), read_header(data)) for partition, data in batches]


def plain(*partitions: PartitionLog, value: bytes = b"z") -> Together:
    return together(*((partition, batch(value)) for partition in partitions))


def of_transaction(producer_id: int) -> bytes:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, transactional=True)
    builder.append(timestamp_ms=5, key=None, value=b"x")
    return builder.build()


def marker(producer_id: int, kind: ControlKind) -> bytes:
    return build(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5)


def end(group: LogGroup, producer_id: int, kind: ControlKind, *partitions: PartitionLog) -> None:
    group.append_together(together(*((each, marker(producer_id, kind)) for each in partitions)))


async def test_what_is_appended_together_is_one_frame(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    one, two = await group.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    before = group.log.last_index
    append(group, one, b"z" * (SMALL.max_frame_bytes - 1000))
    assert group.append_together(plain(one, two, one, value=b"y" * 500)) == [1, 0, 2]
    assert (one.next_offset, two.next_offset) == (3, 1)
    await group.committed()
    _, frame = group.log.frames_cold(before + 1, 1 << 30)
    assert [(e.partition, e.base_offset) for e in frame.directory] == [
        (one.local_id, 1),
        (two.local_id, 0),
        (one.local_id, 2),
    ]
    assert values_of(group, one, 1) == [b"y" * 500] * 2
    assert group.append_together([]) == []
    await group.close()


async def test_what_is_refused_is_refused_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = await open_group(tmp_path, max_uncommitted_bytes=SMALL.max_frame_bytes // 2)
    one, two = await group.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    append(group, one, b"before")
    quarter = b"z" * (SMALL.max_frame_bytes // 4)
    for count, error in ((3, Backlogged), (4, BatchTooLarge)):
        with pytest.raises(error):
            group.append_together(plain(*[two] * count, value=quarter))

    def only_the_reserve(payload_bytes: int, batch_count: int = 1, *, reserved: bool = False) -> bool:
        return reserved

    monkeypatch.setattr(group.log, "has_space_for", only_the_reserve)
    with pytest.raises(StorageFull):
        group.append_together(plain(one, two))
    assert (one.next_offset, two.next_offset) == (1, 0)
    assert group.append_together(plain(one, two), reserved=True) == [1, 0]
    await group.committed()
    await group.close()
    with pytest.raises(NotLeader):
        group.append_together(plain(one, two))


async def test_the_directory_has_the_kind_of_each_batch(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    (one,) = await group.open_partitions([(TOPIC, 0)])
    before = group.log.last_index
    group.append_together(together((one, batch(b"a")), (one, of_transaction(7))))
    end(group, 7, ControlKind.COMMIT, one)
    await group.committed()
    frames = group.log.frames_cold(before + 1, 1 << 30)
    flags = [entry.flags for frame in frames for entry in frame.directory]
    assert flags == [0, ENTRY_TRANSACTIONAL, ENTRY_TRANSACTIONAL | ENTRY_CONTROL]
    await group.close()


async def test_what_is_open_and_what_was_aborted_survives_checkpoints_and_restarts(tmp_path: Path) -> None:
    group = await open_group(tmp_path)
    one, two = await group.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    append(group, one, b"a")
    group.append_together(together((one, of_transaction(7)), (two, of_transaction(7))))
    await group.committed()
    assert (one.last_stable_offset, two.last_stable_offset) == (1, 0)
    assert [bytes(each) for each in group.read(one, 0, 1 << 20, one.last_stable_offset).buffers] == [
        bytes(each) for each in group.read(one, 0, 1).buffers
    ]
    assert group.read(one, 0, 1 << 20, 99).total_bytes == group.read(one, 0, 1 << 20).total_bytes
    assert (await group.read_cold(one, 1, 1 << 20, one.last_stable_offset)).total_bytes == 0
    end(group, 7, ControlKind.ABORT, one, two)
    assert (one.last_stable_offset, two.last_stable_offset) == (1, 0)  # not before it is committed
    await group.committed()
    assert (one.last_stable_offset, two.last_stable_offset) == (3, 2)
    group.append_together(together((one, of_transaction(8))))
    for _ in range(3):
        while group.log.sealed_since_checkpoint is False and group._replica.checkpointer.under_way is None:
            append(group, two, b"z" * 100_000)
            await group.committed()
        await checkpointed(group)
        end_of_two = two.high_watermark
        await group.close()
        group = await open_group(tmp_path)
        one, two = (group.partitions[number] for number in (one.local_id, two.local_id))
        assert (one.last_stable_offset, two.last_stable_offset) == (3, end_of_two)
        assert one.aborted_between(0, 99) == [AbortedTransaction(7, 1, 2, 3)]
        assert two.aborted_between(0, 99) == [AbortedTransaction(7, 0, 1, 2)]
    await group.close()


async def test_followers_know_the_same(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    leader = await cluster.leader()
    one, two = await leader.open_partitions([(TOPIC, 0), (TOPIC, 1)])
    leader.append_together(
        together((one, of_transaction(7)), (two, of_transaction(7)), (two, of_transaction(8)))
    )
    await leader.committed()
    await cluster.agreed()
    behind = next(node for node in cluster.groups if cluster.groups[node] is not leader)
    await cluster.stop(behind)
    end(leader, 7, ControlKind.ABORT, one, two)
    end(leader, 7, ControlKind.COMMIT, one)
    await leader.committed()
    await cluster.start(behind)
    await cluster.agreed()
    for group in cluster.groups.values():
        views = [group.partitions[each.local_id] for each in (one, two)]
        assert [each.last_stable_offset for each in views] == [3, 1]
        assert views[1].aborted_between(0, 99) == [AbortedTransaction(7, 0, 2, 1)]
    await cluster.stop()
