"""A log replaced by what another one ships, whole or not at all; on disk as in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import threading
from pathlib import Path

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import decode_frames, frame_buffers
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import (
    Checkpoint,
    Frame,
    FramesUnavailable,
    HardState,
    StorageError,
    StorageFull,
    WriteFailed,
)
from tests.storage.log.crash_world import DIRECTORY, GROUP, OPTIONS
from tests.storage.log.frames import FrameMaker, same, whole
from tests.storage.log.memory_log import MemoryLog
from tests.storage.log.simulated_disk import SimulatedFileSystem
from tests.support.cases import each_case

AnyLog = DataLog | MemoryLog
SMALL = dataclasses.replace(OPTIONS, recent_frames_bytes=4000)


def leader(count: int = 90, free: bool = False) -> tuple[DataLog, Checkpoint, FrameMaker]:
    """A log of many segments, and a checkpoint of it; with `free`, segments are gone in front and within."""
    log, make = DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem()), FrameMaker()
    made = None
    for number in range(count):
        # Partition 3 lives in the third segment alone: that one dies although the second lives.
        partition = 3 if len(log.segments()) == 2 else 1 + number % 2
        log.append([make.data((partition, 2, bytes([number]) * 900))])
        if number in (count - 30, count - 20, count - 5):
            made = checkpoint_of(log)
            log.write_checkpoint(made)
    assert made is not None
    if free:
        segments = log.segments()
        starts = {share.local_id: share.first_offset for share in segments[1].partitions()}
        starts |= {share.local_id: share.last_offset + 1 for share in segments[2].partitions()}
        assert len(starts) == 3 and log.free_deleted_segments(starts.__getitem__) == 2
    return log, made, make


def checkpoint_of(log: AnyLog) -> Checkpoint:
    return Checkpoint(
        log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, {"state": b"s" * 3000}
    )


def shipment(log: AnyLog, upto: int, max_bytes: int = 5000) -> list[tuple[list[Frame], int]]:
    """All that a log has up to an index, as it would go over the wire, with the chain before each part."""
    parts = []
    at = log.oldest_index
    while at <= upto:
        frames = log.snapshot_frames(at, upto, max_bytes)
        chain = log.chain_at(frames[0].index - 1)
        assert chain is not None
        data = b"".join(b"".join(frame_buffers(frame, marked=True)) for frame in frames)
        parts.append((decode_frames(data, chain, marked=True), chain))
        at = frames[-1].index + 1
    return parts


def install(log: AnyLog, parts: list[tuple[list[Frame], int]], checkpoint: Checkpoint) -> None:
    installation = log.begin_install()
    for frames, chain in parts:
        installation.add(frames, chain)
    installation.finish(checkpoint)


def follower() -> tuple[tuple[DataLog, MemoryLog], SimulatedFileSystem]:
    disk = SimulatedFileSystem()
    logs, make = (DataLog.open(DIRECTORY, GROUP, SMALL, disk), MemoryLog(GROUP, SMALL)), FrameMaker()
    make.term = 0
    for number in range(40):
        frames = [make.data((1 + number % 3, 3, b"old %d" % number * 100))]
        for log in logs:
            log.append(frames)
            log.flush()
        if number in (10, 30):
            made = checkpoint_of(logs[1])
            for log in logs:
                log.write_checkpoint(made)
    for log in logs:
        log.save_hard_state(HardState(7, 2, 3))
    return logs, disk


def agree(log: DataLog, model: MemoryLog) -> None:
    for name in (
        "last_index",
        "last_term",
        "next_lsn",
        "chain",
        "last_time_ms",
        "flushed_index",
        "hard_state",
        "first_kept_index",
        "oldest_index",
    ):
        assert getattr(log, name) == getattr(model, name), name
    loaded, modelled = log.load_checkpoint(), model.load_checkpoint()
    assert loaded is not None and modelled is not None
    assert (loaded.index, loaded.sections) == (modelled.index, modelled.sections)
    for partition in (1, 2, 3):
        entries = model._between(partition, 0, 1 << 40)
        for start in (0, *(e.base_offset for e in entries[:: max(1, len(entries) // 5)])):
            answers = []
            for each in (log, model):
                try:
                    answers.append(whole(each.read_cold(partition, start, 4000, 1 << 40).buffers))
                except StorageError as error:
                    answers.append(type(error).__name__.encode())
            assert answers[0] == answers[1], (partition, start)
        for name, *arguments in (
            ("timestamp_lookup", 1040),
            ("max_timestamp_batch",),
            ("first_younger", 1050),
        ):
            got, expected = (getattr(each, name)(partition, *arguments, 0, 1 << 40) for each in (log, model))
            assert (got and got.base_offset) == (expected and expected.base_offset), name
    indexes = [f.index for f in model._frames]
    for index in indexes[::7]:
        assert log.chain_at(index) == model.chain_at(index)
        assert log.chain_at(index - 1) == model.chain_at(index - 1)
        got_frames, expected_frames = (each.snapshot_frames(index, 1 << 40, 3000) for each in (log, model))
        assert len(got_frames) == len(expected_frames) and all(map(same, got_frames, expected_frames))


@each_case("case", ["all", "freed", "checkpoint only", "nothing at the end"])
def test_the_log_is_what_was_installed(case: str) -> None:
    source, checkpoint, _ = leader(free=case == "freed")
    parts = [] if case == "checkpoint only" else shipment(source, checkpoint.index)
    if case == "freed":
        assert parts[0][0][0].index > 1
        assert any(after[0][0].index > before[0][-1].index + 1 for before, after in itertools.pairwise(parts))
    if case == "nothing at the end":
        parts = parts[:-3]
    logs, disk = follower()
    for log in logs:
        install(log, parts, checkpoint)
    log, model = logs
    agree(log, model)
    assert list(log.replay()) == [] and log.checkpoint is not None
    assert (log.checkpoint.index, log.checkpoint.sections) == (checkpoint.index, {})
    tail = source.frames_cold(checkpoint.index + 1, 1 << 20)
    for reopened in (False, True, True):
        if reopened:
            log.close()
            log = DataLog.open(DIRECTORY, GROUP, SMALL, disk := SimulatedFileSystem(disk.now()))
            model.crash()
            assert all(map(same, log.replay(), model.replay()))
            agree(log, model)
        more, tail = tail[:2], tail[2:]
        for each in (log, model):
            each.append(more)
            each.flush()
        agree(log, model)
    with pytest.raises(ValueError, match="below"):
        log.truncate(checkpoint.index - 1)
    for each in (log, model):
        each.truncate(checkpoint.index)
    agree(log, model)
    names = disk.list_dir(DIRECTORY)
    assert [n for n in names if n.startswith("incoming")] == []
    assert len([n for n in names if n.startswith("checkpoint-")]) == 1
    log.prepare_now()
    assert len([n for n in disk.list_dir(DIRECTORY) if n.endswith(".segment")]) < len(source.segments()) + 6


def test_what_does_not_fit_is_refused_and_an_abort_leaves_nothing() -> None:
    source, checkpoint, _ = leader()
    parts = shipment(source, checkpoint.index)
    logs, disk = follower()
    log, model = logs
    log.prepare_now()
    before = sorted(disk.list_dir(DIRECTORY))
    other = Checkpoint(checkpoint.index, 1, checkpoint.next_lsn, 5, 0, {})
    short = Checkpoint(checkpoint.index - 1, 1, checkpoint.next_lsn, 5, 0, {})
    for each in logs:
        for wrong, match in (
            (lambda i: i.add(parts[1][0]), "cannot follow"),
            (lambda i: (i.add(*parts[1]), i.add(*parts[0])), "cannot follow"),
            (lambda i: i.add(parts[1][0], 77), "does not continue"),
            (lambda i: (i.add(*parts[0]), i.add(parts[1][0][1:] + parts[1][0][:1])), "cannot follow"),
            (lambda i: ([i.add(*p) for p in parts], i.finish(other)), "are not those"),
            (lambda i: ([i.add(*p) for p in parts], i.finish(short)), "above the checkpoint"),
            (lambda i: (i.prepare(checkpoint), i.finish(other)), "another checkpoint"),
            (lambda i: (i.prepare(checkpoint), i.add(*parts[0])), "is over"),
            (lambda i: (i.abort(), i.finish(checkpoint)), "is over"),
            (lambda i: (i.abort(), i.prepare(checkpoint)), "is over"),
            (lambda i: (i.prepare(checkpoint), i.prepare(checkpoint)), "or prepared"),
        ):
            installation = each.begin_install()
            with pytest.raises(ValueError, match=match):
                wrong(installation)
            installation.abort()
            installation.abort()
    assert sorted(disk.list_dir(DIRECTORY)) == before
    agree(log, model)
    forgotten = log.begin_install()
    forgotten.add(*parts[0])
    install(log, parts, checkpoint)  # aborts the forgotten one
    install(model, parts, checkpoint)
    agree(log, model)


def test_a_close_ends_an_installation() -> None:
    source, checkpoint, _ = leader()
    (log, model), disk = follower()
    log.prepare_now()
    before = {n for n in disk.list_dir(DIRECTORY) if n.endswith(".segment")}
    installation = log.begin_install()
    for part in shipment(source, checkpoint.index):
        installation.add(*part)
    installation.prepare(checkpoint)
    log.close()
    assert {n for n in disk.list_dir(DIRECTORY) if n.endswith(".segment")} == before
    agree(DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(disk.now())), model)


@each_case("count", [0, 3])
def test_a_member_without_a_checkpoint_that_is_killed_before_the_switch_opens_as_it_was(count: int) -> None:
    source, checkpoint, _ = leader(free=True)
    parts = shipment(source, checkpoint.index)
    log, make = DataLog.open(DIRECTORY, GROUP, SMALL, disk := SimulatedFileSystem()), FrameMaker()
    for _ in range(count):
        log.append([make.data((1, 2, b"old"))])
    log.flush()
    installation = log.begin_install()
    for part in parts:
        installation.add(*part)
    installation.prepare(checkpoint)
    assert any(name.endswith(".freed") for name in disk.list_dir(DIRECTORY))
    log = DataLog.open(DIRECTORY, GROUP, SMALL, disk := SimulatedFileSystem(disk.now()))
    assert (log.last_index, log.load_checkpoint()) == (count, None)
    assert not any(
        name.endswith(".freed") or name.startswith("incoming") for name in disk.list_dir(DIRECTORY)
    )
    install(log, parts, checkpoint)
    log.close()
    again = DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(disk.now()))
    assert again.last_index == checkpoint.index


def test_a_full_disk_refuses_an_installation_and_changes_nothing() -> None:
    source, checkpoint, _ = leader()
    parts = shipment(source, checkpoint.index)
    (log, model), disk = follower()
    log.prepare_now()
    for room in range(0, 240_000, 12_000):
        disk.capacity_bytes = disk.used_bytes() + room
        installation = log.begin_install()
        try:
            for part in parts:
                installation.add(*part)
            installation.prepare(checkpoint)
            break
        except StorageFull:
            installation.abort()
            agree(log, model)
    else:
        pytest.fail("never enough room")
    disk.capacity_bytes = 1 << 40
    installation.finish(checkpoint)
    install(model, parts, checkpoint)
    agree(log, model)


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, WriteFailed)],
)
def test_an_installation_that_fails_late_leaves_no_file_open(number: int, error: type[Exception]) -> None:
    source, checkpoint, _ = leader()
    (log, model), disk = follower()
    log.prepare_now()
    for refused in ("incoming.tmp", ".freed"):
        installation, opened = log.begin_install(), dict(disk._open)
        for part in shipment(source, checkpoint.index):
            installation.add(*part)
        installation._gaps.append(installation._first + 500)
        disk.fault = lambda what, name, end=refused: (
            OSError(number, "refused") if name.endswith(end) else None
        )
        with pytest.raises(error, match=r"installation: .*refused"):
            installation.prepare(checkpoint)
        disk.fault = None
        installation.abort()
        assert disk._open == opened
    agree(log, model)


def test_chunks_that_cannot_be_written_beside_free_room_are_no_full_disk() -> None:
    source, checkpoint, _ = leader()
    (log, model), disk = follower()
    log.prepare_now()
    installation = log.begin_install()
    disk.fault = lambda what, name: OSError(errno.EIO, "!") if what == "write" else None
    with pytest.raises(WriteFailed, match="installation"):
        for part in shipment(source, checkpoint.index):
            installation.add(*part)
    disk.fault = None
    installation.abort()
    agree(log, model)


def test_the_log_may_write_a_checkpoint_while_another_one_is_installed() -> None:
    source, checkpoint, _ = leader()
    (log, model), disk = follower()
    log.prepare_now()
    own = checkpoint_of(model)
    written: list[str] = []

    def between(what: str, name: str) -> None:
        """Its own comes when the other is written and has no name yet."""
        if what == "flush" and name.endswith("incoming.tmp") and not written:
            written.append(name)
            log.write_checkpoint(own)

    installation = log.begin_install()
    for part in shipment(source, checkpoint.index):
        installation.add(*part)
    disk.fault = between
    installation.prepare(checkpoint)
    disk.fault = None
    assert written
    installation.finish(checkpoint)
    log.close()
    again = DataLog.open(DIRECTORY, GROUP, SMALL, SimulatedFileSystem(disk.now()))
    assert again.checkpoint is not None and again.checkpoint.index == checkpoint.index


def test_readers_see_the_old_log_or_the_new_one(tmp_path: Path) -> None:
    """Reads, time look-ups and shipments in other threads while one log after the other is installed."""
    source, checkpoint, _ = leader()
    parts = shipment(source, checkpoint.index)
    old, other_checkpoint, _ = leader(60)
    other_parts = shipment(old, other_checkpoint.index)
    for frames, _ in parts:
        for frame in frames:
            frame.payloads = [bytes(p) for p in frame.payloads]
    log = DataLog.open(tmp_path / "g", GROUP, LogOptions(segment_bytes=16 << 10, reserve_bytes=1 << 10))
    log.start_preparing()
    install(log, parts, checkpoint)
    expected = [
        {whole(each.read_cold(p, 0, 1 << 30, 2 * 40).buffers) for each in (source, old)} for p in (1, 2)
    ]
    problems: list[object] = []
    stop = threading.Event()
    reads = [0]

    def look(partition: int) -> None:
        while not stop.is_set():
            try:
                got = whole(log.read_cold(partition, 0, 1 << 30, 2 * 40).buffers)
                starts_one = any(each.startswith(got) for each in expected[partition - 1])
                if not got or not starts_one:
                    problems.append(len(got))
                if log.timestamp_lookup(partition, 1010, 0, 1 << 40) is None:
                    problems.append("time")
                with contextlib.suppress(FramesUnavailable):
                    log.snapshot_frames(1, 1 << 40, 8000)
                reads[0] += 1
            except BaseException as error:
                problems.append(error)

    threads = [threading.Thread(target=look, args=(p,)) for p in (1, 2)]
    for thread in threads:
        thread.start()
    for turn in range(12):
        install(log, *((other_parts, other_checkpoint) if turn % 2 else (parts, checkpoint)))
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == [] and reads[0] > 5
    log.prepare_now()
    assert sum(segment.fd >= 0 for segment in log._table) <= len(log.segments()) + 1
    log.close()
