"""Logs of many small segments beside their model, for tests of joining."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import FileSystem
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import OffsetOutOfRange
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.frames import FrameMaker, same, whole
from tests.storage.log.memory_log import MemoryLog
from tests.storage.log.simulated_disk import SimulatedFileSystem
from tests.storage.log.test_installation import checkpoint_of

OPTIONS = LogOptions(
    segment_bytes=64 << 10,
    tail_cache_bytes=1,
    reserve_bytes=1 << 10,
    spare_segments=1,
    pool_segments=1,
    recent_frames_bytes=1,
)


class BadSector(SimulatedFileSystem):
    """A disk that cannot read one sector of a file."""

    name = ""
    at = 0

    def _look(self, fd: int, at: int, length: int) -> None:
        is_there = self.name and self._open[fd] == self._names[self.name]
        if is_there and at < self.at + 512 and self.at < at + length:
            raise OSError(errno.EIO, "bad sector")

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        self._look(fd, position, length)
        return super().pread(fd, length, position)

    def preadv(self, fd: int, buffers: Sequence[Any], position: int, flags: int = 0, /) -> int:
        self._look(fd, position, sum(map(len, buffers)))
        return super().preadv(fd, buffers, position, flags)


def two_checkpoints(log: DataLog, model: MemoryLog) -> None:
    """Both above everything there is."""
    for _ in range(2):
        made = checkpoint_of(model)
        log.write_checkpoint(made)
        model.write_checkpoint(made)


def fill(log: DataLog, model: MemoryLog, make: FrameMaker, segments: int, frames: int = 2) -> None:
    """So many more sealed segments of so many small frames each, below both checkpoints."""
    for _ in range(segments):
        for _ in range(frames):
            number = make.index % 251
            made = [make.data((1 + number % 2, 2, bytes([number]) * 500), (3, 1, bytes([number]) * 100))]
            for each in (log, model):
                each.append(made)
                each.flush()
        log.prepare_now()
        assert log.seal()
    two_checkpoints(log, model)
    log.prepare_now()


def small_segments(
    segments: int, fs: FileSystem, directory: Path = DIRECTORY, options: LogOptions = OPTIONS
) -> tuple[DataLog, MemoryLog, FrameMaker]:
    """A new log of so many sealed segments, and its model."""
    log, model, make = DataLog.open(directory, GROUP, options, fs), MemoryLog(GROUP, options), FrameMaker()
    fill(log, model, make, segments)
    assert len(log.segments()) == segments
    return log, model, make


def on_a_simulated_disk(segments: int) -> tuple[DataLog, MemoryLog, FrameMaker, SimulatedFileSystem]:
    disk = SimulatedFileSystem()
    return *small_segments(segments, disk), disk


Answers = dict[tuple[object, ...], object]
_modelled: dict[bytes, Answers] = {}
"""A model's answers, by what is in it; of the newest model alone. Models cost more than what they are for."""


def agree(log: DataLog, model: MemoryLog) -> None:
    """Every read and look-up as the model's."""
    expected = _answers_of(model)
    for asked, answer in _answers(log, model.last_index):
        assert answer == expected[asked], asked
    frames, modelled = (each.snapshot_frames(1, 1 << 40, 1 << 40) for each in (log, model))
    assert len(frames) == len(modelled) and all(map(same, frames, modelled))
    lsn = 1
    for frame in modelled:
        assert log.lsns.find(lsn, (1, 2, 3), log.last_index).frame_index == frame.index
        assert log.chain_at_cold(frame.index) == model.chain_at(frame.index)
        for entry in frame.directory:
            assert log.lsns.of_offset(entry.partition, entry.base_offset) == lsn
            lsn += entry.record_count
    assert log.first_kept_index == model.first_kept_index and log.next_lsn == model.next_lsn


def _answers_of(model: MemoryLog) -> Answers:
    content = blake2b(b"%d" % model.last_index)
    for frame in model._frames:
        content.update(repr((frame.index, frame.directory)).encode() + whole(frame.payloads))
    key = content.digest()
    if key not in _modelled:
        _modelled.clear()
        _modelled[key] = dict(_answers(model, model.last_index))
    return _modelled[key]


def _answers(each: DataLog | MemoryLog, last_index: int) -> Iterator[tuple[tuple[object, ...], object]]:
    """What is asked, and the answer."""
    for partition in (1, 2, 3):
        for offset in range(0, last_index + 3, 3):
            for max_bytes in (0, 900, 5000, 1 << 30):
                try:
                    answer = whole(each.read_cold(partition, offset, max_bytes, 1 << 40).buffers)
                except OffsetOutOfRange:
                    answer = b"out of range"
                yield (partition, offset, max_bytes), answer
        for time_ms in (0, 500, 994, *range(1001, 1000 + last_index, 7)):  # the first record is of 1001
            found = each.timestamp_lookup(partition, time_ms, 0, 1 << 40)
            yield (partition, time_ms), found and found.base_offset
        found = each.max_timestamp_batch(partition, 0, 50)
        yield (partition, "newest"), found and found.base_offset
        yield (partition, "bytes"), each.partition_bytes(partition, 0)
