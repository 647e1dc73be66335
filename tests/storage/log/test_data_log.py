"""DataLog on a real directory: append, flush, reopen, read, roll, checkpoint, free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lockstep.storage.log import segment_files, segments
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.writer import PAGE_BYTES
from lockstep.storage.types import (
    Buffer,
    Checkpoint,
    CorruptLog,
    Frame,
    HardState,
    NewerFormat,
    OffsetOutOfRange,
)
from tests.storage.log.frames import FrameMaker, same, whole
from tests.storage.log.memory_log import MemoryLog

SMALL = LogOptions(segment_bytes=16 << 10, tail_cache_bytes=1 << 10, reserve_bytes=1 << 10)


def fill(log: DataLog, make: FrameMaker, count: int, body_bytes: int = 600) -> list[Frame]:
    frames = []
    for i in range(count):
        frame = make.data((1 + i % 2, 3, bytes([i % 251]) * body_bytes))
        log.append([frame])
        log.flush()
        frames.append(frame)
    return frames


def checkpoint_of(log: DataLog, sections: dict[str, bytes] | None = None) -> Checkpoint:
    return Checkpoint(
        log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, sections or {"a": b"x"}
    )


def test_appended_frames_come_back_after_reopen(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frames = [make.no_op(), make.data((1, 2, b"one"), (2, 1, b"two")), make.data((1, 1, b"three"))]
    log.append(frames[:1])
    log.append(frames[1:])
    assert log.flushed_index == 0
    log.flush()
    assert (log.flushed_index, log.last_index, log.next_lsn) == (3, 3, 5)
    chain = log.chain
    log.close()
    again = DataLog.open(tmp_path / "g", 1, SMALL)
    assert (again.last_index, again.next_lsn, again.chain) == (3, 5, chain)
    replayed = list(again.replay())
    assert len(replayed) == 3 and all(map(same, replayed, frames))
    again.close()


class WritesNoted(RealFileSystem):
    """(end, what) of each write to a segment."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, bytes]] = []

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:  # type: ignore[override]
        what = b"".join(buffers)
        if os.readlink(f"/proc/self/fd/{fd}").endswith(segment_files.SEGMENT_SUFFIX):
            self.writes.append((position + len(what), what))
        return os.pwritev(fd, buffers, position)


@pytest.mark.parametrize("segment_bytes", [16 << 10, (16 << 10) + 1000])
def test_no_write_leaves_a_page_half_written(tmp_path: Path, segment_bytes: int) -> None:
    fs = WritesNoted()
    options = LogOptions(segment_bytes=segment_bytes, tail_cache_bytes=1 << 10, reserve_bytes=1 << 10)
    log, make = DataLog.open(tmp_path / "g", 1, options, fs), FrameMaker()
    fs.writes.clear()
    frames = fill(log, make, 60)
    log.idle()
    log.close()
    assert len(fs.writes) > 60 and len(list((tmp_path / "g").glob("*.segment"))) > 3
    assert all(end % PAGE_BYTES == 0 or end == segment_bytes for end, _ in fs.writes)
    assert {end == segment_bytes for end, _ in fs.writes} == {True, False}
    assert any(what.endswith(bytes(1000)) for _, what in fs.writes)
    again = DataLog.open(tmp_path / "g", 1, options)
    assert all(map(same, again.replay(), frames)) and again.last_index == 60
    again.close()


def test_reads_from_the_tail_cache_and_from_the_file_agree(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frames = fill(log, make, 100)
    per_partition = {
        p: [bytes(f.payloads[0]) for f in frames if f.directory[0].partition == p] for p in (1, 2)
    }
    for partition, payloads in per_partition.items():
        for first in range(50):
            for read in (log.read, log.read_cold):
                got = read(partition, first * 3 + 1, 2000, 150)
                if got.cold:
                    assert read == log.read and not got.buffers
                    continue
                expected = b"".join(payloads[first : first + 3])
                assert whole(got.buffers) == expected and got.total_bytes == len(expected)
    assert log.read(1, 150, 1000, 150).buffers == []
    assert whole(log.read_cold(1, 0, 1, 150).buffers) == per_partition[1][0]
    assert log.read_cold(1, 0, 1, 150, min_one=False).buffers == []
    assert whole(log.read_cold(1, 0, 1 << 20, 31).buffers) == b"".join(per_partition[1][:11])
    log.close()


def test_a_log_of_many_segments_reopens_with_and_without_a_checkpoint(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 7, SMALL), FrameMaker()
    frames = fill(log, make, 80)
    assert len(log.segments()) >= 3 and log.sealed_since_checkpoint
    log.close()
    log = DataLog.open(tmp_path / "g", 7, SMALL)
    assert all(map(same, log.replay(), frames)) and log.last_index == 80
    log.write_checkpoint(checkpoint_of(log, {"a": b"state", "empty": b""}))
    assert not log.sealed_since_checkpoint
    more = fill(log, make, 5)
    log.close()
    log = DataLog.open(tmp_path / "g", 7, SMALL)
    assert log.checkpoint is not None and log.checkpoint.sections == {"a": b"state", "empty": b""}
    assert log.checkpoint.index == 80
    replayed = list(log.replay())
    assert len(replayed) == 5 and all(map(same, replayed, more))
    everything = b"".join(bytes(f.payloads[0]) for f in frames + more if f.directory[0].partition == 1)
    assert whole(log.read_cold(1, 0, 1 << 20, 1 << 40).buffers) == everything
    log.close()


def test_its_size_is_what_was_written_and_is_still_there(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 7, SMALL), FrameMaker()
    empty = log.size_bytes
    fill(log, make, 80)
    for _ in range(2):
        log.write_checkpoint(checkpoint_of(log))
        fill(log, make, 1)
    sealed = log.segments()
    assert len(sealed) >= 3
    written = empty + len(sealed) * SEGMENT_HEADER_BYTES + log.appended_bytes
    assert log.size_bytes == written
    gone = sealed[: log.free_deleted_segments(lambda _: 1 << 62)]
    assert gone
    assert log.size_bytes == written - sum(each.total_bytes for each in gone)
    log.close()


def test_deleted_segments_are_freed_only_below_the_older_checkpoint_and_recycled(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    fill(log, make, 80)
    assert log.free_deleted_segments(lambda _: 1 << 62) == 0
    log.write_checkpoint(checkpoint_of(log))
    assert log.free_deleted_segments(lambda _: 1 << 62) == 0
    fill(log, make, 1)
    log.write_checkpoint(checkpoint_of(log))
    before = len(log.segments())
    keep = log.segments()[-1]
    starts = {share.local_id: share.first_offset for share in keep.partitions()}
    assert log.free_deleted_segments(starts.__getitem__) == before - 1
    assert [s.sequence for s in log.segments()] == [keep.sequence]
    with pytest.raises(OffsetOutOfRange):
        log.read_cold(1, 0, 1000, 1000)
    frames = fill(log, make, 30)
    log.close()
    log = DataLog.open(tmp_path / "g", 1, SMALL)
    assert log.last_index == 111 and all(map(same, list(log.replay())[-30:], frames))
    log.close()


def test_what_comes_before_an_entry_is_freed_only_below_the_older_checkpoint(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    fill(log, make, 80)
    assert log.free_below(1 << 62, 9) == 0
    log.write_checkpoint(checkpoint_of(log))
    assert log.free_below(1 << 62, 9) == 0
    fill(log, make, 1)
    log.write_checkpoint(checkpoint_of(log))
    before = log.segments()
    assert log.whole_index == 0, "nothing is gone"
    assert log.free_below(before[1].last_index, 9) == 1
    assert log.free_below(1 << 62, 9) == len(before) - 1
    frames = fill(log, make, 30)
    log.close()
    log = DataLog.open(tmp_path / "g", 1, SMALL)
    assert log.whole_index == 9
    assert log.last_index == 111 and all(map(same, list(log.replay())[-30:], frames))
    log.close()


def test_hard_state_survives_and_one_corrupt_slot_does_no_harm(tmp_path: Path) -> None:
    log = DataLog.open(tmp_path / "g", 1, SMALL)
    log.save_hard_state(HardState(5, 2, 9))
    log.close()
    path = tmp_path / "g" / "state"
    for slot in (0, 1):
        data = bytearray(path.read_bytes())
        data[slot * 4096 + 30] ^= 1
        path.write_bytes(data)
        log = DataLog.open(tmp_path / "g", 1, SMALL)
        assert log.hard_state == HardState(5, 2, 9) and log.report.damaged_slot
        log.close()
    path.write_bytes(bytes(8192))
    with pytest.raises(CorruptLog, match="state"):
        DataLog.open(tmp_path / "g", 1, SMALL)


def test_timestamps_find_the_batch(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frames = fill(log, make, 60)
    for frame in frames:
        e = frame.directory[0]
        found = log.timestamp_lookup(e.partition, e.max_timestamp, 0, 1 << 40)
        assert found is not None and found.base_offset == e.base_offset and found.length == e.length
    assert log.timestamp_lookup(1, 1 << 50, 0, 1 << 40) is None
    newest = log.max_timestamp_batch(1, 0, 1 << 40)
    assert newest is not None and newest.base_offset == frames[-2].directory[0].base_offset
    log.close()


def test_a_frame_of_more_batches_than_one_write_takes_buffers(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, LogOptions(segment_bytes=1 << 20)), FrameMaker()
    frames = [make.data(*((1 + i % 3, 1, b"%d" % i) for i in range(1500))), make.no_op()]
    log.append(frames)
    log.close()
    again = DataLog.open(tmp_path / "g", 1, LogOptions(segment_bytes=1 << 20))
    assert all(map(same, again.replay(), frames)) and again.last_index == 2
    assert again.read_cold(2, 0, 1 << 20, 500).total_bytes == sum(
        e.length for e in frames[0].directory if e.partition == 2
    )
    again.close()


class TakesHalf(RealFileSystem):
    """A system that takes half of every write, as it may."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:  # type: ignore[override]
        data = b"".join(buffers)
        return os.pwritev(fd, [data[: max(1, len(data) // 2)]], position)


def test_a_write_that_the_system_takes_in_part_is_gone_on_with(tmp_path: Path) -> None:
    """KAFKA-17181."""
    log, make = DataLog.open(tmp_path / "g", 1, SMALL, fs=TakesHalf()), FrameMaker()
    frames = fill(log, make, 40)
    log.close()
    again = DataLog.open(tmp_path / "g", 1, SMALL)
    assert all(map(same, again.replay(), frames))
    assert again.last_index == len(frames)
    again.close()


def test_a_frame_of_a_leader_with_larger_segments_gets_a_larger_file(tmp_path: Path) -> None:
    """`lockstep.segment.bytes` is changed one node after the other."""
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    large = 5 * SMALL.segment_bytes // 2
    frames = [
        make.data((1, 1, body))
        for body in (b"first", bytes(large), b"between", b"x" * large, bytes(large + 1), b"last")
    ]
    log.append(frames[:1])
    log.append(frames[1:5])
    log.append(frames[5:])
    payloads = b"".join(bytes(frame.payloads[0]) for frame in frames)
    assert whole(log.read_cold(1, 0, 1 << 30, 1 << 40).buffers) == payloads
    log.close()

    again = DataLog.open(tmp_path / "g", 1, SMALL)
    assert all(map(same, again.replay(), frames)) and again.last_index == len(frames)
    assert whole(again.read_cold(1, 0, 1 << 30, 1 << 40).buffers) == payloads
    again.truncate(1)
    make = FrameMaker()
    make.follow(frames[0])
    small = fill(again, make, 40)
    again.close()
    sizes = [path.stat().st_size for path in (tmp_path / "g").glob("*.segment")]
    assert len([size for size in sizes if size != SMALL.segment_bytes]) == 1  # where the log went on
    last = DataLog.open(tmp_path / "g", 1, SMALL)
    assert all(map(same, last.replay(), [frames[0], *small]))
    last.close()


def test_what_does_not_follow_the_log_is_refused(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    log.append([make.data((1, 2, b"one"))])
    for change in ("index", "first_lsn", "term"):
        frame = make.copy().data((1, 1, b"two"))
        setattr(frame, change, getattr(frame, change) - 1)
        with pytest.raises(ValueError, match="cannot follow"):
            log.append([frame])
    short = make.copy().data((1, 1, b"two"))
    short.payloads[0] = short.payloads[0][:-1]
    with pytest.raises(ValueError, match="disagree"):
        log.append([short])
    frame = make.data((1, 1, b"two"))
    log.append([frame])
    log.close()
    again = DataLog.open(tmp_path / "g", 1, SMALL)
    assert again.last_index == 2 and same(list(again.replay())[1], frame)
    again.close()


def test_truncation_forgets_frames_for_good(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frames = fill(log, make, 20)
    keep = make.copy()
    for cut in (55, 41, 24, 20):
        frames = frames[:20]
        make = keep.copy()
        frames += fill(log, make, 60 - 20)
        log.truncate(cut)
        assert log.last_index == cut
        log.close()
        log = DataLog.open(tmp_path / "g", 1, SMALL)
        replayed = list(log.replay())
        assert len(replayed) == cut and all(map(same, replayed, frames))
        log.truncate(20)
    fill(log, keep.copy(), 10, 500)
    log.close()


def test_a_long_log_does_not_keep_its_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "OPEN_FILES_MAX", 4)
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    fill(log, make, 300)
    assert len(log.segments()) > 10
    assert sum(segment.fd >= 0 for segment in log._table) <= 4 + 1
    assert len(whole(log.read_cold(1, 0, 1 << 30, 1 << 40).buffers)) > 150 * 600
    assert sum(segment.fd >= 0 for segment in log._table) <= 4 + 1
    log.close()


def test_a_truncated_segment_stays_open_for_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "OPEN_FILES_MAX", 2)
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frames = fill(log, make, 150)
    cut = log.segments()[4]
    log.read_cold(1, 3 * (cut.first_index // 2), 1, 1 << 40)  # it is among the open sealed files
    log.truncate(cut.first_index)
    for sealed in log.segments():
        offset = next(share.first_offset for share in sealed.partitions() if share.local_id == 1)
        log.read_cold(1, offset, 1, 1 << 40)
    again = FrameMaker()
    for frame in frames[: cut.first_index]:
        again.follow(frame)
    log.append([again.data((1, 1, b"after the cut"))])
    log.flush()
    log.close()


def test_a_kind_of_frame_that_is_not_known_is_a_newer_formats(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, SMALL), FrameMaker()
    frame = make.no_op()
    frame.kind = 4  # type: ignore[assignment]
    log.append([frame])
    log.close()
    with pytest.raises(NewerFormat, match="kind 4"):
        DataLog.open(tmp_path / "g", 1, SMALL)


@pytest.mark.parametrize("memory", [False, True])
def test_an_origin_is_reported_once(tmp_path: Path, memory: bool) -> None:
    log = MemoryLog(1) if memory else DataLog.open(tmp_path / "g", 1, SMALL)
    assert not log.has_origin
    assert [log.origin(told) for told in (b"first", b"later")] == [b"first", b"first"]
    assert log.has_origin
    log.close()
    if not memory:
        again = DataLog.open(tmp_path / "g", 1, SMALL)
        assert again.has_origin and again.origin(b"later still") == b"first"
        again.close()
