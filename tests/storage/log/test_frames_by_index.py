"""Frames by index, from memory and from the disk: the same in the log on disk and in the one in memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import decode_frames, frame_bytes, group_seed
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Checkpoint, Frame, FramesUnavailable
from tests.storage.log.frames import FrameMaker, same
from tests.storage.log.memory_log import MemoryLog

SMALL = LogOptions(
    segment_bytes=16 << 10, tail_cache_bytes=2 << 10, reserve_bytes=1 << 10, recent_frames_bytes=5000
)


def both(directory: Path, options: LogOptions = SMALL) -> tuple[DataLog, MemoryLog]:
    return DataLog.open(directory / "g", 1, options), MemoryLog(1, options)


def fill(logs: tuple[DataLog, MemoryLog], make: FrameMaker, count: int) -> list[Frame]:
    frames = []
    for number in range(count):
        some = [make.data((1, 1, bytes([number % 251]) * 600)) for _ in range(1 + number % 3)]
        for log in logs:
            log.append(some)
            log.flush()
        if number % 4 == 0:
            logs[0].idle()
        frames += some
    return frames


def save(logs: tuple[DataLog, MemoryLog]) -> Checkpoint:
    model = logs[1]
    made = Checkpoint(
        model.last_index, model.last_term, model.next_lsn, model.chain, model.last_time_ms, {"a": b"b"}
    )
    for log in logs:
        log.write_checkpoint(made)
    return made


def test_every_frame_with_every_budget(tmp_path: Path) -> None:
    logs, make = both(tmp_path), FrameMaker()
    frames = fill(logs, make, 50)
    assert len(logs[0].segments()) > 3
    for reopened in (False, True):
        disk = logs[0]
        for first in range(1, len(frames) + 1):
            for budget in (0, 700, 737, 738, 2300, 40_000):
                expected = logs[1].frames_cold(first, budget)
                got = disk.frames_cold(first, budget)
                assert len(got) == len(expected) and all(map(same, got, expected))
                assert sum(map(frame_bytes, got)) <= budget or len(got) == 1
                warm, modelled = disk.frames(first, budget), logs[1].frames(first, budget)
                assert warm is None if reopened else warm == modelled
            chain = disk.chain_at(first - 1)
            assert chain is not None and chain == logs[1].chain_at(first - 1)
            assert chain == disk.chain_at_cold(first - 1)
            got = disk.frames_cold(first, 3000)
            data = b"".join(b"".join([f.head or b"", *f.payloads]) for f in got)
            assert all(map(same, decode_frames(data, chain), got))
        assert disk.frames(len(frames) + 1, 10) == disk.frames_cold(len(frames) + 1, 10) == []
        assert (disk.oldest_index, disk.first_kept_index) == (1, 1)
        disk.close()
        logs = DataLog.open(tmp_path / "g", 1, SMALL), logs[1]
    assert logs[0].chain_at(0) == group_seed(1) and logs[0].chain_at(999) is None
    logs[0].close()


def test_memory_holds_the_appended_frames_themselves(tmp_path: Path) -> None:
    logs, make = both(tmp_path), FrameMaker()
    frames = fill(logs, make, 20)
    got = logs[0].frames(len(frames) - 2, 1 << 20)
    assert got is not None and [id(f) for f in got] == [id(f) for f in frames[-3:]]
    assert logs[0].frames(1, 1 << 20) is None
    assert logs[0].read(1, len(frames) - 1, 10, 1 << 40).buffers[0] is got[-1].payloads[0]
    logs[0].close()
    log = DataLog.open(tmp_path / "g", 1, dataclasses.replace(SMALL, recent_frames_bytes=0))
    log.append([make.data((1, 1, b"x"))])
    assert log.frames(log.last_index, 1 << 20) is None
    log.close()


def test_frames_stay_readable_down_to_the_older_checkpoint(tmp_path: Path) -> None:
    logs, make = both(tmp_path), FrameMaker()
    cuts = []
    for _ in range(3):
        fill(logs, make, 30)
        cuts.append(save(logs))
    fill(logs, make, 10)
    for _ in range(2):
        log = logs[0]
        assert log.first_kept_index == logs[1].first_kept_index == cuts[1].index + 1
        assert log.chain_at(cuts[1].index) == cuts[1].chain
        for first in range(log.first_kept_index, log.last_index + 1, 5):
            assert all(map(same, log.frames_cold(first, 1 << 20), logs[1].frames_cold(first, 1 << 20)))
        loaded, modelled = log.load_checkpoint(), logs[1].load_checkpoint()
        assert loaded is not None and modelled is not None
        assert (
            (loaded.index, loaded.sections)
            == (modelled.index, modelled.sections)
            == (cuts[2].index, {"a": b"b"})
        )
        log.close()
        logs = DataLog.open(tmp_path / "g", 1, SMALL), logs[1]
    log = logs[0]
    assert log.free_deleted_segments(lambda _: 1 << 40) > 0
    assert 1 < log.oldest_index <= log.first_kept_index == cuts[1].index + 1
    assert log.chain_at(log.oldest_index - 1) == logs[1].chain_at(log.oldest_index - 1)
    with pytest.raises(FramesUnavailable):
        log.frames_cold(log.oldest_index - 1, 100)
    assert log.chain_at(log.oldest_index - 2) is None
    log.close()


def test_what_is_kept_in_memory_can_be_switched_off_and_on(tmp_path: Path) -> None:
    logs, make = both(tmp_path), FrameMaker()
    for wanted in (True, False, True, True):
        for log in logs:
            log.keep_recent_frames(wanted)
        frames = fill(logs, make, 4)
        for log in logs:
            last = log.last_index
            assert log.recent_chain_at(last) == log.chain and log.recent_chain_at(last + 1) is None
            assert (log.frames(last, 1 << 20) == frames[-1:]) is wanted
            assert (log.recent_chain_at(last - 1) == log.chain_at(last - 1)) is wanted
            assert log.recent_chain_at(0) is None
    logs[0].close()


def test_a_head_of_another_place_is_refused(tmp_path: Path) -> None:
    logs, make = both(tmp_path), FrameMaker()
    fill(logs, make, 3)
    other = MemoryLog(2)
    ahead = FrameMaker()
    strange = [ahead.data((1, 1, b"%d" % i)) for i in range(logs[1].last_index + 1)]
    other.append(strange)
    for log in logs:
        with pytest.raises(ValueError, match="does not continue the chain"):
            log.append(strange[-1:])
    last = fill(logs, make, 1)
    assert logs[0].chain == logs[1].chain and logs[0].last_index == last[-1].index
    logs[0].close()
