"""From LSNs and offsets to frames and back, against a list of all that was appended."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.lsn_lookup import FIRST_LSN, FrameLocation, lsn_after
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Checkpoint, Frame, FramesUnavailable
from tests.storage.log.frames import FrameMaker, by_turns

SMALL = LogOptions(
    segment_bytes=16 << 10, tail_cache_bytes=1 << 10, reserve_bytes=1 << 10, recent_frames_bytes=5000
)


def save(log: DataLog, make: FrameMaker) -> None:
    log.write_checkpoint(
        Checkpoint(log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, {})
    )
    append(log, make, [make.no_op()])


def append(log: DataLog, make: FrameMaker, frames: list[Frame]) -> list[Frame]:
    log.append(frames)
    log.flush()
    return frames


def offsets(frames: list[Frame]) -> dict[tuple[int, int], int]:
    """The LSN of each (partition, offset)."""
    found = {}
    for frame in frames:
        lsn = frame.first_lsn
        for entry in frame.directory:
            for place in range(entry.record_count):
                found[entry.partition, entry.base_offset + place] = lsn
                lsn += 1
    return found


def all_agree(log: DataLog, frames: list[Frame]) -> None:
    lsns, upto = log.lsns, log.last_index
    for (partition, offset), lsn in offsets(frames).items():
        assert lsns.of_offset(partition, offset) == lsn
        assert lsns.kept_from(partition, offset + 1) == lsn + 1
    for frame in frames:
        assert lsns.after(frame.index) == lsn_after(frame)
        for lsn in range(frame.first_lsn, lsn_after(frame)):
            assert lsns.find(lsn, (1, 2, 3), upto) == FrameLocation(frame.index, lsn, False)
            assert lsns.find(lsn, (1, 2, 3), upto, frame.index).frame_index == frame.index
    assert lsns.find(log.next_lsn, (1, 2, 3), upto) == (upto + 1, log.next_lsn, False)


def test_every_lsn_and_every_offset(tmp_path: Path) -> None:
    log, make, rng = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker(), random.Random(3)
    frames: list[Frame] = []
    for _ in range(70):
        some = [
            (rng.randrange(1, 4), rng.randrange(1, 5), rng.randbytes(rng.randrange(20, 900)))
            for _ in range(rng.randrange(1, 4))
        ]
        frames += append(log, make, [make.data(*some), *([make.no_op()] if rng.random() < 0.3 else [])])
    assert len(log.segments()) > 3
    all_agree(log, frames)
    for number in (1, 2, 3):
        assert log.lsns.of_offset(number, make.next_offsets[number]) is None, "it comes next"
        assert log.lsns.kept_from(number, 0) == FIRST_LSN
    assert log.lsns.of_offset(9, 0) is None
    # what is not applied yet is not looked at
    assert log.lsns.find(frames[4].first_lsn, (1,), 3).frame_index == 4
    assert log.lsns.find(log.next_lsn - 1, (1,), 3).frame_index > 3
    log.close()
    log = DataLog.open(tmp_path / "g", 1, SMALL)
    all_agree(log, frames)
    # Cleaning moves nothing, and neither does a restart after it.
    for _ in range(2):
        save(log, make)
    assert sum([log.clean(each.sequence, by_turns(0)) for each in log.cleanable_segments()]) > 0
    all_agree(log, frames)
    log.close()
    log = DataLog.open(tmp_path / "g", 1, SMALL)
    all_agree(log, frames)
    log.close()


def test_segments_of_other_partitions_are_skipped_and_gaps_are_reported(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frames: list[Frame] = []

    def fill(partition: int, count: int) -> None:
        for _ in range(count):
            frames.extend(append(log, make, [make.data((partition, 2, bytes(900)))]))

    fill(1, 20)
    log.seal()
    fill(2, 60)
    log.seal()
    fill(3, 40)
    log.seal()
    fill(1, 2)
    fill(2, 1)
    lsns, upto = log.lsns, log.last_index
    second = offsets(frames)[1, 40]
    for lsn in (41, 100, second):
        assert lsns.find(lsn, (1,), upto) == (frames[120].index, second, False)
    assert lsns.find(41, (1, 3), upto).lsn == offsets(frames)[3, 0]
    for _ in range(2):
        save(log, make)
    # All of partition 2 but the last goes, and its segments with it.
    starts = {1: 0, 2: 120, 3: 0}
    assert log.free_deleted_segments(starts.__getitem__) > 3
    where_3_begins = offsets(frames)[3, 0]
    assert lsns.of_offset(2, 119) is None
    assert lsns.kept_from(2, 120) == where_3_begins, "the frames after the gap"
    assert lsns.find(41, (1, 2), log.last_index) == (frames[120].index, second, True)
    assert lsns.find(41, (3,), log.last_index) == (frames[80].index, where_3_begins, True)
    with pytest.raises(FramesUnavailable):
        lsns.after(frames[40].index)
    # What lies before the gap is still exact, and so is what was deleted within what is there.
    assert lsns.kept_from(1, 7) == offsets(frames)[1, 6] + 1
    assert lsns.kept_from(3, 80) == offsets(frames)[3, 79] + 1
    # A partition of which nothing is left at all: from where the frames go on without a gap.
    starts = {1: 0, 2: 120, 3: 80}
    assert log.free_deleted_segments(starts.__getitem__) > 1
    assert lsns.kept_from(3, 80) == second
    log.close()


def test_a_segment_that_was_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    for _ in range(30):
        append(log, make, [make.data((1, 1, bytes(900)))])
    with monkeypatch.context() as patched:
        patched.setattr(log._table, "index_of", lambda *_, **__: None)
        assert log.lsns.of_offset(1, 0) is None
        patched.setattr(log._table, "is_current", lambda segment: False)
        with pytest.raises(FramesUnavailable, match="was replaced"):
            log.lsns.of_offset(1, 0)
    with monkeypatch.context() as patched:
        patched.setattr(log._table, "acquire", lambda sequence: None)
        with pytest.raises(FramesUnavailable, match="was replaced"):
            log.lsns.of_offset(1, 0)
    assert log.lsns.of_offset(1, 0) == FIRST_LSN
    log.close()


def test_a_sealed_segment_that_is_not_all_committed_is_not_passed_over(tmp_path: Path) -> None:
    """What lies above may be cut, and its LSNs be given to records of a wanted partition."""
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frames = [append(log, make, [make.data((2, 2, bytes(100)))])[0] for _ in range(20)]
    while not log.seal():  # until a spare one is ready
        time.sleep(0.001)
    append(log, make, [make.data((1, 1, bytes(100)))])
    end = log.next_lsn - 1
    assert log.lsns.find(1, (1,), log.last_index) == (log.last_index, end, False)
    assert log.lsns.find(1, (1,), frames[-1].index) == (log.last_index, end, False)
    for upto in (frames[4].index, frames[-2].index):
        assert log.lsns.find(1, (1,), upto) == (frames[0].index, 1, False)
        after = frames[upto - frames[0].index + 1]
        assert log.lsns.find(after.first_lsn, (1,), upto) == (after.index, after.first_lsn, False)
    log.close()
