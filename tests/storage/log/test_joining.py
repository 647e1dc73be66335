"""Small neighbouring segments joined into one: every read as before, whatever reads meanwhile."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from storage.log import recovery
from storage.log.data_log import DataLog
from storage.log.format import SegmentHeader, decode_segment_header
from storage.log.joining import MIN_RUN_SEGMENTS, SMALL_SEGMENT_DIVISOR, runs_to_join
from storage.log.memory_log import MemoryLog
from storage.log.scan import LogTail
from storage.log.segments import Segment
from storage.types import Buffer, CorruptLog, DamagedBatch, FramesGone, StorageFull
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.frames import by_turns, whole
from tests.storage.log.simulated_disk import SimulatedFileSystem
from tests.storage.log.test_installation import SMALL
from tests.storage.log.test_rewriting import agree, reopened, two_logs

FULL = 1 << 20


def segments_of(sizes: Sequence[int], gap_after: int = -1) -> list[Segment]:
    """Segments of one frame each; one after `gap_after` does not follow the one before it."""
    made: list[Segment] = []
    for at, size in enumerate(sizes):
        index = at + 1 + (gap_after >= 0 and at > gap_after)
        segment = Segment(at + 1, Path("x"), size, 1, index, index, index - 1)
        segment.tail = LogTail(index, 1, index + 1, index, 0)
        made.append(segment)
    return made


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([10, 10, 10, 10, 10], [[1, 2, 3, 4, 5]]),
        ([10, 10, 10], []),
        ([FULL, 10, 10, 10, 10, FULL, 10], [[2, 3, 4, 5]]),
        ([10, 10, FULL // SMALL_SEGMENT_DIVISOR + 1, 10, 10], []),
        ([1000, 10, 10, 10, 10], [[2, 3, 4, 5]]),
        ([1000, 300, 300, 300, 100], [[1, 2, 3, 4, 5]]),
        ([FULL // 4] * 9, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ([], []),
    ],
)
def test_which_segments_are_joined(sizes: list[int], expected: list[list[int]]) -> None:
    assert runs_to_join(segments_of(sizes), (), FULL) == expected


def test_what_holds_a_checkpoint_and_what_follows_a_gap_is_left_alone() -> None:
    assert runs_to_join(segments_of([10] * 9), {5}, FULL) == [[1, 2, 3, 4], [6, 7, 8, 9]]
    assert runs_to_join(segments_of([10] * 9, gap_after=3), (), FULL) == [[1, 2, 3, 4], [5, 6, 7, 8, 9]]
    empty = segments_of([10] * 5)
    empty[2].tail.index = 2
    assert runs_to_join(empty, (), FULL) == []


def test_a_byte_is_copied_as_often_as_its_file_can_double() -> None:
    """Files of one size come one by one and are joined whenever that is worth it."""
    sizes: list[int] = []
    copied = 0
    for _ in range(1000):
        sizes.append(100)
        segments = segments_of(sizes)
        for run in reversed(runs_to_join(segments, (), FULL)):
            total = sum(sizes[run[0] - 1 : run[-1]])
            sizes[run[0] - 1 : run[-1]] = [total]
            copied += total
    assert len(sizes) < MIN_RUN_SEGMENTS * 10
    assert copied < 10 * 100_000


def cleanable(log: DataLog) -> list[int]:
    return [segment.sequence for segment in log.cleanable_segments()]


@pytest.mark.parametrize(("first", "count"), [(0, 2), (1, 3), (0, 5)])
def test_reads_and_frames_are_as_before(first: int, count: int) -> None:
    log, model, disk = two_logs()
    sequences = cleanable(log)
    run = sequences[first : first + count]
    before = log.segments()
    assert log.join(run) > 0
    assert cleanable(log) == [each for each in sequences if each not in run[:-1]]
    joined = next(segment for segment in log.segments() if segment.sequence == run[-1])
    assert joined.first_index == before[first].first_index
    agree(log, model)
    assert log.scrub(run[-1]) is None
    log.prepare_now()
    for _ in range(2):
        log, disk = reopened(log, disk)
        assert log.report.rebuilt_indexes == 0
        agree(log, model)
    names = disk.list_dir(DIRECTORY)
    assert not [each for each in run[:-1] if f"{each:016d}.index" in names]
    # What was joined is cleaned, repaired and joined again like any other.
    assert log.clean(run[-1], by_turns(0)) > 0
    log.rewrite_segment(run[-1], model.ship_frames(joined.first_index, joined.last_index, 1 << 30))
    rest = cleanable(log)
    log.join(rest[rest.index(run[-1]) :])
    log, disk = reopened(log, disk)
    assert log.report.rebuilt_indexes == 0 and len(cleanable(log)) == first + 1


def test_a_lost_index_file_of_the_segment_before_is_judged_by_the_joined_one() -> None:
    log, _, disk = two_logs()
    sequences = cleanable(log)
    log.join(sequences[1:4])
    log.close()
    image = disk.now()
    files = dict(image.files)
    del files[f"{sequences[0]:016d}.index"]
    name = f"{sequences[0]:016d}.segment"
    end = log._table.get(sequences[0]).end  # type: ignore[union-attr]
    files[name] = files[name][: end - 10] + bytes(10) + files[name][end:]
    with pytest.raises(CorruptLog, match=name):
        DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(type(image)(files)))


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_read_that_spans_the_change_stops_and_does_not_repeat(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    log, model, _ = two_logs()
    run = cleanable(log)[:4]
    expected = whole(model.read_cold(3, 0, 1 << 30, 1 << 40).buffers)
    acquire = log._table.acquire
    joins_at = run[at]

    def acquired(sequence: int) -> Segment | None:
        nonlocal joins_at
        if sequence == joins_at:
            joins_at = 0
            log.join(run)
        return acquire(sequence)

    monkeypatch.setattr(log._table, "acquire", acquired)
    got = whole(log.read_cold(3, 0, 1 << 30, 1 << 40).buffers)
    assert got and expected.startswith(got) and got != expected
    assert whole(log.read_cold(3, 0, 1 << 30, 1 << 40).buffers) == expected
    assert run[0] not in cleanable(log)


@pytest.mark.parametrize("at", [1, 3])
def test_a_read_that_begins_while_segments_are_joined_begins_again(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    log, model, _ = two_logs()
    run = cleanable(log)[:4]
    offset = next(s.first_offset for s in log.segments()[at].partitions() if s.partition == 3)
    expected = whole(model.read_cold(3, offset, 900, 1 << 40).buffers)
    acquire = log._table.acquire
    calls = itertools.count()

    def acquired(sequence: int) -> Segment | None:
        if next(calls) == 0:
            log.join(run)
        return acquire(sequence)

    monkeypatch.setattr(log._table, "acquire", acquired)
    assert whole(log.read_cold(3, offset, 900, 1 << 40).buffers) == expected


@pytest.mark.parametrize("at", [0, 1, 3])
def test_lsns_and_sizes_are_never_told_of_half_a_change(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    log, model, _ = two_logs()
    lsns = [log.lsns.of_offset(3, offset) for offset in range(90)]
    size = model.partition_bytes(3, 0)
    kept_from = log.lsns.kept_from(1, 70)
    get = log._table.get
    joins_at = -1

    def got(sequence: int) -> Segment | None:
        nonlocal joins_at
        if sequence == joins_at:
            joins_at = -1
            log.join(run)
        return get(sequence)

    monkeypatch.setattr(log._table, "get", got)
    run = cleanable(log)[:4]
    joins_at = run[at]
    assert log.partition_bytes(3, 0) == size and joins_at == -1
    joined = next(segment for segment in log.segments() if segment.sequence == run[-1])
    assert joined.first_index == 1
    for _ in range(2):
        assert [log.lsns.of_offset(3, offset) for offset in range(90)] == lsns
        assert log.lsns.kept_from(1, 70) == kept_from
    run = cleanable(log)[:2]
    joins_at = run[0]
    with pytest.raises(FramesGone):
        log.lsns.of_offset(3, 0)
    assert joins_at == -1 and log.lsns.of_offset(3, 0) == lsns[0]


def test_what_cannot_be_joined_is_refused() -> None:
    log, model, disk = two_logs()
    sequences = cleanable(log)
    before = sorted(disk.list_dir(DIRECTORY))
    for run in (sequences[:1] + sequences[2:3], [sequences[-1], sequences[-1] + 1], [sequences[0], 999]):
        with pytest.raises(ValueError, match="segment"):
            log.join(run)
    disk.fault = lambda what, name: OSError(errno.ENOSPC, "No space") if "rewrite" in name else None
    with pytest.raises(StorageFull):
        log.join(sequences[:3])
    disk.fault = None
    assert sorted(disk.list_dir(DIRECTORY)) == before
    agree(log, model)


def test_a_damaged_segment_is_left_alone() -> None:
    log, _, _ = two_logs()
    assert len(log.runs_to_join(lambda number: 0)) == 0, (
        "none is small: a header alone is a quarter of a segment"
    )
    with patch("storage.log.joining.SMALL_SEGMENT_DIVISOR", 1):
        (run, *_) = _any_size(log)
        log.damage.note(DamagedBatch(run[1], 1, 0, 1, "planted"))
        assert all(run[1] not in each for each in _any_size(log))


def _any_size(log: DataLog) -> list[list[int]]:
    with patch.object(log, "options", MemoryLog(GROUP).options):
        return log.runs_to_join(lambda number: 0)


def test_an_older_version_opens_what_was_joined_and_refuses_what_is_half_done() -> None:
    """It pays no attention to the new field of a segment's header."""

    def as_before(data: Buffer) -> tuple[int, SegmentHeader] | None:
        found = decode_segment_header(data)
        if found is not None:
            found[1].joined_from = 0
        return found

    log, model, disk = two_logs()
    with patch.object(log._house, "_bury", lambda: None):
        log.join(cleanable(log)[1:4])
        half = disk.now()
        with patch.object(recovery, "decode_segment_header", as_before), pytest.raises(CorruptLog):
            DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(half))
    agree(DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(half)), model)
    log.close()
    done = SimulatedFileSystem(disk.now())
    with patch.object(recovery, "decode_segment_header", as_before):
        agree(DataLog.open(DIRECTORY, GROUP, SMALL, done), model)
