"""Which member a directory is when it is opened again: who it was, or another where promises may be lost."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from lockstep.storage.group_options import member_of
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from tests.storage.cluster import Cluster

FOUNDERS = (3, 4, 5)
ORIGIN = "origin"


async def test_founders_stopped_before_their_first_vote_are_the_members_they_were(tmp_path: Path) -> None:
    """Each is started and stopped alone, as a machine that is set up is; none has a log or a vote by then."""
    cluster = Cluster(tmp_path, voters=FOUNDERS)
    for node in FOUNDERS[:2]:
        await cluster.start(node)
        await cluster.stop(node)
    for node in FOUNDERS[:2]:
        await cluster.start(node, voters=(), incarnation=77)
        raft = cluster.groups[node].raft
        assert (raft.member_id, raft.configuration.voters) == (node, FOUNDERS)
    await cluster.leader()
    await cluster.agreed()
    await cluster.stop()
    assert not cluster.fatal


@pytest.mark.parametrize("left", [(), (ORIGIN,)])
async def test_a_founder_that_lost_its_state_is_another_member(tmp_path: Path, left: tuple[str, ...]) -> None:
    """It may have voted. An origin that was left behind proves nothing without the state beside it."""
    cluster = Cluster(tmp_path, voters=FOUNDERS)
    await cluster.start(3)
    await cluster.stop(3)
    names = {path.name for path in (tmp_path / "3").iterdir()}
    assert ORIGIN in names
    for name in names.difference(left):
        (tmp_path / "3" / name).unlink()
    for incarnation in (77, 78):  # nobody has let it in by then: it stays who it is
        await cluster.start(3, voters=(), incarnation=incarnation)
        raft = cluster.groups[3].raft
        assert (raft.member_id, raft.configuration.voters) == (member_of(3, 77), ())
        await cluster.stop(3)
    assert not cluster.fatal


class WaitingDisk(RealFileSystem):
    """Its flushes wait for `goes_on`, which the loop sets; descriptors that are open are counted."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.goes_on = threading.Event()
        self.blocked_the_loop = False
        self.descriptors: set[int] = set()

    def fdatasync(self, fd: int, /) -> None:  # type: ignore[override]
        self.waits.set()
        self.blocked_the_loop |= not self.goes_on.wait(3)
        os.fdatasync(fd)

    def open(self, path: Path, create: bool = False) -> int:
        fd = super().open(path, create)
        self.descriptors.add(fd)
        return fd

    def close(self, fd: int, /) -> None:
        self.descriptors.discard(fd)
        os.close(fd)


def opening_on(disk: WaitingDisk, directory: Path) -> asyncio.Task[LogGroup]:
    options = GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20), voters=(1, 2, 3))
    opening = LogGroup.open(directory, options, clock_ms=lambda: 1, on_fatal=print, fs=disk)
    return asyncio.ensure_future(opening)


async def test_the_loop_goes_on_while_a_group_is_opened_and_closed(tmp_path: Path) -> None:
    disk = WaitingDisk()
    opening = opening_on(disk, tmp_path)
    assert await asyncio.to_thread(disk.waits.wait, 10)
    disk.goes_on.set()
    group = await opening
    disk.waits.clear()
    disk.goes_on.clear()
    closing = asyncio.ensure_future(group.close())
    assert await asyncio.to_thread(disk.waits.wait, 10)
    disk.goes_on.set()
    await closing
    assert not disk.blocked_the_loop
    assert disk.descriptors == set()


async def test_a_group_whose_opening_is_cancelled_lets_go_of_its_files(tmp_path: Path) -> None:
    disk = WaitingDisk()
    opening = opening_on(disk, tmp_path)
    assert await asyncio.to_thread(disk.waits.wait, 10)
    opening.cancel()
    await asyncio.sleep(0)
    assert not opening.done()  # its thread still writes to the directory
    disk.goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert disk.descriptors == set()
    await (await opening_on(disk, tmp_path)).close()


async def test_sections_of_checkpoints_are_forgotten_once_they_are_restored(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, voters=(3,))
    for _ in range(2):
        await cluster.start(3)
        group = cluster.groups[3]
        await group.open_partitions([(bytes(16), 0)])
        await cluster.stop(3)
    await cluster.start(3)
    log = cluster.groups[3].log
    loaded = log.load_checkpoint()
    assert loaded is not None and loaded.sections
    kept = [placed.checkpoint for placed in log._maintenance.checkpoints]
    assert len(kept) == 2 and log.checkpoint is not None
    assert [each.sections for each in (*kept, log.checkpoint)] == [{}, {}, {}]
    await cluster.stop()
    assert not cluster.fatal
