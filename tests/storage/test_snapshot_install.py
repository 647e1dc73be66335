"""What a member does with the chunks of a shipped checkpoint; whole shipments are the simulator's."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import lockstep.storage.snapshot_install
import tests.storage.test_attacks
from lockstep.storage.log.checkpoint_file import CHECKPOINT_MAGIC
from lockstep.storage.log.file_system import RealFileSystem, write_error
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.messages import Install, InstallResponse, Message
from lockstep.storage.snapshot_chunk import ChunkPayload, PayloadKind
from lockstep.storage.snapshot_transfer import IncomingSnapshot
from lockstep.storage.types import StorageFull
from tests.storage.cluster import QUICK, SMALL, Cluster, append
from tests.storage.test_attacks import end, led, start


async def test_a_checkpoint_that_never_ends_is_given_up(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        cluster.lost = lambda sender, to, message: True
        raft, piece = follower.raft, ChunkPayload(PayloadKind.CHECKPOINT, [bytes(1 << 20)])
        installing = follower._replica.installer
        for chunk in range(40):  # the first bytes are no checkpoint's
            follower.receive(
                Install(raft.leader_id, raft.member_id, raft.term, 1000, raft.term, chunk, False, 0, piece)
            )
            assert chunk > 0 or installing.incoming is not None
            await cluster.until(lambda: installing.incoming is None)
    finally:
        end(cluster)


async def test_chunks_are_stored_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, stored = threading.Event(), []
    store = IncomingSnapshot.store

    def slow(self: IncomingSnapshot, piece: ChunkPayload, last: bool) -> None:
        stored.append(go_on.wait(10))
        store(self, piece, last)

    monkeypatch.setattr(IncomingSnapshot, "store", slow)
    cluster = Cluster(tmp_path)
    try:
        leader, follower, partition = await led(cluster)
        said: list[InstallResponse] = []

        def listen(sender: int, to: int, message: Message) -> bool:
            if isinstance(message, InstallResponse):
                said.append(message)
            return False

        cluster.lost = listen
        raft = follower.raft
        piece = ChunkPayload(PayloadKind.CHECKPOINT, [CHECKPOINT_MAGIC, b"the first chunk"])
        index = follower.log.last_index + 100
        for _ in range(2):  # the second one comes while the first is being stored
            follower.receive(
                Install(raft.leader_id, raft.member_id, raft.term, index, raft.term, 0, False, 0, piece)
            )
        incoming = follower._replica.installer.incoming
        assert incoming is not None and incoming.storing
        append(leader, partition, b"x")
        await leader.committed()
        await cluster.until(lambda: follower.commit_index == leader.commit_index)
        assert not said and incoming.storing, "a member goes on meanwhile"
        go_on.set()
        await cluster.until(lambda: bool(said))
        assert stored == [True] and incoming.next_chunk == 1 and said[0].accepted
    finally:
        go_on.set()
        end(cluster)


async def test_a_shipment_that_begins_again_is_taken_from_its_beginning(tmp_path: Path) -> None:
    """It may be another leader's, or cut into other chunks."""
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        raft, installing = follower.raft, follower.installer
        cluster.lost = lambda *_: True  # no response comes anywhere
        index, term, leader_id = follower.log.last_index + 100, raft.term, raft.leader_id
        for chunk, taken in ((0, 1), (1, 2), (2, 3), (0, 1), (1, 2)):
            data = [CHECKPOINT_MAGIC, b"begins"] if chunk == 0 else [b"goes on"]
            piece = ChunkPayload(PayloadKind.CHECKPOINT, data)
            installing.take(
                Install(leader_id, raft.member_id, term, index, term, chunk, False, 0, piece),
                lambda whole: None,
            )
            incoming = installing.incoming
            assert incoming is not None and incoming.storing
            await cluster.until(lambda incoming=incoming: not incoming.storing)  # type: ignore[misc]
            assert incoming.next_chunk == taken
    finally:
        end(cluster)


@pytest.mark.parametrize("error", [None, StorageFull("installation"), ValueError("damaged")])
async def test_what_was_being_stored_as_the_member_ended_changes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    go_on, stored = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(self: IncomingSnapshot, piece: ChunkPayload, last: bool) -> None:
        go_on.wait(30)
        loop.call_soon_threadsafe(loop.call_later, 0.05, stored.set)
        if error is not None:
            raise error from OSError(errno.ENOSPC, "refused")

    monkeypatch.setattr(IncomingSnapshot, "store", slow)
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        raft, installing = follower.raft, follower.installer
        index, piece = follower.log.last_index + 100, ChunkPayload(PayloadKind.CHECKPOINT, [CHECKPOINT_MAGIC])
        said: list[object] = []
        installing.take(
            Install(raft.leader_id, raft.member_id, raft.term, index, raft.term, 0, False, 0, piece),
            said.append,
        )
        installing.close()  # as its group does, which then closes the log
        monkeypatch.setattr(follower.log, "yield_room", said.append)
        go_on.set()
        await stored.wait()
        assert installing.incoming is None and not said
    finally:
        go_on.set()
        end(cluster)


async def test_an_arrival_ends_where_the_log_has_got_there_by_itself(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        leader, follower, partition = await led(cluster)
        raft = follower.raft
        piece = ChunkPayload(PayloadKind.CHECKPOINT, [CHECKPOINT_MAGIC, b"the first chunk"])
        index = follower.log.last_index + 2
        follower.receive(
            Install(raft.leader_id, raft.member_id, raft.term, index, raft.term, 0, False, 0, piece)
        )
        assert follower._replica.installer.incoming is not None
        for _ in range(5):
            append(leader, partition, b"x")
            await leader.committed()
        await cluster.agreed()
        assert follower.commit_index > index and follower._replica.installer.incoming is None
    finally:
        end(cluster)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_what_the_disk_refuses_is_tried_again_after_longer_and_longer_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def refused(self: IncomingSnapshot, piece: ChunkPayload, last: bool) -> None:
        raise write_error("installation", OSError(number, "refused"))

    monkeypatch.setattr(IncomingSnapshot, "store", refused)
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        cluster.lost = lambda *_: True  # no response comes anywhere
        raft, installing = follower.raft, follower.installer
        now_ms = 1_000_000
        monkeypatch.setattr(installing, "_now_ms", lambda: now_ms)
        index, term, leader_id = follower.log.last_index + 100, raft.term, raft.leader_id
        piece = ChunkPayload(PayloadKind.CHECKPOINT, [CHECKPOINT_MAGIC, b"the first chunk"])

        def receive() -> None:
            installing.take(
                Install(leader_id, raft.member_id, term, index, term, 0, False, 0, piece), lambda whole: None
            )

        pauses = []
        for tries in range(1, 8):
            receive()
            assert installing.incoming is not None
            await cluster.until(lambda: installing.incoming is None)
            began_ms = now_ms
            while installing.incoming is None and now_ms < began_ms + 100_000:
                now_ms += 500
                receive()
            pauses.append(now_ms - began_ms)
            await cluster.until(lambda: installing.incoming is None)
            now_ms += 100_000
            assert installing.is_out_of_space == (number == errno.ENOSPC)
            assert sum("was aborted" in each.getMessage() for each in caplog.records) == 2 * tries
        assert pauses == [1000, 4000, 16_000, 30_000, 30_000, 30_000, 30_000]
        assert ("free other space" in caplog.text) == (number == errno.ENOSPC)
    finally:
        end(cluster)


class SmallDisk(RealFileSystem):
    """A directory that may hold so many bytes, without index files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.capacity_bytes = 1 << 40

    @property
    def used_bytes(self) -> int:
        sizes = 0
        for path in self.directory.iterdir():
            try:
                sizes += path.stat().st_size if path.suffix != ".index" else 0
            except FileNotFoundError:
                continue
        return sizes

    def _require(self, fd: int, end: int) -> None:
        if self.used_bytes + max(0, end - os.fstat(fd).st_size) > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

    def allocate(self, fd: int, length: int) -> None:
        self._require(fd, length)
        super().allocate(fd, length)

    def pwritev(self, fd: int, buffers: Sequence[bytes], position: int, /) -> int:  # type: ignore[override]
        self._require(fd, position + sum(map(len, buffers)))
        return os.pwritev(fd, buffers, position)


async def test_what_the_leader_has_deleted_makes_room_for_what_it_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that was away comes back to a full disk: the log there is of no use, but as a whole it stays
    until the other one is whole."""
    monkeypatch.setattr(lockstep.storage.snapshot_install, "FIRST_PAUSE_MS", 50)
    monkeypatch.setattr(lockstep.storage.snapshot_install, "MAX_PAUSE_MS", 50)
    monkeypatch.setattr(tests.storage.test_attacks, "QUICK", replace(QUICK, install_timeout_ms=300))
    cluster = Cluster(tmp_path)
    disk = SmallDisk(tmp_path / "3")
    log = replace(SMALL, spare_segments=2, pool_segments=4)
    for node in (1, 2, 3):
        await start(cluster, node, (1, 2, 3), log, disk if node == 3 else None)  # type: ignore[arg-type]
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(bytes(range(16)), 0)])
    number = partition.local_id

    async def write(group: LogGroup, batches: int) -> None:
        for _ in range(batches):
            append(group, group.partitions[number], b"x" * 100_000)
            await group.committed()
            for each in cluster.groups.values():
                each.log.prepare_now()

    try:
        await write(leader, 60)
        await cluster.agreed()
        behind = cluster.groups[3]
        await cluster.until(lambda: behind.log.first_kept_index > 30)
        cluster.lost = lambda sender, to, message: 3 in (sender, to)
        leader = await cluster.leader(1, 2)
        await write(leader, 40)
        await leader.advance_log_starts({number: leader.partitions[number].high_watermark - 5})
        await cluster.until(lambda: leader.free_deleted_segments() > 4)
        disk.capacity_bytes = disk.used_bytes + 100_000
        before = behind.log.oldest_index
        freed = False
        cluster.lost = lambda sender, to, message: False
        for _ in range(100):
            await asyncio.sleep(0.1)
            behind.log.prepare_now()  # what is freed is given back by a thread, elsewhere
            if behind.applied_index == leader.applied_index:
                break
            freed = behind.log.oldest_index > before
            assert freed == (behind.log.whole_index > behind.applied_index), "nobody reads over what is gone"
        assert "was aborted" in caplog.text and "free other space" in caplog.text
        assert freed and behind.log.oldest_index > before
        await cluster.agreed()
        assert not behind.installer.is_out_of_space
        assert 0 < behind.log.whole_index <= behind.applied_index
    finally:
        end(cluster)
    assert not cluster.fatal
