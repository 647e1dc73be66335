"""A peer that does not read: its bulk link fills and drops, its control link goes on, all drains later."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lockstep.protocol.fields import Struct
from lockstep.protocol.peer_messages import (
    AppendBody,
    HandshakeAccepted,
    HeartbeatBody,
    NotificationBody,
    PeerHandshake,
    RequestBody,
)
from lockstep.storage.peers.envelope import pack, unpack
from lockstep.storage.peers.network import PeerLimits, PeerUnreachable
from lockstep.storage.peers.outgoing import (
    CONNECTION_REFUSED,
    HANDSHAKE_TIMEOUT,
    NO_LISTENER,
    NOT_FOUND,
    Link,
)
from lockstep.storage.peers.tls_socket import TlsSocket
from lockstep.storage.raft.messages import Append, Heartbeat
from tests.storage.peers.nodes import Node, Stranger, nodes, until

MiB = 1 << 20
QUICK = PeerLimits(bulk_bytes=8 * MiB, control_bytes=MiB, last_pause_seconds=0.1, dial_seconds=0.3)


class Deaf:
    """Node 2 by hand: welcomes, then reads only what it is told to."""

    def __init__(self) -> None:
        self.links: dict[bool, Stranger] = {}
        self.answer: bytes = b"".join(pack(HandshakeAccepted())[0])
        self.answered: dict[bool, int] = {}
        """Dials that got `answer`, by link."""
        self.port = 0

    def answers(self, answer: bytes) -> None:
        """Say this from now on."""
        self.answer, self.answered = answer, {False: 0, True: 0}

    async def dialed_by(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stranger = Stranger(reader, writer)
        greeting = await stranger.hear()
        assert isinstance(greeting, PeerHandshake)
        self.links[greeting.bulk] = stranger
        self.answered[greeting.bulk] = self.answered.get(greeting.bulk, 0) + 1
        stranger.say(self.answer)


@asynccontextmanager
async def deaf_peer(limits: PeerLimits = QUICK) -> AsyncIterator[tuple[Node, Deaf]]:
    deaf = Deaf()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    server = await asyncio.start_server(deaf.dialed_by, sock=listening)
    deaf.port = listening.getsockname()[1]
    async with nodes(1, limits) as (node,):
        try:
            yield node, deaf
        finally:
            server.close()
            for each in deaf.links.values():
                await each.close()


def frames_of(place: int, size: int = MiB) -> Append:
    return Append(1, 2, 3, place, 3, [(5, 3)], 5, [], 4, 9, [bytearray(size)], 7)


async def test_a_peer_that_does_not_read_fills_its_bulk_link_only() -> None:
    async with deaf_peer() as (node, deaf):
        node.network.add_node(2, "127.0.0.1", deaf.port)
        await until(lambda: node.links == [(2, True)])
        peer = node.network._peers[2]
        for place in range(40):
            node.network.send(2, 1, frames_of(place))
        assert 6 * MiB < peer.bulk.waiting_bytes <= QUICK.bulk_bytes, "what is beyond was dropped"
        node.network.send(2, 1, Heartbeat(1, 2, 3, 4, 5))
        heard = await deaf.links[False].hear()
        assert isinstance(heard, HeartbeatBody) and peer.bulk.waiting_bytes > 6 * MiB
        places = []
        while peer.bulk.waiting_bytes:
            body = await deaf.links[True].hear()
            assert isinstance(body, AppendBody) and isinstance(body.frames, memoryview)
            assert len(body.frames) == MiB
            places.append(body.prev_index)
        assert places == list(range(len(places))) and 8 <= len(places) < 40, "whole ones, in order"
        node.network.send(2, 1, frames_of(99, 10))
        while places[-1] != 99:
            body = await deaf.links[True].hear()
            assert isinstance(body, AppendBody)
            places.append(body.prev_index)


async def test_of_words_that_wait_the_newest_is_sent() -> None:
    async with deaf_peer() as (node, deaf):
        node.network.add_node(2, "127.0.0.1", deaf.port)
        await until(lambda: node.links == [(2, True)])
        peer = node.network._peers[2]
        sent = 0
        while not peer.control.waiting_bytes:  # the kernel's buffers first
            node.network.notify(2, 0, bytes(60_000))
            sent += 1
        for place in range(100):
            node.network.notify(2, 1, b"%d" % place)
        node.network.notify(2, 2, b"other")
        for _ in range(sent):
            assert isinstance(await deaf.links[False].hear(), NotificationBody)
        assert await deaf.links[False].hear() == NotificationBody(topic=1, body=b"99")
        assert await deaf.links[False].hear() == NotificationBody(topic=2, body=b"other")
        for _ in range(10_000):
            node.network.send(2, 1, Heartbeat(1, 2, 3, 4, 5))
        assert peer.control.waiting_bytes <= QUICK.control_bytes


async def test_many_buffers_in_one_message_arrive() -> None:
    async with nodes(2) as (first, second):
        pieces = [bytes([place % 251]) * 4200 for place in range(5000)]
        first.network.send(2, 1, Append(1, 2, 3, 4, 3, [(5, 3)], 5, [], 4, 9, pieces, 7))
        await until(lambda: len(second.messages) == 1)
        message = second.messages[0][1]
        assert isinstance(message, Append) and message.frames == [b"".join(pieces)]


async def test_a_lost_link_loses_what_waits_and_is_dialed_again() -> None:
    async with deaf_peer() as (node, deaf):
        node.network.add_node(2, "127.0.0.1", deaf.port)
        await until(lambda: node.links == [(2, True)])
        for place in range(20):
            node.network.send(2, 1, frames_of(place))
        deaf.links[True].writer.transport.abort()
        await until(lambda: len(node.links) >= 3)
        assert node.links == [(2, True), (2, False), (2, True)]
        assert node.network._peers[2].bulk.waiting_bytes == 0
        node.network.send(2, 1, frames_of(7, 10))
        body = await deaf.links[True].hear()
        assert isinstance(body, AppendBody) and body.prev_index == 7


async def test_large_questions_travel_with_the_frames_and_end_with_their_link() -> None:
    async with deaf_peer() as (node, deaf):
        node.network.add_node(2, "127.0.0.1", deaf.port)
        await until(lambda: node.links == [(2, True)])
        asked = [asyncio.ensure_future(node.network.request(2, 1, bytes(size), 5)) for size in (10, 100_000)]
        small, large = await deaf.links[False].hear(), await deaf.links[True].hear()
        assert isinstance(small, RequestBody) and len(small.body) == 10
        assert isinstance(large, RequestBody) and len(large.body) == 100_000
        deaf.links[False].writer.transport.abort()
        for each in asked:
            with pytest.raises(PeerUnreachable):
                await each


async def test_a_peer_that_sends_where_it_should_only_read_is_dialed_again() -> None:
    async with deaf_peer() as (node, deaf):
        node.network.add_node(2, "127.0.0.1", deaf.port)
        await until(lambda: node.links == [(2, True)])
        deaf.links[False].say(b"x")
        await until(lambda: len(node.links) >= 3)
        assert node.links == [(2, True), (2, False), (2, True)]


async def test_anything_but_a_welcome_is_no_link() -> None:
    answers: list[bytes | Struct] = [
        b"\xff\xff\xff\xff",
        (1 << 20).to_bytes(4, "big"),
        b"\0\0\0\4\0\0\0\0",
        NotificationBody(topic=1),
        b"\0\0",  # and then nothing
    ]
    async with deaf_peer() as (node, deaf):
        node.network.add_node(2, "127.0.0.1", deaf.port)
        await until(lambda: node.links == [(2, True)])
        for answer in answers:
            deaf.answers(answer if isinstance(answer, bytes) else b"".join(pack(answer)[0]))
            for link in deaf.links.values():
                link.writer.transport.abort()
            # A link dials again when its dial before has ended: what is said of it then rests on this answer.
            await until(lambda: min(deaf.answered.values()) > 1)
            assert not node.network.is_up(2)
            problem = HANDSHAKE_TIMEOUT if answer == b"\0\0" else NO_LISTENER
            await until(lambda problem=problem: node.network.problem(2) == problem)  # type: ignore[misc]
        deaf.answers(b"".join(pack(HandshakeAccepted())[0]))
        await until(lambda: node.network.is_up(2))
        assert unpack(memoryview(deaf.answer)[4:]) == HandshakeAccepted()
        assert node.network.problem(2) == ""


async def test_why_a_node_is_not_reached_is_known_in_words() -> None:
    async with nodes(2, QUICK) as (first, second), deaf_peer() as (_, deaf):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            addresses = {
                3: ("127.0.0.1", nobody.getsockname()[1]),
                4: ("127.0.0.1", second.port),
                5: ("no.such.name.invalid", 1),
            }
            assert first.network.problem(3) == "", "not known yet"
            for node_id, address in addresses.items():
                first.network.add_node(node_id, *address)
                assert first.network.address(node_id) == address
            # On a busy machine a dial may be given up before its answer; the next one tells.
            refused = "it rejects this node: this is node 2, not 4"
            wanted = {3: CONNECTION_REFUSED, 4: refused, 5: NOT_FOUND}
            await until(lambda: {each: first.network.problem(each) for each in wanted} == wanted)
        assert first.network.address(6) is None
        deaf.answer = b""
        first.network.add_node(2, "127.0.0.1", deaf.port)
        await until(lambda: first.network.problem(2) == HANDSHAKE_TIMEOUT)


async def test_one_address_of_two_that_refuses_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with an IPv6 and an IPv4 address, of which the process listens at the second."""
    with socket.socket() as nobody, socket.socket() as black_hole:
        nobody.bind(("127.0.0.1", 0))
        black_hole.bind(("127.0.0.1", 0))
        black_hole.listen(0)
        refuses, silent = nobody.getsockname(), black_hole.getsockname()
        async with deaf_peer() as (node, deaf):
            listens = "127.0.0.1", deaf.port
            places = [refuses, silent, listens]

            async def resolved(self: object, host: str, port: int) -> list[tuple[object, ...]]:
                return [
                    (socket.AF_INET6 if place in no_way else socket.AF_INET, socket.SOCK_STREAM, 0, "", place)
                    for place in places
                ]

            attempt = Link._try
            no_way = {("::1", 1): errno.EAFNOSUPPORT, ("::1", 2): errno.EACCES}

            async def tried(
                self: Link, family: int, address: tuple[object, ...]
            ) -> socket.socket | TlsSocket | None:
                if address not in no_way:
                    return await attempt(self, family, address)
                self._ending = self._describe_error(OSError(no_way[address], "no"), family)
                return None

            monkeypatch.setattr(Link, "_try", tried)
            monkeypatch.setattr(Link, "_resolve", resolved)
            node.network.add_node(2, "two.addresses", 1)
            await until(lambda: node.network.is_up(2))
            assert node.absent == []
            places[:] = [refuses, ("::1", 2)]
            for link in deaf.links.values():
                link.writer.transport.abort()
            await until(lambda: node.network.problem(2) == "no")
            assert node.absent == [], "whatever it was, it was no refusal"
            places[:] = [refuses, ("::1", 1)]  # a machine without IPv6
            await until(lambda: 2 in node.absent)
            await until(lambda: node.network.problem(2) == CONNECTION_REFUSED)
