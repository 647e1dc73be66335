"""Sealed segments whose file is lost, cut short, or without a header: still the log's, as damage, until
their frames have come from another member; and what is refused, as nobody knows what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.log import inspect
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import byte_of, segment_of
from lockstep.storage.log.sealed_segment import SealedSegment
from lockstep.storage.types import NO_PARTITION, CorruptLog, DamagedBatch, HardState
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.frames import same, whole
from tests.storage.log.joined_logs import OPTIONS, fill, on_a_simulated_disk, two_checkpoints
from tests.storage.log.memory_log import MemoryLog
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem
from tests.storage.log.test_damage import bases
from tests.storage.log.test_installation import SMALL
from tests.storage.log.test_join_faults import joined_names
from tests.storage.log.test_rot import on_disk
from tests.storage.log.test_segment_compaction import agree, two_logs
from tests.support.cases import each_case

Files = dict[str, bytes]


def closed_logs() -> tuple[Files, MemoryLog, list[int]]:
    """The files of a closed log, its model, and the sequences of its segments below both checkpoints."""
    log, model, disk = two_logs()
    sequences = [each.sequence for each in log.segments() if each.sequence < checkpointed(log)[0]]
    log.close()
    assert sequences == list(range(1, len(sequences) + 1)) and len(sequences) > 3
    return dict(disk.now().files), model, sequences


def checkpointed(log: DataLog) -> list[int]:
    """The segments that hold the positions of both checkpoints."""
    return [segment_of(each.position) for each in log._maintenance.checkpoints]


def file_of(sequence: int) -> str:
    return f"{sequence:016d}.segment"


def opened(files: Files, salvage: bool = False) -> tuple[DataLog, SimulatedFileSystem]:
    disk = SimulatedFileSystem(Image(files))
    return DataLog.open(DIRECTORY, GROUP, SMALL, disk, salvage=salvage, salvage_incarnation=9), disk


def without(files: Files, *names: str) -> Files:
    return {name: data for name, data in files.items() if name not in names}


def repair(log: DataLog, model: MemoryLog, sequence: int) -> None:
    found = log.scrub(sequence)
    assert found is not None
    log.rewrite_segment(sequence, model.snapshot_frames(*found, 1 << 30))
    assert log.scrub(sequence) is None


def batch_starts(model: MemoryLog, partition: int) -> list[int]:
    """The base offsets of all batches; see `two_logs` for how many records each of them has."""
    found, offset = [], 0
    while model.read_cold(partition, offset, 1, 1 << 40).buffers:
        found.append(offset)
        offset += 1 if partition == 3 else 2
    return found


def lost_starts(log: DataLog, model: MemoryLog, partition: int) -> set[int]:
    """The base offsets of the batches that cannot be read; all others are as the model's."""
    lost = set()
    for at in batch_starts(model, partition):
        try:
            found = whole(log.read_cold(partition, at, 1, at + 1).buffers)
        except DamagedBatch:
            lost.add(at)
        else:
            assert found == whole(model.read_cold(partition, at, 1, at + 1).buffers)
    return lost


def known_starts(log: DataLog, model: MemoryLog, partition: int) -> set[int]:
    """The base offsets of the batches that are known to be damaged."""
    ranges = [range(e.first_offset, e.end_offset) for e in log.damage.known() if e.local_id == partition]
    return {at for at in batch_starts(model, partition) if any(at in each for each in ranges)}


@each_case("salvage", [False, True])
def test_a_log_opens_without_any_of_its_sealed_files_and_gets_it_back(salvage: bool) -> None:
    files, model, sequences = closed_logs()
    for sequence in sequences:
        log, disk = opened(without(files, file_of(sequence)), salvage)
        segment = log._table.get(sequence)
        assert segment is not None and log.report.lost_files == (
            f"{DIRECTORY / file_of(sequence)}: the segment is missing",
        )
        assert log.hard_state.incarnation == 0, "it is the member that it was"
        assert log.corruption_found
        known = [(each.local_id, each.first_offset, each.end_offset) for each in log.damage.known()]
        assert known == [
            (each.local_id, each.first_offset, each.last_offset + 1)
            for each in log._table.partitions_of(segment)
        ]
        partition, first, end = known[0]
        with pytest.raises(DamagedBatch) as raised:
            log.read_cold(partition, first, 1 << 20, 1 << 40)
        assert (raised.value.base_offset, raised.value.next_offset) == (first, end)
        assert log.scrub(sequence) == (segment.first_index, segment.tail.index)
        again, disk = opened(dict(disk.now().files), salvage)
        assert [(e.local_id, e.first_offset, e.end_offset) for e in again.damage.known()] == known
        repair(again, model, sequence)
        assert again.damage.known() == []
        agree(again, model)
        again.close()
        again, _ = opened(dict(disk.now().files), salvage)
        assert (again.report.lost_files, again.damage.known()) == ((), [])
        agree(again, model)


def test_what_is_cut_off_is_damaged_and_what_is_left_can_be_read() -> None:
    files, model, sequences = closed_logs()
    sequence = sequences[1]
    data = files[file_of(sequence)]
    counts = []
    for size in (0, 100, 5000, len(data) // 2, len(data) - 1):
        log, disk = opened(files | {file_of(sequence): data[:size]})
        where = f"{DIRECTORY / file_of(sequence)} byte "
        assert [each.startswith(where) for each in log.report.lost_files] == [True] * (size < len(data) - 1)
        lost = [lost_starts(log, model, partition) for partition in (1, 2, 3)]
        assert lost == [known_starts(log, model, partition) for partition in (1, 2, 3)], size
        counts.append(sum(map(len, lost)))
        if counts[-1]:
            repair(log, model, sequence)
        assert log.damage.known() == []
        agree(log, model)
        log.close()
        log, _ = opened(dict(disk.now().files))
        assert (log.report.lost_files, log.damage.known()) == ((), [])
        agree(log, model)
    assert counts[0] == counts[1] >= counts[2] > counts[3] > counts[4] == 0, counts


def test_a_segment_without_a_valid_header_comes_from_another_member() -> None:
    files, model, sequences = closed_logs()
    for sequence in sequences:
        data = files[file_of(sequence)]
        log, _ = opened(files | {file_of(sequence): data[:30] + bytes([data[30] ^ 1]) + data[31:]})
        assert "the segment header does not verify" in log.report.lost_files[0]
        repair(log, model, sequence)
        agree(log, model)


def test_neighbours_that_are_lost_together_come_back_in_any_order() -> None:
    files, model, sequences = closed_logs()
    for order in (sequences, sequences[::-1]):
        log, disk = opened(without(files, *map(file_of, sequences)))
        assert len(log.report.lost_files) == len(sequences)
        for sequence in order:
            repair(log, model, sequence)
        agree(log, model)
        log.close()
        log, _ = opened(dict(disk.now().files))
        assert log.report.lost_files == () and log.report.rebuilt_indexes == 0
        agree(log, model)


def test_a_joined_file_that_is_lost_comes_from_another_member() -> None:
    log, model, make, disk = on_a_simulated_disk(4)
    log.join()
    fill(log, model, make, 2)
    (name,) = joined_names(disk)
    log.close()
    disk = SimulatedFileSystem(Image(without(dict(disk.now().files), name)))
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert log.report.lost_files == (f"{DIRECTORY / name}: the segment is missing",)
    assert log.is_joined(4) and log.scrub(4) == (1, 8)
    log.rewrite_segment(4, model.snapshot_frames(1, 8, 1 << 30))
    assert log.scrub(4) is None
    for number in (1, 2, 3):
        assert whole(log.read_cold(number, 0, 1 << 30, 1 << 40).buffers) == whole(
            model.read_cold(number, 0, 1 << 30, 1 << 40).buffers
        )


def test_a_file_is_put_back_from_a_copy() -> None:
    files, model, sequences = closed_logs()
    name = file_of(sequences[2])
    log, disk = opened(without(files, name))
    log.close()
    log, _ = opened(dict(disk.now().files) | {name: files[name]})
    assert log.report.lost_files == () and log.damage.known() != [], "known since an earlier start"
    assert log.scrub(sequences[2]) is None
    assert log.damage.known() == []
    agree(log, model)


def test_records_of_a_lost_file_are_given_up_for_good() -> None:
    files, model, sequences = closed_logs()
    log, disk = opened(without(files, file_of(sequences[2])))
    gone = [known_starts(log, model, partition) for partition in (1, 2, 3)]
    given = [each for partition in (1, 2, 3) for each in log.damage.skip_damage(partition)]
    assert {each.sequence for each in given} == {sequences[2]} and all(gone)
    log.close()
    log, _ = opened(dict(disk.now().files))
    assert all(each.is_skipped for each in log.damage.known()) and log.damage.known()
    for partition, starts in enumerate(gone, 1):
        for at in starts:
            assert not log.read_cold(partition, at, 1, at + 1).buffers, "no error"
        behind = max(starts) + (1 if partition == 3 else 2)
        assert bases(list(log.read_cold(partition, min(starts), 1, 1 << 40).buffers)) == [behind]


def test_a_scrub_finds_a_lost_name_though_the_file_is_still_open() -> None:
    log, model, disk = two_logs()
    segment = log.segments()[1]
    assert log.read_cold(3, 15, 1, 16).buffers, "opened"
    disk.unlink(DIRECTORY / file_of(segment.sequence))
    assert log.scrub(segment.sequence) == (segment.first_index, segment.last_index)
    assert log.damage.is_damaged(segment.sequence)
    repair(log, model, segment.sequence)
    assert file_of(segment.sequence) in disk.list_dir(DIRECTORY) and log.damage.known() == []
    agree(log, model)


def test_frames_of_no_partition_are_named_by_their_indexes() -> None:
    files, _, sequences = closed_logs()
    log, _ = opened(without(files, file_of(sequences[1])))
    segment = log._table.get(sequences[1])
    assert segment is not None and segment.summary is not None
    for column in segment.summary.arrays():
        del column[:]
    log.damage.forget(sequences[1])
    log.scrub(sequences[1])
    (known,) = log.damage.known()
    assert (known.local_id, known.first_offset, known.end_offset) == (
        NO_PARTITION,
        segment.first_index,
        segment.tail.index + 1,
    )


def test_a_log_is_refused_where_nobody_knows_what_was_lost() -> None:
    files, _, sequences = closed_logs()
    lost = file_of(sequences[1])
    index = lost.replace(".segment", ".index")
    with pytest.raises(CorruptLog, match=f"{lost}: the segment is missing; it held frames .*index file is m"):
        opened(without(files, lost, index), salvage=True)
    with pytest.raises(CorruptLog, match=f"{lost} byte 0: the segment header does not verify"):
        opened(without(files, index) | {lost: bytes(len(files[lost]))}, salvage=True)
    other = file_of(sequences[2]).replace(".segment", ".index")
    with pytest.raises(CorruptLog, match=f"{lost}.* its index file does not fit the segments beside it"):
        opened(without(files, lost) | {index: files[other]}, salvage=True)


def test_a_log_is_refused_where_a_segments_end_is_unknown() -> None:
    """A scan that stops early at rot would hide batches: neither an index nor the next header has the end."""
    files, _, sequences = closed_logs()
    first, second = (file_of(each) for each in sequences[1:3])
    index = first.replace(".segment", ".index")
    with pytest.raises(CorruptLog, match=f"{first}: where it ends is unknown"):
        opened(without(files, index, second), salvage=True)
    log, _ = opened(without(files, index))
    log.close()


def freed_before(is_first: bool) -> tuple[Files, MemoryLog, int, int]:
    """The files of a log without one segment, of which the one before was freed: without the log's first, or
    one behind a segment that stays. Then the lost segment's sequence, and its first index."""
    log, model, disk = two_logs()
    segments = log.segments()
    freed = segments[: 3 if is_first else 2][0 if is_first else 1 :]
    log._maintenance.queue_dead(log._table.remove([s for s in log._table if s.sequence in numbers_of(freed)]))
    log.prepare_now()
    (lost,) = (each for each in log.segments() if each.sequence == freed[-1].sequence + 1)
    log.close()
    return without(dict(disk.now().files), file_of(lost.sequence)), model, lost.sequence, lost.first_index


def numbers_of(segments: list[SealedSegment]) -> set[int]:
    return {each.sequence for each in segments}


@each_case("is_first", [True, False])
def test_a_segment_behind_freed_ones_is_damage_though_its_begin_is_unknown(is_first: bool) -> None:
    files, model, sequence, first_index = freed_before(is_first)
    log, _ = opened(files)
    segment = log._table.get(sequence)
    assert segment is not None and len(log.report.lost_files) == 1
    assert segment.first_index <= first_index <= segment.tail.index
    assert not log.has_exact_begin(sequence)
    parts = list(log._table.partitions_of(segment))
    assert {(e.local_id, e.first_offset, e.end_offset) for e in log.damage.known()} == {
        (each.local_id, each.first_offset, each.last_offset + 1) for each in parts
    }
    with pytest.raises(DamagedBatch):
        log.read_cold(3, parts[-1].first_offset, 1, 1 << 40)
    behind = parts[-1].last_offset + 1
    assert whole(log.read_cold(3, behind, 1, behind + 1).buffers) == whole(
        model.read_cold(3, behind, 1, behind + 1).buffers
    )
    log.close()


@each_case("is_first", [True, False])
@each_case("older", [0, 2])
def test_its_frames_come_from_another_member(is_first: bool, older: int) -> None:
    """The chain value at its end verifies them; what the other member has from before is left out."""
    files, model, sequence, first_index = freed_before(is_first)
    log, disk = opened(files)
    found = log.scrub(sequence)
    assert found is not None
    shipped = model.snapshot_frames(first_index - older, found[1], 1 << 30)
    frames = log.frames_from_begin(sequence, shipped)
    assert frames[0].index == first_index
    assert not log.frames_from_begin(sequence, model.snapshot_frames(1, first_index - 1, 1 << 30))
    chain = model.chain_at(first_index - 1)
    with pytest.raises(ValueError, match="would be lost"):
        log.rewrite_segment(sequence, frames[1:], model.chain_at(first_index), lambda partition: 0)
    log.rewrite_segment(sequence, frames, chain, lambda partition: 0)
    assert log.scrub(sequence) is None and log.damage.known() == [] and log.has_exact_begin(sequence)
    log.close()
    log, _ = opened(dict(disk.now().files))
    assert log.report.lost_files == () and log.damage.known() == []
    segment = log._table.get(sequence)
    assert segment is not None and segment.first_index == first_index
    for partition in (1, 2, 3):
        at = next(e.first_offset for e in log._table.partitions_of(segment) if e.local_id == partition)
        assert whole(log.read_cold(partition, at, 1 << 30, 1 << 40).buffers) == whole(
            model.read_cold(partition, at, 1 << 30, 1 << 40).buffers
        )


def test_the_segment_of_the_older_checkpoint_is_repaired_once_both_are_above_it() -> None:
    files, model, _ = closed_logs()
    log, _ = opened(files)
    older, _ = checkpointed(log)
    log, _ = opened(without(files, file_of(older)))
    assert not log.rewritable(older) and log.scrub(older) is not None
    two_checkpoints(log, model)
    repair(log, model, older)
    agree(log, model)


def damaged_at_the_newest_checkpoint() -> Iterator[tuple[Files, MemoryLog]]:
    """Logs whose segment with the newest checkpoint's position is lost, cut short or corrupt below that."""
    files, model, _ = closed_logs()
    log, _ = opened(files)
    name = file_of(checkpointed(log)[1])
    at = byte_of(log._maintenance.checkpoints[1].position)
    data = files[name]
    yield without(files, name), model
    for size in (0, 100, 5000, at - 1):
        yield files | {name: data[:size]}, model
    for place in (30, at - 300):
        yield files | {name: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]}, model


def test_without_the_newest_checkpoints_segment_a_member_comes_back_as_another() -> None:
    """It may have acknowledged what it forgets; what the checkpoint stands for is committed."""
    for files, model in damaged_at_the_newest_checkpoint():
        with pytest.raises(CorruptLog, match="segment"):
            opened(files)
        log, disk = opened(files, salvage=True)
        assert log.report.salvaged_from == log.last_index + 1 and log.report.ignored_checkpoints
        assert log.hard_state == HardState(0, -1, 9)
        (kept,) = log._maintenance.checkpoints
        assert kept.checkpoint.index == 61
        assert 61 <= log.last_index < 81
        frames = model.snapshot_frames(1, log.last_index, 1 << 30)
        assert all(map(same, log.snapshot_frames(1, log.last_index, 1 << 30), frames))
        log.append(model.snapshot_frames(log.last_index + 1, 90, 1 << 30))
        log.flush()
        log.close()
        again, _ = opened(dict(disk.now().files))
        assert (again.last_index, again.report.salvaged_from) == (90, 0)
        assert whole(again.read_cold(3, 0, 1 << 30, 1 << 40).buffers) == whole(
            model.read_cold(3, 0, 1 << 30, 1 << 40).buffers
        )


def test_a_crash_while_the_newest_checkpoint_is_dropped_leaves_it_to_be_done_again() -> None:
    files, _ = next(damaged_at_the_newest_checkpoint())
    disk = SimulatedFileSystem(Image(files))
    first = DataLog.open(DIRECTORY, GROUP, SMALL, disk, salvage=True, salvage_incarnation=9)
    for upto in range(len(disk.record)):
        for lost in ({}, dict.fromkeys(disk.pending(upto))):
            again, _ = opened(dict(disk.crash(upto, lost).files), salvage=True)
            assert again.last_index == first.last_index
            assert again.hard_state in (HardState(0, -1, 9), HardState(0, -1, 10))


def test_an_index_file_of_a_lost_segment_stays_on_a_full_disk() -> None:
    files, _, sequences = closed_logs()
    log, disk = opened(without(files, file_of(sequences[1])))
    log.drop_indexes(1 << 40)
    names = disk.list_dir(DIRECTORY)
    assert file_of(sequences[1]).replace(".segment", ".index") in names
    assert file_of(sequences[2]).replace(".segment", ".index") not in names


def test_a_lost_segment_is_freed_with_its_records() -> None:
    files, model, sequences = closed_logs()
    log, disk = opened(without(files, file_of(sequences[0])))
    log.free_deleted_segments(lambda partition: 1 << 40)
    log.prepare_now()
    for _ in range(3):
        log.prepare_now()
    assert log.write_error == "" and log.damage.known() == []
    log.close()
    again, _ = opened(dict(disk.now().files))
    assert (again.report.lost_files, again.last_index) == ((), model.last_index)


def test_a_stopped_log_without_a_file_is_verified_and_read_up_to_it(tmp_path: Path) -> None:
    files, _, sequences = closed_logs()
    on_disk(Image(without(files, file_of(sequences[1]))), tmp_path)
    verdict = inspect.verify(tmp_path, GROUP)
    assert verdict.is_corrupt
    assert {each.segment for each in verdict.damage} == {sequences[1]}
    log = inspect.GroupLog(tmp_path, GROUP)
    seen = []
    with pytest.raises(CorruptLog, match=f"{file_of(sequences[1])}: the segment is missing"):
        for segment, _ in log.frames():
            seen.append(segment.sequence)
    assert set(seen) == {sequences[0]}
