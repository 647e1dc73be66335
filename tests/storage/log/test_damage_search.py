"""A pass over a damaged log continues behind each damaged place, and names what clients and the log lack."""

from __future__ import annotations

import random

from lockstep.storage.log.damage_search import Damage, DamageSearch
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES
from lockstep.storage.log.segment_files import index_name, segment_name
from lockstep.storage.log.segment_scan import ScannedFrame
from lockstep.storage.log.state_file import StateFile
from lockstep.storage.types import NO_PARTITION
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.test_segment_compaction import two_logs
from tests.support.cases import each_case

Batch = tuple[int, int, int]
"""Partition, first and last offset."""


class Stopped:
    """A log that was closed, and its frames as they were."""

    def __init__(self) -> None:
        log, _, self.disk = two_logs()
        self.segments = [each.sequence for each in log.segments()]
        self.ends = {each.sequence: each.end for each in log._table if each.summary is not None}
        self.active = log._active.sequence
        log.close()
        self.frames: dict[int, list[ScannedFrame]] = {}
        self.searched(lambda segment, frame: self.frames.setdefault(segment, []).append(frame))

    def bytes_of(self, name: str) -> bytearray:
        return self.disk._inodes[self.disk._names[name]].data

    def flip(self, segment: int, place: int) -> None:
        self.bytes_of(segment_name(segment))[place] ^= 0x20

    def remove(self, name: str) -> None:
        del self.disk._names[name]

    def searched(
        self, on_frame: object = lambda segment, frame: None, with_ends: bool = False
    ) -> DamageSearch:
        state_file = StateFile.open(self.disk, DIRECTORY, GROUP)
        assert state_file is not None
        ends = self.ends if with_ends else {}
        search = DamageSearch(self.disk, DIRECTORY, GROUP, state_file.state, ends)
        looked_at = search._take
        segment = 0

        def take(scan: object, frame: ScannedFrame) -> None:
            nonlocal segment
            segment = scan.sequence  # type: ignore[attr-defined]
            looked_at(scan, frame)  # type: ignore[arg-type]

        search._take = take  # type: ignore[method-assign]
        search.run(lambda frame: on_frame(segment, frame))  # type: ignore[operator]
        return search

    def damage(self) -> list[Damage]:
        with_ends, without = (self.searched(with_ends=each).damage for each in (True, False))
        assert with_ends == without
        return with_ends


def batches_of(frame: ScannedFrame) -> list[Batch]:
    return [(entry[0], entry[1], entry[1] + entry[2] - 1) for entry in frame.entries]


def named(damage: list[Damage]) -> set[tuple[int, int]]:
    """Partitions and offsets."""
    return {
        (each.partition, offset)
        for each in damage
        if each.partition != NO_PARTITION
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def offsets_of(frames: list[ScannedFrame]) -> set[tuple[int, int]]:
    return {
        (number, offset)
        for frame in frames
        for number, first, last in batches_of(frame)
        for offset in range(first, last + 1)
    }


def test_a_sound_log_has_no_damage() -> None:
    stopped = Stopped()
    assert stopped.damage() == []
    assert sum(map(len, stopped.frames.values())) == 90


def test_each_damaged_batch_is_named_and_no_other() -> None:
    stopped = Stopped()
    expected = []
    for segment, row in ((stopped.segments[0], 0), (stopped.segments[0], 3), (stopped.segments[2], 1)):
        frame = stopped.frames[segment][row]
        stopped.flip(segment, frame.payload_offset + 300)
        expected.append((segment, *batches_of(frame)[0]))
    active = stopped.active
    frame = stopped.frames[active][-2]
    stopped.flip(active, frame.payload_offset + frame.entries[0][3] + 30)
    expected.append((active, *batches_of(frame)[1]))
    found = stopped.damage()
    assert [(each.segment, each.partition, each.first_offset, each.last_offset) for each in found] == expected
    assert all("a batch does not match its directory entry" in each.problem for each in found)
    assert sum(1 for _ in frames_of(stopped)) == 90, "no frame is left out"


def frames_of(stopped: Stopped) -> list[ScannedFrame]:
    found: list[ScannedFrame] = []
    stopped.searched(lambda segment, frame: found.append(frame))
    return found


def test_behind_a_damaged_frame_header_the_next_write_is_found() -> None:
    stopped = Stopped()
    segment = stopped.segments[1]
    frame = stopped.frames[segment][2]
    stopped.flip(segment, frame.offset + 15)
    stopped.flip(segment, stopped.frames[segment][5].payload_offset + 100)
    found = stopped.damage()
    assert (found[0].segment, found[0].partition) == (segment, NO_PARTITION)
    assert (found[0].first_offset, found[0].last_offset) == (frame.index, frame.index)
    assert "does not continue the chain" in found[0].problem
    assert named(found) == offsets_of([frame]) | {
        (number, offset)
        for number, first, last in batches_of(stopped.frames[segment][5])[:1]
        for offset in range(first, last + 1)
    }
    assert len(frames_of(stopped)) == 89


@each_case("kind", ["missing", "header", "cut", "zeroed", "missing with its index", "swapped"])
def test_a_segment_that_cannot_be_read_is_named_by_its_index_or_by_its_neighbours(kind: str) -> None:
    stopped = Stopped()
    segment = stopped.segments[1]
    data = stopped.bytes_of(segment_name(segment))
    lost = stopped.frames[segment]
    if kind == "header":
        data[20] ^= 1
    elif kind == "cut":
        del data[lost[3].offset + 5 :]
        lost = lost[3:]
    elif kind == "zeroed":
        data[:] = bytes(len(data))
    elif kind == "swapped":
        other = stopped.bytes_of(segment_name(stopped.segments[2]))
        data[:], other[:] = other[:], data[:]
        lost = lost + stopped.frames[stopped.segments[2]]
    else:
        stopped.remove(segment_name(segment))
        if kind == "missing with its index":
            stopped.remove(index_name(segment))
    later = stopped.segments[3]
    stopped.flip(later, stopped.frames[later][1].payload_offset + 100)
    found = stopped.damage()
    assert found[0].segment == segment and found[-1].segment == later
    indexes = {
        index
        for each in found
        if each.partition == NO_PARTITION
        for index in range(each.first_offset, each.last_offset + 1)
    }
    assert indexes == {frame.index for frame in lost}
    last = batches_of(stopped.frames[later][1])[0]
    assert named(found) == offsets_of(lost) | {(last[0], each) for each in range(last[1], last[2] + 1)}


def test_corruption_at_the_end_of_what_was_flushed_is_damage_and_a_torn_end_is_not() -> None:
    stopped = Stopped()
    active = stopped.active
    last = stopped.frames[active][-1]
    data = stopped.bytes_of(segment_name(active))
    kept = bytes(data)
    data[last.offset + 20 : last.end] = bytes(last.end - last.offset - 20)
    (found,) = stopped.searched().damage
    assert (found.partition, found.first_offset) == (NO_PARTITION, last.index)
    data[:] = kept
    data[last.end - 5] ^= 1
    (found,) = stopped.searched().damage
    assert found.partition == batches_of(last)[-1][0]
    stopped.ends[active] = last.offset  # as recovery has it where nothing says that this was flushed
    assert stopped.searched(with_ends=True).damage == []
    data[:] = kept
    data[last.end :] = b"\x5a" * (len(data) - last.end)
    assert stopped.searched(with_ends=False).damage == []


@each_case("seed", range(40))
def test_whatever_changes_is_named_and_little_else(seed: int) -> None:
    """A byte of a batch names that batch; one of a header or marker at most the frame and the one behind."""
    stopped, draw = Stopped(), random.Random(seed)
    must: set[tuple[int, int]] = set()
    may: set[tuple[int, int]] = set()
    for _ in range(draw.randrange(1, 5)):
        segment = draw.choice(stopped.segments)
        frames = stopped.frames[segment]
        place = draw.randrange(SEGMENT_HEADER_BYTES, frames[-1].end)
        stopped.flip(segment, place)
        row = next(row for row, frame in enumerate(frames) if place < frame.end)
        touched = offsets_of([frames[row]])
        may |= touched
        if place >= frames[row].payload_offset:
            number, first, last = batches_of(frames[row])[_batch_at(frames[row], place)]
            must |= {(number, offset) for offset in range(first, last + 1)}
        elif place >= frames[row].offset:
            must |= touched
    found = stopped.damage()
    assert must <= named(found) <= may
    assert found


def _batch_at(frame: ScannedFrame, place: int) -> int:
    end = frame.payload_offset
    for row, entry in enumerate(frame.entries):
        end += entry[3]
        if place < end:
            return row
    raise AssertionError(place)


def test_a_rewritten_segment_is_searched_too() -> None:
    log, _, disk = two_logs()
    segment = log.cleanable_segments()[0]
    gone = 0

    def judge(entry: object, payload: object) -> bool:
        nonlocal gone
        gone += 1
        return gone % 4 != 1

    log.clean(segment.sequence, judge)
    log.close()
    again = DataLog.open(DIRECTORY, GROUP, log.options, disk)
    index = again._table.index_of(again._table.get(segment.sequence), 2, load=True)  # type: ignore[arg-type]
    assert index is not None
    row = next(row for row, length in enumerate(index.lengths) if length)
    place, base = index.positions[row], index.bases[row]
    again.close()
    disk._inodes[disk._names[segment_name(segment.sequence)]].data[place + 50] ^= 1
    state_file = StateFile.open(disk, DIRECTORY, GROUP)
    assert state_file is not None
    search = DamageSearch(disk, DIRECTORY, GROUP, state_file.state, {})
    search.run(lambda frame: None)
    (found,) = search.damage
    assert (found.partition, found.first_offset) == (2, base)
