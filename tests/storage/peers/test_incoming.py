"""Connections of peers to us: who does not behave is gone, and nobody else notices."""

from __future__ import annotations

import logging

import pytest

from lockstep.protocol.fields import Struct
from lockstep.protocol.peer_messages import (
    HandshakeAccepted,
    HandshakeRejected,
    HeartbeatBody,
    NotificationBody,
    PeerHandshake,
    ResponseBody,
)
from lockstep.storage.group_options import member_of
from lockstep.storage.peers.envelope import pack
from lockstep.storage.peers.network import PeerLimits
from lockstep.storage.raft.messages import Heartbeat
from tests.storage.peers.nodes import Node, Stranger, nodes, until

QUICK = PeerLimits(handshake_bytes=1000, frame_bytes=5000, unidentified=4, last_pause_seconds=0.1)
IMPATIENT = PeerLimits(dial_seconds=0.2, last_pause_seconds=0.1)


def data_of(table: Struct) -> bytes:
    return b"".join(pack(table)[0])


def greeting(**changed: object) -> bytes:
    return data_of(PeerHandshake(**{"node_id": 9, "to_node_id": 1, "hello": b"h", **changed}))  # type: ignore[arg-type]


BEFORE = {
    "negative length": b"\xff\xff\xff\xff",
    "too large": (1001).to_bytes(4, "big"),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "empty frame": bytes(4),
    "an ApiVersions request": b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff",
    "a message": data_of(HeartbeatBody(sender=9, to=1)),
    "a greeting cut off": (len(greeting()) - 8).to_bytes(4, "big") + greeting()[4:-4],
    "bytes too many": (len(greeting()) - 1).to_bytes(4, "big") + greeting()[4:] + b"\0\0\0",
    "no node": greeting(node_id=-1),
}
AFTER = {
    "negative length": b"\xff\xff\xff\xff",
    "too large": (5001).to_bytes(4, "big"),
    "unknown kind": b"\0\0\0\4\x7f\0\0\0",
    "unknown version": b"\0\0\0\4\0\5\0\1",
    "cut off": b"\0\0\0\x08\0\5\0\0\0\0\0\0",
    "of another": data_of(HeartbeatBody(sender=8, to=1)),
    "of nobody": data_of(HeartbeatBody(sender=-1, to=1)),
    "for another": data_of(HeartbeatBody(sender=9, to=2)),
    "a second greeting": greeting(),
    "a welcome": data_of(HandshakeAccepted()),
}


async def still_well(first: Node, second: Node) -> None:
    """Has nothing happened to the others?"""
    assert first.links == [(2, True)] and second.links == [(1, True)]
    heard = len(second.told)
    first.network.notify(2, 5, b"well")
    await until(lambda: len(second.told) > heard)


async def test_malformed_bytes_end_the_connection_they_are_on(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes(2, QUICK) as (first, second):
        for name, data in BEFORE.items():
            caplog.clear()
            stranger = await Stranger.of(first)
            stranger.say(data)
            assert await stranger.ended(), name
            await stranger.close()
            assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) <= 1, name
        for name, data in AFTER.items():
            stranger = await Stranger.of(first)
            assert isinstance(await stranger.greet(first), HandshakeAccepted)
            stranger.say(data_of(HeartbeatBody(group_id=3, sender=9, to=1, term=4)) + data)
            assert await stranger.ended(), name
            await stranger.close()
        assert first.messages == [(3, Heartbeat(9, 1, 4, 0, 0))] * len(AFTER), "what came before it counts"
        await still_well(first, second)


async def test_a_connection_without_a_handshake_is_closed() -> None:
    async with nodes(2, IMPATIENT) as (first, second):
        silent = await Stranger.of(first)
        silent.say(b"\0\0")
        assert await silent.ended()
        await silent.close()
        await still_well(first, second)


async def test_of_many_connections_without_a_handshake_the_oldest_is_closed() -> None:
    async with nodes(2, QUICK) as (first, second):
        many = [await Stranger.of(first) for _ in range(6)]
        assert await many[0].ended() and await many[1].ended()
        assert isinstance(await many[5].greet(first), HandshakeAccepted)
        for each in many:
            await each.close()
        await still_well(first, second)


async def test_a_rejection_is_sent() -> None:
    async with nodes(2, QUICK) as (first, second):
        first.refuses[9] = "not of this cluster"
        for expected, arguments in (
            ("not of this cluster", {}),
            ("this is node 1, not 4", {"to_node_id": 4}),
            ("node 1 is here", {"node_id": 1}),
        ):
            stranger = await Stranger.of(first)
            stranger.say(greeting(**arguments))
            assert await stranger.hear() == HandshakeRejected(reason=expected)
            assert await stranger.ended()
            await stranger.close()
        await still_well(first, second)


async def test_a_greeting_that_cannot_be_handled_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes(2, QUICK) as (first, second):
        first.refuses = None  # type: ignore[assignment]
        stranger = await Stranger.of(first)
        assert await stranger.greet(first) == HandshakeRejected(reason="the handshake could not be handled")
        await stranger.close()
        await still_well(first, second)


async def test_a_newer_connection_takes_the_place_of_an_older_one() -> None:
    async with nodes(1, QUICK) as (node,):
        older, other, newer = [await Stranger.of(node) for _ in range(3)]
        await older.greet(node)
        await other.greet(node, bulk=True)
        await newer.greet(node)
        assert await older.ended()
        for each in (other, newer):
            each.say(NotificationBody(topic=1, body=b"there"))
        await until(lambda: len(node.told) == 2)
        for each in (older, other, newer):
            await each.close()


async def test_members_of_later_lives_are_their_nodes(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes(1, QUICK) as (node,):
        stranger = await Stranger.of(node)
        await stranger.greet(node)
        stranger.say(HeartbeatBody(sender=member_of(9, 70), to=member_of(1, 80), term=4))
        await until(lambda: len(node.messages) == 1)
        stranger.say(ResponseBody(request_id=1, error="nobody asked"))
        node.on_arrival = lambda group_id, message: 1 / 0  # type: ignore[assignment]
        stranger.say(HeartbeatBody(sender=9, to=1))
        stranger.say(NotificationBody(topic=1, body=b"and goes on"))
        await until(lambda: node.told == [(9, 1, b"and goes on")])
        assert "ZeroDivisionError" in caplog.text
        await stranger.close()
