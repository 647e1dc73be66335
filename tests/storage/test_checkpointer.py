"""When a checkpoint is cut before its segment is full: restarts replay so many batches and not many more."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.storage import checkpointer as checkpointer_module
from lockstep.storage import flusher
from lockstep.storage.log import background_maintenance, checkpoint_file
from lockstep.storage.log_group import LogGroup
from tests.storage.cluster import Cluster, append
from tests.storage.test_log_group import TOPIC, Tally, checkpointed, fatal, open_group

MOST = 50


async def fill(group: LogGroup, count: int) -> None:
    """One frame per batch."""
    (partition,) = [each for each in group.partitions.values() if each.topic_id == TOPIC]
    for number in range(count):
        append(group, partition, b"%d" % number)
        await group.committed()


async def killed(group: LogGroup, directory: Path) -> Path:
    """What a kill at this moment leaves on the disk."""
    if group._replica.checkpointer.under_way is not None:
        await group._replica.checkpointer.under_way
    copy = directory.with_name(directory.name + "-killed")
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.tmp"))  # being prepared, and renamed
    await group.close()
    return copy


async def test_small_batches_do_not_wait_for_the_end_of_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer_module, "MAX_BATCHES", MOST)
    tally = Tally()
    group = await open_group(tmp_path / "log", commit={TOPIC: ("tally", tally)})
    await group.open_partitions([(TOPIC, 0)])
    await fill(group, MOST - 10)
    assert group.checkpoint_index == 0
    directory = await killed(group, tmp_path / "log")
    for _ in range(2):  # what one life has left to replay counts in the next one
        again = Tally()
        group = await open_group(directory, commit={TOPIC: ("tally", again)})
        assert again.seen == tally.seen
        before = group.checkpoint_index
        await fill(group, 20)
        await checkpointed(group, before)
        assert len(group.log.segments()) == 0, "no segment was full"
        assert group.log.last_index - group.checkpoint_index <= 15
        await fill(group, MOST - 20)
        tally = again
        directory = await killed(group, directory)
    await (await open_group(directory, commit={TOPIC: ("tally", Tally())})).close()


async def test_a_checkpoint_that_is_ahead_of_the_flush_waits_for_it_in_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "SLOW_FLUSH_SECONDS", -1.0)
    monkeypatch.setattr(flusher, "FAST_FLUSH_SECONDS", -1.0)
    cluster = Cluster(tmp_path)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    await cluster.until(lambda: not leader._replica.busy)
    log, checkpointer = leader.log, leader._replica.checkpointer
    disk_is_back, asked = threading.Event(), threading.Event()
    syncs: list[str] = []

    def slow(fd: int) -> None:
        if fd == log._fd:
            syncs.append(threading.current_thread().name)
            disk_is_back.wait(10)
        os.fdatasync(fd)

    real = log._flush_to

    def flush_to(place: int) -> None:
        asked.set()
        real(place)

    monkeypatch.setattr(log._fs, "fdatasync", slow)
    monkeypatch.setattr(log, "_flush_to", flush_to)
    cluster.lost = lambda sender, to, message: not syncs  # no commit before the flush is under way
    checkpointer.requested = True
    append(leader, partition, b"x")
    await leader.committed()  # by the other two
    await cluster.until(asked.is_set)
    await asyncio.sleep(0.05)
    assert log.flushed_index < log.last_index == leader.applied_index
    writing = checkpointer.under_way
    assert writing is not None and not writing.done()
    disk_is_back.set()
    await writing
    assert leader.checkpoint_index == log.flushed_index == log.last_index
    assert {name.rpartition("_")[0] for name in syncs} == {"group-1-flush"}
    await cluster.stop()
    assert not cluster.fatal


async def test_a_checkpoint_that_cannot_be_written_is_logged_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk has room: the group lives, no full disk is reported, and the former checkpoint stays."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(checkpointer_module, "RETRY_SECONDS", 0)
    tries: list[int] = []
    real = checkpoint_file.write_checkpoint

    def refused(*arguments: object) -> None:
        tries.append(1)
        raise OSError(errno.EIO, "Input/output error")

    group = await open_group(tmp_path)
    await group.open_partitions([(TOPIC, 0)])
    monkeypatch.setattr(background_maintenance, "write_checkpoint", refused)
    while len(tries) < 3:
        await fill(group, 1)
        group._replica.checkpointer.requested = True
    assert not fatal and not group.log.disk_full and group.checkpoint_index == 0
    monkeypatch.setattr(background_maintenance, "write_checkpoint", real)
    while not group.checkpoint_index:
        group._replica.checkpointer.requested = True
        await fill(group, 1)
    told = [(each.levelname, each.getMessage()) for each in caplog.records]
    said = [(level, text) for level, text in told if "checkpoint" in text]
    assert [level for level, _ in said] == ["ERROR", "INFO"], said
    assert "log group 1: checkpoint at index" in said[0][1] and "Input/output error" in said[0][1]
    assert said[1][1] == "log group 1: checkpoints are written again"
    await group.close()


async def test_a_segment_calls_for_another_try_after_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer_module, "RETRY_SECONDS", 0)
    group = await open_group(tmp_path)
    await group.open_partitions([(TOPIC, 0)])
    await fill(group, 1)
    refusals = [OSError(errno.EIO, "Input/output error")]
    real = checkpoint_file.write_checkpoint

    def once(*arguments: Any) -> object:
        if refusals:
            raise refusals.pop()
        return real(*arguments)

    monkeypatch.setattr(background_maintenance, "write_checkpoint", once)
    group.log.prepare_now()
    assert group.log.seal()
    while not group.checkpoint_index:
        await fill(group, 1)
    assert not refusals and not fatal
    await group.close()
