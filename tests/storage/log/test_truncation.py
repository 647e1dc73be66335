"""Cutting a log that is being read: what is committed stays readable, what is cut never comes back."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.storage.log import segments
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Checkpoint, CorruptLog, Frame, FramesUnavailable
from tests.storage.log.frames import FrameMaker, same, whole
from tests.storage.log.memory_log import MemoryLog

SMALL = LogOptions(
    segment_bytes=16 << 10, tail_cache_bytes=2 << 10, reserve_bytes=1 << 10, recent_frames_bytes=6 << 10
)


def checkpoint_of(log: DataLog | MemoryLog) -> Checkpoint:
    return Checkpoint(log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, {"a": b"b"})


class Pair:
    """A log on disk and its model, with what was written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = DataLog.open(directory, 1, SMALL)
        self.model = MemoryLog(1, SMALL)
        self.make = FrameMaker()
        self.frames: list[Frame] = []

    def append(self, count: int, text: bytes) -> None:
        for number in range(count):
            frame = self.make.data((1 + number % 2, 3, text + b"%06d" % self.make.index * 90))
            self.log.append([frame])
            self.model.append([frame])
            self.frames.append(frame)
        self.log.flush()
        self.model.flush()

    def truncate(self, last_index: int) -> None:
        self.log.truncate(last_index)
        self.model.truncate(last_index)
        del self.frames[last_index:]
        self.make = FrameMaker()
        for frame in self.frames:
            self.make.follow(frame)
        self.make.term += 1

    def agree(self) -> None:
        log, model = self.log, self.model
        for name in ("last_index", "last_term", "next_lsn", "chain", "last_time_ms", "flushed_index"):
            assert getattr(log, name) == getattr(model, name), name
        for partition in (1, 2):
            end = self.make.next_offsets.get(partition, 0)
            for offset in {0, end // 2, max(0, end - 4)}:
                expected = whole(model.read(partition, offset, 1 << 20, end).buffers)
                assert whole(log.read_cold(partition, offset, 1 << 20, end).buffers) == expected
                warm = log.read(partition, offset, 1 << 20, end)
                assert warm.cold or expected.startswith(whole(warm.buffers))
            for time_ms in (1005, model.last_time_ms, model.last_time_ms + 1):
                found = [each.timestamp_lookup(partition, time_ms, 0, 1 << 40) for each in (log, model)]
                assert (found[0] and found[0].base_offset) == (found[1] and found[1].base_offset)
            found = [each.max_timestamp_batch(partition, 0, 1 << 40) for each in (log, model)]
            assert (found[0] and found[0].base_offset) == (found[1] and found[1].base_offset)
            assert log.partition_bytes(partition, 0) == model.partition_bytes(partition, 0)
        for first in range(1, model.last_index + 2, 9):
            assert all(map(same, log.frames_cold(first, 5000), model.frames_cold(first, 5000)))
            assert log.frames(first, 5000) == model.frames(first, 5000)
            assert log.chain_at(first - 1) == model.chain_at(first - 1)

    def reopen(self) -> None:
        self.log.close()
        self.log = DataLog.open(self.directory, 1, SMALL)
        self.model.crash()


def test_over_segments_down_to_the_checkpoint_then_on(tmp_path: Path) -> None:
    pair, rng = Pair(tmp_path / "g"), random.Random(3)
    pair.append(40, b"first")
    for log in (pair.log, pair.model):
        log.write_checkpoint(checkpoint_of(pair.model))
    pair.append(110, b"second")
    assert len(pair.log.segments()) > 5
    for turn, cut in enumerate((140, 101, 100, 60, 41, 40, 40)):
        pair.log.prepare_now()  # index files of sealed segments are written, their indexes loaded on demand
        pair.truncate(min(cut, pair.model.last_index))
        pair.agree()
        if turn % 2:
            pair.append(rng.randrange(1, 60), b"after %d" % turn)
            pair.agree()
        pair.reopen()
        pair.agree()
        assert all(map(same, pair.log.replay(), pair.model.replay()))
        if turn < 6:
            pair.append(160 - pair.model.last_index, b"more %d" % turn)
    with pytest.raises(ValueError, match="below the checkpoint at 40"):
        pair.log.truncate(39)
    with pytest.raises(ValueError, match="below the newest checkpoint"):
        pair.model.truncate(39)
    pair.agree()
    pair.log.close()


def test_segments_of_a_former_size_are_not_written_as_if_they_had_todays(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.append(80, b"old")
    assert len(pair.log.segments()) > 3
    pair.log.close()
    larger = dataclasses.replace(SMALL, segment_bytes=256 << 10)
    log = DataLog.open(tmp_path, 1, larger)
    log.truncate(5)
    make = FrameMaker()
    for frame in pair.frames[:5]:
        make.follow(frame)
    make.term += 1
    written = [make.data((1, 1, bytes([number]) * 50_000)) for number in range(8)]
    for frame in written:
        log.append([frame])
        log.flush()
    log.close()
    again = DataLog.open(tmp_path, 1, larger)
    assert again.last_index == 13 and all(map(same, list(again.replay())[-8:], written))
    again.close()


def test_down_to_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "g")
    pair.append(60, b"x")
    pair.truncate(0)
    assert (pair.log.last_index, pair.log.next_lsn) == (0, 1)
    with pytest.raises(FramesUnavailable):
        pair.log._frame_reader.read(1, 100, 5)
    pair.append(3, b"y")
    pair.agree()
    pair.reopen()
    pair.agree()
    pair.log.close()


def test_nothing_changes_where_the_last_frame_is_corrupt(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "g")
    pair.append(60, b"x")
    pair.reopen()
    segment = next(iter(pair.log._table))
    data = bytearray(segment.path.read_bytes())
    data[data.index(pair.frames[9].payloads[0]) + 50] ^= 1
    segment.path.write_bytes(data)
    with pytest.raises(CorruptLog, match="batch does not match"):
        pair.log.truncate(10)
    assert pair.log.last_index == 60
    pair.truncate(9)
    pair.agree()
    pair.log.close()


class Watchers:
    """Threads that read what is committed, and what may go any time, until `stop`."""

    def __init__(self, pair: Pair) -> None:
        self.log = pair.log
        self.ends = dict(pair.make.next_offsets)
        ends, model = self.ends.items(), pair.model
        self.expected = {p: whole(model.read(p, 0, 1 << 30, end).buffers) for p, end in ends}
        self.newest = {p: model.max_timestamp_batch(p, 0, end) for p, end in ends}
        self.problems: list[object] = []
        self.rounds = 0
        self._done = threading.Event()
        works = ((self.committed, 1), (self.committed, 2), (self.tail, 31))
        self._threads = [threading.Thread(target=self._loop, args=each) for each in works]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, work: Callable[[int], None], argument: int) -> None:
        while not self._done.is_set():
            try:
                work(argument)
                self.rounds += 1
            except Exception as error:
                self.problems.append(repr(error))
            time.sleep(0.001)

    def committed(self, partition: int) -> None:
        log, end = self.log, self.ends[partition]
        if whole(log.read_cold(partition, 0, 1 << 30, end).buffers) != self.expected[partition]:
            self.problems.append("other bytes")
        found, known = log.max_timestamp_batch(partition, 0, end), self.newest[partition]
        if found is None or known is None or found.base_offset != known.base_offset:
            self.problems.append(f"newest {found}")
        if log.timestamp_lookup(partition, 1001, 0, end) is None:
            self.problems.append("no time")
        if [f.index for f in log.frames_cold(20, 8000)][:5] != [20, 21, 22, 23, 24]:
            self.problems.append("frames")

    def tail(self, first: int) -> None:
        """What is not committed never comes as something else."""
        try:
            frames = self.log.frames_cold(first, 1 << 20)
        except FramesUnavailable:
            return
        if [f.index for f in frames] != list(range(first, first + len(frames))):
            self.problems.append("gaps")


def test_committed_reads_go_on_while_the_tail_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers in threads see each committed byte, whatever happens behind the commit index."""
    monkeypatch.setattr(segments, "OPEN_FILES_MAX", 3)
    pair = Pair(tmp_path / "g")
    pair.log.start_preparing()
    pair.append(30, b"committed")
    watchers = Watchers(pair)
    rng = random.Random(5)
    for turn in range(25):
        pair.append(rng.randrange(5, 60), b"turn %d" % turn)
        pair.truncate(rng.randrange(30, pair.model.last_index))
    watchers.stop()
    assert watchers.problems == [] and watchers.rounds > 20
    pair.agree()
    pair.log.prepare_now()
    assert sum(segment.fd >= 0 for segment in pair.log._table) <= 3 + 1
    pair.reopen()
    pair.agree()
    pair.log.close()


def test_an_index_that_is_rebuilt_beside_a_truncation_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    pair.append(40, b"before")
    log = pair.log
    segment = log.segments()[1]
    sealed, begin, found = log._table.get(segment.sequence), log._maintenance.begin_generation, []
    assert sealed is not None
    rebuild = threading.Thread(target=lambda: found.append(log._rebuild_index(sealed)))

    def begin_beside_it(place: int) -> int:
        generation = begin(place)
        rebuild.start()
        time.sleep(0.05)  # it reads what the new generation does not count any more
        return generation

    monkeypatch.setattr(log._maintenance, "begin_generation", begin_beside_it)
    pair.truncate(segment.first_index + 1)
    rebuild.join()
    assert found == [{}]
    pair.agree()


@pytest.mark.parametrize("moment", ["while it reads", "between the two steps"])
def test_a_scrub_beside_a_truncation_reports_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The segment that is read is cut, first in the state file and then in memory, and written over."""
    monkeypatch.setattr("lockstep.storage.log.segment_scan.WINDOW_BYTES", 512)
    pair = Pair(tmp_path)
    pair.append(40, b"before")
    log = pair.log
    segment = log.segments()[1]
    begin, found = log._maintenance.begin_generation, []
    scrub = threading.Thread(target=lambda: found.append(log.scrub(segment.sequence)))

    def begin_beside_a_scrub(place: int) -> int:
        generation = begin(place)
        scrub.start()
        time.sleep(0.05)  # it reads what the new generation does not count any more
        return generation

    def cut(_: int = 0) -> None:
        if len(pair.frames) == 40:
            pair.truncate(segment.first_index + 1)
            pair.append(20, b"after")

    if moment == "between the two steps":
        monkeypatch.setattr(log._maintenance, "begin_generation", begin_beside_a_scrub)
        cut()
        scrub.join()
    else:
        found.append(log.scrub(segment.sequence, cut))
    assert found == [None] and len(pair.frames) == segment.first_index + 21
    assert not log.damage.known() and not log.corruption_found
    pair.agree()
