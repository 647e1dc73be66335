"""What a member does with the chunks of a shipped checkpoint; whole shipments are the simulator's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from storage.log.checkpoint_file import CHECKPOINT_MAGIC
from storage.raft.messages import Install, InstallResponse, Message
from storage.shipping import Arrival, Piece, PieceKind
from tests.storage.cluster import Cluster, append
from tests.storage.test_attacks import end, led


async def test_a_checkpoint_that_never_ends_is_given_up(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        _, follower, _ = await led(cluster)
        cluster.lost = lambda sender, to, message: True
        raft, piece = follower.raft, Piece(PieceKind.CHECKPOINT, [bytes(1 << 20)])
        installing = follower._replica.installing
        for chunk in range(40):  # the first bytes are no checkpoint's
            follower.receive(
                Install(raft.leader_id, raft.member_id, raft.term, 1000, raft.term, chunk, False, 0, piece)
            )
            assert chunk > 0 or installing.arrival is not None
            await cluster.until(lambda: installing.arrival is None)
    finally:
        end(cluster)


async def test_chunks_are_stored_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, stored = threading.Event(), []
    store = Arrival.store

    def slow(self: Arrival, piece: Piece, last: bool) -> None:
        stored.append(go_on.wait(10))
        store(self, piece, last)

    monkeypatch.setattr(Arrival, "store", slow)
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
        piece = Piece(PieceKind.CHECKPOINT, [CHECKPOINT_MAGIC, b"the first chunk"])
        index = follower.log.last_index + 100
        for _ in range(2):  # the second one comes while the first is being stored
            follower.receive(
                Install(raft.leader_id, raft.member_id, raft.term, index, raft.term, 0, False, 0, piece)
            )
        arrival = follower._replica.installing.arrival
        assert arrival is not None and arrival.storing
        append(leader, partition, b"x")
        await leader.committed()
        await cluster.until(lambda: follower.commit_index == leader.commit_index)
        assert not said and arrival.storing, "a member goes on meanwhile"
        go_on.set()
        await cluster.until(lambda: bool(said))
        assert stored == [True] and arrival.next_chunk == 1 and said[0].accepted
    finally:
        go_on.set()
        end(cluster)


async def test_an_arrival_ends_where_the_log_has_got_there_by_itself(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        leader, follower, partition = await led(cluster)
        raft = follower.raft
        piece = Piece(PieceKind.CHECKPOINT, [CHECKPOINT_MAGIC, b"the first chunk"])
        index = follower.log.last_index + 2
        follower.receive(
            Install(raft.leader_id, raft.member_id, raft.term, index, raft.term, 0, False, 0, piece)
        )
        assert follower._replica.installing.arrival is not None
        for _ in range(5):
            append(leader, partition, b"x")
            await leader.committed()
        await cluster.agreed()
        assert follower.commit_index > index and follower._replica.installing.arrival is None
    finally:
        end(cluster)
