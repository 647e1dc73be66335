"""Nodes that trust only their own cluster: handshakes over real sockets, refused and accepted."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import logging
import random
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lockstep.protocol.peer_messages import HandshakeAccepted, HandshakeRejected, PeerHandshake
from lockstep.storage.peers.envelope import pack
from lockstep.storage.peers.limits import PeerLimits
from lockstep.storage.peers.outgoing import HANDSHAKE_TIMEOUT
from lockstep.storage.peers.peer_tls import NO_TLS, REQUIRED, PeerTls
from lockstep.storage.raft.messages import Append, VoteRequest
from tests.storage.peers.nodes import Node, Stranger, nodes, until
from tests.support.certificates import NOW, Issued, SelfSignedCa
from tests.support.peer_certificates import AUTHORITY, FOREIGN, issue_node, peer_certificates

HOUR = datetime.timedelta(hours=1)
VOTE = VoteRequest(2, 1, 5, False, 1, 1)


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """The lines of the transport's log."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, log = Handler(), logging.getLogger("lockstep.storage.peers")
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)


def secured(node_id: int) -> PeerTls:
    return peer_certificates(node_id)


async def test_nodes_with_certificates_exchange_what_nodes_exchange() -> None:
    async with nodes(3, tls=secured) as (one, two, three):
        body = random.Random(1).randbytes(3 << 20)

        async def answer(node_id: int, kind: int, asked: bytes) -> bytes:
            return asked[::-1] + bytes([node_id, kind])

        two.answer = three.answer = answer
        for other in (two, three):
            assert await one.network.request(other.node_id, 7, body, 20) == body[::-1] + bytes([1, 7])
            assert await one.network.request(other.node_id, 8, b"", 20) == bytes([1, 8])
        frames = [random.Random(n).randbytes(n * 50_000) for n in range(1, 9)]
        big = Append(1, 2, 1, 0, 0, [(1, 1)], 8, [], 0, 0, list(frames), 0)
        one.network.send(2, 4, big)
        await until(lambda: bool(two.messages))
        group_id, found = two.messages[0]
        assert group_id == 4 and isinstance(found, Append)
        assert b"".join(map(bytes, found.frames)) == b"".join(frames)
        assert not one.refused and all(each.network.is_up(1) for each in (two, three))


@dataclass
class Refusal:
    """A stranger that dials node 1 as node 2, and the line in the log of node 1 about it."""

    tls: PeerTls | None
    line: str
    told: str = ""
    """What the stranger is told."""
    distrusts: str = ""
    """What the stranger says of node 1."""


def strange(issued: Issued, node_id: int = 2, trusted: tuple[SelfSignedCa, ...] = (AUTHORITY,)) -> PeerTls:
    return peer_certificates(node_id, issued, trusted=trusted, now=NOW - 2 * HOUR)


OF_ANOTHER_CLUSTER = "its certificate is of node 2 of cluster cluster-b, this is cluster cluster-a"
REFUSALS = {
    "of another cluster, by the same CA": Refusal(
        strange(issue_node(2, cluster_id="cluster-b")),
        OF_ANOTHER_CLUSTER,
        distrusts="its certificate is of node 1 of cluster cluster-a, not of node 1 of cluster cluster-b",
    ),
    "of another CA, which it trusts": Refusal(
        strange(issue_node(2, authority=FOREIGN), trusted=(AUTHORITY, FOREIGN)),
        "its certificate is rejected: no CA that this node trusts has signed it",
        told="it does not trust the CA of this node's certificate",
    ),
    "that trusts another CA": Refusal(
        strange(issue_node(2, authority=FOREIGN), trusted=(FOREIGN,)),
        "it does not trust the CA of this node's certificate",
        distrusts="its certificate is rejected: no CA that this node trusts has signed it",
    ),
    "of another node": Refusal(
        strange(issue_node(3), node_id=3),
        "is rejected: its certificate is of node 3 of cluster cluster-a",
        told="its certificate is of node 3 of cluster cluster-a",
    ),
    "whose certificate is over": Refusal(
        strange(issue_node(2, ends=NOW - HOUR)),
        "its certificate is rejected: certificate has expired",
        told="it finds this node's certificate expired",
    ),
    "without TLS": Refusal(None, REQUIRED, told=REQUIRED),
}


async def refuse(refusal: Refusal) -> None:
    """A stranger is refused, with one line in each log; the cluster goes on."""
    stranger = Node(2, tls=refusal.tls)
    one, other = Node(1, tls=secured(1)), Node(4, tls=secured(4))
    with logged() as lines:
        for each in (one, other, stranger):
            await each.start()
        one.add_node(other)
        other.add_node(one)
        await until(lambda: one.network.is_up(4) and other.network.is_up(1))
        stranger.add_node(one)
        about = "not reached" if refusal.distrusts else "127.0.0.1:"
        await until(lambda: any(refusal.line in each for each in lines))
        if refusal.told:
            await until(lambda: bool(stranger.refused))
            assert refusal.told in stranger.refused[0][1]
        if refusal.distrusts:
            await until(lambda: any(refusal.distrusts in each and about in each for each in lines))
        await until(lambda: stranger.network.problem(1) not in ("", HANDSHAKE_TIMEOUT))
        stranger.network.send(1, 1, VOTE)
        other.network.notify(1, 3, b"goes on")
        await until(lambda: bool(one.told))
        assert [each[0] for each in one.greeted] == [4, 4] and not one.messages
        assert not stranger.links and not one.network.has_connection_from(2)
        stranger.network.add_node(5, "127.0.0.1", one.port)  # a second reason to dial: no second line
        await asyncio.sleep(0.05)
        assert sum(refusal.line in each for each in lines) == 1, lines
    for each in (one, other, stranger):
        await each.network.close()


async def test_a_stranger_of_another_cluster_is_refused() -> None:
    await refuse(REFUSALS["of another cluster, by the same CA"])


async def test_a_stranger_of_another_authority_is_refused() -> None:
    await refuse(REFUSALS["of another CA, which it trusts"])


async def test_a_stranger_that_trusts_others_is_refused() -> None:
    await refuse(REFUSALS["that trusts another CA"])


async def test_a_node_with_another_identity_is_refused() -> None:
    await refuse(REFUSALS["of another node"])


async def test_an_expired_certificate_is_refused() -> None:
    await refuse(REFUSALS["whose certificate is over"])


async def test_a_node_without_tls_is_refused() -> None:
    await refuse(REFUSALS["without TLS"])


async def test_every_refusal_has_its_test() -> None:
    assert len(REFUSALS) == sum(name.endswith("_refused") for name in globals())


async def test_no_certificate_at_all() -> None:
    one = Node(1, tls=secured(1))
    await one.start()
    context = ssl.create_default_context(cadata=AUTHORITY.pem())
    context.check_hostname = False
    with logged() as lines:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port, ssl=context)
        writer.write(b"".join(pack(PeerHandshake(node_id=2, to_node_id=1, bulk=False, hello=b""))[0]))
        with contextlib.suppress(OSError):
            assert not await reader.read()
        await until(lambda: any("it has no certificate" in each for each in lines))
        writer.close()
    assert not one.greeted
    await one.network.close()


async def test_a_client_s_certificate_is_no_node_s() -> None:
    one = Node(1, tls=secured(1))
    await one.start()
    stranger, answer = await dial(one, AUTHORITY.issue("alice"))
    assert isinstance(answer, HandshakeRejected) and "its certificate is of no node" in answer.reason
    await stranger.close()
    assert not one.greeted
    await one.network.close()


async def dial(node: Node, issued: Issued, node_id: int = 2) -> tuple[Stranger, object]:
    """A connection by hand, with a certificate; and the answer to its handshake."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem())
    context.check_hostname = False
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(issued.write_pem(Path(directory) / "own.pem"))
    made = Stranger(*await asyncio.open_connection("127.0.0.1", node.port, ssl=context))
    return made, await made.greet(node, node_id)


async def test_a_node_by_hand_is_accepted_and_its_messages_are_its_own() -> None:
    one = Node(1, tls=secured(1))
    await one.start()
    stranger, answer = await dial(one, issue_node(2))
    assert isinstance(answer, HandshakeAccepted) and one.greeted == [(2, b"by hand")]
    await stranger.close()
    await until(lambda: not one.network.has_connection_from(2))
    await one.network.close()


async def test_the_node_that_was_meant_is_dialed_and_no_other() -> None:
    """Whoever takes an address over, with a certificate of the cluster, is not taken for who was there."""
    one, three = Node(1, tls=secured(1)), Node(3, tls=secured(3))
    with logged() as lines:
        for each in (one, three):
            await each.start()
        one.network.add_node(2, "127.0.0.1", three.port)
        await until(lambda: bool(lines))
        (line,) = lines
        assert f"node 2 at 127.0.0.1:{three.port} is not reached: its certificate is of node 3" in line
        await until(lambda: "its certificate is of node 3" in one.network.problem(2))
        assert not three.greeted and not one.network.is_up(2)
    for each in (one, three):
        await each.network.close()


async def test_tls_at_a_port_without() -> None:
    one, two = Node(1), Node(2, tls=secured(2))
    with logged() as lines:
        for each in (one, two):
            await each.start()
        two.add_node(one)
        await until(lambda: two.network.problem(1) == NO_TLS)
        await until(lambda: any("a TLS handshake on a plaintext port" in each for each in lines))
    assert not one.greeted
    for each in (one, two):
        await each.network.close()


async def test_a_cluster_moves_to_tls_node_by_node() -> None:
    """Each mode beside its neighbours: plaintext, allow, prefer, require."""
    modes = ("disabled", "allow", "prefer", "require")
    for mode, next_mode in itertools.pairwise(modes):
        made = [
            Node(node_id, tls=None if name == "disabled" else peer_certificates(node_id, mode=name))
            for node_id, name in ((1, mode), (2, next_mode))
        ]
        for each in made:
            await each.start()
        for each in made:
            each.add_node(*made)
        await until(lambda made=made: all(each.network.is_up(3 - each.node_id) for each in made))  # type: ignore[misc]
        made[0].network.notify(2, 3, b"hello " + mode.encode())
        await until(lambda made=made: bool(made[1].told))  # type: ignore[misc]
        for each in made:
            await each.network.close()


async def test_new_certificates_are_those_of_the_next_connection() -> None:
    tls = {node_id: peer_certificates(node_id, mode="require") for node_id in (1, 2)}
    async with nodes(2, tls=lambda node_id: tls[node_id]) as (one, two):
        for node_id, each in tls.items():
            renewed = peer_certificates(node_id, issue_node(node_id, authority=FOREIGN), trusted=(FOREIGN,))
            each._contexts = renewed._contexts
        assert one.network.is_up(2) and two.network.is_up(1), "open connections stay"
        two.network.forget(1)
        two.add_node(one)
        await until(lambda: two.network.is_up(1) and one.network.is_up(2))


async def test_bytes_that_are_no_handshake_end_their_connection_alone() -> None:
    dice = random.Random(43)
    async with nodes(2, tls=secured) as (one, two):
        for number in range(60):
            start = dice.choice((b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x00", b"\x17\x03\x03", b""))
            stranger = await Stranger.of(one)
            stranger.say(start + dice.randbytes(dice.choice((1, 5, 400, 20_000))))
            if number % 2:
                stranger.writer.write_eof()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(5):
                    await stranger.reader.read()
            await stranger.close()
        assert one.network.is_up(2) and two.network.is_up(1)
        assert [each[0] for each in one.greeted] == [2, 2]
        await until(lambda: not one.network._unidentified)


async def test_a_handshake_that_is_never_finished_ends_in_time() -> None:
    one = Node(1, tls=secured(1))
    with logged() as lines:
        await one.start(PeerLimits(dial_seconds=0.2))
        stranger = await Stranger.of(one)
        stranger.say(b"\x16\x03\x01\x02\x00\x01")
        assert await stranger.ended()
        assert any("no handshake in time" in each for each in lines)
    await one.network.close()


async def test_half_a_frame_before_a_pause_is_taken_where_plaintext_is_accepted() -> None:
    one = Node(1, tls=peer_certificates(1, mode="allow"))
    await one.start()
    stranger = await Stranger.of(one)
    data = b"".join(pack(PeerHandshake(node_id=9, to_node_id=1, bulk=False, hello=b"in two"))[0])
    stranger.say(data[:3])
    await asyncio.sleep(0.02)
    stranger.say(data[3:])
    assert isinstance(await stranger.hear(), HandshakeAccepted) and one.greeted == [(9, b"in two")]
    await stranger.close()
    await one.network.close()
