"""What runs beside the log's own thread: preparing, flushing, checkpoints, cold reads while segments go."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.segment_pool import FILL_BYTES, ReadyFile, SegmentPool
from lockstep.storage.types import Checkpoint, FlushFailed, OffsetOutOfRange
from tests.storage.log.frames import FrameMaker, whole

OPTIONS = LogOptions(
    segment_bytes=64 << 10, tail_cache_bytes=4 << 10, index_cache_bytes=4 << 10, reserve_bytes=1 << 10
)


def body(number: int) -> bytes:
    return number.to_bytes(4, "big") * 200


class Readers:
    """Cold readers of one partition, checking every byte, until told to stop."""

    def __init__(self, log: DataLog, count: int) -> None:
        self.log = log
        self.end = 0
        self.start = 0
        self.stop = False
        self.reads = 0
        self.problems: list[str] = []
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, number: int) -> None:
        step = 7 + number * 13
        offset = 0
        while not self.stop:
            end = self.end
            if end == 0:
                time.sleep(0.001)
                continue
            start = self.start
            offset = start + (offset + step) % max(1, end - start)
            try:
                got = self.log.read_cold(1, offset, 20_000, end)
            except OffsetOutOfRange:
                if offset >= self.start:
                    self.problems.append(f"offset {offset} refused, log start {self.start}")
                continue
            data = whole(got.buffers)
            for at in range(0, len(data), 821):
                if data[at + 21 : at + 821] != body(offset + at // 821):
                    self.problems.append(f"offset {offset + at // 821} holds other bytes")
                    return
            self.reads += 1

    def join(self) -> None:
        self.stop = True
        for thread in self.threads:
            thread.join()


def test_cold_reads_while_segments_are_sealed_freed_and_recycled(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, OPTIONS), FrameMaker()
    log.start_preparing()
    readers = Readers(log, 2)
    saved: list[threading.Thread] = []
    for number in range(3000):
        log.append([make.data((1, 1, body(number)))])
        if number % 4 == 3:
            flusher = threading.Thread(target=log.flush)
            flusher.start()
            flusher.join()
            readers.end = number + 1
        if log.sealed_since_checkpoint and not any(t.is_alive() for t in saved):
            cut = Checkpoint(log.last_index, 1, log.next_lsn, log.chain, log.last_time_ms, {"a": b"b"})
            saved.append(threading.Thread(target=log.write_checkpoint, args=(cut,)))
            saved[-1].start()
        if number % 200 == 199:
            readers.start = max(0, number - 600)
            log.free_deleted_segments(lambda _: readers.start)
    for thread in saved:
        thread.join()
    readers.join()
    assert readers.problems == [] and readers.reads > 50
    assert log._pool.recycled > 3
    log.free_deleted_segments(lambda _: readers.start)
    log.close()
    files = [p for p in (tmp_path / "g").iterdir() if p.suffix == ".segment"]
    assert len(files) < 25
    again = DataLog.open(tmp_path / "g", 1, OPTIONS)
    assert again.last_index == 3000
    assert whole(again.read_cold(1, 2999, 1, 3000).buffers)[21:] == body(2999)
    again.close()


def test_a_damaged_index_file_is_rebuilt_when_it_is_needed(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, OPTIONS), FrameMaker()
    payloads = b""
    for number in range(300):
        frame = make.data((1, 1, body(number)))
        log.append([frame])
        payloads += bytes(frame.payloads[0])
    log.flush()
    log.write_checkpoint(Checkpoint(300, 1, log.next_lsn, log.chain, log.last_time_ms, {}))
    log.close()
    indexes = sorted((tmp_path / "g").glob("*.index"))
    assert len(indexes) >= 3
    rows = bytearray(indexes[0].read_bytes())
    rows[-1] ^= 1
    indexes[0].write_bytes(rows)
    head = bytearray(indexes[1].read_bytes())
    head[20] ^= 1
    indexes[1].write_bytes(head)
    indexes[2].unlink()
    log = DataLog.open(tmp_path / "g", 1, OPTIONS)
    assert log.report.rebuilt_indexes == 2
    assert log.read(1, 0, 1 << 20, 300).cold
    assert whole(log.read_cold(1, 0, 1 << 30, 300).buffers) == payloads
    log.prepare_now()
    log.close()
    log = DataLog.open(tmp_path / "g", 1, OPTIONS)
    assert log.report.rebuilt_indexes == 0
    assert whole(log.read_cold(1, 0, 1 << 30, 300).buffers) == payloads
    log.close()


def test_freeing_waits_for_a_reader(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, OPTIONS), FrameMaker()
    for number in range(400):
        log.append([make.data((1, 1, body(number)))])
        if number in (300, 350):
            log.flush()
            log.write_checkpoint(Checkpoint(log.last_index, 1, log.next_lsn, log.chain, log.last_time_ms, {}))
    first = log.segments()[0]
    held = log._table.acquire(first.sequence)
    assert held is not None
    path = held.path
    before = path.read_bytes()
    assert log.free_deleted_segments(lambda _: 1 << 40) >= 2
    log.prepare_now()
    assert path.exists() and path.read_bytes() == before
    log._table.release(held)
    log.prepare_now()
    assert held.fd < 0 and (path in log._pool._dead or not path.exists())
    log.close()


def test_retention_looks_at_the_log_while_it_rolls(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, LogOptions(segment_bytes=16 << 10, flush=False)), FrameMaker()
    problems: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                shares, total = log.partition_in_segments(1, 0)
                assert total >= sum(share.total_bytes for share in shares)
            except BaseException as error:
                problems.append(error)

    reader = threading.Thread(target=look)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        reader.start()
        for _ in range(600):
            log.append([make.data((1, 1, b"x" * 6000))])
            log.flush()
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(interval)
    assert problems == []
    assert len(log.segments()) > 500
    log.close()


def test_a_file_that_another_thread_is_making_is_not_made_twice(tmp_path: Path) -> None:
    pool = SegmentPool(RealFileSystem(), tmp_path, OPTIONS)
    held = threading.Event()

    def make() -> None:
        with pool._lock:
            held.set()
            time.sleep(0.05)
            pool.prepare()

    maker = threading.Thread(target=make)
    maker.start()
    held.wait()
    assert pool.more_than(0)
    maker.join()
    assert pool.ready_count == 1 == len(list(tmp_path.iterdir()))
    assert not pool.failed and isinstance(pool.take(), ReadyFile)


class SlowDisk(RealFileSystem):
    """Each piece of zeros takes until a write waits for the file, or it is over."""

    pool: SegmentPool

    def __init__(self) -> None:
        self.filling = threading.Event()
        self.over = threading.Event()
        self.nobody_hurried = False

    def write_back(self, fd: int, position: int, length: int) -> None:
        self.filling.set()
        deadline = time.monotonic() + 10
        while not self.pool._stop_filling.is_set() and not self.over.is_set():
            time.sleep(0.001)
            if time.monotonic() > deadline:
                self.nobody_hurried = True
                return


def test_a_write_waits_for_no_zeros(tmp_path: Path) -> None:
    size = 8 * FILL_BYTES
    disk = SlowDisk()
    pool = disk.pool = SegmentPool(disk, tmp_path, LogOptions(segment_bytes=size))
    maker = threading.Thread(target=pool.prepare)
    maker.start()
    assert disk.filling.wait(10)
    assert pool.more_than(0)  # one that is being filled
    maker.join()
    assert pool.filled_bytes == FILL_BYTES
    assert pool.more_than(1)  # one that nobody had begun
    assert pool.filled_bytes == FILL_BYTES
    for _ in range(2):
        file = pool.take()
        assert file is not None and file.path.read_bytes() == bytes(size)


def test_an_urgent_append_is_not_overtaken(tmp_path: Path) -> None:
    """Who fills files in the background takes the lock again sooner than who waits for it."""
    disk = SlowDisk()
    pool = disk.pool = SegmentPool(disk, tmp_path, LogOptions(segment_bytes=2 * FILL_BYTES))

    def make() -> None:
        while not disk.over.is_set():
            pool.prepare()

    maker = threading.Thread(target=make)
    maker.start()
    try:
        assert disk.filling.wait(10)
        assert pool.more_than(0)
        assert not disk.nobody_hurried
    finally:
        disk.over.set()
        maker.join()


def test_a_roll_waits_for_nobody_while_a_file_is_ready(tmp_path: Path) -> None:
    log, make = DataLog.open(tmp_path / "g", 1, LogOptions(segment_bytes=16 << 10, flush=False)), FrameMaker()
    log.prepare_now()
    log.start_preparing()
    assert log._pool.ready_count
    held, rolled = threading.Event(), threading.Event()
    seen: list[bool] = []

    def make_another() -> None:
        with log._pool._lock:
            held.set()
            seen.append(rolled.wait(5))

    maker = threading.Thread(target=make_another)
    maker.start()
    held.wait()
    for _ in range(3):
        log.append([make.data((1, 1, b"x" * 6000))])
    rolled.set()
    maker.join()
    assert seen == [True]
    assert len(log.segments()) > 1
    log.close()


def test_a_file_that_a_write_needs_is_made_though_the_background_work_is_to_pause(tmp_path: Path) -> None:
    pool = SegmentPool(RealFileSystem(), tmp_path, OPTIONS)
    for name in ("waited_for", "closing"):
        setattr(pool, name, 1)
        assert not pool.prepare() and not pool.failed and pool.ready_count == 0
        assert pool.more_than(0)
        assert isinstance(pool.take(), ReadyFile)
        setattr(pool, name, 0)


class LockSeen(RealFileSystem):
    """What is done to names, and whether another thread can have the pool's lock meanwhile."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []
        self.pool: SegmentPool | None = None

    def _see(self, what: str) -> None:
        seeing = threading.Thread(target=self._try, args=(what,))
        seeing.start()
        seeing.join()

    def _try(self, what: str) -> None:
        assert self.pool is not None
        free = self.pool._lock.acquire(blocking=False)
        if free:
            self.pool._lock.release()
        self.seen.append((what, free))

    def unlink(self, path: Path) -> None:
        self._see(path.name)
        super().unlink(path)

    def fsync_dir(self, path: Path) -> None:
        self._see("flush")
        super().fsync_dir(path)


def test_surplus_files_are_removed_unless_one_is_needed(tmp_path: Path) -> None:
    fs = LockSeen()
    pool = fs.pool = SegmentPool(fs, tmp_path, OPTIONS)
    pool._pool_segments = 2
    for name in "abcde":
        (tmp_path / name).touch()
        pool.reclaim(tmp_path / name)
    pool.drop_surplus()
    assert fs.seen == [("a", True), ("b", True), ("c", True), ("flush", True)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "e"]
    pool.drop_surplus()
    assert len(fs.seen) == 4, "nothing to remove, nothing to flush"
    pool.yielding = True
    pool.drop_surplus()
    assert not pool._dead and not list(tmp_path.iterdir())


class ErrorToldOnce(RealFileSystem):
    """A write-back error as Linux tells it: once per open file, to the sync that asks first."""

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.told: Callable[[], None] = lambda: None
        """Called when a sync has taken an error and has not returned yet."""

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        if fd in self.pending:
            self.pending.remove(fd)
            self.told()
            raise OSError(errno.EIO, "Input/output error")
        os.fdatasync(fd)


@pytest.mark.parametrize("checkpoint_first", [True, False])
def test_a_write_back_error_fails_both_of_two_syncs(tmp_path: Path, checkpoint_first: bool) -> None:
    fs = ErrorToldOnce()
    log, make = DataLog.open(tmp_path / "g", 1, OPTIONS, fs), FrameMaker()
    log.append([make.data((1, 1, body(0)))])
    cut = Checkpoint(1, 1, log.next_lsn, log.chain, log.last_time_ms, {"a": b"b"})
    failed: list[str] = []

    def attempt(step: Callable[[], None]) -> None:
        try:
            step()
        except FlushFailed as error:
            failed.append(str(error))

    steps: list[Callable[[], None]] = [log.flush, partial(log.write_checkpoint, cut)]
    first, second = reversed(steps) if checkpoint_first else steps
    other = threading.Thread(target=attempt, args=(second,))

    def meanwhile() -> None:
        other.start()
        other.join(0.2)

    fs.told = meanwhile
    fs.pending.add(log._fd)
    attempt(first)
    other.join()
    assert len(failed) == 2 and all("Input/output error" in each for each in failed)
    assert log.flushed_index == 0
    assert not list((tmp_path / "g").glob("checkpoint-*"))
    log.close()
