"""Closed partitions leave nothing in memory, and no bytes of records in cleaned files."""

from __future__ import annotations

from pathlib import Path

from lockstep.protocol.records.batch import iter_headers
from lockstep.storage.log.batch_index import DEAD_PARTITION
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import CONTROL_PARTITION, NOTES_PARTITION
from tests.storage.cluster import append
from tests.storage.test_compaction_pass import TOPIC, clean, opened, settled

PSEUDO = {CONTROL_PARTITION, NOTES_PARTITION, DEAD_PARTITION}


async def churned(group: LogGroup, rounds: int) -> tuple[int, int]:
    """Open, fill and close three partitions a round beside one that stays and grows by a batch a round.

    Returns the number of the one that stays, and of the first that came and went."""
    (kept,) = await group.open_partitions([(TOPIC, 0)])
    first = kept.local_id + 1
    for at in range(rounds):
        temporary = await group.open_partitions([(TOPIC, 1 + at * 3 + each) for each in range(3)])
        for each in temporary:
            append(group, each, b"t" * 1_500)
        append(group, group.partitions[kept.local_id], b"k" * 100)
        await settled(group)
        await group.close_partitions([each.local_id for each in temporary])
        await settled(group)
    return kept.local_id, first


def held(group: LogGroup) -> set[int]:
    """The partitions that the log's tables name in memory, and the index of the segment written to."""
    log = group.log
    return (set(log._table.spans) | set(log._indexes)) - PSEUDO


async def test_memory_names_only_open_partitions_while_running_and_after_a_restart(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    kept, _ = await churned(group, 60)
    assert len(group.log.segments()) > 3
    assert held(group) == {kept}
    assert not group.log._tail_cache._partitions.keys() - PSEUDO - {kept}
    await group.close()
    group = await opened(tmp_path / "g")
    assert held(group) == {kept}
    found = await group.read_cold(group.partitions[kept], 0, 1 << 20)
    assert [h.base_offset for b in found.buffers for _, h in iter_headers(b)] == list(range(60))
    await group.close()


async def test_bytes_of_partitions_closed_in_the_active_segment_count_as_dead(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    await churned(group, 60)
    log_start = group.control.log_start
    for segment in group.log.cleanable_segments():
        assert segment.dead_bytes(log_start) > segment.total_bytes / 2
    await group.close()


async def test_cleaning_removes_records_and_rows_of_what_a_checkpoint_covers(tmp_path: Path) -> None:
    group = await opened(tmp_path / "g")
    kept, first = await churned(group, 60)
    sequences = [segment.sequence for segment in group.log.cleanable_segments()]
    assert len(sequences) > 2
    await clean(group, [], 0)
    group.free_deleted_segments()
    cleaned = [segment for segment in group.log.segments() if segment.sequence in sequences]
    assert cleaned and {share.local_id for segment in cleaned for share in segment.partitions()} == {kept}
    log = group.log
    for segment in cleaned:
        frames = log.frames_cold(segment.first_index, 1 << 30)
        bodies = [
            (entry.partition, len(payload))
            for frame in frames
            if frame.index <= segment.last_index
            for entry, payload in zip(frame.directory, frame.payloads, strict=True)
        ]
        assert {number for number, size in bodies if size} <= {kept}
        assert {number for number, size in bodies if not size} > {CONTROL_PARTITION}
        assert log.scrub(segment.sequence) is None
    assert max(group.control.partitions) == kept and group.control.is_closed(first)
    await group.close()
    group = await opened(tmp_path / "g")
    assert list(group.control.partitions) == [CONTROL_PARTITION, kept]
    assert group.control.next_local_id == first + 180
    found = await group.read_cold(group.partitions[kept], 0, 1 << 20)
    assert [h.base_offset for b in found.buffers for _, h in iter_headers(b)] == list(range(60))
    await group.close()
