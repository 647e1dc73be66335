"""Greetings: who is refused, who is answered although nobody lists it, and where."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from lockstep.broker.metadata.metadata_image import MetadataImage
from lockstep.broker.metadata.metadata_version import LATEST_VERSION, UNREPORTED_VERSION
from lockstep.broker.peers.metadata_versions import TOO_OLD
from lockstep.broker.peers.node_registry import NOBODY, NodeRegistry
from lockstep.broker.peers.node_status import Status
from lockstep.broker.peers.peer_rpc import MAX_NEWCOMERS, STATUS_SECONDS, PeerRpc, RequestKind
from lockstep.storage.group_options import member_of
from lockstep.storage.raft.messages import Append, Message
from tests.support.peer_certificates import CLUSTER, peer_certificates


class Node:
    """Of cluster "ours"."""

    def status(self) -> Status:
        return Status(joined=True, cluster_id="ours")

    def founders(self) -> list[int]:
        return [1, 2, 3]

    def data_groups(self) -> int:
        return 3

    def data_replicas(self) -> int:
        return 3

    def cluster_id(self) -> str | None:
        return "ours"

    def receive(self, number: int, message: Message) -> None:
        raise AssertionError("nothing is said here")

    def on_link_change(self, node_id: int, up: bool) -> None:
        """No matter."""

    def on_process_stopped(self, node_id: int) -> None:
        """No matter."""

    def on_too_old(self, text: str) -> None:
        raise AssertionError("nothing is recorded here")


@pytest.fixture
async def peer_rpc() -> AsyncIterator[PeerRpc]:
    loop = asyncio.get_running_loop()
    made = PeerRpc(NodeRegistry(1, MetadataImage(), {}, loop.time), loop)
    made.serve(Node())
    yield made
    await made.network.close()


def hello(cluster_id: str | None = "ours", at: object = ("127.0.0.1", 1)) -> bytes:
    return json.dumps({"cluster": cluster_id, "founders": [4], "at": at}).encode()


async def dialed(peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, int]]:
    found: list[tuple[int, str, int]] = []
    monkeypatch.setattr(peer_rpc.network, "add_node", lambda *address: found.append(address))
    return found


async def test_a_second_process_of_a_node_is_rejected_while_the_first_is_alive(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dialed(peer_rpc, monkeypatch)
    first, second = (
        json.dumps({"cluster": "ours", "founders": [], "at": None, "run": run}).encode() for run in "ab"
    )
    assert peer_rpc.on_handshake(4, first) is None
    monkeypatch.setattr(peer_rpc.network, "has_connection_from", lambda node_id: node_id == 4)
    assert peer_rpc.on_handshake(4, first) is None, "its other connection"
    assert peer_rpc.on_handshake(4, second) == "another node 4 is running"
    monkeypatch.setattr(peer_rpc.network, "has_connection_from", lambda node_id: False)
    assert peer_rpc.on_handshake(4, second) is None, "the first has ended"


async def test_a_new_node_is_dialed_at_the_address_that_it_sent(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await dialed(peer_rpc, monkeypatch)
    assert peer_rpc.on_handshake(4, hello(None, ("there", 7))) is None
    assert known == [(4, "there", 7)]


async def test_an_address_that_a_node_sent_precedes_the_recorded_one(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await dialed(peer_rpc, monkeypatch)
    peer_rpc.add_node(2, "old", 1)
    assert peer_rpc.on_handshake(2, hello(at=("new", 2))) is None
    peer_rpc.add_node(2, "old", 1)
    assert known == [(2, "old", 1), (2, "new", 2), (2, "new", 2)]
    peer_rpc.forget(2)
    peer_rpc.add_node(2, "old", 1)
    assert known[-1] == (2, "old", 1)


async def test_newcomers_are_few_unless_they_become_nodes(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await dialed(peer_rpc, monkeypatch)
    for node_id in range(100, 100 + MAX_NEWCOMERS + 5):
        assert peer_rpc.on_handshake(node_id, hello()) is None
    assert len(known) == MAX_NEWCOMERS
    peer_rpc.add_node(100, "127.0.0.1", 1)  # it is registered
    assert peer_rpc.on_handshake(500, hello()) is None
    assert known[-1][0] == 500
    peer_rpc.forget(101)
    assert peer_rpc.on_handshake(501, hello()) is None
    assert known[-1][0] == 501


async def test_newcomers_that_went_away_are_forgotten(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dialed(peer_rpc, monkeypatch)
    forgotten: list[int] = []
    monkeypatch.setattr(peer_rpc.network, "forget", forgotten.append)
    monkeypatch.setattr(peer_rpc.network, "has_connection_from", lambda node_id: node_id == 101)
    peer_rpc.add_node(2, "127.0.0.1", 1)
    for node_id in (2, 100, 101):
        assert peer_rpc.on_handshake(node_id, hello()) is None
    peer_rpc._forget_newcomers()
    assert forgotten == []
    monkeypatch.setattr("lockstep.broker.peers.peer_rpc.NEWCOMER_SECONDS", -1.0)  # it was as long ago as that
    peer_rpc._forget_newcomers()
    assert forgotten == [100], "neither a node nor one that is there"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (hello("theirs"), "this is cluster ours, not theirs"),
        (b"", "a malformed handshake"),
        (b"[]", "a malformed handshake"),
        (b"{}", "a malformed handshake"),
        (hello(at=[]), "a malformed handshake"),
        (hello(at=["here", "no port"]), "a malformed handshake"),
        (hello(at=5), "a malformed handshake"),
    ],
)
async def test_rejected_nodes(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch, said: bytes, words: str
) -> None:
    known = await dialed(peer_rpc, monkeypatch)
    assert peer_rpc.on_handshake(4, said) == words
    assert known == []


async def test_a_node_that_sent_no_address_is_dialed_at_the_recorded_one(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await dialed(peer_rpc, monkeypatch)
    assert peer_rpc.on_handshake(2, b'{"cluster": "ours", "founders": []}') is None
    assert known == []


async def test_a_status_that_could_not_be_sent_is_sent_again(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bytes] = []
    again = asyncio.Event()

    class Failing(Node):
        def status(self) -> Status:
            told.append(b"")
            if len(told) == 2:
                again.set()
            raise RuntimeError("no status")

    monkeypatch.setattr("lockstep.broker.peers.peer_rpc.STATUS_SECONDS", 0.01)
    peer_rpc.serve(Failing())
    telling = asyncio.ensure_future(peer_rpc.run())
    await asyncio.wait_for(again.wait(), 10)
    assert not telling.done()
    telling.cancel()


async def test_founders_with_another_number_of_log_groups_are_refused(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their groups would have voters that have never heard of them, and never a leader."""
    await dialed(peer_rpc, monkeypatch)

    def said(groups: int | None, founders: tuple[int, ...] = (1, 2, 3)) -> bytes:
        words = {"cluster": None, "founders": list(founders), "at": None, "groups": groups}
        return json.dumps(words).encode()

    assert json.loads(peer_rpc.hello())["groups"] == 3
    refusal = "lockstep.data.groups is 3 here and 6 there: founders must agree"
    assert peer_rpc.on_handshake(2, said(6)) == refusal
    assert peer_rpc.on_handshake(2, said(3)) is None
    assert peer_rpc.on_handshake(2, said(None)) is None, "of an earlier version"
    assert peer_rpc.on_handshake(2, said(6, ())) is None, "it has been part of the cluster"
    assert peer_rpc.on_handshake(4, said(6, (1, 2, 3, 4))) is None, (
        "it is to be added: what is recorded counts"
    )


async def test_founders_with_another_number_of_replicas_are_refused(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them would vote alone where the others are three."""
    await dialed(peer_rpc, monkeypatch)

    def said(**replicas: int) -> bytes:
        return json.dumps({"cluster": None, "founders": [1, 2, 3], "groups": 3, **replicas}).encode()

    assert "replicas" not in json.loads(peer_rpc.hello()), "as in earlier versions"
    refusal = "lockstep.data.replicas is 3 here and 1 there: founders must agree"
    assert peer_rpc.on_handshake(2, said(replicas=1)) == refusal
    assert peer_rpc.on_handshake(2, said()) is None
    monkeypatch.setattr(Node, "data_replicas", lambda node: 1)
    assert json.loads(peer_rpc.hello())["replicas"] == 1
    refusal = "lockstep.data.replicas is 1 here and 3 there: founders must agree"
    assert peer_rpc.on_handshake(2, said()) == refusal
    assert peer_rpc.on_handshake(2, said(replicas=1)) is None


async def test_a_node_that_was_removed_comes_back_whatever_it_would_found(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is empty, and its list may have other nodes by now: what is recorded counts."""
    await dialed(peer_rpc, monkeypatch)
    words = {"cluster": None, "founders": [1, 2, 3, 4], "told": [1, 2, 3, 4], "at": None, "groups": 4}
    hello = json.dumps(words).encode()
    voters: tuple[int, ...] = (1, 2)
    monkeypatch.setattr(
        Node, "status", lambda node: Status(joined=True, cluster_id="ours", registered=(1, 2), voters=voters)
    )
    assert peer_rpc.on_handshake(3, hello) is None
    voters = (1, 2, 3)
    refusal = "lockstep.data.groups is 3 here and 4 there: founders must agree"
    assert peer_rpc.on_handshake(3, hello) == refusal, "a founder that starts late"


async def test_until_a_cluster_is_recorded_one_that_founded_it_must_agree_too(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it has taken part, which made a founder of who had heard a majority."""
    await dialed(peer_rpc, monkeypatch)
    monkeypatch.setattr(Node, "status", lambda node: Status(joined=False))
    monkeypatch.setattr(Node, "cluster_id", lambda node: None)

    def said(groups: int, told: list[int], cluster_id: str | None = None) -> bytes:
        words = {"cluster": cluster_id, "founders": [], "told": told, "groups": groups}
        return json.dumps(words).encode()

    assert json.loads(peer_rpc.hello())["told"] == [1, 2, 3]
    groups = "lockstep.data.groups is 3 here and 6 there: founders must agree"
    nodes = "--peers names nodes [1, 2, 3] here and [2, 3] there: founders must agree"
    assert peer_rpc.on_handshake(2, said(6, [1, 2, 3])) == groups
    assert peer_rpc.on_handshake(2, said(3, [2, 3])) == nodes
    assert peer_rpc.on_handshake(2, said(3, [1, 2, 3])) is None
    assert peer_rpc.on_handshake(2, said(6, [2, 3], "ours")) is None, "what is recorded counts"


async def test_a_first_start_with_certificates_is_of_their_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    made = PeerRpc(NodeRegistry(1, MetadataImage(), {}, loop.time), loop, peer_certificates(1))
    made.serve(Node())
    await dialed(made, monkeypatch)
    monkeypatch.setattr(Node, "cluster_id", lambda node: None)
    assert made.on_handshake(4, hello("theirs")) == f"this is cluster {CLUSTER}, not theirs"
    assert made.on_handshake(4, hello(CLUSTER)) is None
    await made.network.close()


async def test_a_refusal_of_this_node_is_one_line(
    peer_rpc: PeerRpc, caplog: pytest.LogCaptureFixture
) -> None:
    for words in ("founders must agree", "this is cluster A, not B"):
        peer_rpc.network.on_peer_rejection(2, words)
    assert [each.getMessage() for each in caplog.records] == [
        "node 2 rejects this one: founders must agree",
        "node 2 rejects this one: this is cluster A, not B",
    ]


async def test_a_refusal_of_a_node_that_is_too_old_is_its_end(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    monkeypatch.setattr(peer_rpc._node, "on_too_old", told.append)
    text = f"node 1 {TOO_OLD} 12, only up to 9"
    peer_rpc.network.on_peer_rejection(2, text)
    assert told == [text] and not caplog.records


async def test_a_node_reports_its_metadata_version_and_one_that_is_too_old_is_rejected(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dialed(peer_rpc, monkeypatch)
    assert json.loads(peer_rpc.hello())["metadata_version"] == LATEST_VERSION
    versions, connected = peer_rpc._nodes.metadata_versions, {2, 3}
    monkeypatch.setattr(versions, "is_connected", connected.__contains__)
    assert peer_rpc.on_handshake(2, hello()) is None, "an earlier version reports none"
    newer = json.dumps({**json.loads(hello()), "metadata_version": LATEST_VERSION}).encode()
    assert peer_rpc.on_handshake(3, newer) is None
    assert (versions.supported_by(2), versions.supported_by(3)) == (UNREPORTED_VERSION, LATEST_VERSION)
    for wrong in ("9", 0, 1 << 40):
        malformed = json.dumps({**json.loads(hello()), "metadata_version": wrong}).encode()
        assert peer_rpc.on_handshake(2, malformed) == "a malformed handshake"
    peer_rpc._nodes._image.recorded_version = LATEST_VERSION
    rejection = peer_rpc.on_handshake(2, hello())
    assert rejection is not None and TOO_OLD in rejection
    assert peer_rpc.on_handshake(3, newer) is None


async def test_entries_of_group_0_go_to_nodes_alone_that_can_replay_them(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions, connected = peer_rpc._nodes.metadata_versions, {2, 3}
    monkeypatch.setattr(versions, "is_connected", connected.__contains__)
    sent: list[tuple[int, int, Message]] = []
    monkeypatch.setattr(peer_rpc.network, "send", lambda *message: sent.append(message))
    peer_rpc.open = True
    versions.report(2, UNREPORTED_VERSION)
    versions.report(3, LATEST_VERSION)

    def receivers(group_id: int, message: Message) -> list[int]:
        sent.clear()
        for node_id in (2, 3, 4):
            peer_rpc.send(group_id, member_of(node_id), message)
        return [node_id for node_id, _, _ in sent]

    entries = Append(1, 2, 1, 0, 0, [], 1, [], 0, 0, [b"frame"], 0)
    nothing = replace(entries, frames=[])
    assert receivers(0, entries) == [2, 3, 4]
    peer_rpc._nodes._image.recorded_version = LATEST_VERSION
    assert receivers(0, entries) == [3]
    assert receivers(0, nothing) == receivers(1, entries) == [2, 3, 4]


async def test_a_node_behind_a_published_port_is_not_known_to_have_ended(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dialed(peer_rpc, monkeypatch)
    ended: list[int] = []
    monkeypatch.setattr(peer_rpc._node, "on_process_stopped", ended.append)
    assert json.loads(peer_rpc.hello())["direct"] is True
    for node_id, direct in ((2, False), (3, True)):
        words = {"cluster": "ours", "founders": [], "at": ["h", node_id], "direct": direct}
        assert peer_rpc.on_handshake(node_id, json.dumps(words).encode()) is None
        peer_rpc.on_process_stopped(node_id)
    assert ended == [3]


async def test_a_leader_that_hangs_is_given_up_for_the_next_one(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, alive, asked, given_up = 2, True, asyncio.Event(), asyncio.Event()

    async def ask(node_id: int, kind: int, body: bytes, timeout_s: float) -> bytes:
        if node_id == 3:
            return b"done by 3"
        asked.set()
        try:
            await asyncio.sleep(timeout_s)
        finally:
            given_up.set()
        raise TimeoutError

    monkeypatch.setattr(peer_rpc.network, "request", ask)
    monkeypatch.setattr(peer_rpc._nodes, "live_leader_of", lambda group: leader)
    monkeypatch.setattr(peer_rpc._nodes, "is_alive", lambda node: alive)
    answer = asyncio.create_task(peer_rpc.request_from_leader(0, RequestKind.FORWARD, b"", 30, 3600))
    await asked.wait()
    leader, alive = NOBODY, False  # there is no other: its answer is waited for
    await asyncio.sleep(1.1 * STATUS_SECONDS)
    assert not answer.done() and not given_up.is_set()
    leader, alive = 3, True  # it may say what has become of it
    await asyncio.sleep(1.1 * STATUS_SECONDS)
    assert not answer.done() and not given_up.is_set()
    alive = False
    async with asyncio.timeout(30):
        assert await answer == b"done by 3"
        await given_up.wait()


async def test_a_cancelled_request_waits_for_no_response(
    peer_rpc: PeerRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def ask(*_: object) -> bytes:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        raise AssertionError

    monkeypatch.setattr(peer_rpc.network, "request", ask)
    monkeypatch.setattr(peer_rpc._nodes, "live_leader_of", lambda group: 2)
    answer = asyncio.create_task(peer_rpc.request_from_leader(0, RequestKind.FORWARD, b"", 30, 3600))
    await asked.wait()
    answer.cancel()
    async with asyncio.timeout(30):
        await given_up.wait()
    assert answer.cancelled()
