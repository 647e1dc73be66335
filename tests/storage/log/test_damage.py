"""A changed byte never leaves the log; what is damaged is known, also after a restart, until it is healed."""

from __future__ import annotations

import errno
import json

import pytest

from lockstep.storage.log import batch_reader
from lockstep.storage.log.damage import DAMAGE_NAME, MAX_RANGES
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import BATCH_PREFIX, BATCH_PREFIX_BYTES
from lockstep.storage.log.segments import Segment
from lockstep.storage.log.verified_batches import VerifiedRangesCache
from lockstep.storage.types import NO_PARTITION, Buffer, DamagedBatch
from tests.storage.log.crash_world import DIRECTORY, GROUP, OPTIONS
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem
from tests.storage.log.test_index_file import in_former_format
from tests.storage.log.test_segment_compaction import reopened, two_logs
from tests.support.cases import each_case

PARTITION = 1


def first_sequence(log: DataLog) -> int:
    return log.segments()[0].sequence


def change(
    disk: SimulatedFileSystem, log: DataLog, row: int, byte: int = 30, sequence: int = 0
) -> tuple[int, int]:
    """Change a byte of a batch; [first, end) of its offsets."""
    segment = log._table.get(sequence or first_sequence(log))
    assert segment is not None
    index = log._table.index_of(segment, PARTITION, load=True)
    assert index is not None
    disk._inodes[disk._names[segment.path.name]].data[index.positions[row] + byte] ^= 0x20
    end = index.bases[row + 1] if row + 1 < len(index.bases) else index.next_offset
    return index.bases[row], end


def damaged(log: DataLog, sequence: int, first: int, end: int, problem: str) -> DamagedBatch:
    """Of the segment that has this sequence now."""
    segment = log._table.get(sequence)
    assert segment is not None
    return DamagedBatch(sequence, segment.serial, PARTITION, first, end, problem)


def bases(buffers: list[Buffer] | tuple[Buffer, ...]) -> list[int]:
    found, data, at = [], b"".join(buffers), 0
    while at < len(data):
        base, length, *_ = BATCH_PREFIX.unpack_from(data, at)
        found.append(base)
        at += 12 + length
    return found


def read(log: DataLog, offset: int, end: int = 1 << 40) -> list[int]:
    return bases(list(log.read_cold(PARTITION, offset, 1 << 30, end).buffers))


@each_case("byte", [*range(BATCH_PREFIX_BYTES), BATCH_PREFIX_BYTES, 25])
def test_a_read_ends_before_a_batch_that_changed_and_begins_with_none(byte: int) -> None:
    log, _, disk = two_logs()
    whole = read(log, 0)
    first, end = change(disk, log, 2, byte)
    assert read(log, 0) == [each for each in whole if each < first]
    with pytest.raises(DamagedBatch) as raised:
        read(log, first)
    assert (raised.value.partition, raised.value.base_offset, raised.value.next_offset) == (
        PARTITION,
        first,
        end,
    )
    with pytest.raises(DamagedBatch):
        log.read(PARTITION, first, 1 << 30, 1 << 40)
    assert read(log, end) == [each for each in whole if each >= end]
    assert log.corruption_found
    (known,) = log.damage.known()
    assert (known.local_id, known.first_offset, known.end_offset) == (PARTITION, first, end)


@each_case("index_format", [1, 2])
def test_index_files_of_former_formats_serve_and_a_scrub_writes_them_again(index_format: int) -> None:
    log, _, disk = two_logs()
    whole = read(log, 0)
    log.close()
    new = {name: data for name, data in disk.now().files.items() if name.endswith(".index")}
    old = {name: in_former_format(data, index_format) for name, data in new.items()}
    disk = SimulatedFileSystem(Image({**disk.now().files, **old}))
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert log.report.rebuilt_indexes == 0
    assert read(log, 0) == whole and log.damage.known() == []
    for segment in log.segments():
        assert log.scrub(segment.sequence) is None
    log.prepare_now()
    assert {name: disk.now().files[name] for name in new} == new
    assert read(log, 0) == whole
    first, _ = change(disk, log, 2, 15)
    assert read(log, 0) == [each for each in whole if each < first]


def test_one_large_batch_is_remembered_as_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "SMALL_BYTES", 1)  # so that any batch is a large one
    log, _, _ = two_logs()
    noted: list[tuple[int, int]] = []

    class Noting(VerifiedRangesCache):
        def note(self, owner: int, first: int, last: int, modified: int, now: float) -> None:
            noted.append((first, last))

    log._reader._verified = Noting()
    assert len(log.read(PARTITION, 0, 1, 1 << 40).buffers) == 1
    assert noted == [(0, 2)]


def test_damage_is_known_after_a_restart_until_all_verifies() -> None:
    log, model, disk = two_logs()
    first, end = change(disk, log, 1)
    sequence = first_sequence(log)
    assert log.scrub(sequence) is not None
    (known,) = log.damage.known()
    assert (known.sequence, known.first_offset, known.end_offset) == (sequence, first, end)
    log, disk = reopened(log, disk)
    assert log.corruption_found and log.damage.is_damaged(sequence)
    segment = log.segments()[0]
    log.rewrite_segment(sequence, model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30))
    assert log.damage.known() == []
    assert log.scrub(sequence) is None
    assert DAMAGE_NAME not in disk._names


def test_given_up_offsets_are_passed_over_and_whole_ones_among_them_are_not() -> None:
    log, _, disk = two_logs()
    whole = read(log, 0)
    first, end = change(disk, log, 1)
    log.scrub(first_sequence(log))
    (given,) = log.damage.skip_damage(PARTITION)
    assert (given.first_offset, given.end_offset) == (first, end)
    assert log.damage.skip_damage(PARTITION) == []
    left = [each for each in whole if not first <= each < end]
    assert read(log, 0) == left
    log, disk = reopened(log, disk)
    assert read(log, 0) == left and read(log, first) == [each for each in left if each >= end]
    assert bases(list(log.read(PARTITION, first, 1, 1 << 40).buffers)) == [end], (
        "the first one, whatever its size"
    )
    only = log.read_cold(PARTITION, first, 1 << 30, end)
    assert (only.buffers, only.next_offset >= end) == ([], True)
    change(disk, log, 3)
    with pytest.raises(DamagedBatch):
        read(log, [each for each in whole][3])


def test_a_lost_file_and_a_lost_end_are_damage_by_their_offsets() -> None:
    log, _, disk = two_logs()
    segment = log._table.get(first_sequence(log))
    assert segment is not None and segment.summary is not None
    row = segment.summary.row(PARTITION)
    first, end = segment.summary.firsts[row], segment.summary.nexts[row]
    data = disk._inodes[disk._names[segment.path.name]].data
    kept = bytes(data)
    del data[5_000:]
    assert log.scrub(segment.sequence) is not None
    lost = [each for each in log.damage.known() if each.local_id == PARTITION]
    assert lost and lost[-1].end_offset == end
    with pytest.raises(DamagedBatch):
        read(log, lost[0].first_offset)
    data += kept[5_000:]
    assert log.scrub(segment.sequence) is None and log.damage.known() == []
    log, disk = reopened(log, disk)
    del disk._names[segment.path.name]
    with pytest.raises(DamagedBatch) as raised:
        read(log, first)
    assert (raised.value.base_offset, raised.value.next_offset) == (first, end)
    log.damage.skip_damage(PARTITION)
    assert read(log, first) and min(read(log, first)) == end


def test_one_bad_sector_costs_one_batch() -> None:
    log, _, disk = two_logs()
    whole = read(log, 0)
    segment = log._table.get(first_sequence(log))
    assert segment is not None
    index = log._table.index_of(segment, PARTITION, load=True)
    assert index is not None
    bad = index.positions[2] + 40
    preadv = disk.preadv

    def batch_reader(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if disk._name_of(fd) == segment.path.name and position <= bad < position + sum(map(len, buffers)):
            raise OSError(errno.EIO, "Input/output error")
        return preadv(fd, buffers, position, flags)

    disk.preadv = batch_reader  # type: ignore[method-assign, assignment]
    with pytest.raises(DamagedBatch, match="does not verify"):
        read(log, index.bases[2])
    assert read(log, 0) == whole[:1] or read(log, 0) == whole[:2]
    assert read(log, index.bases[3])[0] == index.bases[3]
    (known,) = log.damage.known()
    assert (known.first_offset, known.end_offset) == (index.bases[2], index.bases[3])


def test_frames_that_are_damaged_between_batches_are_known_too() -> None:
    log, _, disk = two_logs()
    segment = log.segments()[0]
    name = f"{segment.sequence:016d}.segment"
    disk._inodes[disk._names[name]].data[4096 + 30] ^= 1
    assert log.scrub(segment.sequence) is not None
    (known,) = log.damage.known()
    assert known.local_id == NO_PARTITION
    assert (known.first_offset, known.end_offset) == (segment.first_index, segment.last_index + 1)


def test_ranges_are_merged_and_bounded_and_a_full_disk_changes_no_decision() -> None:
    log, _, disk = two_logs()
    sequence = first_sequence(log)
    for offset in (0, 2, 1, 1):
        log.damage.note(damaged(log, sequence, offset, offset + 1, "!"))
    assert log.damage.known()[0].first_offset == 0
    for offset in range(10, 10 + 4 * MAX_RANGES, 2):
        log.damage.note(damaged(log, sequence, offset, offset + 1, "!"))
    known = log.damage.known()
    assert len(known) <= MAX_RANGES and known[-1].end_offset == 10 + 4 * MAX_RANGES - 1
    assert repr(known[0]).startswith("DamagedRange(")
    disk.fault = lambda what, name: OSError(errno.ENOSPC, "full") if name.startswith(DAMAGE_NAME) else None
    with pytest.raises(OSError, match="full"):
        log.damage.skip_damage(PARTITION)
    assert not log.damage.is_skipped(PARTITION, 0, 1)
    segment = log._table.get(sequence)
    assert segment is not None
    log.damage.note(DamagedBatch(999, segment.serial, PARTITION, 0, 1, "of a segment that is gone"))
    log.damage.note(DamagedBatch(sequence, segment.serial + 1000, PARTITION, 0, 1, "of another one there"))
    log.damage.note_frames(Segment(sequence, segment.path, 0, 1, 1, 1, 0), 1, 2, "so are these")
    assert len(log.damage.known()) == len(known)


def test_damage_beyond_the_limit_takes_back_no_decision_and_is_given_up_by_none() -> None:
    log, _, _ = two_logs()
    sequence = first_sequence(log)

    def note(*offsets: int) -> None:
        for offset in offsets:
            log.damage.note(damaged(log, sequence, offset, offset + 1, "!"))

    note(*range(1000, 1000 + 2 * MAX_RANGES, 2))
    assert len(log.damage.skip_damage(PARTITION)) == MAX_RANGES
    last = 1000 + 2 * (MAX_RANGES - 1)
    note(last + 10, 500)
    assert log.damage.is_skipped(PARTITION, last, last + 1)
    pending = [(e.first_offset, e.end_offset) for e in log.damage.known() if not e.is_skipped]
    assert pending == [(500, 501), (last + 10, last + 11)]
    assert not log.damage.is_skipped(PARTITION, 500, 501)


def test_a_range_beyond_the_limit_is_merged_with_the_nearest() -> None:
    log, _, _ = two_logs()
    sequence = first_sequence(log)
    for offset in (*range(1000, 1000 + 10 * MAX_RANGES, 10), 997, 1013, 5000):
        log.damage.note(damaged(log, sequence, offset, offset + 1, "!"))
    last = 1000 + 10 * (MAX_RANGES - 1)
    known = [(e.first_offset, e.end_offset) for e in log.damage.known()]
    assert known == [
        (997, 1001),
        (1010, 1014),
        *((offset, offset + 1) for offset in range(1020, last, 10)),
        (last, 5001),
    ]


def test_ranges_that_touch_are_merged_before_and_after_they_are_given_up() -> None:
    log, _, _ = two_logs()
    sequence = first_sequence(log)
    for offset in (7, 9, 8, 20):
        log.damage.note(damaged(log, sequence, offset, offset + 1, "!"))
    assert [(e.first_offset, e.end_offset) for e in log.damage.known()] == [(7, 10), (20, 21)]
    log.damage.skip_damage(PARTITION)
    for offset in (10, 6):
        log.damage.note(damaged(log, sequence, offset, offset + 1, "!"))
    assert [(e.first_offset, e.end_offset, e.is_skipped) for e in log.damage.known()] == [
        (6, 7, False),
        (7, 10, True),
        (10, 11, False),
        (20, 21, True),
    ]
    log.damage.skip_damage(PARTITION)
    assert [(e.first_offset, e.end_offset) for e in log.damage.known()] == [(6, 11), (20, 21)]


def test_a_file_of_damage_that_cannot_be_read_costs_no_start() -> None:
    log, _, disk = two_logs()
    change(disk, log, 1)
    log.scrub(first_sequence(log))
    log.close()
    for content in (b"", b"{", b'{"damage": [{"segment": 1}]}', b"[]", b'{"damage": 3}', b"\xff\xfe"):
        disk._inodes[disk._names[DAMAGE_NAME]].data[:] = content
        again = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
        assert again.damage.known() == []
        again.close()


def test_a_file_of_damage_with_one_changed_digit_is_not_believed() -> None:
    log, _, disk = two_logs()
    change(disk, log, 1)
    log.scrub(first_sequence(log))
    (known,) = log.damage.known()
    log.close()
    data = disk._inodes[disk._names[DAMAGE_NAME]].data
    written = bytes(data)
    before = f'"end_offset": {known.end_offset}'.encode()
    data[:] = written.replace(before, f'"end_offset": {known.end_offset + 1}'.encode())
    assert data != written
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert again.damage.is_unreadable and again.damage.known() == []
    again.close()


def test_a_file_of_damage_of_a_version_without_checksums_is_read() -> None:
    log, _, disk = two_logs()
    change(disk, log, 1)
    log.scrub(first_sequence(log))
    (known,) = log.damage.known()
    log.close()
    data = disk._inodes[disk._names[DAMAGE_NAME]].data
    content = json.loads(bytes(data))
    data[:] = json.dumps({"damage": content["damage"]}).encode()
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert [repr(each) for each in again.damage.known()] == [repr(known)]
    again.close()
