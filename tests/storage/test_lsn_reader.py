"""Committed frames by LSN, from memory and from segments, against a list of all that was appended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.lsn_lookup import FIRST_LSN, LsnLookup, lsn_after
from lockstep.storage.log.options import LogOptions
from lockstep.storage.lsn_reader import KEPT_POSITIONS, LsnReader
from lockstep.storage.types import Checkpoint, Frame, FramesUnavailable
from tests.storage import cluster
from tests.storage.log.frames import FrameMaker, same

SMALL = LogOptions(
    segment_bytes=16 << 10, tail_cache_bytes=1 << 10, reserve_bytes=1 << 10, recent_frames_bytes=7500
)
ALL = (1, 2, 3)
PLENTY = 1 << 20


class Group:
    """What a reader asks of a group: a log on the disk, and up to where it is applied."""

    def __init__(self, directory: Path) -> None:
        self.log = DataLog.open(directory, 1, SMALL)
        self.log.keep_recent_frames(False)  # as in a group of one voter
        self.applied_index = 0
        self.make = FrameMaker()
        self.frames: list[Frame] = []

    def reader(self) -> LsnReader:
        return LsnReader(self)  # type: ignore[arg-type]

    def fill(self, partition: int, count: int, records: int = 2, body_bytes: int = 900) -> list[Frame]:
        """Append frames of one batch, applied."""
        made = [self.make.data((partition, records, bytes(body_bytes))) for _ in range(count)]
        for frame in made:
            self._append(frame)
        return made

    def seal(self) -> None:
        self.log.prepare_now()
        assert self.log.seal()

    def free(self, log_starts: dict[int, int]) -> None:
        """Free what is dead, below two checkpoints at the end."""
        for _ in range(2):
            log = self.log
            log.write_checkpoint(
                Checkpoint(log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, {})
            )
            self._append(self.make.no_op())
        assert self.log.free_deleted_segments(log_starts.__getitem__) > 0

    def _append(self, frame: Frame) -> None:
        self.log.append([frame])
        self.log.flush()
        self.frames.append(frame)
        self.applied_index = frame.index


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path / "g")
    yield made
    made.log.close()


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """(LSN, the index that was noted) of each look into the segments."""
    looks: list[tuple[int, int | None]] = []
    find = LsnLookup.find

    def look(self: LsnLookup, lsn: int, wanted: Any, upto_index: int, index: int | None = None) -> Any:
        looks.append((lsn, index))
        return find(self, lsn, wanted, upto_index, index)

    monkeypatch.setattr(LsnLookup, "find", look)
    return looks


def equal(some: Sequence[Frame], others: Sequence[Frame]) -> bool:
    return len(some) == len(others) and all(map(same, some, others))


async def everything(reader: LsnReader, first_lsn: int, max_bytes: int, is_noting: bool) -> list[Frame]:
    """To the end, read after read."""
    found: list[Frame] = []
    while True:
        read = await reader.read(first_lsn, max_bytes, ALL)
        assert (read.first_lsn, read.over_gap) == (first_lsn, False)
        found += read.frames
        if read.is_all:
            return found
        first_lsn = lsn_after(found[-1])
        if is_noting:
            reader.note(first_lsn, found[-1].index + 1)


# --- from memory, and from segments -----------------------------------------------------------------------


async def test_what_is_in_memory_is_given_as_it_is(
    group: Group, looked_up: list[tuple[int, int | None]]
) -> None:
    group.fill(1, 5)
    reader = group.reader()
    frames = group.fill(1, 4)
    for frame, rest in zip(frames, range(4), strict=True):
        reader.note(frame.first_lsn, frame.index)
        read = await reader.read(frame.first_lsn, PLENTY, ALL)
        assert [id(each) for each in read.frames] == [id(each) for each in frames[rest:]]
        assert read[1:] == (frame.first_lsn, False, True)
    # At least one, whatever its size; and then those that fit.
    assert (await reader.read(frames[0].first_lsn, 0, ALL)).frames == frames[:1]
    read = await reader.read(frames[0].first_lsn, 2200, ALL)
    assert (read.frames, read.is_all) == (frames[:2], False)
    assert not looked_up


async def test_from_anywhere_to_the_end_with_and_without_notes(
    group: Group, looked_up: list[tuple[int, int | None]]
) -> None:
    reader = group.reader()
    frames = group.fill(1, 20) + group.fill(2, 30, records=3) + group.fill(3, 10, records=1)
    assert len(group.log.segments()) > 2
    in_memory = group.log.frames(frames[-4].index, PLENTY)
    assert in_memory and group.log.frames(frames[-10].index, PLENTY) is None
    for max_bytes in (0, 3000, PLENTY):
        for is_noting in (False, True):
            del looked_up[:]
            assert equal(await everything(group.reader(), FIRST_LSN, max_bytes, is_noting), frames)
            knew = [index is not None for _, index in looked_up]
            assert knew == [False] + [is_noting] * (len(knew) - 1)
    # an LSN within a frame is that frame's
    for frame in frames[::7]:
        for lsn in range(frame.first_lsn, lsn_after(frame)):
            read = await reader.read(lsn, 0, ALL)
            assert equal(read.frames, [frame]) and read.first_lsn == lsn


async def test_a_reader_makes_the_group_keep_its_newest_frames(group: Group) -> None:
    (before,) = group.fill(1, 1)
    assert group.log.frames(before.index, 0) is None
    group.reader()
    (after,) = group.fill(1, 1)
    assert group.log.frames(after.index, 0) == [after]


# --- what is committed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cold", [False, True])
async def test_what_is_not_committed_is_not_given(
    group: Group,
    is_cold: bool,
    looked_up: list[tuple[int, int | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, frames_cold = group.reader(), group.log.frames_cold

    def only_what_stays(first_index: int, max_bytes: int) -> list[Frame]:
        assert first_index <= group.applied_index
        return frames_cold(first_index, max_bytes)

    monkeypatch.setattr(group.log, "frames_cold", only_what_stays)
    frames = group.fill(1, 30 if is_cold else 4)
    first, last, lost = frames[0], frames[2], frames[3]
    assert (group.log.frames(first.index, 0) is None) == is_cold
    group.applied_index = last.index
    reader.note(first.first_lsn, first.index)
    for noted in (True, False):
        if not noted:
            reader = group.reader()
        read = await reader.read(first.first_lsn, PLENTY, ALL)
        assert equal(read.frames, frames[:3]) and read[1:] == (first.first_lsn, False, True)
        read = await reader.read(first.first_lsn, 2200, ALL)
        assert equal(read.frames, frames[:2]) and not read.is_all, "one more is committed"
        looked_up.append((0, None))
        for each in (lost, frames[-1]):
            if noted:
                reader.note(each.first_lsn, each.index)
            assert await reader.read(each.first_lsn, PLENTY, ALL) == ((), each.first_lsn, False, True)
            assert (looked_up[-1][0] != each.first_lsn) == noted, "its index says enough"
    group.applied_index = lost.index
    assert equal((await reader.read(lost.first_lsn, PLENTY, ALL)).frames, [lost])


async def test_a_leader_that_is_cut_off_gives_what_was_committed_before(tmp_path: Path) -> None:
    members = cluster.Cluster(tmp_path)
    await members.start()
    leader = await members.leader()
    (partition,) = await leader.open_partitions([(bytes(range(16)), 0)])
    reader = LsnReader(leader)
    cluster.append(leader, partition, b"kept")
    await leader.committed()
    committed, end = leader.applied_index, leader.log.next_lsn
    members.lost = lambda sender, to, message: True
    cluster.append(leader, partition, b"lost, perhaps")
    await members.until(lambda: leader.log.last_index > committed)
    assert leader.applied_index == committed and leader.log.next_lsn == end + 1
    read = await reader.read(FIRST_LSN, PLENTY, (partition.local_id,))
    assert read.is_all and lsn_after(read.frames[-1]) == await reader.committed_end() == end
    reader.note(end, committed + 1)
    assert await reader.read(end, PLENTY, (partition.local_id,)) == ((), end, False, True)
    await members.stop()


async def test_beyond_the_end_there_is_nothing(group: Group) -> None:
    reader = group.reader()
    assert await reader.read(FIRST_LSN, PLENTY, ALL) == ((), FIRST_LSN, False, True)
    (last,) = group.fill(1, 20)[-1:]
    end = group.log.next_lsn
    for lsn in (end, end + 1, end + 1000):
        assert await reader.read(lsn, PLENTY, ALL) == ((), lsn, False, True)
    reader.note(end, last.index + 1)
    assert await reader.read(end, PLENTY, ALL) == ((), end, False, True)
    (more,) = group.fill(1, 1)
    assert (await reader.read(end, PLENTY, ALL)).frames == [more]


# --- over what others have, and what is gone --------------------------------------------------------------


@pytest.mark.parametrize("is_noted", [False, True])
async def test_segments_of_others_are_passed_over(group: Group, is_noted: bool) -> None:
    reader = group.reader()
    mine = group.fill(1, 10)
    group.seal()
    others = group.fill(2, 40)
    group.seal()
    again = group.fill(1, 3)
    lsn = others[0].first_lsn
    if is_noted:
        reader.note(lsn, others[0].index)
    for first_lsn in (lsn, again[0].first_lsn):
        read = await reader.read(first_lsn, PLENTY, (1,))
        assert equal(read.frames, again) and read[1:] == (again[0].first_lsn, False, True)
    read = await reader.read(lsn, PLENTY, (1, 2))
    assert equal(read.frames, others + again) and read.first_lsn == lsn
    read = await reader.read(mine[-1].first_lsn, 0, (1,))
    assert equal(read.frames, mine[-1:]) and not read.is_all


async def test_where_only_others_follow_a_read_ends_at_the_newest_segment(group: Group) -> None:
    reader = group.reader()
    group.fill(2, 40)
    group.seal()
    end = group.log.next_lsn
    assert await reader.read(FIRST_LSN, PLENTY, (1,)) == ((), end, False, True)
    newest = group.fill(2, 2)
    read = await reader.read(FIRST_LSN, PLENTY, (1,))
    assert equal(read.frames, newest) and read[1:] == (end, False, True), "that one is not looked at ahead"


@pytest.mark.parametrize("is_noted", [False, True])
async def test_over_what_was_freed(group: Group, is_noted: bool) -> None:
    reader = group.reader()
    before = group.fill(1, 10)
    group.seal()
    freed = group.fill(2, 40)
    group.seal()
    after = group.fill(3, 20)
    group.free({1: 0, 2: 80, 3: 0})
    lsn = freed[3].first_lsn
    if is_noted:
        reader.note(lsn, freed[3].index)
    read = await reader.read(lsn, 3000, ALL)
    assert equal(read.frames, after[: len(read.frames)]) and read.frames
    assert read[1:] == (after[0].first_lsn, True, False)
    # What is there has no gap in it, and one read ends before one.
    read = await reader.read(FIRST_LSN, PLENTY, ALL)
    assert equal(read.frames, before) and read[1:] == (FIRST_LSN, False, False)


async def test_what_goes_away_in_the_middle_of_a_read(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, find = group.reader(), LsnLookup.find
    freed = group.fill(2, 40)
    group.seal()
    after = group.fill(3, 20)

    def find_and_free(self: LsnLookup, *asked: Any) -> Any:
        place = find(self, *asked)
        monkeypatch.undo()
        group.free({2: 80, 3: 0})
        return place

    reader.note(freed[3].first_lsn, freed[3].index)
    monkeypatch.setattr(LsnLookup, "find", find_and_free)
    read = await reader.read(freed[3].first_lsn, 3000, ALL)
    assert equal(read.frames, after[: len(read.frames)]) and read.frames
    assert read[1:] == (after[0].first_lsn, True, False)


async def test_lost_frames_that_were_searched_again_are_reported(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, find, finds = group.reader(), LsnLookup.find, 0
    frames = group.fill(1, 40)
    reader.note(frames[0].first_lsn, frames[0].index)

    def find_what_goes(self: LsnLookup, *asked: Any) -> Any:
        nonlocal finds
        finds += 1
        return find(self, *asked)._replace(frame_index=0)

    monkeypatch.setattr(LsnLookup, "find", find_what_goes)
    for lsn, tries in ((frames[0].first_lsn, 2), (frames[1].first_lsn, 1)):
        finds = 0
        with pytest.raises(FramesUnavailable):
            await reader.read(lsn, PLENTY, ALL)
        assert finds == tries


async def test_so_many_places_are_kept_and_the_newest_ones(
    group: Group, looked_up: list[tuple[int, int | None]]
) -> None:
    reader = group.reader()
    frames = group.fill(1, KEPT_POSITIONS + 30, body_bytes=500)
    noted = frames[: KEPT_POSITIONS + 1]
    for frame in (*noted[:-1], noted[0], noted[-1]):
        reader.note(frame.first_lsn, frame.index)
    for frame in noted:
        read = await reader.read(frame.first_lsn, 0, ALL)
        assert equal(read.frames, [frame])
    forgotten = noted[1]
    assert looked_up == [(frame.first_lsn, None if frame is forgotten else frame.index) for frame in noted], (
        "what was noted again stays longer"
    )


# --- bounds -----------------------------------------------------------------------------------------------


async def test_the_committed_end(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = group.reader()
    assert await reader.committed_end() == FIRST_LSN
    frames = group.fill(1, 30, records=3)
    in_memory, on_disk = frames[-2], frames[4]
    assert group.log.frames(in_memory.index, 0) and group.log.frames(on_disk.index, 0) is None
    for frame in (on_disk, in_memory, frames[-1]):
        group.applied_index = frame.index
        assert await reader.committed_end() == lsn_after(frame)

    async def no_thread(*_: object) -> None:
        raise AssertionError("what is in memory needs no thread")

    monkeypatch.setattr(asyncio, "to_thread", no_thread)
    for frame in (in_memory, frames[-1]):
        group.applied_index = frame.index
        assert await reader.committed_end() == lsn_after(frame)


async def test_what_is_kept_and_where_records_are(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = group.reader()
    ones, twos = group.fill(1, 20), group.fill(2, 20, records=3)
    assert await reader.first_kept({}) == await reader.first_kept({1: 0, 2: 0}) == FIRST_LSN
    assert await reader.first_kept({1: 5, 2: 0}) == ones[2].first_lsn + 1
    assert await reader.first_kept({2: 7, 1: 5}) == twos[2].first_lsn + 1
    assert await reader.first_kept({1: 7, 2: 0}) == ones[3].first_lsn + 1
    with monkeypatch.context() as patched:
        patched.setattr(LsnLookup, "kept_from", None)
        assert await reader.first_kept({1: 7, 2: 7}) == twos[2].first_lsn + 1, "each is looked for once"
        assert await reader.first_kept({1: 7}) == ones[3].first_lsn + 1
    assert await reader.first_of({}) is None
    assert await reader.first_of({2: 7, 1: 39}) == ones[19].first_lsn + 1
    assert await reader.first_of({2: 7, 1: 40}) == twos[2].first_lsn + 1, "one of them is not there"
    assert await reader.first_of({1: 40, 9: 0}) is None
