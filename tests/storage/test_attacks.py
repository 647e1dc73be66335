"""What a hostile peer, a full disk, a stop at a bad moment or other settings must not do to a group."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

import lockstep.storage.flusher
from lockstep.storage.checkpointer import CONFIGURATION_SECTION
from lockstep.storage.group_options import GroupOptions, node_of
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.log.format import ENTRY_RAW, encode_frame_head
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import (
    Append,
    Heartbeat,
    Install,
    Message,
    RangeRequest,
    RangeResponse,
    VoteRequest,
)
from lockstep.storage.snapshot_chunk import ChunkPayload, PayloadKind
from lockstep.storage.types import DirectoryEntry, Frame, FrameKind, NotLeader, StorageFull
from tests.storage.cluster import QUICK, SMALL, Cluster, append
from tests.storage.loop_time import nobody_is_silent

TOPIC = bytes(range(16))


class Disk(RealFileSystem):
    """A disk that can be full, for new files or for everything, and slow."""

    full = False
    full_for_writes = False
    flush_seconds = 0.0
    writes = 0

    def allocate(self, fd: int, length: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "full")
        super().allocate(fd, length)

    def pwritev(self, fd: int, buffers: Sequence[bytes], position: int, /) -> int:  # type: ignore[override]
        self.writes += 1
        if self.full_for_writes:
            raise OSError(errno.ENOSPC, "full")
        return os.pwritev(fd, buffers, position)

    def fdatasync(self, fd: int, /) -> None:  # type: ignore[override]
        time.sleep(self.flush_seconds)
        os.fdatasync(fd)


@pytest.fixture(autouse=True)
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Leaderships end where a test ends them."""
    async with nobody_is_silent(monkeypatch):
        yield


async def start(
    cluster: Cluster,
    node: int,
    voters: tuple[int, ...] | None,
    log: LogOptions = SMALL,
    fs: Disk | None = None,
) -> LogGroup:
    """Open one node with options of its own."""
    group = cluster.groups[node] = await LogGroup.open(
        cluster.directory / str(node),
        GroupOptions(1, node, log, voters=voters, raft=QUICK, kept_entries=8, background=False),
        clock_ms=lambda: 1_700_000_000_000,
        on_fatal=cluster.fatal.append,
        send=lambda to, message: cluster._send(node, to, message),
        fs=fs,  # type: ignore[arg-type]
    )
    return group


async def led(
    cluster: Cluster, disks: dict[int, Disk] | None = None
) -> tuple[LogGroup, LogGroup, PartitionLog]:
    """A leader with an open partition and one of its followers, agreed."""
    for node in cluster.voters:
        await start(cluster, node, cluster.voters, fs=disks[node] if disks else None)
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    await cluster.agreed()
    return leader, next(g for g in cluster.groups.values() if g is not leader), partition


def end(cluster: Cluster) -> None:
    """Let go of everything, whatever state it is in."""
    for group in cluster.groups.values():
        group.abandon()
        group._replica.failed = group._replica.failed or RuntimeError("the test is over")
        group._replica.stop()


# --- hostile messages -------------------------------------------------------------------------------------


def own(group: LogGroup, kind: FrameKind, payload: bytes | None = None) -> list[bytes]:
    """The frame that would come next in this member's log, as its leader sends it."""
    log = group.log
    frame = Frame(kind, log.last_term, log.last_index + 1, log.next_lsn, log.last_time_ms, [], [], 0)
    if payload is not None:
        frame.directory.append(DirectoryEntry(0, 0, 0, len(payload), crc32c(payload), 0, -1, ENTRY_RAW))
        frame.payloads.append(payload)
    head, _ = encode_frame_head(frame, log.chain)
    return [head, *(bytes(p) for p in frame.payloads)]


def an_append(f: LogGroup, frames: object, **other: object) -> Append:
    log, raft = f.log, f.raft
    last = log.last_index + 1
    message = Append(
        raft.leader_id, raft.member_id, raft.term, last - 1, log.last_term,
        ((last, log.last_term),), last, (), 0, 0, frames, log.chain,  # type: ignore[arg-type]
    )  # fmt: skip
    for name, value in other.items():
        setattr(message, name, value)
    return message


def an_install(f: LogGroup, payload: object) -> Install:
    raft = f.raft
    return Install(raft.leader_id, raft.member_id, raft.term, 1000, raft.term, 0, False, 0, payload)


Make = Callable[[LogGroup], object]
HOSTILE: dict[str, Make] = {
    "frames of no bytes": lambda f: an_append(f, [None]),
    "no frames": lambda f: an_append(f, None),
    "no chain": lambda f: an_append(f, own(f, FrameKind.NO_OP), chain=None),
    "no runs": lambda f: an_append(f, own(f, FrameKind.NO_OP), runs=None),
    "runs of numbers": lambda f: an_append(f, own(f, FrameKind.NO_OP), runs=(1, 2)),
    "configurations of numbers": lambda f: an_append(f, own(f, FrameKind.NO_OP), configurations=(1,)),
    "no previous index": lambda f: an_append(f, own(f, FrameKind.NO_OP), prev_index=None),
    "no commit index": lambda f: an_append(f, own(f, FrameKind.NO_OP), commit_index=None),
    "no message": lambda f: None,
    "a term that no file can hold": lambda f: Heartbeat(f.raft.leader_id, f.raft.member_id, 1 << 64, 0, 0),
    "a candidate that no file can hold": lambda f: VoteRequest(
        1 << 63, f.raft.member_id, f.raft.term + 1, False, 1 << 40, f.raft.term + 1, True
    ),
    "a vote for no log": lambda f: VoteRequest(
        f.raft.leader_id, f.raft.member_id, f.raft.term + 1, False, None, None, True  # type: ignore[arg-type]
    ),
    "a chunk of nothing": lambda f: an_install(f, None),
    "a chunk without data": lambda f: an_install(f, ChunkPayload(PayloadKind.CHECKPOINT, None)),  # type: ignore[arg-type]
    "a range without a beginning": lambda f: RangeRequest(
        f.raft.leader_id, f.raft.member_id, f.raft.term, None, 5  # type: ignore[arg-type]
    ),
}  # fmt: skip


def format_2(f: LogGroup) -> Append:
    head, *_ = own(f, FrameKind.NO_OP)
    return an_append(f, [head[:4] + bytes([2]) + head[5:]])


DROPPED: dict[str, Make] = {
    "a frame of format 2": format_2,
    "16 MiB of nothing": lambda f: an_append(f, [bytes(16 << 20)]),
    "no frame": lambda f: an_append(f, []),
    "the last index far beyond": lambda f: an_append(f, own(f, FrameKind.NO_OP), last_index=1 << 62),
    "no run": lambda f: an_append(f, own(f, FrameKind.NO_OP), runs=()),
    "another term in the runs": lambda f: an_append(
        f, own(f, FrameKind.NO_OP), runs=((f.log.last_index + 1, f.raft.term + 1),)
    ),
    "below the first index": lambda f: an_append(f, own(f, FrameKind.NO_OP), prev_index=-1, last_index=0),
    "a chunk that is not the first": lambda f: dataclasses.replace(an_install(f, None), chunk=5, done=True),
    "a chunk before the first": lambda f: dataclasses.replace(an_install(f, None), chunk=-1, done=True),
    "entries before the checkpoint": lambda f: an_install(f, ChunkPayload(PayloadKind.FRAMES, [b"x"])),
    "a checkpoint of no bytes": lambda f: dataclasses.replace(
        an_install(f, ChunkPayload(PayloadKind.CHECKPOINT, [])), done=True
    ),
    "a range below the first index": lambda f: RangeRequest(
        f.raft.leader_id, f.raft.member_id, f.raft.term, -5, 1 << 62
    ),
}


@pytest.mark.parametrize("name", DROPPED)
async def test_a_malformed_message_changes_nothing(tmp_path: Path, name: str) -> None:
    cluster = Cluster(tmp_path)
    try:
        leader, follower, partition = await led(cluster)
        last = follower.log.last_index
        follower.receive(DROPPED[name](follower))  # type: ignore[arg-type]
        assert follower.log.last_index == last
        append(leader, partition, b"x")
        await leader.committed()
        await cluster.agreed()
    finally:
        end(cluster)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_message_is_dropped(tmp_path: Path, name: str) -> None:
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        follower.receive(HOSTILE[name](follower))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
        assert not cluster.fatal
    finally:
        end(cluster)


@pytest.mark.parametrize("payload", [b"garbage", None, Configuration((7, 8)).encode()])
async def test_a_configuration_that_is_not_the_envelopes_is_refused(
    tmp_path: Path, payload: bytes | None
) -> None:
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        cluster.lost = lambda sender, to, message: True
        last = follower.log.last_index
        frames = own(follower, FrameKind.CONFIGURATION, payload)
        follower.receive(an_append(follower, frames, configurations=((last + 1, Configuration((1, 2, 3))),)))
        assert follower.log.last_index == last
    finally:
        end(cluster)


async def test_ranges_are_for_members_and_few_at_a_time(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    answered = 0

    def lost(sender: int, to: int, message: Message) -> bool:
        nonlocal answered
        answered += isinstance(message, RangeResponse)
        return False

    try:
        leader, _, _ = await led(cluster)
        cluster.lost = lost
        for _ in range(50):
            leader.receive(RangeRequest(77, 88, 0, 1, 1 << 60))  # from a stranger, for somebody else
        await asyncio.sleep(0.1)
        assert answered == 0
    finally:
        end(cluster)


# --- stopping ---------------------------------------------------------------------------------------------


async def test_waiters_fail_when_the_group_closes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        leader, _, partition = await led(cluster)
        cluster.lost = lambda sender, to, message: True
        told: list[BaseException | None] = []
        append(leader, partition, b"never")
        leader.when_committed(told.append)
        await asyncio.sleep(0.02)
        await leader.close()
        await asyncio.sleep(0.02)
        assert len(told) == 1 and told[0] is not None
    finally:
        end(cluster)


async def test_nothing_is_written_after_close(tmp_path: Path) -> None:
    disks = {node: Disk() for node in (1, 2, 3)}
    cluster = Cluster(tmp_path)
    try:
        leader, _, partition = await led(cluster, disks)
        await leader._replica.write_last_checkpoint()  # so that close has nothing to wait for
        append(leader, partition, b"late")
        await leader.close()
        written = disks[leader.raft.member_id].writes
        await asyncio.sleep(0.05)
        assert disks[leader.raft.member_id].writes == written and not cluster.fatal
    finally:
        end(cluster)


async def test_the_last_checkpoint_holds_nothing_that_no_frame_does(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        leader, _, partition = await led(cluster)
        append(leader, partition, b"kept")
        await leader.committed()
        await cluster.agreed()
        me = node_of(leader.raft.member_id)
        told: list[BaseException | None] = []
        append(leader, partition, b"late")
        leader.when_committed(told.append)
        await cluster.stop(me)
        assert len(told) == 1 and isinstance(told[0], NotLeader)
        await cluster.start(me)
        again = cluster.groups[me]
        assert again.log.checkpoint is not None and again.log.checkpoint.index == again.log.last_index
        assert again.partitions[partition.local_id].next_offset == 1
        other = await cluster.leader()
        assert append(other, other.partitions[partition.local_id], b"next") == 1
        await other.committed()
        await cluster.agreed()
    finally:
        end(cluster)


@pytest.mark.parametrize("how", ["close", "abandon"])
async def test_a_stopped_member_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(lockstep.storage.flusher, "SLOW_FLUSH_SECONDS", -1.0)
    monkeypatch.setattr(lockstep.storage.flusher, "FAST_FLUSH_SECONDS", -1.0)
    disks = {node: Disk() for node in (1, 2, 3)}
    cluster = Cluster(tmp_path)
    said: list[Message] = []
    try:
        leader, follower, partition = await led(cluster, disks)
        me = follower.raft.member_id
        disks[me].flush_seconds = 0.1
        append(leader, partition, b"x")
        await cluster.until(lambda: follower._replica.flusher.busy)
        if how == "close":
            await follower.close()
        else:
            follower.abandon()

        def listen(sender: int, to: int, message: Message) -> bool:
            if sender == me:
                said.append(message)
            return False

        cluster.lost = listen
        await asyncio.sleep(0.6)
        assert said == []
    finally:
        end(cluster)


# --- full disks -------------------------------------------------------------------------------------------


async def test_no_room_for_an_idle_marker_is_no_failure(tmp_path: Path) -> None:
    disk, cluster = Disk(), Cluster(tmp_path, voters=(1,))
    try:
        group = await start(cluster, 1, None, fs=disk)
        (partition,) = await group.open_partitions([(TOPIC, 0)])
        append(group, partition, b"x")
        await group.committed()
        disk.full_for_writes = True
        await asyncio.sleep(0.05)
        assert not cluster.fatal
    finally:
        end(cluster)


async def waiting_for_room(cluster: Cluster, disk: Disk) -> tuple[LogGroup, PartitionLog]:
    """A node alone whose first write waits for room on its disk, and the partition that it is for."""
    group = await start(cluster, 1, None, fs=disk)
    (partition,) = await group.open_partitions([(TOPIC, 0)])
    await asyncio.sleep(0.05)
    disk.full_for_writes = True
    append(group, partition, b"not on any disk")
    await asyncio.sleep(0.02)
    return group, partition


async def test_no_waiter_succeeds_while_the_write_waits_for_space(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, voters=(1,))
    try:
        group, partition = await waiting_for_room(cluster, Disk())
        told: list[BaseException | None] = []
        group.when_committed(told.append)
        await asyncio.sleep(0.02)
        assert partition.high_watermark == 0 and told == []
    finally:
        end(cluster)


async def test_a_checkpoint_is_of_one_moment_where_a_write_waited_for_room(tmp_path: Path) -> None:
    """What was taken meanwhile is known to the state, and not in the log."""
    disk, cluster = Disk(), Cluster(tmp_path, voters=(1,))
    try:
        group, partition = await waiting_for_room(cluster, disk)
        append(group, partition, b"open meanwhile")
        checkpointer = group._replica.checkpointer
        checkpointer.requested = True
        before = checkpointer.index
        disk.full_for_writes = False
        for _ in range(500):
            await asyncio.sleep(0.01)
            if checkpointer.index > before:
                break
        assert checkpointer.index > before and partition.high_watermark == 2
        again = Cluster(tmp_path / "again", voters=(1,))
        shutil.copytree(cluster.directory / "1", again.directory / "1")
    finally:
        end(cluster)
    try:
        group = await start(again, 1, None)
        assert group.partitions[partition.local_id].next_offset == 2
    finally:
        end(again)


async def test_frames_that_wait_for_room_survive_the_loss_of_leadership(tmp_path: Path) -> None:
    disks = {node: Disk() for node in (1, 2, 3)}
    cluster = Cluster(tmp_path)
    try:
        leader, _, partition = await led(cluster, disks)
        await asyncio.sleep(0.05)
        full = disks[leader.raft.member_id]
        full.full_for_writes = True
        append(leader, partition, b"waits for room")
        await asyncio.sleep(0.01)
        append(leader, partition, b"open when the leadership goes")
        cluster.lost = lambda sender, to, message: True  # or a new leader cuts it off before we look
        leader._replica.request(leader.raft.resign)  # what waits could not be handed over
        full.full_for_writes = False
        await cluster.until(lambda: not leader._replica._work)
        assert leader.partitions[partition.local_id].next_offset == 1
        cluster.lost = lambda sender, to, message: False
        new = await cluster.leader()
        append(new, new.partitions[partition.local_id], b"next")
        await cluster.agreed()
        assert not cluster.fatal
    finally:
        end(cluster)


async def test_a_full_member_does_not_stop_the_group(tmp_path: Path) -> None:
    disks = {node: Disk() for node in (1, 2, 3)}
    cluster = Cluster(tmp_path)
    try:
        leader, full, partition = await led(cluster, disks)
        disks[full.raft.member_id].full = True
        for _ in range(60):
            append(leader, partition, b"z" * 90_000)
            await asyncio.wait_for(leader.committed(), 5)
            for group in cluster.groups.values():
                group.log.prepare_now()
            if full._replica.waits_for_disk_space:
                break
        assert full._replica.waits_for_disk_space
        away = leader.raft.member_id
        third = next(g for g in cluster.groups.values() if g not in (leader, full))
        third.raft.election_due_ms += 1000  # the full one would stand first
        third.raft.wait_ms = 1000
        cluster.lost = lambda sender, to, message: away in (node_of(sender), node_of(to))
        await cluster.until(lambda: third.raft.leader_state is not None)
        assert full.raft.leader_state is None
        cluster.lost = lambda sender, to, message: False  # all three are there: two of them are well
        await cluster.leader()
    finally:
        end(cluster)


async def test_entries_for_which_there_was_room_for_some_only(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        leader, full, partition = await led(cluster)
        cluster.lost = lambda sender, to, message: to == full.raft.member_id
        for _ in range(3):
            append(leader, partition, b"x")
            await leader.committed()
        taken: list[int] = []
        write = full.log.append

        def first_only(frames: Sequence[Frame]) -> None:
            taken.append(len(frames))
            if len(frames) == 3:
                write(frames[:1])
                raise StorageFull("room for one")
            write(frames)

        full.log.append = first_only  # type: ignore[method-assign]
        cluster.lost = lambda sender, to, message: False
        await cluster.agreed()
        assert taken[:2] == [3, 2] and not cluster.fatal
    finally:
        end(cluster)


# --- starting again, and otherwise --------------------------------------------------------------------------


@pytest.mark.parametrize("voters", [None, (1, 2)])
async def test_once_there_is_a_log_its_own_membership_counts(
    tmp_path: Path, voters: tuple[int, ...] | None
) -> None:
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        node = follower.raft.member_id
        cluster.groups.pop(node).abandon()
        cluster.lost = lambda sender, to, message: True
        again = await start(cluster, node, voters)
        assert again.raft.configuration.voters == (1, 2, 3) and not again.is_leader
    finally:
        end(cluster)


async def test_a_member_with_smaller_segments_follows(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    big = dataclasses.replace(SMALL, segment_bytes=4 << 20)
    try:
        for node in (1, 2):
            await start(cluster, node, (1, 2), big)
        leader = await cluster.leader()
        (partition,) = await leader.open_partitions([(TOPIC, 0)])
        await start(cluster, 3, ())
        leader.change_members((1, 2), (3,))
        for _ in range(3):
            append(leader, partition, b"x" * 900_000)
            await leader.committed()
        await cluster.agreed()
    finally:
        end(cluster)


async def test_a_checkpoint_without_members_is_shipped(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, voters=(1,))
    try:
        group = await start(cluster, 1, None)
        (partition,) = await group.open_partitions([(TOPIC, 0)])
        append(group, partition, b"of the last release")
        await group.committed()
        write = group.log.write_checkpoint

        def as_before(checkpoint: object) -> None:
            checkpoint.sections.pop(CONFIGURATION_SECTION)  # type: ignore[attr-defined]
            write(checkpoint)  # type: ignore[arg-type]

        group.log.write_checkpoint = as_before  # type: ignore[method-assign]
        await cluster.stop(1)
        group = await start(cluster, 1, None)
        loaded = group.log.load_checkpoint()
        assert loaded is not None and CONFIGURATION_SECTION not in loaded.sections
        await start(cluster, 2, ())
        group.change_members((1,), (2,))
        await cluster.agreed()
    finally:
        end(cluster)


async def test_a_waiter_that_raises_harms_nobody_else(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, voters=(1,))

    def broken(error: BaseException | None) -> None:
        raise ConnectionError("the client is gone")

    try:
        group = await start(cluster, 1, None)
        (partition,) = await group.open_partitions([(TOPIC, 0)])
        told: list[BaseException | None] = []
        append(group, partition, b"x")
        group.when_committed(broken)
        group.when_committed(told.append)
        await asyncio.sleep(0.05)
        assert told == [None] and not cluster.fatal
    finally:
        end(cluster)
